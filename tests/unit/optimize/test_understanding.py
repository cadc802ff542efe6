"""What a recording shows of a target: costs by expression, class, bound."""

from __future__ import annotations

import io
from dataclasses import replace as replaced

import msgspec
import pytest
from rich.console import Console

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.context import ReviewConfig, RunContext
from cudal1_ci.optimize.preview import LATER, preview
from cudal1_ci.optimize.target import NOTHING_PROPOSED, optimize_target
from cudal1_ci.optimize.understanding import understanding_of
from cudal1_ci.propose.recorded.strategy import RecordedRewrites
from cudal1_ci.records import Device, Entry, Explanation, Operation, Report, Understanding
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.published import to_json
from cudal1_ci.records.recording import Recording
from cudal1_ci.render import render
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.render.published import published
from cudal1_ci.render.text import print_explanation, render_text
from cudal1_ci.render.wording import bytes_text, understanding_text
from tests.fakes import (
    CPU,
    FakeProposer,
    FakeSession,
    a_candidate,
    a_problem,
    a_target,
    a_workload,
    an_evaluation,
)
from tests.unit.propose.recorded.rig import problem_and_recording

H100 = Device(kind="cuda", name="NVIDIA H100 80GB HBM3", software={"torch": "0"})
TEXT = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, 32))

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(x)
        y = x.transpose(0, 1)[:, None].squeeze(1)
        z = y @ self.weight
        return z + float(z[0, 0])


def get_inputs():
    return [torch.rand(64, 128)]
