"""A language in which a tiny model with random weights learns in seconds what is rewarded.

    folder = make_model_folder(Path("toy"), seed=0)      # a folder of transformers, 100 kB
    tasks(), ToyJudge(), ToyProposer()

Everything but the weights, the tokenizer and the verdicts is the product's own: its prompts are
rendered, its parser reads the answers, its archive keeps them. What makes it quick is the
tokenizer (`language.py`), in which a heading, a sentence or a whole program is one token, so that
an answer has eight and a prompt some thirty, and the judge (`judge.py`), which looks programs up in
a table instead of running them (`programs.py`).

For tests, and to see all stages move on a CPU. What a model learns here says nothing of kernels.
"""

from model_training.toy.judge import DEVICE, POLICY, ToyJudge, ToyProposer
from model_training.toy.language import answer_to, make_model_folder, make_tokenizer
from model_training.toy.programs import PROGRAMS, ToyProgram, tasks

__all__ = [
    "DEVICE",
    "POLICY",
    "PROGRAMS",
    "ToyJudge",
    "ToyProgram",
    "ToyProposer",
    "answer_to",
    "make_model_folder",
    "make_tokenizer",
    "tasks",
]
