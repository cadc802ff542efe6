"""configs/tiny.toml: all stages of a run on the toy language, stopped and taken up again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import msgspec
import pytest
import torch
from click.testing import CliRunner

from cudal1_ci.errors import ConfigError
from model_training.__main__ import STOPPED, main
from model_training.config import RunConfig, TrainingConfig
from model_training.evaluate import Evaluated
from model_training.judges import JudgeConfig
from model_training.policy import PolicyConfig, load_policy
from model_training.run import METRICS, Run
from model_training.run_setup import open_setup
from model_training.tasks.prepared import TaskSourceConfig
from model_training.toy import PROGRAMS, answer_to, make_model_folder
from tests.replay_server import Good, replay_server

TIMED = ("seconds", "known", "judged", "not_confirmed")
"""Of a line, what is another when a step is made again."""
STAGES = ["collect", "supervised", "self_supervised", "contrastive"]


def command(name, config, folder, *more):
    return CliRunner().invoke(main, [name, "--config", str(config), "--folder", str(folder), *more])


def lines(folder):
    found = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [
        {
            name: value
            for name, value in one.items()
            if name not in TIMED and not name.endswith("_s")
        }
        for one in found
    ]


def numbers(folder, stage, name):
    return [one[name] for one in lines(folder) if one["stage"] == stage and name in one]


def evaluation(folder, name):
    path = folder / "evaluations" / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Evaluated)


def test_each_stage_moves_what_it_should(tiny_run):
    losses = numbers(tiny_run, "supervised", "loss")
    assert losses[-1] < 0.5 * losses[0]
    base, first, third = (evaluation(tiny_run, n) for n in ("base", "supervised", "contrastive"))
    assert base.table.correct.value == 0.0
    assert first.table.correct.value > 0.1
    correct = numbers(tiny_run, "self_supervised", "correct")
    assert correct[-1] > correct[0]
    rewards = numbers(tiny_run, "contrastive", "reward")
    assert sum(rewards[-3:]) > sum(rewards[:3])
    assert third.table.correct.value > first.table.correct.value
    assert third.table.geometric_mean.value > first.table.geometric_mean.value
    shown = [
        json.loads(line)["exemplar_ids"]
        for line in (tiny_run / "samples" / "contrastive.jsonl").read_text().splitlines()
    ]
    assert any(len(ids) > 1 for ids in shown), "the store of exemplars is used"


def test_a_run_has_all_its_files(tiny_run):
    names = {path.name for path in tiny_run.iterdir()}
    assert names >= {"config.json", "environment.json", "metrics.jsonl", "finished.json"}
    assert names >= {"archive.sqlite", "evaluation.sqlite", "examples.jsonl", "tasks", "samples"}
    finished = json.loads((tiny_run / "finished.json").read_text())
    assert set(STAGES) < set(finished)
    assert (tiny_run / "checkpoints" / finished["contrastive"]).is_dir()
    assert finished["contrastive"] == "contrastive-10"
    assert {path.name for path in (tiny_run / "tensorboard").iterdir()} >= set(STAGES)


def test_what_is_finished_is_skipped_and_a_run_is_not_begun_twice(tiny_config, tiny_run):
    before = (tiny_run / METRICS).read_bytes()
    done = command("pipeline", tiny_config, tiny_run, "--resume")
    assert done.exit_code == 0
    assert "contrastive: finished before" in done.stderr
    assert (tiny_run / METRICS).read_bytes() == before
    again = command("pipeline", tiny_config, tiny_run)
    assert again.exit_code == 2
    assert "has a run already; `--resume`" in again.stderr


def test_a_run_that_is_stopped_everywhere_is_the_same(tiny_config, tiny_run, tmp_path, monkeypatch):
    stops = {("supervised", 5), ("self_supervised", 1), ("self_supervised", 3), ("contrastive", 6)}
    log = Run.log

    def stopping(self, stage, step, **given):
        log(self, stage, step, **given)
        if (stage, step) in stops:
            stops.discard((stage, step))
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Run, "log", stopping)
    folder, codes = tmp_path / "run", []
    for _ in range(9):
        done = command("pipeline", tiny_config, folder, *(["--resume"] if codes else []))
        codes.append(done.exit_code)
        if done.exit_code != STOPPED:
            break
        assert "stopped (SIGTERM)" in done.stderr
    assert codes == [STOPPED] * 4 + [0], done.output
    assert lines(folder) == lines(tiny_run)
    for name in ("base", "supervised", "self_supervised", "contrastive"):
        assert evaluation(folder, name) == evaluation(tiny_run, name)


def test_the_stages_alone_make_the_same_run(tiny_config, tiny_run, tmp_path):
    folder = tmp_path / "run"
    for number, name in enumerate(STAGES[:2]):
        resumed = ["--resume"] if number else []
        assert command(name.replace("_", "-"), tiny_config, folder, *resumed).exit_code == 0
    done = command("evaluate", tiny_config, folder, "--resume", "--name", "supervised")
    assert done.exit_code == 0
    assert "correct" in done.stdout
    assert evaluation(folder, "supervised") == evaluation(tiny_run, "supervised")
    more = tmp_path / "seeds.toml"
    more.write_text(tiny_config.read_text().replace("[evaluate]\n", "[evaluate]\nseeds = [0, 1]\n"))
    done = command("evaluate", more, folder, "--resume", "--name", "supervised")
    assert done.exit_code == 0, "a seed may be added"
    first, second = (evaluation(folder, name) for name in ("supervised", "supervised-1"))
    assert (first.seed, second.seed) == (0, 1) and first.samples != second.samples
    early = command("evaluate", tiny_config, folder, "--resume", "--name", "contrastive")
    assert early.exit_code == 2
    assert "'contrastive' is not finished" in early.stderr
    assert "expected base, supervised" in early.stderr


def test_a_stage_without_what_it_needs_says_so(tiny_config, tmp_path):
    done = command("supervised", tiny_config, tmp_path / "run")
    assert done.exit_code == 2
    assert "`python -m model_training collect` writes them" in done.stderr


def test_a_model_behind_a_server_is_evaluated_as_any(tiny_config, tmp_path):
    program = next(one for one in PROGRAMS if one.name == "indexed")
    with replay_server(answers=[Good(answer_to(program))]) as server:
        path = tmp_path / "server.toml"
        there = f'[rollouts]\nkind = "server"\nserver = {{ model = "{server.url}", name = "m" }}\n'
        text = tiny_config.read_text().replace("max-tokens = 12 ", "max-tokens = 400 ")
        path.write_text(text + there)
        done = command("evaluate", path, tmp_path / "run", "--name", "m")
        trains = command("self-supervised", path, tmp_path / "run", "--resume")
    assert done.exit_code == 0, done.output
    assert evaluation(tmp_path / "run", "m").table.correct.value == 1.0
    assert evaluation(tmp_path / "run", "m").policy == server.url
    assert trains.exit_code == 2
    assert "rollouts.kind: a server has the weights" in trains.stderr


def test_several_processes_do_not_judge(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = command("collect", tiny_config, tmp_path / "run")
    assert done.exit_code == 2
    assert "name more devices in judge.devices" in done.stderr


def test_the_time_is_kept(tiny_config, tmp_path):
    done = command("pipeline", tiny_config, tmp_path / "run", "--max-minutes", "0.0001")
    assert done.exit_code == STOPPED
    assert "stopped (max-minutes)" in done.stderr


@pytest.mark.slow
def test_a_run_that_is_killed_is_the_same(tiny_config, tiny_run, tmp_path):
    folder = tmp_path / "run"
    arguments = [sys.executable, "-m", "model_training", "pipeline", "--config", str(tiny_config)]
    arguments += ["--folder", str(folder)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    for count in (8, 26):
        more = ["--resume"] if (folder / "config.json").exists() else []
        child = subprocess.Popen([*arguments, *more], env=environ, stderr=subprocess.DEVNULL)
        while child.poll() is None and num_lines(folder) < count:
            time.sleep(0.01)
        child.kill()
        child.wait()
    subprocess.run([*arguments, "--resume"], env=environ, check=True, capture_output=True)
    assert lines(folder) == lines(tiny_run)


@pytest.mark.slow
def test_two_processes_train_stage_one_together(tiny_config, tiny_run, tmp_path):
    folder = tmp_path / "run"
    assert command("collect", tiny_config, folder).exit_code == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    program = ["-m", "model_training", "supervised", "--config", str(tiny_config), "--resume"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [*launcher, *program, "--folder", str(folder)],
        env=environ,
        check=True,
        capture_output=True,
    )
    losses, alone = (numbers(one, "supervised", "loss") for one in (folder, tiny_run))
    assert len(losses) == len(alone)
    assert losses[-1] < 0.5 * losses[0]
    assert json.loads((folder / "finished.json").read_text())["supervised"] == "supervised-20"


def num_lines(folder):
    path = folder / METRICS
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_run_begins_with_an_adapter_that_is_named(tmp_path):
    """In half precision too, as it is exported; from then on the run has it in its own folder."""
    weights, adapter = make_model_folder(tmp_path / "weights", seed=0), tmp_path / "adapter"
    model = PolicyConfig(path=str(weights), lora_rank=2, device="cpu")
    policy = load_policy(model, seed=5)
    with torch.no_grad():
        for one in policy.parameters():
            one.copy_(one.bfloat16() + 1.0)
    expected = [one.detach().clone() for one in policy.parameters()]
    policy.model.to(torch.bfloat16)
    policy.save(adapter)
    run = RunConfig(folder=str(tmp_path / "run"))
    config = TrainingConfig(
        model=msgspec.structs.replace(model, adapter=str(adapter)),
        run=run,
        tasks=TaskSourceConfig(kind="toy"),
        judge=JudgeConfig(kind="toy", devices=("cpu",)),
    )
    for is_resumed in (False, True):
        with open_setup(config, is_resumed=is_resumed) as place:
            for one, other in zip(expected, place.policy.parameters(), strict=True):
                assert one.dtype == other.dtype == torch.float32
                assert torch.equal(one, other)
        shutil.rmtree(adapter, ignore_errors=True)
    missing = msgspec.structs.replace(config, run=RunConfig(folder=str(tmp_path / "other")))
    with (
        open_setup(missing, is_resumed=False) as place,
        pytest.raises(ConfigError, match="adapter"),
    ):
        place.begin_at("base")
