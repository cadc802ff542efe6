"""The contrastive loop with a scripted model: what it is shown, what comes of it, when it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.errors import WorkerError
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.optimize.run import review
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.propose.llm.servers import Answer
from cudal1_ci.records import Candidate, Evaluation, Problem, Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.progress import SilentProgress
from tests.fakes import FakeModel, FakeProposer, FakeSession, a_problem, a_target, an_evaluation

SOURCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x){}


def get_inputs():
    return [torch.rand(4)]
"""
REFERENCE = SOURCE.format("")


def answer(number: int) -> str:
    """A variant that no other number has, in the form that was asked for."""
    code = SOURCE.format(f" * {number}").replace("class Model(", "class ModelNew(")
    return (
        f"## Performance analysis\nVariant {number}.\n\n## Algorithm design\nMultiply by {number}."
        f"\n\n## Code\n```python\n{code}```\n"
    )


class Verifier(FakeSession):
    """Finds variant n to be `speedups(n)` times as fast; None is wrong."""

    def __init__(self, speedups: Callable[[int], float | None]):
        super().__init__({})
        self.speedups = speedups
        self.judged: list[int] = []

    def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        number = int(candidate.program.source.partition("relu(x) * ")[2].partition("\n")[0])
        self.judged.append(number)
        speedup = self.speedups(number)
        if speedup is None:
            return an_evaluation(candidate, "incorrect_values")
        return an_evaluation(candidate, "passed", speedup)

    def profile(self, workload: str, *, is_candidate: bool):
        return [{"name": "aten::relu", "num_calls": 1, "time_us": 3.5}]


def run(
    folder: Path,
    model: FakeModel,
    judge: FakeSession,
    config: OptimizerConfig,
    proposer: FakeProposer | None = None,
    contrast: ContrastConfig | None = None,
    problem: Problem | None = None,
    overlaps: bool = True,
    budget_is_spent: Callable[[], bool] | None = None,
) -> Report:
    problem = problem or a_problem(REFERENCE)
    planned = Planned(target=a_target(), problem=problem, workloads=problem.workloads)
    plan = Plan(root=folder, repository="repo", targets=(planned,))
    with Archive.open(folder / "archive.sqlite") as archive:
        arguments = {"path": "here"}
        unfinished = archive.unfinished_run(arguments)
        run_id = unfinished.id if unfinished else archive.start_run(arguments)
        bench = RunContext(
            session=judge,
            strategies=[proposer or FakeProposer([])],
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(),
            optimizer=Optimizer(
                model=model,
                config=config,
                contrast=contrast or ContrastConfig(),
                num_concurrent=1,
                overlaps=overlaps,
                since=archive.run_started_at(run_id),
            ),
            policy="p",
        )
        if budget_is_spent is not None:
            bench.is_over = budget_is_spent
        report = review(plan, bench)
        archive.finish_run(run_id)
        return report


def counting() -> FakeModel:
    """Answers with the variants 2, 3, 4, ... in the order of its questions."""
    numbers = iter(range(2, 10_000))
    return FakeModel(lambda messages, seed: answer(next(numbers)))


def test_it_finds_the_best_of_twenty_in_one_run(tmp_path):
    by_number = {number: 1 + 0.04 * ((number * 7) % 20) for number in range(2, 22)}
    config = OptimizerConfig(num_rounds=5, num_samples=4, patience=5)
    (entry,) = run(tmp_path, counting(), Verifier(by_number.get), config).entries
    assert len(entry.evaluations) == 20
    best = entry.evaluations[entry.best]
    from cudal1_ci.stats import speedups

    assert speedups.score(best) == max(speedups.score(one) for one in entry.evaluations)
    assert entry.model_use.num_answers == 20
    assert entry.model_use.completion_tokens == 100
    assert best.candidate.analysis.startswith("Variant ")
    assert best.candidate.generation.model == "fake-coder"


def test_what_passed_is_shown_in_the_next_round_and_what_did_not_is_not(tmp_path):
    model = counting()
    judge = Verifier(lambda number: None if number == 2 else 1.5)
    config = OptimizerConfig(num_rounds=2, num_samples=2, num_repairs=0)
    run(tmp_path, model, judge, config)
    first, second = model.prompts[:2], model.prompts[2:]
    assert all("relu(x) * " not in str(messages) for messages in first)
    assert any("relu(x) * 3" in str(messages) for messages in second)
    assert all("relu(x) * 2" not in str(messages) for messages in second)


def test_rewrites_that_passed_are_exemplars_of_the_first_round(tmp_path):
    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    model = counting()
    config = OptimizerConfig(num_rounds=1, num_samples=1)
    run(tmp_path, model, Verifier(lambda number: 1.5), config, FakeProposer([rewrite], []))
    assert "relu(x) * 77" in str(model.prompts[0])
    assert "1.4" in str(model.prompts[0])  # the lower bound of its speedup


