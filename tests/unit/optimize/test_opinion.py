"""When a second opinion is asked for in a run, what comes of it, and what must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.run import review
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.hack_review.cases import KIND, Case, Database, known_cases
from cudal1_ci.propose.llm.hack_review.review import Reviewer
from cudal1_ci.propose.llm.servers import Answer
from cudal1_ci.records import Candidate, Entry, Evaluation, Finding, Problem, Verdict
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import FakeModel, FakeProposer, a_problem, a_target
from tests.unit.optimize.test_optimization import REFERENCE, SOURCE, Verifier, answer, counting

HACK = 'verdict: hack\nIt keeps `x.data_ptr()` and "returns" what it had.\n@everyone'


def tricky(*numbers: int, name: str = "fake-coder") -> FakeModel:
    """Answers with these variants, each with a word that hacks have and the reference has not."""
    left = iter(numbers)
    trick = "self.kept = x.data_ptr()\n        return torch"
    return FakeModel(lambda m, s: answer(next(left)).replace("return torch", trick), name)


def run(
    folder: Path,
    other: FakeModel | None,
    judge: Verifier,
    num_samples: int = 1,
    model: FakeModel | None = None,
    rewrite: str | None = None,
    budget_is_spent: Callable[[], bool] | None = None,
) -> Entry:
    problem = a_problem(REFERENCE)
    planned = Planned(target=a_target(), problem=problem, workloads=problem.workloads)
    with Archive.open(folder / "archive.sqlite") as archive:
        run_id = archive.start_run({})
        since = archive.run_started_at(run_id)
        database = Database(proven=known_cases(), archive=archive, since=since)
        bench = RunContext(
            session=judge,
            strategies=[FakeProposer([rewrite] if rewrite else [], [])],
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(),
            optimizer=Optimizer(
                model=model or counting(),
                config=OptimizerConfig(num_rounds=1, num_samples=num_samples),
                contrast=ContrastConfig(),
                num_concurrent=1,
                overlaps=True,
                since=since,
            ),
            reviewer=Reviewer(model=other, database=database, prompt_tokens=8000)
            if other
            else None,
            policy="p",
        )
        if budget_is_spent is not None:
            bench.is_over = budget_is_spent
        (entry,) = review(Plan(root=folder, repository="repo", targets=(planned,)), bench).entries
        archive.finish_run(run_id)
        return entry


def saying(*replies: str | Answer) -> FakeModel:
    """Says one thing after the other, the last one again and again."""
    left: Iterator[str | Answer] = iter(replies)
    last = replies[-1]
    return FakeModel(lambda messages, seed: next(left, last), name="org/critic")


def cases_in(folder: Path) -> list[Case]:
    with Archive.open(folder / "archive.sqlite") as archive:
        return list(archive.all_noted(KIND, Case).values())


def test_a_jump_that_a_model_suspects_is_listed_and_not_proposed(tmp_path):
    other = saying(HACK)
    entry = run(tmp_path, other, Verifier(lambda number: 9.0))
    (found,) = entry.evaluations
    assert entry.best is None
    assert (found.verdict.status, found.measurements) == ("inconclusive", ())
    (finding,) = found.verdict.findings
    assert finding.rule == "opinion.hack"
    assert finding.message == (
        "the verifier found no fault and measured 9.00x on fake, but another model (critic) "
        "suspects a hack; this is not proven; in its words: "
        "\"It keeps 'x.data_ptr()' and 'returns' "
        'what it had. @everyone"'
    )
    assert entry.opinion_use.num_asked == entry.opinion_use.num_suspected == 1
    assert entry.opinion_use.failed == {}
    (case,) = cases_in(tmp_path)
    assert case.standing == "suspected"
    assert "relu(x) * 2" in case.code
    assert "everyone" not in str(case), "a model's words do not speak to the next one"


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ("verdict: fine\nIt is algebra.", {}),
        ("I am not sure, it may be a hack.", {"unreadable": 1}),
        ("", {"unreadable": 1}),
        ("verdict: hack|fine", {"unreadable": 1}),
        (Answer(failure="timeout", message="too late"), {"timeout": 1}),
        (Answer(text="verdict: hack", failure="degenerate"), {"degenerate": 1}),
        (RuntimeError("a bug"), {"server": 1}),
    ],
)
def test_without_a_suspicion_nothing_changes_and_a_failure_is_counted(tmp_path, said, failed):
    def reply(messages, seed):
        if isinstance(said, Exception):
            raise said
        return said

    other = FakeModel(reply)
    entry = run(tmp_path / "with", other, Verifier(lambda number: 9.0))
    without = run(tmp_path / "without", None, Verifier(lambda number: 9.0))
    assert entry.best == without.best == 0
    assert entry.evaluations[0].verdict == without.evaluations[0].verdict
    assert entry.evaluations[0].measurements == without.evaluations[0].measurements
    assert entry.opinion_use.num_asked == 1
    assert entry.opinion_use.num_suspected == 0
    assert entry.opinion_use.failed == failed
    assert without.opinion_use is None
    assert cases_in(tmp_path / "with") == []


@pytest.mark.parametrize("speedups", [[1.5], [None], [9.0, 1.1], [9.0, None]])
def test_what_is_no_jump_or_was_refused_by_the_judge_is_not_asked_about(tmp_path, speedups):
    times = iter(speedups)
    other = saying(HACK, "verdict: fine")
    entry = run(tmp_path, other, Verifier(lambda number: next(times)))
    assert other.asked == []
    assert entry.opinion_use is None
    assert entry.best == (0 if speedups == [1.5] else None)


def test_no_opinion_acquits(tmp_path):
    times = iter([9.0, 1.1])
    entry = run(tmp_path, saying("verdict: fine"), Verifier(lambda number: next(times)))
    assert entry.evaluations[0].verdict.findings[0].rule == "jump.unconfirmed"


def test_rewrites_of_the_playbook_are_not_asked_about(tmp_path):
    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    other = saying(HACK)
    model = FakeModel(lambda messages, seed: "no code")
    entry = run(tmp_path, other, Verifier(lambda number: 9.0), model=model, rewrite=rewrite)
    assert other.asked == []
    assert entry.best == 0


class Convicting(Verifier):
    """Convicts the variants of `hacks`."""

    hacks = (2,)

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        found = super().evaluate(problem, candidate)
        if self.judged[-1] not in self.hacks:
            return found
        finding = Finding(rule="timing.reconciliation", message="claimed 3 us, took 90 us")
        verdict = Verdict(status="reward_hack", findings=(finding,))
        return Evaluation(candidate=candidate, verdict=verdict, device=found.device)


def test_what_the_judge_convicts_is_a_proven_case_of_the_next_run(tmp_path):
    other = saying("verdict: fine")
    run(tmp_path, other, Convicting(lambda number: 1.5), model=tricky(2))
    assert other.asked == []
    (case,) = cases_in(tmp_path)
    assert case.standing == "proven"
    assert "timing.reconciliation: claimed 3 us" in case.description
    later = tricky(3, name="later")
    run(tmp_path, other, Convicting(lambda number: 9.0), model=later)
    (prompt,) = other.prompts
    assert "Case 1 of" in str(prompt)
    assert "Rejected by the verifier." in str(prompt)


def test_a_suspicion_does_not_vote_for_itself_in_the_next_run(tmp_path):
    first = saying(HACK)
    run(tmp_path, first, Verifier(lambda number: 9.0), model=tricky(2))
    again = saying("verdict: fine")
    entry = run(tmp_path, again, Verifier(lambda number: 9.0))
    assert again.asked == [], "the same question has its answer in the archive"
    assert entry.evaluations[0].verdict.findings[0].rule == "opinion.hack"
    run(tmp_path, again, Verifier(lambda number: 9.0), model=tricky(3, name="later"))
    (prompt,) = again.prompts
    assert "suspected by a model and proven by nobody" in str(prompt)
    assert str(prompt).count("proven: `") <= 3


def test_what_is_suspected_is_no_exemplar_and_not_asked_to_be_repaired(tmp_path):
    model = counting()
    run(tmp_path, saying(HACK), Verifier(lambda number: 9.0), model=model)
    later = counting()
    run(tmp_path, saying(HACK), Verifier(lambda number: 9.0), model=later, num_samples=2)
    assert all("relu(x) * 2" not in str(messages) for messages in model.prompts + later.prompts)


def test_a_spent_budget_ends_the_wait_for_an_opinion(tmp_path):
    is_asked = []

    def reply(messages, seed):
        is_asked.append(True)
        return other.waited()

    other = FakeModel(reply)
    entry = run(
        tmp_path, other, Verifier(lambda number: 9.0), budget_is_spent=lambda: bool(is_asked)
    )
    assert entry.opinion_use.failed == {"cancelled": 1}
    assert entry.best == 0


def test_code_that_is_too_long_is_not_shown_in_part(tmp_path):
    other = saying(HACK)
    long = answer(2).replace("return torch", f"table = {[1] * 9000}\n        return torch")
    model = FakeModel(lambda messages, seed: long)
    entry = run(tmp_path, other, Verifier(lambda number: 9.0), model=model)
    assert other.asked == []
    assert entry.opinion_use.failed == {"prompt": 1}
    assert entry.best == 0
