"""The column of a model: what it is shown, and what comes of its answers."""

from __future__ import annotations

import time

from cudal1_ci.optimize.llm_loop import Optimizer
from cudal1_ci.propose.llm.config import ContrastConfig, OptimizerConfig
from cudal1_ci.report_card.run import run
from cudal1_ci.report_card.worth import worth
from tests.fakes import FakeModel, FakeSession
from tests.unit.report_card.rig import a_bench, a_task, found

SOURCE = """import torch


class {name}(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x){more}


def get_inputs():
    return [torch.rand(4)]
"""
REFERENCE = SOURCE.format(name="Model", more="")
PLAYBOOK = SOURCE.format(name="ModelNew", more=" * 20")
PUBLISHED = SOURCE.format(name="ModelNew", more=" * 90")


class Verifier(FakeSession):
    """Finds what multiplies by n to be n tenths as fast."""

    def evaluate(self, problem, candidate):
        source = candidate.program.source
        number = int(source.partition("relu(x) * ")[2].partition("\n")[0])
        self.answers[source] = ("passed", number / 10)
        return super().evaluate(problem, candidate)

    def profile(self, workload, *, is_candidate):
        return [{"name": "aten::relu", "num_calls": 1, "time_us": 3.5}]


def answer(number):
    code = SOURCE.format(name="ModelNew", more=f" * {number}")
    words = "## Performance analysis\nIt is.\n\n## Algorithm design\nTry.\n\n## Code\n"
    return f"{words}```python\n{code}```\n"


def an_optimizer(model, since):
    return Optimizer(
        model=model,
        config=OptimizerConfig(num_rounds=1, num_samples=2),
        contrast=ContrastConfig(),
        num_concurrent=1,
        overlaps=True,
        since=since,
    )


def judged(folder, model, judge, since):
    proposers = {"playbook": [PLAYBOOK], "published": [PUBLISHED]}
    optimizer = an_optimizer(model, since)
    with a_bench(folder, judge, proposers, since=since, optimizer=optimizer) as bench:
        return run(found(a_task(source=REFERENCE)), *bench)


def test_a_model_is_shown_the_playbooks_finds_and_never_what_others_published(tmp_path):
    numbers = iter(range(25, 99))
    model = FakeModel(lambda messages, seed: answer(next(numbers)))
    began = time.time()
    document = judged(tmp_path, model, Verifier({}), began)
    (task,) = document.tasks
    by_solver = {result.solver: result for result in task.results}
    assert by_solver["contrastive"].failure is None
    assert [one.candidate.generation is not None for one in by_solver["contrastive"].trials] == [
        True,
        True,
    ]
    assert worth(task, "best").solver == "contrastive"
    # Once more as another run, whose archive knows the published kernel too.
    later = FakeModel(lambda messages, seed: answer(next(numbers)))
    judged(tmp_path, later, Verifier({}), time.time() + 1)
    for asked in (model, later):
        prompts = "\n".join(str(message) for prompt in asked.prompts for message in prompt)
        assert "relu(x) * 20" in prompts
        assert "relu(x) * 90" not in prompts


def test_a_run_that_goes_on_asks_the_model_nothing_twice(tmp_path):
    numbers = iter(range(25, 99))
    model = FakeModel(lambda messages, seed: answer(next(numbers)))
    began = time.time()
    first = judged(tmp_path, model, Verifier({}), began)
    asked = len(model.asked)
    again = Verifier({})
    second = judged(tmp_path, model, again, began)
    assert len(model.asked) == asked
    assert again.asked == []
    assert second.card == first.card
