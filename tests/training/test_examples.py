"""Stage 1's data: what passed becomes a conversation as the product would have it."""

from __future__ import annotations

import json

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.answer import Parsed, parse
from cudal1_ci.propose.llm.fingerprint import fingerprint
from cudal1_ci.propose.llm.prompt import MAX_WORDS, render
from cudal1_ci.propose.llm.splice.text_form import as_text_program
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.records import Candidate, Evaluation, Finding, TextProgram, Verdict
from cudal1_ci.records.archive import Archive
from model_training.answers import code_of, in_a_line, shortened, where_time_goes
from model_training.examples import (
    CollectionConfig,
    Example,
    Measuring,
    balanced,
    counted,
    examples_of,
    judged,
    lines,
    most_of_a_family,
    original,
    question,
    read_examples,
    variant,
)
from model_training.tasks.generate import generate
from model_training.tasks.record import Task
from tests.fakes import CPU
from tests.unit.propose.recorded.rig import problem_and_recording
from tests.unit.stats.test_regression import measured

TASK = Task(
    source="generated",
    name="diagonal-0",
    family="diagonal",
    text='''"""A diagonal matrix from the left."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, scale):
        x = torch.diag(scale) @ x
        return x


rows = 64
width = 32


def get_inputs():
    return [torch.randn(rows, width), torch.rand(rows)]


def get_init_inputs():
    return []
''',
)
PROFILE = (
    ProfileRow(name="aten::mm", num_calls=1, time_us=75.0),
    ProfileRow(name="aten::diag", num_calls=1, time_us=25.0),
)
CONFIG = CollectionConfig(contrasts=False)


class FakeJudge:
    """Everything passes, the first time at a speedup of 2, then 3, and so on."""

    def __init__(self, *refused: str):
        self.asked: list[str] = []
        self.refused = refused

    def device(self):
        return CPU

    def evaluate(self, problem, candidate):
        self.asked.append(candidate.proposer)
        if candidate.proposer in self.refused:
            verdict = Verdict(status="reward_hack", findings=(Finding(rule="x", message="why"),))
            return Evaluation(candidate=candidate, verdict=verdict, device=CPU)
        measurement = msgspec.structs.replace(
            measured(1 / (1 + len(self.asked)), noise=0.0), workload="default"
        )
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=(measurement,),
            device=CPU,
        )


class Written:
    """A proposer of given bodies of `forward`."""

    def __init__(self, *bodies: str):
        self.bodies = bodies

    def propose(self, problem, exemplars, n):
        return [
            Candidate(
                problem_id=problem.id,
                program=TextProgram(
                    source=TASK.text.replace("x = torch.diag(scale) @ x", body), entry="Model"
                ),
                proposer=f"written:{number}",
                analysis="the diagonal matrix need not be made",
                techniques=("algebra",),
            )
            for number, body in enumerate(self.bodies)
        ]


@pytest.fixture(autouse=True)
def recorded_here(monkeypatch, tmp_path):
    """Record in this process instead of a sandbox."""

    def record(self, problem, workload):
        del self, workload
        return problem_and_recording(tmp_path, problem.reference.source)[1]

    monkeypatch.setattr(Measuring, "record", record)


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


def test_what_the_playbook_finds_becomes_an_answer_that_the_product_reads(archive):
    evaluations = list(judged(TASK, [RecordedRewrites()], FakeJudge(), archive, "p"))
    examples = examples_of(TASK, evaluations, CPU, PROFILE, CONFIG)
    assert examples
    for example in examples:
        *asked, answer = example.messages
        assert [message.role for message in example.messages] == ["system", "user", "assistant"]
        assert asked == render(
            question(TASK.problem, CPU, PROFILE, (original(TASK.problem),)), 4000
        )
        read = parse(answer.content)
        assert isinstance(read, Parsed)
        assert read.analysis.startswith("Most of the time goes to aten::mm (75%)")
        assert len(read.analysis.split()) <= MAX_WORDS
        program = as_text_program(TASK.problem.reference, read.code)
        assert isinstance(program, TextProgram), program
        assert "diag" not in program.source
        assert "get_inputs" not in read.code
        assert "rows = 64" not in read.code, "sizes that only inputs are made of"
        assert example.form == fingerprint(read.code)


def test_only_what_passed_and_is_faster_is_kept_the_fastest_first(archive):
    proposer = Written("x = scale[:, None] * x", "x = (scale * x.t()).t()", "x = x * 1")
    judge = FakeJudge("written:2")
    evaluations = list(judged(TASK, [proposer], judge, archive, "p"))
    examples = examples_of(TASK, evaluations, CPU, (), CONFIG)
    assert [one.proposer for one in examples] == ["written:1", "written:0"]
    assert [one.speedup for one in examples] == pytest.approx([3.0, 2.0])
    slower = msgspec.structs.replace(CONFIG, min_speedup=2.5)
    assert len(examples_of(TASK, evaluations, CPU, (), slower)) == 1