def test_without_exemplars_none_is_shown(tmp_path):
    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    model = counting()
    run(
        tmp_path,
        model,
        Verifier(lambda number: 1.5),
        OptimizerConfig(num_rounds=1, num_samples=1),
        FakeProposer([rewrite], []),
        ContrastConfig(sampler="none"),
    )
    assert "relu(x) * 77" not in str(model.prompts[0])


def test_wrong_values_are_fed_back_once(tmp_path):
    model = counting()
    config = OptimizerConfig(num_rounds=4, num_samples=1, num_repairs=5, patience=9)
    (entry,) = run(tmp_path, model, Verifier(lambda number: None), config).entries
    repairs = [messages for messages in model.prompts if messages[-2].role == "assistant"]
    assert entry.model_use.num_repairs == len(repairs) == 3, "of the first answers of three rounds"
    for messages in repairs:
        assert "relu(x) * " in messages[-2].content
        assert "wrong by" in messages[-1].content or "incorrect_values" in messages[-1].content


def test_an_answer_without_code_is_counted_and_asked_for_again(tmp_path):
    numbers = iter([2, 3])

    def reply(messages, seed):
        if messages[-2].role == "assistant":
            return answer(next(numbers))
        return "I would use a fused kernel here."

    config = OptimizerConfig(num_rounds=2, num_samples=1, patience=9)
    (entry,) = run(tmp_path, FakeModel(reply), Verifier(lambda number: 1.5), config).entries
    assert entry.model_use.refused == {"no_code": 2}
    assert [e.candidate.generation.turn for e in entry.evaluations] == [1]


def test_copies_and_duplicates_are_counted_and_not_judged(tmp_path):
    copy = answer(2).replace(" * 2\n", "\n")
    again = answer(5).replace("(self, x)", "(self, tensor)").replace("relu(x)", "relu(tensor)")
    replies = iter([answer(5), again, copy, answer(6)])
    judge = Verifier(lambda number: 1.5)
    config = OptimizerConfig(num_rounds=1, num_samples=4)
    (entry,) = run(tmp_path, FakeModel(lambda m, s: next(replies)), judge, config).entries
    assert judge.judged == [5, 6]
    assert entry.model_use.refused == {"duplicate": 1, "unchanged": 1}


def test_it_ends_when_nothing_better_comes(tmp_path):
    model = counting()
    config = OptimizerConfig(num_rounds=9, num_samples=1, patience=2)
    run(tmp_path, model, Verifier(lambda number: {2: 1.2, 3: 1.6}.get(number, 1.3)), config)
    assert len(model.asked) == 4


def test_a_jump_that_is_not_found_again_is_not_believed(tmp_path):
    times = iter([9.0, 1.1, 9.0, 9.0])
    judge = Verifier(lambda number: next(times))
    config = OptimizerConfig(num_rounds=1, num_samples=2)
    (entry,) = run(tmp_path, counting(), judge, config).entries
    assert judge.judged == [2, 2, 3, 3]
    statuses = [one.verdict.status for one in entry.evaluations]
    assert statuses == ["inconclusive", "passed"]
    assert entry.evaluations[0].verdict.findings[0].rule == "jump.unconfirmed"
    assert entry.best == 1


def test_a_failing_model_costs_its_answers_and_not_the_run(tmp_path):
    model = FakeModel(lambda m, s: Answer(failure="server", message="502"))
    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    (entry,) = run(
        tmp_path,
        model,
        Verifier(lambda number: 1.5),
        OptimizerConfig(num_rounds=3, num_samples=2),
        FakeProposer([rewrite], []),
    ).entries
    assert entry.best == 0
    assert entry.model_use.refused == {"server": 4}, "two rounds without a gain are enough"


@pytest.mark.parametrize("what", ["prompt", "judge"])
def test_what_the_rewrites_came_to_stays_when_the_model_cannot_be_asked(tmp_path, what):
    class Dying(Verifier):
        def evaluate(self, problem, candidate):
            if candidate.generation is not None:
                raise WorkerError("the judge was killed")
            return super().evaluate(problem, candidate)

    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    config = OptimizerConfig(num_rounds=1, prompt_tokens=20 if what == "prompt" else 6000)
    judge = Dying(lambda number: 1.5)
    report = run(tmp_path, counting(), judge, config, FakeProposer([rewrite], []))
    (entry,) = report.entries
    assert entry.skipped is None
    assert entry.best == 0
    told = [notice.message for notice in report.warnings]
    assert ["the judge was killed" in message for message in told] == ([True] * (what == "judge"))


