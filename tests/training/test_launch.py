"""Configurations and scripts for several GPUs, with their own readers and with stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config import load_config_from_file
from accelerate.utils import DistributedType
from click.testing import CliRunner

from cudal1_ci.errors import ConfigError
from cudal1_ci.processes.local import scrubbed_environment
from model_training import launch
from model_training.launch.placement import Placement, main, read_placement

FOLDER = Path(launch.__file__).parent
PLACEMENTS = sorted((FOLDER / "placements").glob("*.toml"))
NODES = [path for path in PLACEMENTS if path.stem != "one-gpu"]


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


# --- accelerate ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "processes"),
    [
        ("single_gpu", DistributedType.NO, 1),
        ("fsdp2_8gpu", DistributedType.FSDP, 8),
        ("deepspeed_zero3_8gpu", DistributedType.DEEPSPEED, 8),
    ],
)
def test_accelerate_reads_its_configurations(name, kind, processes):
    found = load_config_from_file(str(FOLDER / "accelerate" / f"{name}.yaml"))
    assert found.distributed_type == kind
    assert found.num_processes == processes
    assert (found.mixed_precision, found.num_machines, found.use_cpu) == ("bf16", 1, False)
    if kind == DistributedType.FSDP:
        assert found.fsdp_config["fsdp_version"] == 2
    if kind == DistributedType.DEEPSPEED:
        assert found.deepspeed_config["zero_stage"] == 3


def test_there_is_no_configuration_that_is_not_tested():
    assert len(list((FOLDER / "accelerate").iterdir())) == 3
    assert names(PLACEMENTS) == [
        "node-8gpu-contrastive",
        "node-8gpu-server",
        "node-8gpu-verl",
        "one-gpu",
    ]


# --- who has which GPU -----------------------------------------------------------------------


@pytest.mark.parametrize("path", NODES, ids=names(NODES))
def test_gpus_that_score_are_no_others(path):
    found = read_placement(path)
    assert found.score
    assert not set(found.score) & {*found.train, *found.serve}
    assert not set(found.train) & set(found.serve)
    assert sorted({*found.train, *found.serve, *found.score}) == list(range(8))


@pytest.mark.parametrize("path", PLACEMENTS, ids=names(PLACEMENTS))
def test_a_judge_is_started_on_a_gpu_that_scores(path):
    """By the product's own executor, from the environment that the scripts give a run."""
    found = read_placement(path)
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, found.run))}
    seen = [
        scrubbed_environment(environment, Path("/home"), 1, device.partition(":")[2])
        for device in found.judge_devices
    ]
    assert [int(one["CUDA_VISIBLE_DEVICES"]) for one in seen] == list(found.score)
    assert list(found.run[: len(found.train)]) == list(found.train), "training takes the first"


def test_judges_are_right_where_numbers_are_not_in_order():
    found = Placement(train=(4, 5), score=(1, 0))
    assert found.run == (4, 5, 1, 0)
    assert found.judge_devices == ("cuda:2", "cuda:3")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"train": (0, 1), "score": (1, 2)}, r"score: expected GPUs that neither .*\[1\] twice"),
        ({"serve": (3,), "score": (3,)}, r"\[3\] twice"),
        ({"serve": (0,), "train": (0,), "score": (1,)}, r"\[0\] twice"),
        ({"train": (0, 0), "score": (1,)}, "train: expected each GPU once"),
        ({"score": ()}, "score: expected a GPU or more"),
    ],
)
def test_a_gpu_in_two_roles_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Placement(**given)


def test_parts_that_take_turns_may_share():
    assert Placement(train=(0,), score=(0,), takes_turns=True).judge_devices == ("cuda:0",)


def test_a_file_with_a_mistake_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("train = [0]\nscore = [0]\n")
    with pytest.raises(ConfigError, match=r"mine\.toml.*twice"):
        read_placement(path)
    path.write_text("scores = [0]\n")
    with pytest.raises(ConfigError, match=r"mine\.toml.*scores"):
        read_placement(path)


