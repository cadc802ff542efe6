"""A run's folder: what is in it is whole, and a run that goes on writes one curve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Record
from model_training import checkpoints
from model_training.run import METRICS, Run

STAGE = "supervised"
ANSWER = {"stage": STAGE, "task": "t", "status": "passed", "reward": 2.0, "completion": "## Code"}


class Config(Record, frozen=True, kw_only=True):
    width: int = 1
    run: int = 0


def opened(folder: Path, config=None, **options) -> Run:
    return Run.open(folder, config or Config(), seed=0, weights=folder / "none", **options)


def steps(folder: Path, stage: str = STAGE) -> list[int]:
    lines = (folder / METRICS).read_text().splitlines()
    return [one["step"] for one in map(json.loads, lines) if one["stage"] == stage]


def save(run: Run, step: int, text: str = "w") -> None:
    run.save(STAGE, step, lambda folder: (folder / "weights").write_text(text) and None, {"a": 1})


def test_a_folder_says_what_it_was_made_with(tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"abc")
    Run.open(tmp_path / "run", Config(), seed=7, weights=weights)
    said = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert said["weights_sha256"] == {
        "model.safetensors": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    assert said["seed"] == 7
    assert said["torch"]
    assert said["trl"]
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert len(kept["hash"]) == 16
    assert kept["config"] == {"width": 1, "run": 0}, "defaults too"


def test_a_run_is_not_begun_over_another_and_goes_on_as_it_began(tmp_path):
    opened(tmp_path)
    with pytest.raises(ConfigError, match="has a run already; `--resume`"):
        opened(tmp_path)
    with pytest.raises(ConfigError, match="got another width"):
        opened(tmp_path, Config(width=2), is_resumed=True)
    opened(tmp_path, Config(run=5), is_resumed=True)
    assert len(json.loads((tmp_path / "environment.json").read_text())["resumed"]) == 1


def test_a_curve_is_one_after_a_run_was_taken_up_again(tmp_path):
    with opened(tmp_path) as run:
        for step in (1, 2, 3, 4):
            run.log(STAGE, step, loss=float(step))
            run.log_samples(STAGE, [{**ANSWER, "step": step}])
        run.log("contrastive", 9, reward=1.0)
    with (tmp_path / METRICS).open("ab") as file:
        file.write(b'{"stage":"supervised","st')
    with opened(tmp_path, is_resumed=True) as run:
        run.rewind(STAGE, 2)
        assert steps(tmp_path) == [1, 2]
        time.sleep(1.0 - time.time() % 1.0)  # TensorBoard reads files by the second in their name
        run.log(STAGE, 3, loss=30.0)
    assert steps(tmp_path) == [1, 2, 3]
    assert steps(tmp_path, "contrastive") == [9]
    assert len((tmp_path / "samples" / f"{STAGE}.jsonl").read_text().splitlines()) == 2
    events = EventAccumulator(str(tmp_path / "tensorboard" / STAGE)).Reload()
    found = [(one.step, one.value) for one in events.Scalars(f"{STAGE}/loss")]
    assert found == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_seconds_go_on_where_the_checkpoint_was(tmp_path):
    line = {"stage": STAGE, "step": 1, "seconds": 100.0}
    opened(tmp_path)
    (tmp_path / METRICS).write_text(json.dumps(line) + "\n")
    with opened(tmp_path, is_resumed=True) as run:
        run.rewind(STAGE, 1)
        assert 100.0 <= run.seconds(STAGE) < 110.0


def test_the_newest_checkpoints_are_kept_and_named(tmp_path):
    run = opened(tmp_path)
    assert run.newest(STAGE) is None
    for step in (9, 10, 100):
        save(run, step)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        "supervised-10",
        "supervised-100",
    ]
    newest = run.newest(STAGE)
    assert newest.state() == {"stage": STAGE, "step": 100, "a": 1}
    assert run.newest("self_supervised") is None


def test_a_checkpoint_that_could_not_be_written_is_none(tmp_path):
    run = opened(tmp_path)
    save(run, 1, "first")

    def fails(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        run.save(STAGE, 2, fails, {})
    assert run.newest(STAGE).step == 1
    assert (run.newest(STAGE).folder / "weights").read_text() == "first"
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["supervised-1"]


KILLED = """
import os, sys
from pathlib import Path
from model_training.checkpoints import writing
root, number = Path(sys.argv[1]), 0
while True:
    number += 1
    with writing(root, "supervised", number, {}) as folder:
        for name in "abc":
            (folder / name).write_text(str(number) * 50000)
    if number == 3:
        print("ready", flush=True)
"""


def test_whatever_kills_the_process_the_newest_checkpoint_is_whole(tmp_path):
    for wait_s in (0.0, 0.003, 0.011):
        root = tmp_path / str(wait_s)
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(wait_s)
        child.kill()
        child.wait()
        child.stdout.close()
        found = checkpoints.newest(root, "supervised")
        assert found.state()["step"] == found.step >= 3
        for name in "abc":
            assert (found.folder / name).read_text() == str(found.step) * 50000


def test_a_signal_stops_at_the_next_step_and_a_second_one_at_once(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, raising)
        with opened(tmp_path) as run:
            assert run.must_stop() is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert run.must_stop() == "SIGTERM"
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
        assert signal.getsignal(signal.SIGTERM) is raising
    finally:
        signal.signal(signal.SIGTERM, before)


def raising(number, frame):
    raise KeyboardInterrupt


def test_a_deadline_stops_and_a_reserve_stops_before_it(tmp_path):
    run = opened(tmp_path, max_minutes=1)
    assert run.must_stop() is None
    assert run.must_stop(reserve_s=61) == "max-minutes"
    assert opened(tmp_path / "other", max_minutes=0).must_stop() == "max-minutes"
    assert opened(tmp_path / "third").must_stop(reserve_s=1e9) is None


def test_what_is_finished_is_known(tmp_path):
    run = opened(tmp_path)
    run.finish(STAGE, "supervised-9")
    run.finish("evaluate-base", "evaluations/base.json")
    assert opened(tmp_path, is_resumed=True).finished() == {
        STAGE: "supervised-9",
        "evaluate-base": "evaluations/base.json",
    }


def test_of_several_processes_only_the_first_writes(tmp_path, monkeypatch):
    run = opened(tmp_path)
    monkeypatch.setenv("RANK", "1")
    run.log(STAGE, 1, loss=1.0)
    save(run, 1)
    run.finish(STAGE, "x")
    assert not (tmp_path / METRICS).exists()
    assert run.newest(STAGE) is None
    assert run.finished() == {}


def test_tensorboard_has_numbers_answers_and_the_time_of_the_judges(tmp_path):
    said = iter([{"ask check": [2, 1.5]}, {}])
    with opened(tmp_path) as run:
        run.judges_spent = lambda: next(said)
        for step in (1, 2):
            run.log(STAGE, step, loss=1.0 / step, entropy=None)
        run.log_samples(STAGE, [{**ANSWER, "step": 1}] * 10)
    events = EventAccumulator(str(tmp_path / "tensorboard" / STAGE)).Reload()
    scalars, texts = events.Tags()["scalars"], events.Tags()["tensors"]
    assert sorted(scalars) == [f"{STAGE}/judges_s/ask check", f"{STAGE}/loss"]
    assert [one.value for one in events.Scalars(f"{STAGE}/loss")] == [1.0, 0.5]
    assert texts == [f"{STAGE}/answer {number}/text_summary" for number in range(4)]
    (shown,) = events.Tensors(texts[0])
    assert shown.tensor_proto.string_val == [b"t: passed, reward 2.000\n\n## Code"]
