"""Which target comes next, from tables."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.discover.plan import Planned
from cudal1_ci.optimize.sweep.memory import Look, code_of, name_of
from cudal1_ci.optimize.sweep.order import Looks, Standing, cost
from cudal1_ci.propose.roofline import facts_of
from cudal1_ci.records import Call, Device, Made, TensorSpec, Workload
from tests.fakes import CPU, a_problem, a_target, a_workload

OTHER_CPU = Device(kind="cpu", name="another", software={"torch": "0"})
UPGRADED = msgspec.structs.replace(CPU, software={"torch": "1"})


def a_planned(name: str, source: str = "v1", share: float | None = None) -> Planned:
    problem = a_problem(source, a_workload(share=share))
    return Planned(target=a_target(qualname=name), problem=problem, workloads=problem.workloads)


def a_look(planned: Planned, at: float = 1.0, device: Device = CPU, **fields) -> Look:
    known = {
        "target": name_of(planned.target),
        "device": device.name,
        "problem_id": planned.problem.id,
        "code": code_of(planned.problem),
        "device_key": device.key,
        "means": "m",
        "at": at,
        "is_settled": True,
        "times_us": {},
    }
    return Look(**(known | fields))


NOW = a_planned("A")


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (None, Standing.NEW),
        (a_look(NOW), Standing.SETTLED),
        (a_look(NOW, is_settled=False), Standing.UNSETTLED),
        (a_look(a_planned("A", "v0")), Standing.CHANGED),
        (a_look(NOW, device_key=UPGRADED.key), Standing.CHANGED),
        (a_look(NOW, device=OTHER_CPU), Standing.CHANGED),
        (a_look(NOW, means="another model"), Standing.CHANGED),
        (a_look(a_planned("B")), Standing.NEW),
    ],
    ids=["never", "known", "undecided", "code", "software", "device", "means", "another target"],
)
def test_what_is_known_of_a_target(look, expected):
    assert Looks([look] if look else [], CPU, "m").standing(NOW) is expected


def with_tensor(**fields) -> Planned:
    (workload,) = NOW.workloads
    tensor = msgspec.structs.replace(workload.call.args[0], **fields)
    called = msgspec.structs.replace(workload, call=Call(args=(tensor,)))
    problem = msgspec.structs.replace(NOW.problem, workloads=(called,))
    return Planned(target=NOW.target, problem=problem, workloads=(called,))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"low": -2.5, "high": 3.1}, Standing.SETTLED),
        ({"shape": (3, 4)}, Standing.CHANGED),
        ({"dtype": "float16"}, Standing.CHANGED),
    ],
)
def test_values_that_tests_draw_anew_are_no_change_and_other_shapes_are(fields, expected):
    assert Looks([a_look(NOW)], CPU, "m").standing(with_tensor(**fields)) is expected


def test_what_another_device_said_counts_only_where_this_one_said_nothing():
    looks = Looks([a_look(NOW), a_look(NOW, device=OTHER_CPU, at=9.0)], CPU, "m")
    assert looks.standing(NOW) is Standing.SETTLED


def test_new_ones_come_first_then_changed_ones_then_the_oldest_and_known_ones_have_no_turn():
    dear, cheap = a_planned("dear", share=0.5), a_planned("cheap", share=0.1)
    changed, dearer = a_planned("changed", share=0.1), a_planned("dearer", share=0.9)
    old, older, known = a_planned("old", share=0.9), a_planned("older"), a_planned("known")
    skipped = Planned(target=a_target(qualname="skipped"), reason="nothing calls it")
    looks = [
        a_look(changed, code="before"),
        a_look(dearer, code="before"),
        a_look(old, at=5.0, is_settled=False),
        a_look(older, at=4.0, is_settled=False),
        a_look(known),
    ]
    turns = Looks(looks, CPU, "m").turns([skipped, old, known, changed, cheap, older, dearer, dear])
    names = [planned.target.qualname for planned in turns]
    assert names == ["dear", "cheap", "dearer", "changed", "older", "old", "skipped"]


def test_a_share_of_recorded_time_comes_before_a_time_and_both_before_nothing():
    called = msgspec.structs.replace(a_workload(), num_calls=10)
    costs = {
        "share": cost([a_workload(share=0.01)], {"small": 1e6}),
        "most": cost([a_workload(share=0.2), a_workload(share=0.1)], {}),
        "time": cost([called], {"small": 100.0}),
        "shorter": cost([called], {"small": 10.0}),
        "calls alone": cost([called], {}),
        "time alone": cost([a_workload()], {"small": 100.0}),
    }
    assert sorted(costs, key=costs.__getitem__) == [
        "most",
        "share",
        "time",
        "shorter",
        "calls alone",
        "time alone",
    ]


def of_bytes(num_bytes: int, **fields) -> Workload:
    """Called with one tensor of so many bytes."""
    tensor = TensorSpec(shape=(num_bytes // 4,), dtype="float32")
    return msgspec.structs.replace(a_workload(), call=Call(args=(tensor,)), **fields)


def test_what_runs_at_the_bandwidth_of_its_device_has_nothing_to_give():
    h200 = facts_of("NVIDIA H200")
    megabytes = 48_000_000  # 10 us
    near = of_bytes(megabytes, share=0.5, traced_us=10.5)
    far = of_bytes(megabytes, share=0.2, traced_us=100.0)
    assert cost([far], {}, h200) == (0, pytest.approx(-0.2 * 0.9))
    assert cost([far], {}, h200) < cost([near], {}, h200)
    assert cost([near], {}) < cost([far], {}), "without a data sheet its share is all that is known"
    # What was measured here says more than what was traced somewhere.
    assert cost([near], {"small": 1000.0}, h200) == (0, pytest.approx(-0.5 * 0.99))
    faster_than_memory = of_bytes(megabytes, share=0.5, traced_us=5.0)
    assert cost([faster_than_memory], {}, h200) == (0, 0.0)
    unknown = msgspec.structs.replace(near, call=Made(function="get_inputs"))
    assert cost([unknown], {}, h200) == (0, -0.5)
    timed = of_bytes(megabytes, num_calls=10)
    assert cost([timed], {"small": 20.0}, h200) == (1, pytest.approx(-100.0))


def test_turns_are_by_what_the_device_leaves_to_win():
    def planned(name, workload):
        problem = a_problem(name, workload)
        return Planned(target=a_target(qualname=name), problem=problem, workloads=(workload,))

    near = planned("Near", of_bytes(48_000_000, share=0.5, traced_us=10.5))
    far = planned("Far", of_bytes(48_000_000, share=0.2, traced_us=100.0))
    names = {
        device.name: [one.target.qualname for one in Looks([], device, "m").turns([near, far])]
        for device in (CPU, msgspec.structs.replace(CPU, kind="cuda", name="NVIDIA H200"))
    }
    assert names == {CPU.name: ["Near", "Far"], "NVIDIA H200": ["Far", "Near"]}
