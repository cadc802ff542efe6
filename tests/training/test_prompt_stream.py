"""The prompts of stage 3 are the product's, and the same again after a kill."""

from __future__ import annotations

import random
import time

import msgspec
import pytest

from cudal1_ci.optimize.llm_loop import variants_of
from cudal1_ci.propose.llm.config import ContrastConfig
from cudal1_ci.propose.llm.contrast import select
from cudal1_ci.propose.llm.prompt import render
from cudal1_ci.records import Candidate, Evaluation, TextProgram, Verdict
from cudal1_ci.records.archive import Archive
from model_training.examples import question
from model_training.prompt_stream import StepPrompts, Stream, StreamConfig
from model_training.tasks.generate import generate
from tests.fakes import CPU
from tests.unit.stats.test_regression import measured

TASKS = [generate(seed, "softmax") for seed in range(5)]


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


def prove(archive: Archive, task, speedup: float, word: str, proposer: str = "model") -> str:
    """A variant that passed; its candidate's id."""
    source = task.text.replace("class Model(", f"class ModelNew(  # {word}\n    ")
    source = source.replace("return x\n", f"{word} = x\n        return {word} * 1\n")
    candidate = Candidate(
        problem_id=task.problem.id,
        program=TextProgram(source=source, entry="ModelNew"),
        proposer=proposer,
    )
    measurement = msgspec.structs.replace(
        measured(1 / speedup, noise=0.0), workload="default", device=CPU
    )
    archive.record(
        Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=(measurement,),
            device=CPU,
        ),
        "p",
    )
    return candidate.id


def stream(archive, **config) -> Stream:
    return Stream(TASKS, archive, CPU, StreamConfig(**config))


def test_a_prompt_is_what_the_product_would_ask(archive):
    for task in TASKS:
        prove(archive, task, 1.5, "a")
        prove(archive, task, 3.0, "b")
    found = stream(archive).at(0, time.time())
    problem = found.task.problem
    known = variants_of(problem, (), archive, CPU, found.published)
    shown = select(known, ContrastConfig(), random.Random("0 0"))
    assert len(shown) == 2
    assert found.exemplar_ids == tuple(one.exemplar.candidate.id for one in shown)
    assert list(found.messages) == render(question(problem, CPU, (), shown), 4000)


def test_what_a_step_recorded_is_shown_from_the_next_one_on(archive):
    prompts = StepPrompts(stream(archive), archive, "run", per_step=5)
    time.sleep(0.01)
    first = prompts.of(1)
    better = {prove(archive, task, 2.0, "a") for task in TASKS}
    assert prompts.of(1) == first
    assert all(len(one.exemplar_ids) == 1 for one in first), "the reference"
    with pytest.raises(ValueError, match="step 2 show what was known after the step before"):
        prompts.of(2)
    time.sleep(0.01)
    prompts.end(1)
    assert all(better & set(one.exemplar_ids) for one in prompts.of(2))


def test_a_run_that_resumes_asks_the_same(archive):
    first = StepPrompts(stream(archive), archive, "run", per_step=3)
    for step in (1, 2):
        prove(archive, TASKS[step], 1.5, f"step{step}")
        time.sleep(0.01)
        first.end(step)
    asked = [first.of(step) for step in (1, 2, 3)]
    time.sleep(0.01)
    for task in TASKS:
        prove(archive, task, 2.0, "later")
    again = StepPrompts(stream(archive), archive, "run", per_step=3)
    assert again.end(1) == first.end(1), "the moment of its first end"
    assert [again.of(step) for step in (1, 2, 3)] == asked
    assert again.ends() == first.ends()


def test_every_task_has_its_turn_in_each_epoch_in_another_order(archive):
    prompts = stream(archive)
    epochs = [[prompts.task_at(5 * epoch + n).name for n in range(5)] for epoch in range(3)]
    assert all(sorted(one) == sorted(task.name for task in TASKS) for one in epochs)
    assert len({tuple(one) for one in epochs}) > 1


def test_ablations_are_the_products_samplers(archive):
    for task in TASKS:
        for number, speedup in enumerate((1.2, 1.6, 2.4)):
            prove(archive, task, speedup, f"v{number}")
    shown = {}
    for sampler in ("bucket", "random", "none"):
        one, now = stream(archive, contrast=ContrastConfig(sampler=sampler)), time.time()
        shown[sampler] = [one.at(place, now).exemplar_ids for place in range(5)]
    assert all(ids == () for ids in shown["none"])
    assert all(len(ids) == 2 for ids in shown["bucket"] + shown["random"])
    assert shown["bucket"] != shown["random"]


def test_a_policy_may_be_shown_its_own_alone(archive):
    for task in TASKS:
        prove(archive, task, 3.0, "a", "hand-made:graph")
    prompts = stream(archive, shows="own")
    first = prompts.at(0, time.time())
    (only,) = first.exemplar_ids
    assert only not in {one.candidate.id for one in archive.passed(first.task.problem.id)}
    assert not first.exemplar_forms, "it is the reference"
    mine = {prove(archive, task, 2.0, "b", "policy") for task in TASKS}
    assert mine & set(prompts.at(1, time.time()).exemplar_ids)
    assert len(stream(archive).at(1, time.time()).exemplar_ids) == 2, "else whatever there is"


def test_a_stream_of_nothing_is_refused(archive):
    with pytest.raises(ValueError, match="expected tasks"):
        Stream([], archive, CPU, StreamConfig())
