"""Stage 1's data set from all sources; a collection that was stopped goes on."""

from __future__ import annotations

import json

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.records import Evaluation, Verdict
from cudal1_ci.records.archive import Archive
from model_training.collect import EXAMPLES, CollectConfig, collect
from model_training.examples import CollectionConfig, read_examples
from model_training.run import METRICS, Stopped
from model_training.tasks.generate import generate
from model_training.toy import DEVICE, PROGRAMS, ToyJudge, answer_to
from model_training.toy.judge import measured
from model_training.variants import HandMade
from model_training.variants.rules import AROUND
from tests.replay_server import Good, replay_server
from tests.training.tiny import TINY
from tests.training.toy_stages import TASKS, opened, scorer

BY_NAME = {one.name: one for one in PROGRAMS}
KEEP = CollectionConfig(min_speedup=0.1, max_per_task=8, max_share=1.0, contrasts=False)
TOY = CollectConfig(sources=("toy",), keep=KEEP)


@pytest.fixture
def archive(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as found:
        yield found


def test_what_passed_is_an_example_and_the_run_has_the_numbers(archive, tmp_path):
    with opened(tmp_path / "run", tmp_path) as run:
        found = collect(TASKS, scorer(archive), TOY, run)
    assert len(found) == 4 * len(TASKS), "of each task what passed, without the copy"
    assert read_examples(run.folder / EXAMPLES) == found
    (line,) = map(json.loads, (run.folder / METRICS).read_text().splitlines())
    assert (line["stage"], line["tasks"], line["examples"]) == ("collect", 4, 16)
    assert line["seconds"] + 1e-3 > line["score_s"] > line["generate_s"] == 0
    assert line["judged"] == len(PROGRAMS) * 4
    assert run.finished() == {"collect": EXAMPLES}


def test_a_collection_that_was_stopped_judges_nothing_twice(archive, tmp_path):
    class Stopping(ToyJudge):
        def evaluate(self, problem, candidate):
            if len(self.asked) == 10:
                run._signal = "SIGTERM"
            return super().evaluate(problem, candidate)

    judge, again = Stopping(), ToyJudge()
    with opened(tmp_path / "run", tmp_path) as run, pytest.raises(Stopped):
        collect(TASKS, scorer(archive, judge, run), TOY, run)
    with opened(tmp_path / "run", tmp_path, is_resumed=True) as run:
        assert len(collect(TASKS, scorer(archive, again, run), TOY, run)) == 16
    first, second = map(json.loads, (tmp_path / "run" / METRICS).read_text().splitlines())
    assert (first["step"], second["step"]) == (1, 2), "what the first took is in the cost"
    assert second["seconds"] > first["seconds"] > 0
    assert len(judge.asked) + len(again.asked) == len(PROGRAMS) * 4
    assert again.asked


class Passing:
    """A judge that passes all, each twice as fast as the reference."""

    def __init__(self):
        self.asked = []

    def device(self):
        return DEVICE

    def evaluate(self, problem, candidate):
        self.asked.append(candidate)
        return Evaluation(
            candidate=candidate,
            verdict=Verdict(status="passed"),
            measurements=tuple(measured(one.name, 2.0) for one in problem.workloads),
            device=DEVICE,
        )


def test_of_a_family_that_is_partly_known_only_what_stands_around_is_rewritten(archive, tmp_path):
    chosen = [generate(seed, family, TINY) for seed in range(6) for family in ("loop", "mlp")]
    config = CollectConfig(sources=("hand-made",), partly=("loop",), keep=KEEP)
    judge = Passing()
    with opened(tmp_path / "run", tmp_path) as run:
        collect(chosen, scorer(archive, judge, run), config, run)
    ids = {one.problem.id: one for one in chosen}
    asked = {family: set() for family in ("loop", "mlp")}
    for one in judge.asked:
        asked[ids[one.problem_id].family].add(one.id)

    def proposed(family, proposer):
        tasks = [one.problem for one in chosen if one.family == family]
        return {one.id for task in tasks for one in proposer.propose(task, (), 16)}

    around, whole = proposed("loop", HandMade(rules=AROUND)), proposed("loop", HandMade())
    assert around - whole and whole - around, "steps of their own are left, or rewritten too"
    assert asked["loop"] == around
    assert asked["mlp"] == proposed("mlp", HandMade())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"partly": ("lop",)}, r"collection\.partly: expected some of .*got lop"),
        ({"partly": ("loop",), "sources": ("playbook",)}, "expected `hand-made` among"),
    ],
)
def test_families_that_cannot_be_partly_known_are_refused(archive, tmp_path, changes, says):
    chosen = [generate(0, "loop", TINY), generate(0, "mlp", TINY)]
    with pytest.raises(ConfigError, match=says), opened(tmp_path / "run", tmp_path) as run:
        config = CollectConfig(**{"sources": ("hand-made",), **changes})
        collect(chosen, scorer(archive, ToyJudge(), run), config, run)


def models(server, **config):
    model = ModelConfig(model=server.url, name="coder", num_concurrent=1)
    return CollectConfig(sources=(), models=(model,), keep=KEEP, num_tasks=1, **config)


def test_a_model_is_asked_until_two_answers_have_passed(archive, tmp_path):
    names = ["wrong", "indexed", "copy", "indexed", "looped", "scaled", "same"]
    answers = [Good(answer_to(BY_NAME[name])) for name in names]
    with opened(tmp_path / "run", tmp_path) as run, replay_server(answers=answers) as server:
        config = models(server, num_at_once=1)
        found = collect(TASKS, scorer(archive), config, run)
        assert len(server.requests) == 5, "the same program is one success"
        again = collect(TASKS, scorer(archive, judge := ToyJudge()), config, run)
        assert len(server.requests) == 5
    assert sorted(one.speedup for one in found) == pytest.approx([0.5, 1.3])
    assert {one.proposer for one in found} == {"model:coder"}
    assert again == found
    assert judge.asked == []


def test_a_model_that_has_no_answer_is_given_up_after_its_attempts(archive, tmp_path):
    with (
        opened(tmp_path / "run", tmp_path) as run,
        replay_server(answers=["I do not know."]) as server,
    ):
        config = models(server, max_attempts=6, num_at_once=4)
        assert collect(TASKS, scorer(archive), config, run) == []
        assert len(server.requests) == 6
        assert len({one["seed"] for one in server.requests}) == 6


def test_a_family_is_not_above_its_share(archive, tmp_path):
    keep = msgspec.structs.replace(KEEP, max_share=0.3, max_per_task=4)
    config = msgspec.structs.replace(TOY, keep=keep)
    with opened(tmp_path / "run", tmp_path) as run:
        found = collect(TASKS, scorer(archive), config, run)
    counts = [sum(one.techniques == (name,) for one in found) for name in BY_NAME]
    assert max(counts) <= 0.3 * len(found)
