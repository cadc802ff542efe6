"""Many answers and several judges."""

from __future__ import annotations

import threading
import time
import zlib
from typing import ClassVar

import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.llm_loop import known_profile
from cudal1_ci.records import Verdict
from cudal1_ci.records.archive import Archive
from model_training.asking import first_prompt
from model_training.environment import EnvironmentConfig
from model_training.prompt_stream import Stream, StreamConfig
from model_training.run import Stopped
from model_training.scoring import MAX_DEATHS, Scorer
from model_training.tasks.generate import generate
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, answer_to, tasks
from tests.training.tiny import TINY

BY_NAME = {one.name: one for one in PROGRAMS}
TASKS = tasks()
CONFIG = EnvironmentConfig()


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


@pytest.fixture
def prompts(archive):
    stream = Stream(TASKS, archive, DEVICE, StreamConfig())
    return {one.task.name: one for one in (stream.at(place, 0.0) for place in range(len(TASKS)))}


def answered(prompt, *names):
    return [(prompt, answer_to(BY_NAME[name]), False) for name in names]


def test_outcomes_are_in_the_order_of_the_answers(archive, prompts):
    names = ["scaled", "wrong", "copy", "indexed", "broken", "same"]
    asked = [one for name in names for prompt in prompts.values() for one in answered(prompt, name)]
    found = Scorer([ToyJudge(), ToyJudge(), ToyJudge()], archive, "p", CONFIG).outcomes(asked)
    assert [one.sample.task for one in found] == [prompt.task.name for prompt, *_ in asked]
    statuses = [one.sample.status for one in found[:: len(TASKS)]]
    assert statuses == ["passed", "incorrect_values", "copy", "passed", "compile_error", "passed"]
    assert found[0].sample.speedup == pytest.approx(2.5)


def test_a_program_is_judged_once_whoever_wrote_it(archive, prompts):
    prompt = prompts["toy-0"]
    judge = ToyJudge()
    scorer = Scorer([judge], archive, "p", CONFIG)
    found = scorer.outcomes(answered(prompt, "indexed", "indexed", "wrong", "indexed"))
    assert judge.asked == ["indexed", "wrong"]
    assert [one.is_known for one in found] == [False, True, False, True]
    assert found[0].sample == found[3].sample
    assert all(one.is_known for one in scorer.outcomes(answered(prompt, "indexed", "wrong")))
    assert judge.asked == ["indexed", "wrong"]


class Slow(ToyJudge):
    """Notes who is at work at the same time."""

    at_work: ClassVar[set[int]] = set()
    most = 0
    lock = threading.Lock()

    def evaluate(self, problem, candidate):
        with Slow.lock:
            assert id(self) not in Slow.at_work, "two threads ask one judge"
            Slow.at_work.add(id(self))
            Slow.most = max(Slow.most, len(Slow.at_work))
        time.sleep(0.05)
        with Slow.lock:
            Slow.at_work.discard(id(self))
        return super().evaluate(problem, candidate)