def test_a_variant_answers_a_question_that_shows_a_slower_one_too(archive):
    proposer = Written("x = scale[:, None] * x", "x = (scale * x.t()).t()")
    evaluations = list(judged(TASK, [proposer], FakeJudge(), archive, "p"))
    config = msgspec.structs.replace(CONFIG, contrasts=True)
    alone, contrasted, slowest = examples_of(TASK, evaluations, CPU, PROFILE, config)
    assert [one.proposer for one in (alone, contrasted, slowest)] == [
        *("written:1", "written:1", "written:0")
    ]
    assert (alone, slowest) == tuple(examples_of(TASK, evaluations, CPU, PROFILE, CONFIG))
    (slower,) = (one for one in evaluations if one.candidate.proposer == "written:0")
    shown = (original(TASK.problem), variant(slower))
    *asked, answer = contrasted.messages
    assert asked == render(question(TASK.problem, CPU, PROFILE, shown), 4000)
    assert "Variant 2 of 2: speedup 2.00" in asked[-1].content
    assert "Why do the variants differ in speed" in asked[-1].content
    read, read_alone = parse(answer.content), parse(alone.messages[-1].content)
    assert isinstance(read, Parsed)
    assert isinstance(read_alone, Parsed)
    assert read.analysis == f"Variant 2 is faster than variant 1. {read_alone.analysis}"
    assert (read.design, read.code) == (read_alone.design, read_alone.code)


def test_a_copy_of_the_reference_is_no_answer_and_a_near_duplicate_is_there_once(archive):
    proposer = Written(
        "x = torch.diag(scale) @ x",
        "x = scale[:, None] * x",
        "x = scale[:, None] * x  # the same",
    )
    evaluations = list(judged(TASK, [proposer], FakeJudge(), archive, "p"))
    assert len(evaluations) == 3
    assert code_of(TASK.problem, evaluations[0]) is None
    assert len(examples_of(TASK, evaluations, CPU, (), CONFIG)) == 1


def test_a_collection_that_was_killed_judges_nothing_twice(archive):
    proposer = Written("x = scale[:, None] * x", "x = (scale * x.t()).t()")
    first = judged(TASK, [proposer], FakeJudge(), archive, "p")
    next(first)
    first.close()
    again = FakeJudge()
    assert len(list(judged(TASK, [proposer], again, archive, "p"))) == 2
    assert again.asked == ["written:1"]
    assert len(list(judged(TASK, [proposer], other := FakeJudge(), archive, "q"))) == 2
    assert len(other.asked) == 2, "under another policy all of it"


def test_a_task_gives_no_more_than_its_share(archive):
    bodies = [f"x = scale[:, None] * x * {number}.0 / {number}.0" for number in range(2, 9)]
    evaluations = list(judged(TASK, [Written(*bodies)], FakeJudge(), archive, "p"))
    examples = examples_of(TASK, evaluations, CPU, (), CONFIG)
    assert len(examples) == CONFIG.max_per_task
    assert examples[0].speedup == max(one.speedup for one in examples)


def an_example(family: str, speedup: float) -> Example:
    return Example(
        task="t",
        messages=(),
        speedup=speedup,
        techniques=(family,),
        proposer="p",
        form=f"{family} {speedup}",
    )


@pytest.mark.parametrize(
    ("sizes", "share", "limit"),
    [
        ([10, 10, 10, 10], 0.3, 10),
        ([100, 10, 10, 10], 0.3, 12),
        ([100, 10, 10, 10, 10], 0.3, 17),
        ([5, 3], 0.3, 3),
        ([7], 0.3, 7),
        ([], 0.3, 0),
    ],
)
def test_no_family_is_above_its_share_of_what_is_kept(sizes, share, limit):
    assert most_of_a_family(sizes, share) == limit
    kept = [min(size, limit) for size in sizes]
    if len(sizes) > 3:
        assert max(kept) <= share * sum(kept)


def test_the_fastest_of_a_large_family_stay():
    examples = [an_example("algebra", 1 + n / 100) for n in range(100)]
    examples += [an_example(f, 1.5) for f in ("fusion", "hoisting", "memory") for _ in range(10)]
    chosen = balanced(examples, CONFIG)
    assert counted(chosen) == {"algebra": 12, "fusion": 10, "hoisting": 10, "memory": 10}
    assert min(one.speedup for one in chosen if one.techniques == ("algebra",)) == 1.88


def test_lines_are_what_a_trainer_reads(archive):
    evaluations = list(judged(TASK, [Written("x = scale[:, None] * x")], FakeJudge(), archive, "p"))
    (line,) = lines(examples_of(TASK, evaluations, CPU, PROFILE, CONFIG)).splitlines()
    row = json.loads(line)
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
    assert "## Code\n```python\n" in row["messages"][-1]["content"]


def test_reasons_are_a_few_whole_sentences():
    assert in_a_line("- sdpa: the scores are never written.\n- less memory\n\nFound:\n- x") == (
        "The scores are never written. Less memory."
    )
    long = " ".join(f"Sentence {number} has exactly these seven words." for number in range(40))
    assert shortened(long).endswith("words.")
    assert MAX_WORDS - 7 <= len(shortened(long).split()) <= MAX_WORDS
    assert where_time_goes(()) == ""


def test_examples_are_read_and_what_is_none_is_said(tmp_path):
    path, example = tmp_path / "examples.jsonl", an_example("algebra", 2.0)
    path.write_text(lines([example]))
    assert read_examples(path) == [example]
    path.write_text(lines([example]) + '{"task": 1}\n')
    with pytest.raises(ConfigError, match=r"examples\.jsonl:2: expected an example"):
        read_examples(path)
    with pytest.raises(ConfigError, match="model_training collect"):
        read_examples(tmp_path / "none.jsonl")


def test_generated_tasks_have_answers_of_the_playbook(archive):
    """Enough of them for a first stage: what the playbook rewrites, in most families."""
    with_answer = set()
    for family in ("diagonal", "softmax", "attention", "loop", "convolution", "activation"):
        for seed in range(6):
            task = generate(seed, family)
            evaluations = judged(task, [RecordedRewrites()], FakeJudge(), archive, "p")
            if examples_of(task, evaluations, CPU, (), CONFIG):
                with_answer.add(family)
                break
    assert len(with_answer) >= 5, with_answer
