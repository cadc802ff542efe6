"""Stage 3 on verl (verl-project/verl), for models that need a cluster: prompts, reward, dataset.

    prompts.py   tasks -> rows of a parquet file; prompts of a task as the archive is by then
    dataset.py   the class that verl asks for a prompt (`data.custom_cls`)
    reward.py    the function that verl asks for a reward (`reward.custom_reward_function`)
    launch.sh    the command, with the settings that the two need

Field names, signatures and settings are those of verl 0.9.1 (PyPI): `utils/dataset/rl_dataset.py`,
`experimental/reward_loop/reward_manager/naive.py`, `trainer/ppo/reward.py`,
`trainer/ppo/v1/trainer_base.py` and `trainer/config/`, and docs/preparation/prepare_data.rst.
verl itself was never run with them here.

A group shares its prompt, since verl repeats a row after it was asked for. What is not as in
`contrastive.py`: jumps are measured again by the same judge, and after a resume prompts show what
is known at that moment, since verl keeps the place in the data and not the moment.
"""