def test_judges_work_at_the_same_time_and_a_task_stays_with_one(archive, prompts):
    judges = [Slow(), Slow()]
    asked = [one for prompt in prompts.values() for one in answered(prompt, "same", "looped")]
    Scorer(judges, archive, "p", CONFIG).outcomes(asked)
    assert Slow.most == 2
    assert len(judges[0].asked) + len(judges[1].asked) == 8
    for judge in judges:
        assert judge.asked == ["same", "looped"] * (len(judge.asked) // 2)
        assert judge.asked


def test_a_piece_comes_to_the_judge_that_had_it_before(archive):
    scorer = Scorer([ToyJudge(), ToyJudge()], archive, "p", CONFIG)
    together = threading.Barrier(2)
    pieces = [str(number) for number in range(40)]
    homes = [[one for one in pieces if zlib.crc32(one.encode()) % 2 == home] for home in (0, 1)]
    fewest = min(map(len, homes))
    had: list[dict[str, int]] = []
    for _ in range(2):
        had.append({})

        def work(judge, piece):
            together.wait(10)  # in step, so that neither runs out of work before the other
            had[-1][piece] = scorer.judges.index(judge)

        scorer.each([*homes[0][:fewest], *homes[1][:fewest]], work, str)
    assert had[0] == had[1]
    assert set(had[0].values()) == {0, 1} and len(had[0]) == 2 * fewest


def test_a_judge_without_work_takes_what_another_has_too_much_of(archive):
    scorer = Scorer([ToyJudge(), ToyJudge()], archive, "p", CONFIG)
    took: dict[int, int] = {0: 0, 1: 0}

    def work(judge, piece):
        took[scorer.judges.index(judge)] += 1
        time.sleep(0.02)

    scorer.each(range(20), work, lambda _: "all of one home")
    assert sum(took.values()) == 20 and min(took.values()) >= 5


def test_a_jump_on_the_only_device_is_judged_again_by_the_same_judge(archive, prompts):
    judges = [ToyJudge(), ToyJudge()]
    scorer = Scorer(judges, archive, "p", CONFIG, places=["cuda:0", "cuda:0"])
    (found,) = scorer.outcomes(answered(prompts["toy-0"], "scaled"))
    assert found.was_confirmed is True
    assert sorted(one.asked for one in judges) == [[], ["scaled", "scaled"]]


def test_a_jump_is_measured_again_by_the_other_judge(archive, prompts):
    judges = [ToyJudge(), ToyJudge()]
    (found,) = Scorer(judges, archive, "p", CONFIG).outcomes(answered(prompts["toy-0"], "scaled"))
    assert found.was_confirmed is True
    assert [one.asked for one in judges] == [["scaled"], ["scaled"]]


class Dies(ToyJudge):
    def evaluate(self, problem, candidate):
        self.asked.append(candidate.program.source)
        if "unsqueeze" in candidate.program.source:
            raise WorkerError("the judge died")
        self.asked.pop()
        return super().evaluate(problem, candidate)


def test_a_candidate_with_which_the_judge_dies_is_worth_nothing(archive, prompts):
    judge = Dies()
    asked = answered(prompts["toy-0"], "scaled", "indexed")
    found = Scorer([judge], archive, "p", CONFIG).outcomes(asked)
    assert [one.sample.status for one in found] == ["harness_error", "passed"]
    assert found[0].reward == 0.0
    assert len(judge.asked) == 3


class Dead(ToyJudge):
    def evaluate(self, problem, candidate):
        self.asked.append("")
        raise WorkerError("no GPU is left")


def test_a_judge_that_dies_of_everything_is_an_error(archive, prompts):
    judge = Dead()
    names = ["scaled", "indexed", "same", "looped", "wrong", "broken", "kept"]
    with pytest.raises(WorkerError, match="no GPU is left"):
        Scorer([judge], archive, "p", CONFIG).outcomes(answered(prompts["toy-0"], *names))
    assert len(judge.asked) == 2 * MAX_DEATHS + 1


def test_who_must_stop_judges_no_more_and_finds_later_what_was_judged(archive, prompts):
    judge, left = ToyJudge(), iter([None, None])

    def go_on():
        if next(left, "over") == "over":
            raise Stopped("SIGTERM")

    asked = answered(prompts["toy-0"], "same", "indexed", "wrong")
    with pytest.raises(Stopped, match="SIGTERM"):
        Scorer([judge], archive, "p", CONFIG, go_on).outcomes(asked)
    assert judge.asked == ["same", "indexed"]
    Scorer([judge], archive, "p", CONFIG).outcomes(asked)
    assert judge.asked == ["same", "indexed", "wrong"]


class Checking(ToyJudge):
    """Like the product's: says whether it can judge, and where the time goes."""

    def __init__(self, refused):
        super().__init__()
        self.refused, self.checked = refused, []

    def check(self, problem, most_s=None):
        self.checked.append(problem.id)
        is_refused = problem.id == self.refused
        return Verdict(status="invalid_reference" if is_refused else "passed")

    def profile(self, workload, *, is_candidate):
        return [{"name": "aten::mm", "num_calls": 1, "time_us": 7.0}]


def test_tasks_that_cannot_be_judged_are_left_out_and_profiles_are_kept(archive):
    judge = Checking(TASKS[1].problem.id)
    for _ in range(2):
        found = Scorer([judge], archive, "p", CONFIG).usable(TASKS)
        assert [one.name for one in found] == ["toy-0", "toy-2", "toy-3"]
    assert len(judge.checked) == len(TASKS)
    (row,) = known_profile(TASKS[0].problem, archive, DEVICE)
    assert (row.name, row.time_us) == ("aten::mm", 7.0)
    assert Scorer([ToyJudge()], archive, "q", CONFIG).usable(TASKS) == TASKS


def test_an_answer_that_was_cut_is_none(archive, prompts):
    ((prompt, text, _),) = answered(prompts["toy-0"], "indexed")
    cut = (prompt, text.removesuffix("\n```\n"), True)
    (found,) = Scorer([ToyJudge()], archive, "p", CONFIG).outcomes([cut])
    assert found.sample.status == "no_code"


@pytest.mark.starts_verifier
def test_the_products_judge_says_what_answers_are_worth(archive, session):
    task = generate(3, "diagonal", TINY)
    body = task.text.partition("class Model(nn.Module):")[2].partition("\n\n\n")[0]
    wrong = body.replace("return x", "x = x + 1\n        return x")
    texts = [
        "## Code\n```python\nimport torch\nimport torch.nn as nn\n"
        f"import torch.nn.functional as F\n\n\nclass ModelNew(nn.Module):{code}\n```\n"
        for code in (body, wrong)
    ]
    scorer = Scorer([session], archive, session.config.policy, CONFIG)
    assert scorer.usable([task]) == [task]
    assert known_profile(task.problem, archive, session.device())
    prompt = first_prompt(task, archive, session.device())
    found = scorer.outcomes([(prompt, text, False) for text in texts])
    assert [one.sample.status for one in found] == ["copy", "incorrect_values"]
