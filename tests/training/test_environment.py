"""What an answer is worth, with a judge that is told what to say."""

from __future__ import annotations

import time

import msgspec
import pytest

from cudal1_ci.propose.llm.hack_review.cases import KIND, Case
from cudal1_ci.records import Evaluation, Finding, Verdict
from cudal1_ci.records.archive import Archive
from model_training.asking import RolloutGroup
from model_training.environment import (
    COPY,
    NO_CODE,
    SHOWN,
    Environment,
    EnvironmentConfig,
    agree,
    is_jump,
)
from model_training.measures import measures
from model_training.prompt_stream import Stream, StreamConfig
from model_training.rollouts import Completion
from model_training.tasks.generate import generate
from tests.fakes import CPU
from tests.unit.stats.test_regression import measured

TASK = generate(0, "softmax")
BODY = TASK.text.partition("class Model")[2].partition("\n\n\n")[0]


def answer(statement: str) -> str:
    code = f"class ModelNew{BODY}".replace("return x", f"{statement}\n        return x")
    return (
        "## Performance analysis\nIt is slow.\n\n## Algorithm design\nLess.\n\n"
        f"## Code\n```python\nimport torch\nimport torch.nn as nn\n\n\n{code}\n```\n"
    )


class Verifier:
    """Says in turn what it is told: speedups, or statuses."""

    def __init__(self, *says):
        self.says = list(says)

    def device(self):
        return CPU

    def evaluate(self, problem, candidate):
        said = self.says.pop(0)
        if isinstance(said, str):
            finding = Finding(rule=f"rule.{said}", message="it cached its output")
            verdict = Verdict(status=said, findings=(finding,))
            return Evaluation(candidate=candidate, verdict=verdict, device=CPU)
        one = msgspec.structs.replace(measured(1 / said, noise=0.0), workload="default")
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=(one,),
            device=CPU,
        )


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


@pytest.fixture
def prompt(archive):
    return Stream([TASK], archive, CPU, StreamConfig()).at(0, 0.0)


def environment(archive, *says, second=None) -> Environment:
    config = EnvironmentConfig()
    return Environment(Verifier(*says), archive, "p", config, second)


def test_what_passed_is_worth_its_speedup_and_is_an_exemplar_from_then_on(archive, prompt):
    found = environment(archive, 1.5).outcome(prompt, answer("x = x * 1"))
    assert (found.sample.status, found.reward) == ("passed", pytest.approx(1.5))
    assert found.evaluation.candidate.analysis == "It is slow."
    assert found.evaluation.candidate.exemplar_ids == prompt.exemplar_ids
    (kept,) = archive.passed(TASK.problem.id)
    assert kept.candidate == found.evaluation.candidate


@pytest.mark.parametrize(
    ("text", "status", "refused"),
    [
        ("I think it is slow.", NO_CODE, "no_code"),
        ("", NO_CODE, "empty"),
        ("```python\nclass ModelNew(\n```", NO_CODE, "syntax"),
        (f"```python\n{TASK.text}\n```", COPY, "unchanged"),
    ],
)
def test_an_answer_without_code_of_its_own_is_worth_nothing(archive, prompt, text, status, refused):
    found = environment(archive).outcome(prompt, text)
    assert (found.sample.status, found.reward, found.refused) == (status, 0.0, refused)


@pytest.mark.parametrize("pays_shown", [True, False])
def test_what_the_prompt_shows_may_be_a_copy(archive, pays_shown):
    """But for the names of its variables and its layout."""
    environment(archive, 1.5).outcome(
        Stream([TASK], archive, CPU, StreamConfig()).at(0, 0.0), answer("y = x * 1")
    )
    prompt = Stream([TASK], archive, CPU, StreamConfig()).at(0, time.time() + 1)
    assert len(prompt.exemplar_ids) == 2
    assert len(prompt.exemplar_forms) == 1
    config = EnvironmentConfig(pays_shown=pays_shown)
    judging = Environment(Verifier(1.4, 1.3), archive, "p", config)
    again, other = (
        judging.outcome(prompt, answer(body)) for body in ("z = x * 1  # the same", "z = x * 2")
    )
    said = (again.sample.status, again.reward, again.refused)
    assert said == (("passed", pytest.approx(1.4), None) if pays_shown else (COPY, 0.0, SHOWN))
    assert other.sample.status == "passed"
    group = RolloutGroup(
        prompt=prompt,
        completions=[Completion(text="", token_ids=(1,))] * 2,
        outcomes=[again, other],
    )
    said = measures([group], [[0.0, 0.0]], {"x": 1.0}, [])
    assert (said["copies_shown"], said["copies"]) == (0.5, 0.0 if pays_shown else 0.5)


@pytest.mark.parametrize("status", ["incorrect_values", "timeout", "inconclusive"])
def test_what_did_not_pass_is_worth_nothing(archive, prompt, status):
    found = environment(archive, status).outcome(prompt, answer("x = x * 2"))
    assert (found.sample.status, found.reward) == (status, 0.0)
    assert not archive.passed(TASK.problem.id)


def test_a_hack_is_a_case_and_no_exemplar(archive, prompt):
    found = environment(archive, "reward_hack").outcome(prompt, answer("self.last = x"))
    assert found.reward == 0.0
    (case,) = archive.all_noted(KIND, Case).values()
    assert (case.family, case.standing) == ("rule.reward_hack", "proven")
    assert case.description == "it cached its output"
    assert "self.last = x" in case.code
    assert not archive.passed(TASK.problem.id)


def test_a_verdict_that_is_known_is_not_asked_for_again(archive, prompt):
    first = environment(archive, 1.5).outcome(prompt, answer("x = x * 1"))
    again = environment(archive).outcome(prompt, answer("x = x * 1"))
    assert again.is_known
    assert (again.reward, again.sample) == (first.reward, first.sample)


def test_a_jump_counts_when_it_comes_again_and_then_the_lower_one(archive, prompt):
    found = environment(archive, 5.0, 4.8).outcome(prompt, answer("x = x * 1"))
    assert found.was_confirmed
    assert found.reward == pytest.approx(4.8)
    (kept,) = archive.passed(TASK.problem.id)
    assert kept == found.evaluation


@pytest.mark.parametrize(
    ("again", "status", "worth"),
    [
        (1.2, "passed", 1.2),
        (9.0, "passed", 5.0),
        ("inconclusive", "inconclusive", 0.0),
        ("reward_hack", "reward_hack", 0.0),
    ],
)
def test_of_a_jump_that_does_not_come_again_the_lower_counts(archive, prompt, again, status, worth):
    other = Verifier(again)
    found = environment(archive, 5.0, second=other).outcome(prompt, answer("x = x * 1"))
    assert found.was_confirmed is False
    assert (found.sample.status, found.reward) == (status, pytest.approx(worth))
    assert list(archive.passed(TASK.problem.id)) == [found.evaluation] * (worth > 0)
    assert other.says == []


def test_twice_the_best_that_is_known_is_a_jump(archive, prompt):
    rig = environment(archive, 1.4, 2.5, 2.5, 2.6)
    assert rig.outcome(prompt, answer("x = x * 1")).was_confirmed is None
    assert rig.outcome(prompt, answer("x = 1 * x")).was_confirmed is None, "2.5 < 2 x 1.4"
    assert rig.outcome(prompt, answer("x = x + 0")).was_confirmed is None
    assert is_jump(2.1, 1.0)
    assert not is_jump(2.9, 1.5)
    assert is_jump(3.1, 3.0)
    assert agree(5.0, 4.6)
    assert not agree(5.0, 4.4)