def test_a_run_that_was_killed_asks_nothing_again_and_ends_as_it_would_have(tmp_path):
    def speedup_of(number: int) -> float:
        return 1 + (number * 7 % 20) / 25

    def by_seed(messages, seed):
        return answer(2 + seed % 9973)

    config = OptimizerConfig(num_rounds=3, num_samples=3, patience=9)
    whole = FakeModel(by_seed)
    (expected,) = run(tmp_path / "whole", whole, Verifier(speedup_of), config).entries

    class Killed(Verifier):
        def evaluate(self, problem, candidate):
            if len(self.judged) == 4:
                raise SystemExit("killed")
            return super().evaluate(problem, candidate)

    cut = FakeModel(by_seed)
    with pytest.raises(SystemExit):
        run(tmp_path / "cut", cut, Killed(speedup_of), config)
    again, judge = FakeModel(by_seed), Verifier(speedup_of)
    (found,) = run(tmp_path / "cut", again, judge, config).entries
    assert sorted(cut.asked + again.asked) == sorted(whole.asked)
    assert len(judge.judged) == len(expected.evaluations) - 4
    assert {e.candidate.id for e in found.evaluations} == {
        e.candidate.id for e in expected.evaluations
    }
    assert found.evaluations[found.best].candidate.id == (
        expected.evaluations[expected.best].candidate.id
    )


def test_yesterdays_variants_of_this_and_of_a_similar_problem_are_shown(tmp_path):
    config = OptimizerConfig(num_rounds=1, num_samples=1)
    run(tmp_path, counting(), Verifier(lambda number: 1.8), config)
    later = counting()
    run(
        tmp_path,
        later,
        Verifier(lambda number: 1.8),
        config,
        contrast=ContrastConfig(num_exemplars=9),
    )
    assert "relu(x) * 2" in str(later.prompts[0])
    similar = a_problem(REFERENCE.replace("torch.relu(x)", "torch.relu(x) + 1 - 1"))
    model = counting()
    run(
        tmp_path,
        model,
        Verifier(lambda number: 1.8),
        config,
        contrast=ContrastConfig(num_exemplars=9),
        problem=similar,
    )
    assert "of a similar module" in str(model.prompts[0])


def test_a_model_on_the_device_that_is_timed_is_silent_meanwhile(tmp_path):
    events = []

    def reply(messages, seed):
        events.append("asked")
        return answer(2 + len(events))

    class Noted(Verifier):
        def evaluate(self, problem, candidate):
            events.append("judged")
            return super().evaluate(problem, candidate)

    config = OptimizerConfig(num_rounds=1, num_samples=3)
    run(tmp_path, FakeModel(reply), Noted(lambda number: 1.5), config, overlaps=False)
    assert events == ["asked"] * 3 + ["judged"] * 3


def test_a_spent_budget_ends_the_questions(tmp_path):
    model = counting()
    looks = iter([False] * 4 + [True] * 99)
    config = OptimizerConfig(num_rounds=5, num_samples=2)
    report = run(
        tmp_path,
        model,
        Verifier(lambda number: 1.5),
        config,
        budget_is_spent=lambda: next(looks),
    )
    assert 1 <= len(model.asked) <= 4
    assert report.entries[0].evaluations


def test_numbers_that_were_measured_otherwise_are_in_the_entry(tmp_path):
    class Profiled(Verifier):
        def profile(self, workload, *, is_candidate):
            return [
                {"name": "aten::_softmax", "num_calls": 1, "time_us": 2.0},
                {"name": "aten::mm", "num_calls": 1, "time_us": 98.0},
            ]

    claim = "Softmax takes 80% of the runtime."
    said = iter([answer(2).replace("Variant 2.", claim), answer(3)])
    config = OptimizerConfig(num_rounds=1, num_samples=2)
    judge = Profiled(lambda number: 1.5)
    (entry,) = run(tmp_path, FakeModel(lambda m, s: next(said)), judge, config).entries
    (found,) = entry.contradictions
    assert found.candidate_id == entry.evaluations[0].candidate.id
    assert found.claim == claim
    assert found.measured.startswith("softmax has at most 2% of the profiled time")


def test_without_a_model_no_numbers_are_looked_at(tmp_path):
    rewrite = SOURCE.format(" * 77").replace("class Model(", "class ModelNew(")
    model = FakeModel(lambda m, s: Answer(failure="server", message="502"))
    config = OptimizerConfig(num_rounds=1, num_samples=1)
    judge = Verifier(lambda number: 1.5)
    (entry,) = run(tmp_path, model, judge, config, FakeProposer([rewrite], [])).entries
    assert entry.best == 0
    assert entry.contradictions == ()


def test_no_model_is_asked_about_what_takes_a_negligible_share(tmp_path):
    workload = msgspec.structs.replace(a_problem(REFERENCE).workloads[0], share=0.0004)
    model = counting()
    problem = a_problem(REFERENCE, workload)
    (entry,) = run(tmp_path, model, FakeSession({}), OptimizerConfig(), problem=problem).entries
    assert model.asked == []
    assert "0.04 % of the traced time" in entry.skipped
