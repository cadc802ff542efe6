"""configs/tiny.toml: all stages of a run on the toy language, stopped and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner

from model_training import checkpoints
from model_training.__main__ import STOPPED, main
from model_training.evaluate import Evaluated
from model_training.run import METRICS, Run
from model_training.toy import PROGRAMS, answer_to, make_model_folder
from tests.replay_server import Good, replay_server

CONFIG = Path(__file__).parents[2] / "model_training" / "configs" / "tiny.toml"
TIMED = ("seconds", "tokens_per_second", "tokens_per_s", "known", "not_confirmed")
"""Of a line, what is another when a step is made again."""
STAGES = ["collect", "supervised", "self_supervised", "contrastive"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    weights = make_model_folder(folder / "weights")
    path = folder / "tiny.toml"
    path.write_text(CONFIG.read_text().replace("runs/tiny-weights", str(weights)))
    return path


def command(name, config, folder, *more):
    return CliRunner().invoke(main, [name, "--config", str(config), "--folder", str(folder), *more])


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = command("pipeline", config, folder)
    assert done.exit_code == 0, (done.output, done.exception)
    return folder


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


def test_each_stage_moves_what_it_should(whole):
    losses = numbers(whole, "supervised", "loss")
    assert losses[-1] < 0.5 * losses[0]
    base, first, third = (evaluation(whole, n) for n in ("base", "supervised", "contrastive"))
    assert base.table.correct.value == 0.0
    assert first.table.correct.value > 0.1
    success = numbers(whole, "self_supervised", "success")
    assert success[-1] > success[0]
    rewards = numbers(whole, "contrastive", "reward")
    assert sum(rewards[-3:]) > sum(rewards[:3])
    assert third.table.correct.value > first.table.correct.value
    assert third.table.geometric_mean.value > first.table.geometric_mean.value
    shown = [
        json.loads(line)["exemplar_ids"]
        for line in (whole / "samples" / "contrastive.jsonl").read_text().splitlines()
    ]
    assert any(len(ids) > 1 for ids in shown), "the store of exemplars is used"


def test_a_run_has_all_its_files(whole):
    names = {path.name for path in whole.iterdir()}
    assert names >= {"config.json", "environment.json", "metrics.jsonl", "finished.json"}
    assert names >= {"archive.sqlite", "evaluation.sqlite", "examples.jsonl", "tasks", "samples"}
    finished = json.loads((whole / "finished.json").read_text())
    assert set(STAGES) < set(finished)
    assert (whole / "checkpoints" / finished["contrastive"]).is_dir()
    newest = checkpoints.latest(whole / "checkpoints")
    assert (newest.stage, newest.step) == ("contrastive", 10)
    assert {path.name for path in (whole / "tensorboard").iterdir()} == set(STAGES)


def test_what_is_finished_is_skipped_and_a_run_is_not_begun_twice(config, whole):
    before = (whole / METRICS).read_bytes()
    done = command("pipeline", config, whole, "--resume")
    assert done.exit_code == 0
    assert "contrastive: finished before" in done.stderr
    assert (whole / METRICS).read_bytes() == before
    again = command("pipeline", config, whole)
    assert again.exit_code == 2
    assert "has a run already; `--resume`" in again.stderr


def test_a_run_that_is_stopped_everywhere_is_the_same(config, whole, tmp_path, monkeypatch):
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
        done = command("pipeline", config, folder, *(["--resume"] if codes else []))
        codes.append(done.exit_code)
        if done.exit_code != STOPPED:
            break
        assert "stopped (SIGTERM)" in done.stderr
    assert codes == [STOPPED] * 4 + [0], done.output
    assert lines(folder) == lines(whole)
    for name in ("base", "supervised", "self_supervised", "contrastive"):
        assert evaluation(folder, name) == evaluation(whole, name)


def test_the_stages_alone_make_the_same_run(config, whole, tmp_path):
    folder = tmp_path / "run"
    for number, name in enumerate(STAGES[:2]):
        resumed = ["--resume"] if number else []
        assert command(name.replace("_", "-"), config, folder, *resumed).exit_code == 0
    done = command("evaluate", config, folder, "--resume", "--name", "supervised")
    assert done.exit_code == 0
    assert "correct" in done.stdout
    assert evaluation(folder, "supervised") == evaluation(whole, "supervised")
    early = command("evaluate", config, folder, "--resume", "--name", "contrastive")
    assert early.exit_code == 2
    assert "'contrastive' is not finished" in early.stderr
    assert "expected base, supervised" in early.stderr


def test_a_stage_without_what_it_needs_says_so(config, tmp_path):
    done = command("supervised", config, tmp_path / "run")
    assert done.exit_code == 2
    assert "`python -m model_training collect` writes them" in done.stderr


def test_a_model_behind_a_server_is_evaluated_as_any(config, tmp_path):
    program = next(one for one in PROGRAMS if one.name == "indexed")
    with replay_server(answers=[Good(answer_to(program))]) as server:
        path = tmp_path / "server.toml"
        there = f'[rollouts]\nkind = "server"\nserver = {{ model = "{server.url}", name = "m" }}\n'
        path.write_text(config.read_text().replace("max-tokens = 12 ", "max-tokens = 400 ") + there)
        done = command("evaluate", path, tmp_path / "run", "--name", "m")
        trains = command("self-supervised", path, tmp_path / "run", "--resume")
    assert done.exit_code == 0, done.output
    assert evaluation(tmp_path / "run", "m").table.correct.value == 1.0
    assert evaluation(tmp_path / "run", "m").policy == server.url
    assert trains.exit_code == 2
    assert "rollouts.kind: a server has the weights" in trains.stderr


def test_several_processes_do_not_judge(config, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = command("collect", config, tmp_path / "run")
    assert done.exit_code == 2
    assert "name more devices in judge.devices" in done.stderr


def test_the_time_is_kept(config, tmp_path):
    done = command("pipeline", config, tmp_path / "run", "--max-minutes", "0.0001")
    assert done.exit_code == STOPPED
    assert "stopped (max-minutes)" in done.stderr


@pytest.mark.slow
def test_a_run_that_is_killed_is_the_same(config, whole, tmp_path):
    folder = tmp_path / "run"
    arguments = [sys.executable, "-m", "model_training", "pipeline", "--config", str(config)]
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
    assert lines(folder) == lines(whole)


@pytest.mark.slow
def test_two_processes_train_stage_one_together(config, whole, tmp_path):
    folder = tmp_path / "run"
    assert command("collect", config, folder).exit_code == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    program = ["-m", "model_training", "supervised", "--config", str(config), "--resume"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [*launcher, *program, "--folder", str(folder)],
        env=environ,
        check=True,
        capture_output=True,
    )
    losses, alone = (numbers(one, "supervised", "loss") for one in (folder, whole))
    assert len(losses) == len(alone)
    assert losses[-1] < 0.5 * losses[0]
    assert json.loads((folder / "finished.json").read_text())["supervised"] == "supervised-20"


def num_lines(folder):
    path = folder / METRICS
    return len(path.read_bytes().splitlines()) if path.exists() else 0