"""


@pytest.fixture
def known(tmp_path):
    return problem_and_recording(tmp_path, TEXT)


def timed(recording: Recording, total_us: float, device_us: float | None = None, **us: float):
    """The recording with other times: those of operations by name, 1 us else."""
    operations = tuple(
        msgspec.structs.replace(one, host_us=us.get(one.name, 1.0), device_us=device_us)
        for one in recording.operations
    )
    return msgspec.structs.replace(recording, operations=operations, total_us=total_us)


def test_operations_are_grouped_by_expression_with_times_bytes_and_lines(known):
    problem, recording = known
    found = understanding_of(timed(recording, 500.0, tanh=20.0, matmul=140.0), problem, CPU, "m.py")
    by_code = {one.code: one for one in found.operations}
    assert found.operations[0] == Operation(
        name="matmul",
        num_calls=1,
        host_us=140.0,
        share=140.0 / found.host_us,
        num_bytes=4 * (128 * 64 + 64 * 32 + 128 * 32),
        path="m.py",
        line=14,
        code="y @ self.weight",
    )
    tanh = by_code["torch.tanh(x)"]
    assert (tanh.num_calls, tanh.host_us, tanh.num_bytes) == (3, 60.0, 3 * 2 * 4 * 64 * 128)
    for view in ("x.transpose(0, 1)", "x.transpose(0, 1)[:, None]", "z[0, 0]"):
        assert by_code[view].num_bytes == 0
    assert sum(one.share for one in found.operations) == pytest.approx(1.0)
    assert (
        found.num_operations
        == len(recording.operations)
        == sum(one.num_calls for one in found.operations)
    )
    assert found.num_syncs == 1
    assert (found.bound, found.bound_us) == ("unknown", None)  # of a CPU nothing is known


@pytest.mark.parametrize(
    ("total_us", "us", "expected"),
    [
        (500.0, {}, "host-bound"),
        (12.0, {}, "launch-bound"),
        (400.0, {"tanh": 100.0}, "memory-bound"),
        (400.0, {"matmul": 300.0}, "compute-bound"),
        (0.0, {}, "unknown"),
    ],
)
def test_the_class_is_where_most_of_the_time_goes(known, total_us, us, expected):
    problem, recording = known
    assert understanding_of(timed(recording, total_us, **us), problem, CPU).category == expected


def test_a_product_with_one_row_is_bound_by_memory(tmp_path):
    problem, recording = problem_and_recording(
        tmp_path, TEXT.replace("torch.rand(64, 128)", "torch.rand(64, 1)")
    )
    found = understanding_of(timed(recording, 400.0, matmul=300.0), problem, CPU)
    assert found.category == "memory-bound"


def test_the_bound_is_that_of_the_device(tmp_path):
    problem, recording = problem_and_recording(tmp_path, TEXT.replace("y @ self.weight", "y * 2.0"))
    small = understanding_of(timed(recording, 500.0, 1.0), problem, H100)
    assert (small.bound, small.bound_us) == ("launches", 2.0)
    assert small.device_us == len(recording.operations)
    wide = tuple(
        one if one.path else msgspec.structs.replace(one, shape=(64, 1_000_000), stride=())
        for one in recording.values
    )
    big = msgspec.structs.replace(recording, values=wide)
    bound_us = 4 * 2 * 64 * 1_000_000 / 3350e3
    for total_us, expected in ((1.1 * bound_us, "at the floor"), (9 * bound_us, "host-bound")):
        found = understanding_of(timed(big, total_us, 1.0), problem, H100)
        assert found.bound == "memory"
        assert found.bound_us == pytest.approx(bound_us)
        assert found.category == expected


def test_nothing_recorded_is_no_error(known):
    problem, recording = known
    empty = Recording(values=(), frames=(), scopes=(), operations=(), outputs=(), total_us=5.0)
    found = understanding_of(empty, problem, H100)
    assert (found.category, found.operations) == ("unknown", ())
    outside = tuple(msgspec.structs.replace(one, frame=None) for one in recording.operations)
    found = understanding_of(msgspec.structs.replace(recording, operations=outside), problem, CPU)
    (one,) = found.operations  # by nothing that is known
    assert (one.code, one.path, one.num_calls) == (None, "", len(outside))


# --- where it is shown ---------------------------------------------------------------------------

UNDERSTANDING = Understanding(
    category="launch-bound",
    bound="launches",
    bound_us=2.0,
    total_us=93.1,
    num_operations=12,
    num_syncs=1,
    operations=tuple(
        Operation(name=f"op{n}", num_calls=1, host_us=9.0, share=0.1, line=n, code=f"x.op{n}()")
        for n in range(1, 5)
    ),
)


def test_it_is_said_in_one_line_with_three_expressions():
    assert understanding_text(UNDERSTANDING) == (
        "launch-bound, 93.1 us in 12 operations, 1 host sync (bound 2.00 us by launches): "
        "10 % `x.op1()` (line 1); 10 % `x.op2()` (line 2); 10 % `x.op3()` (line 3)"
    )
    assert understanding_text(None) == ""
    sizes = (0, None, 640, 1300, 25_000_000)
    assert [*map(bytes_text, sizes)] == ["", "", "640 B", "1.3 kB", "25 MB"]


def test_an_explanation_is_a_table_and_what_matches():
    said = Explanation(
        target=a_target(),
        workload=a_workload(),
        device=CPU,
        understanding=UNDERSTANDING,
        proposals={"recorded": ("playbook:silu",), "rewrites": ()},
    )
    buffer = io.StringIO()
    print_explanation(said, Console(file=buffer, width=110))
    shown = buffer.getvalue()
    assert "launch-bound, 93.1 us in 12 operations" in shown
    assert all(f"x.op{n}()" in shown for n in range(1, 5))
    assert "recorded: playbook:silu" in shown and "rewrites: nothing matches" in shown
    assert b'"class":"launch-bound"' in to_json(said)
    missing = msgspec.structs.replace(said, understanding=None, reason="it\nraised")
    buffer = io.StringIO()
    print_explanation(missing, Console(file=buffer, width=110))
    assert "not recorded: it raised" in buffer.getvalue()


@pytest.mark.parametrize("best", [0, None])
def test_reports_show_it_of_what_was_judged(best):
    evaluation = an_evaluation(a_candidate(a_problem()), speedup=2.0 if best == 0 else 1.0)
    entry = Entry(
        target=a_target(),
        workloads=a_problem().workloads,
        evaluations=(evaluation,),
        understanding=UNDERSTANDING,
        best=best,
    )
    report = published(Report(repository="r", device=CPU, entries=(entry,), elapsed_s=1.0))
    page = render(report, "html")
    assert "launch-bound, 93.1 us in 12 operations, 1 host sync" in page
    assert "<code>x.op3()</code>" in page and "x.op4()" not in page
    if best is not None:
        for width in (80, 160):
            said = " ".join(render_text(report, width).split())
            assert "launch-bound, 93.1 us in 12 operations, 1 host sync" in said
    bare = msgspec.structs.replace(
        report, entries=(msgspec.structs.replace(report.entries[0], understanding=None),)
    )
    assert "launch-bound" not in render(bare, "html") + render_text(bare)


class Recorder(FakeSession):
    """A judge with a recording."""

    recording: Recording | str = "it raised"

    def record(self, problem, workload):
        return self.recording


@pytest.fixture
def context(tmp_path):
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        yield RunContext(
            session=Recorder({"try 0": ("passed", 2.0)}),
            strategies=(),
            archive=archive,
            progress=SilentProgress(),
            config=ReviewConfig(),
            policy="p",
        )


def test_entries_have_it_whether_something_was_proposed_or_not(known, context):
    problem, recording = known
    planned = Planned(target=a_target(), problem=problem, workloads=problem.workloads)
    strategy = RecordedRewrites(rules=())
    failed = optimize_target(planned, [strategy], context)
    assert (failed.skipped, failed.understanding) == (NOTHING_PROPOSED, None)
    context.session.recording = recording
    skipped = optimize_target(planned, [strategy], context)
    assert skipped.skipped == NOTHING_PROPOSED
    assert skipped.understanding.num_operations == len(recording.operations)
    assert skipped.understanding.operations[0].path == a_target().path
    tried = optimize_target(planned, [strategy, FakeProposer(["try 0"])], context)
    assert tried.skipped is None and tried.understanding == skipped.understanding
    unasked = optimize_target(planned, [FakeProposer(["try 0"])], context)
    assert unasked.understanding is None  # no strategy asked for a recording


def test_a_dry_run_says_what_is_looked_for_later(tmp_path):
    problem = a_problem()
    one = Planned(target=a_target(), problem=problem, workloads=problem.workloads)
    kernel = replaced(one, target=msgspec.structs.replace(a_target(), kind="triton_kernel"))
    plan = Plan(root=tmp_path, repository="r", targets=(one, kernel))
    first, second = preview(plan, [RecordedRewrites()], 3)
    assert first.endswith(f"no rewrite matches; {LATER}")
    assert LATER not in second
    assert LATER not in preview(plan, [FakeProposer(["try 0"])], 3)[0]
