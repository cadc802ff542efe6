"""Right answers that are measured several times."""

from __future__ import annotations

import math

import msgspec
import pytest

from cudal1_ci.errors import ConfigError, WorkerError
from cudal1_ci.records import Verdict
from cudal1_ci.records.archive import Archive
from model_training.evaluate import EvaluateConfig, evaluate
from model_training.rollouts import Sampling
from model_training.run import Stopped
from model_training.toy import ToyJudge
from model_training.toy.judge import measured
from tests.training.test_evaluate import BY_NAME, Scripted
from tests.training.toy_stages import TASKS, opened, scorer

SAMPLING = Sampling(temperature=0.8, max_tokens=16)
CONFIG = EvaluateConfig(k=4, num_measured=3, sampling=SAMPLING)
FAST = BY_NAME["indexed"].speedup
ANSWERS = Scripted("indexed", "wrong", "copy", "indexed")


class Moody(ToyJudge):
    """Measures each task's program with these factors in turn; a status is another verdict."""

    def __init__(self, *moods):
        super().__init__()
        self.moods, self.times = moods, {}

    def evaluate(self, problem, candidate):
        found = super().evaluate(problem, candidate)
        if found.verdict.status != "passed":
            return found
        number = self.times.get(problem.id, 0)
        self.times[problem.id] = number + 1
        mood = self.moods[number]
        if mood == "dies":
            raise WorkerError("the judge died")
        if isinstance(mood, str):
            return msgspec.structs.replace(found, verdict=Verdict(status=mood), measurements=())
        measurements = tuple(measured(one.name, FAST * mood) for one in problem.workloads)
        return msgspec.structs.replace(found, measurements=measurements)


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "evaluation.sqlite") as found:
        yield found


def evaluated(archive, tmp_path, judge, config=CONFIG, **options):
    with opened(tmp_path / "run", tmp_path, **options) as run:
        if isinstance(judge, Stopping):
            judge.run = run
        return evaluate("base", TASKS, ANSWERS, scorer(archive, judge, run), config, run, "base")[0]


def speedups(found):
    return [one.speedup for one in found.samples if one.speedup is not None]


def test_a_speedup_is_the_geometric_mean_of_its_measurements(archive, tmp_path):
    judge = Moody(1.0, 1.3, 0.9)
    found = evaluated(archive, tmp_path, judge)
    mean = FAST * math.prod((1.0, 1.3, 0.9)) ** (1 / 3)
    assert speedups(found) == pytest.approx([mean] * 8)
    assert found.table.correct.value == 0.5
    assert set(judge.times.values()) == {3}, "a program, not an answer"
    assert judge.asked.count("wrong") == len(TASKS), "what is wrong is not measured"


def test_once_is_once(archive, tmp_path):
    config = msgspec.structs.replace(CONFIG, num_measured=1)
    judge = Moody(1.1)
    assert speedups(evaluated(archive, tmp_path, judge, config)) == pytest.approx([FAST * 1.1] * 8)
    with pytest.raises(ConfigError, match=r"evaluate\.num-measured: expected 1 or more"):
        EvaluateConfig(num_measured=0)


def test_what_does_not_pass_again_is_not_right(archive, tmp_path):
    found = evaluated(archive, tmp_path, Moody(1.0, 1.0, "incorrect_values"))
    assert found.table.correct.value == 0
    assert found.table.statuses == {"incorrect_values": 12, "copy": 4}


@pytest.mark.parametrize("mood", ["inconclusive", "dies"])
def test_what_says_nothing_counts_for_nothing(archive, tmp_path, mood):
    found = evaluated(archive, tmp_path, Moody(1.0, mood, 1.21))
    assert speedups(found) == pytest.approx([FAST * 1.1] * 8)


class Stopping(Moody):
    """Stops the run after six right answers were measured."""

    run = None

    def evaluate(self, problem, candidate):
        found = super().evaluate(problem, candidate)
        if sum(self.times.values()) == 6:
            self.run._signal = "SIGTERM"
        return found


def test_a_run_that_was_stopped_measures_nothing_twice(archive, tmp_path):
    judge = Stopping(1.0, 1.3, 0.9)
    with pytest.raises(Stopped):
        evaluated(archive, tmp_path, judge)
    first = sum(judge.times.values())
    assert 6 <= first < 12
    again = Moody(*[1.0] * 3)
    found = evaluated(archive, tmp_path, again, is_resumed=True)
    assert sum(again.times.values()) == 12 - first
    assert len(speedups(found)) == 8
