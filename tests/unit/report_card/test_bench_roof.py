"""How far from its bound a task is: by hand, on the page and in the table."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.errors import WorkerError
from cudal1_ci.records import Demand
from cudal1_ci.report_card.page import render_page
from cudal1_ci.report_card.roof import bound_us, distance, unmoved
from cudal1_ci.report_card.run import run
from cudal1_ci.report_card.table import render_table
from cudal1_ci.report_card.worth import worth
from tests.fakes import CPU
from tests.unit.report_card.rig import Verifier, a_bench, a_run, a_task, found, told

H200 = msgspec.structs.replace(CPU, kind="cuda", name="NVIDIA H200")
DEMAND = Demand(num_bytes=48_000, product_flops=2_000_000_000, dtype="float32")


class Counting(Verifier):
    """Says what a call asks, once a problem at the most."""

    num_asked = 0
    answer: Demand | str = DEMAND
    checked: str | None = None
    asked_of: tuple[str | None, ...] = ()

    def device(self):
        return H200

    def check(self, problem, most_s=None):
        self.checked = problem.id
        return super().check(problem)

    def demand(self, workload):
        assert workload == "small"
        self.num_asked += 1
        self.asked_of += (self.checked,)
        if self.answer == "died":
            raise WorkerError("the judge ended")
        return self.answer


def bounded(name, columns, least_us):
    return msgspec.structs.replace(told(a_task(name), columns), least_us=least_us)


def test_a_task_says_what_it_asks_of_a_device_and_is_not_counted_twice(tmp_path):
    judge = Counting({"a": ("passed", 2.0)})
    for _ in range(2):
        with a_bench(tmp_path, judge, {"playbook": ["a"]}) as bench:
            (task,) = run(found(a_task()), *bench).tasks
    assert judge.num_asked == 1
    assert task.demand is not None
    assert task.demand.product_flops == DEMAND.product_flops
    assert task.least_us == pytest.approx(2000 / 67)


@pytest.mark.parametrize("answer", ["an operator that torch cannot count", "died"])
def test_what_cannot_be_counted_costs_nothing_and_is_asked_again(tmp_path, answer):
    judge = Counting({"a": ("passed", 2.0)})
    judge.answer = answer
    for expected in (1, 2):
        with a_bench(tmp_path, judge, {"playbook": ["a"]}) as bench:
            (task,) = run(found(a_task()), *bench).tasks
        assert judge.num_asked == expected
        assert (task.standing, task.demand, task.least_us) == ("judged", None, None)


def test_a_task_whose_verdict_is_known_is_not_told_by_the_reference_of_another(tmp_path):
    judge = Counting({"a": ("passed", 2.0)})
    judge.answer = "died"
    one, other = a_task("level1/1", "class Model: 1"), a_task("level1/2", "class Model: 2")
    with a_bench(tmp_path, judge, {"playbook": ["a"]}) as bench:
        run(found(one), *bench)  # killed, say, before it was asked
    judge.answer = DEMAND
    with a_bench(tmp_path, judge, {"playbook": ["a"]}) as bench:
        run(found(other, one), *bench)
    assert judge.asked_of == (one.problem.id, other.problem.id, one.problem.id)


def test_a_device_without_a_data_sheet_has_no_bound(tmp_path):
    judge = Counting({"a": ("passed", 2.0)})
    judge.device = lambda: CPU
    with a_bench(tmp_path, judge, {"playbook": ["a"]}) as bench:
        (task,) = run(found(a_task()), *bench).tasks
    assert (judge.num_asked, task.demand) == (0, None)
    assert bound_us(DEMAND, CPU) is None


def test_distances_are_of_what_counts():
    task = bounded("level1/1", {"playbook": 2.0}, least_us=10.0)
    (trial,) = task.results[0].trials
    times = trial.measurements[0].reference_us
    assert distance(task, worth(task, "playbook")) == pytest.approx(times / 2 / 10, rel=1e-4)
    assert distance(msgspec.structs.replace(task, least_us=None), worth(task, "best")) is None


def test_where_nothing_was_won_the_farthest_come_first():
    near = bounded("level1/near", {"playbook": 1.0}, least_us=50.0)
    far = bounded("level1/far", {"playbook": "incorrect_values", "eager": 1.0}, least_us=5.0)
    unknown = told(a_task("level1/unknown"), {"playbook": 1.0})
    won = bounded("level1/won", {"playbook": 2.0}, least_us=1.0)
    card = a_run(near, unknown, won, far)
    names = [task.name for task, _ in unmoved(card.tasks)]
    assert names == ["level1/far", "level1/near", "level1/unknown"]
    text = render_table(card)
    assert "3 tasks: best stays at 1.00x; times the least" in text
    assert "level1/far: 20.00\n  level1/near: 2.00\n  of 1 it is not known" in text
    alone = render_table(a_run(unknown))
    assert "1 task: best stays at 1.00x\n" in alone
    page = render_page(card)
    assert "From the bound" in page
    assert "20x" in page or "20.0x" in page


def test_a_page_without_bounds_has_no_column_of_them():
    assert "From the bound" not in render_page(a_run(told(a_task(), {"playbook": 2.0})))