def test_a_configuration_that_would_judge_elsewhere_is_refused(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('[judge]\ndevices = ["cuda:0"]\n')
    words = [str(FOLDER / "placements" / "node-8gpu-verl.toml"), "--config", str(config)]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert 'run.toml, judge.devices: expected ["cuda:6", "cuda:7"]' in refused.stderr
    config.write_text('[judge]\ndevices = ["cuda:6", "cuda:7"]\n')
    assert CliRunner().invoke(main, words).exit_code == 0


# --- scripts ---------------------------------------------------------------------------------

SCRIPTS = sorted([*FOLDER.rglob("*.sh"), *FOLDER.rglob("*.sbatch")])


@pytest.fixture
def started(tmp_path):
    """A script with programs that only say how they were called; python is this one where it says
    who has which GPU."""
    tools = tmp_path / "tools"
    tools.mkdir()
    log = tmp_path / "log"
    say = f'echo "$(basename $0) GPUS=${{CUDA_VISIBLE_DEVICES-}} $*" >> {log}\n'
    for name in ("accelerate", "ray", "srun", "scontrol"):
        (tools / name).write_text(f"#!/bin/bash\n{say}")
    # A server is healthy when it has begun.
    begun = f"for i in {{1..500}}; do grep -q ^vllm {log} && break; sleep 0.02; done\n"
    (tools / "curl").write_text(f"#!/bin/bash\n{begun}{say}")
    (tools / "vllm").write_text(f"#!/bin/bash\n{say}exec sleep 60\n")
    real = f'exec {sys.executable} "$@"'
    (tools / "python").write_text(
        f'#!/bin/bash\nif [[ "$2" == *placement ]]; then {real}; fi\n{say}'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    config = tmp_path / "run.toml"

    def start(script: str, judges: str = "[]", **variables: str) -> list[str]:
        config.write_text(f"[judge]\ndevices = {judges}\n")
        environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(FOLDER.parent.parent),
            "CONFIG": str(config),
            **variables,
        }
        done = subprocess.run(
            ["bash", str(FOLDER / script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    return start


def test_stage_1_trains_on_all_gpus_with_the_configuration_that_is_asked_for(started):
    (line,) = started("supervised.sh", ACCELERATE="deepspeed_zero3_8gpu.yaml")
    words = line.split()
    file = Path(words[words.index("--config_file") + 1])
    assert load_config_from_file(str(file)).distributed_type == DistributedType.DEEPSPEED
    assert "--module model_training supervised --config" in line


def test_stage_3_trains_on_the_first_gpu_and_judges_on_the_others(started):
    devices = [f"cuda:{number}" for number in range(1, 8)]
    (line,) = started("contrastive.sh", judges=str(devices).replace("'", '"'))
    assert line.startswith("python GPUS=0,1,2,3,4,5,6,7 -m model_training contrastive --config")


def test_a_server_has_gpus_of_its_own_and_ends_with_the_evaluation(started):
    judges = '["cuda:0", "cuda:1", "cuda:2", "cuda:3"]'
    lines = started("evaluate_server.sh", judges=judges, MODEL="weights", ADAPTER="checkpoint")
    (serving,) = [line for line in lines if line.startswith("vllm")]
    assert serving.startswith("vllm GPUS=0,1,2,3 serve weights --host 127.0.0.1 --port 8000")
    assert "--data-parallel-size 4" in serving and "--lora-modules adapter=checkpoint" in serving
    (evaluating,) = [line for line in lines if "evaluate" in line]
    assert evaluating.startswith("python GPUS=4,5,6,7 -m model_training evaluate --config")


def test_a_job_of_slurm_starts_the_script_that_is_asked_for(started):
    (line,) = started(
        "slurm/stage.sbatch", SCRIPT="contrastive.sh", SLURM_SUBMIT_DIR=str(FOLDER.parent.parent)
    )
    script = Path(line.split()[-1])
    assert script == FOLDER / "contrastive.sh" and script.is_file()


def test_verl_on_several_nodes_scores_where_ray_does_not_train(started):
    lines = started(
        "slurm/verl.sbatch",
        DATA="data",
        MODEL="weights",
        SLURM_SUBMIT_DIR=str(FOLDER.parent.parent),
        SLURM_JOB_NODELIST="node[1-2]",
        SLURM_JOB_NUM_NODES="2",
    )
    found = [line for line in lines if line.startswith("srun")]
    assert all(line.startswith("srun GPUS=0,1,2,3,4,5 ") for line in found)
    assert any("ray start --head --port=6379 --num-gpus=6" in line for line in found)
    assert any("ray start --address=" in line and "--num-gpus=6" in line for line in found)
    (training,) = [line for line in found if "launch.sh" in line]
    assert "trainer.nnodes=2 reward.num_workers=4" in training
    assert Path(next(word for word in training.split() if word.endswith(".sh"))).is_file()


def test_a_job_of_ray_starts_verl_with_the_files_that_are_there(started):
    (line,) = started("ray/verl_job.sh", DATA="data", MODEL="weights", NODES="3")
    assert "job submit --runtime-env" in line
    assert "trainer.nnodes=3 reward.num_workers=6" in line
    words = line.split()
    environment = yaml.safe_load(Path(words[words.index("--runtime-env") + 1]).read_text())
    assert set(environment) == {"working_dir", "excludes", "env_vars"}
    assert (FOLDER.parent.parent / words[words.index("bash") + 1]).is_file()


@pytest.mark.parametrize("script", SCRIPTS, ids=names(SCRIPTS))
def test_a_script_says_what_it_needs(script, tmp_path):
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert any(name in done.stderr for name in ("CONFIG: ", "DATA: ", "SCRIPT: ", "MODEL: "))


def test_the_readme_names_what_is_there():
    text = (FOLDER / "README.md").read_text()
    for path in (*SCRIPTS, FOLDER / "placements" / "one-gpu.toml"):
        assert path.relative_to(FOLDER).as_posix() in text
