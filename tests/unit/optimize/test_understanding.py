"""What a recording shows of a target: costs by expression, class, bound."""

from __future__ import annotations

import io
import json
from dataclasses import replace as replaced

import msgspec
import pytest
from rich.console import Console

from cudal1_ci.discover.plan import Plan, Planned
from cudal1_ci.optimize.config import ReviewConfig
from cudal1_ci.optimize.context import RunContext
from cudal1_ci.optimize.preview import preview
from cudal1_ci.optimize.reasons import COVERED, NOTHING_PROPOSED, OVER_THE_LIMIT, SPENT
from cudal1_ci.optimize.strategies import default_strategies
from cudal1_ci.optimize.target import optimize_target
from cudal1_ci.optimize.understanding import demand_of, understanding_of
from cudal1_ci.propose import Strategy
from cudal1_ci.propose.config import PlaybookConfig
from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.rule import Change, RecordedRule
from cudal1_ci.propose.recorded.strategy import RULES, RecordedRewrites
from cudal1_ci.records import (
    Device,
    Edit,
    Entry,
    Explanation,
    NotTried,
    Operation,
    Report,
    Understanding,
)
from cudal1_ci.records.archive import Archive
from cudal1_ci.records.published import to_json
from cudal1_ci.records.recording import Recording
from cudal1_ci.render import render
from cudal1_ci.render.progress import SilentProgress
from cudal1_ci.render.published import published
from cudal1_ci.render.text import print_explanation, render_text
from cudal1_ci.render.wording import (
    bytes_text,
    class_text,
    near_miss_text,
    time_text,
    understanding_text,
)
from tests import triton_on_torch
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
from tests.report_schema import validated
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


@pytest.mark.parametrize(
    ("host_us", "syncs", "expected"),
    [(100.0, 0, "launch-bound"), (8.0, 0, "memory-bound"), (100.0, 1, "memory-bound")],
)
def test_a_gpu_that_is_done_when_the_host_is_waits_for_launches(known, host_us, syncs, expected):
    """The time between two events is the host's there, and not that of a kernel."""
    problem, recording = known
    operations = tuple(
        msgspec.structs.replace(one, host_us=host_us, device_us=110.0, syncs=syncs)
        for one in recording.operations
    )
    busy = msgspec.structs.replace(recording, operations=operations, total_us=400.0)
    assert understanding_of(busy, problem, H100).category == expected


@pytest.mark.parametrize(
    ("device", "num_waits", "expected"),
    [(H100, 40, "sync-bound"), (H100, 1, "host-bound"), (CPU, 40, "host-bound")],
)
def test_waits_for_the_device_are_a_class_of_their_own(known, device, num_waits, expected):
    problem, recording = known
    waits = [one for one in recording.operations if one.syncs] * num_waits
    operations = (*(one for one in recording.operations if not one.syncs), *waits)
    waiting = msgspec.structs.replace(recording, operations=operations)
    found = understanding_of(timed(waiting, 1000.0), problem, device)
    assert (found.category, found.num_syncs) == (expected, num_waits)
    assert sorted({one.num_syncs for one in found.operations}) == [0, num_waits]


def test_the_backward_pass_is_shown_where_a_call_trains(known):
    problem, recording = known
    operations = tuple(
        msgspec.structs.replace(one, backward_us=7.0) if one.name == "tanh" else one
        for one in recording.operations
    )
    trained = msgspec.structs.replace(recording, operations=operations)
    shown = []
    for one in (recording, trained):
        found = understanding_of(timed(one, 500.0), problem, CPU)
        by_code = {o.code: o.backward_us for o in found.operations}
        said = Explanation(
            target=a_target(), workload=a_workload(), device=CPU, understanding=found
        )
        buffer = io.StringIO()
        print_explanation(said, Console(file=buffer, width=140))
        shown.append((by_code["torch.tanh(x)"], "backward" in buffer.getvalue()))
        assert by_code["y @ self.weight"] is None
    assert shown == [(None, False), (21.0, True)]


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
    assert category(tmp_path, TEXT.replace("y @ self.weight", "y * 2.0"), 1.1) == "host-bound"
    for text, times, expected in (
        (LEAST, 1.1, "at the floor"),
        (LEAST, 1.3, "host-bound"),
        (LEAST.replace("torch.tanh(x)", "torch.tanh(x)[:1]"), 1.1, "at the floor"),
        # No bound is believed of a loop, or of many operations,
        (LEAST.replace("torch.tanh(x)", "sum(torch.tanh(x) for _ in range(2))"), 1.1, "host-bound"),
        (LEAST.replace("torch.tanh(x)", "x" + ".tanh()" * 9), 1.1, "host-bound"),
        # nor of products that may be saved.
        (LEAST.replace("torch.tanh(x)", "x.T @ x.relu()"), 1.1, "host-bound"),
        (LEAST.replace("torch.tanh(x)", "x.T @ x @ x.T"), 1.1, "host-bound"),
    ):
        assert category(tmp_path, text, times) == expected, text


LEAST = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.rand(64, 64)]
"""


def category(tmp_path, text: str, times: float) -> str:
    """Return the class of a call of large tensors that takes so many times its bound."""
    problem, recording = problem_and_recording(tmp_path, text)
    grown = tuple(
        msgspec.structs.replace(one, shape=tuple(1000 * n for n in one.shape), stride=())
        for one in recording.values
    )
    big = msgspec.structs.replace(recording, values=grown)
    bound_us = understanding_of(timed(big, 1e9, 1.0), problem, H100).bound_us
    return understanding_of(timed(big, times * bound_us, 1.0), problem, H100).category


@pytest.mark.parametrize(
    ("code", "num_read", "num_written"),
    [
        ("torch.tanh(x)", 64 * 64, 64 * 64),
        ("x.T", 0, 0),  # nothing is moved
        ("torch.tanh(x)[:1]", 64 * 64, 0),
        ("torch.tanh(x[:1])", 64, 64),
        ("x[:, 0] + x.shape[0]", 64, 64),
        ("torch.tanh(x.T[:2].T)", 2 * 64, 2 * 64),
        ("x[torch.tensor([3, 5])]", 0, 2 * 64),  # rows by number may be one row
        ("torch.nn.functional.embedding(torch.tensor([3]), x)", 0, 64),
        ("(torch.tanh(x), torch.ones_like(x))[1]", 0, 64 * 64),  # what nothing is made of
        # Both are returned as they are, so that each is made of the other.
        ("sum(torch.broadcast_tensors(x, torch.ones_like(x)))", 64 * 64, 64 * 64),
    ],
)
def test_the_bound_counts_only_what_any_form_must_read_and_write(
    tmp_path, code, num_read, num_written
):
    _, recording = problem_and_recording(tmp_path, LEAST.replace("torch.tanh(x)", code))
    assert demand_of(graph_of(recording)).num_bytes == 4 * (num_read + num_written)


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


KERNEL = Operation(
    name="triton:silu",
    num_calls=1,
    device_us=3.5,
    share=0.5,
    num_bytes=8200,
    line=7,
    code="silu[grid](x)",
    launch="grid 8 x 2, BLOCK=128, 4 warps, 1 stage",
)


@pytest.mark.parametrize("also", ["", "helper(x_ptr)"])
def test_a_launch_is_shown_with_its_grid_constants_and_bytes(tmp_path, also):
    text = f"""
import torch
import triton
import triton.language as tl


@triton.jit
def helper(x_ptr):
    return 0


@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    {also}
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu[(3,)](x, out, 150, BLOCK=64, num_warps=1, num_stages=2)
        return out


def get_inputs():
    return [torch.ones(10, 15)]
"""
    with triton_on_torch.installed():
        problem, recording = problem_and_recording(tmp_path, text)
    found = understanding_of(recording, problem, CPU, "m.py")
    (one,) = [each for each in found.operations if each.launch]
    assert (one.name, one.num_bytes) == ("triton:silu", 2 * 4 * 150)
    assert one.launch == "grid 3, BLOCK=64, 1 warp, 2 stages"
    assert one.code and one.code.startswith("silu[(3,)](x, out")
    assert found.category != "at the floor"


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
    kernel = msgspec.structs.replace(UNDERSTANDING, operations=(KERNEL,))
    buffer = io.StringIO()
    with_kernel = msgspec.structs.replace(said, understanding=kernel)
    print_explanation(with_kernel, Console(file=buffer, width=140))
    assert all(one in buffer.getvalue() for one in ("triton:silu", "8.2 kB", KERNEL.launch))
    assert "waits" in shown
    calm = msgspec.structs.replace(UNDERSTANDING, num_syncs=0)
    buffer = io.StringIO()
    print_explanation(
        msgspec.structs.replace(said, understanding=calm), Console(file=buffer, width=110)
    )
    assert "waits" not in buffer.getvalue()
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
    assert "<code>x.op3()</code>" in page
    if best == 0:  # before and after, side by side
        assert "<dd>launch-bound</dd>" in page
        assert "<dd>12 operations, 1 host sync before</dd>" in page
    else:
        assert "launch-bound, 93.1 us in 12 operations, 1 host sync" in page
        assert "x.op4()" not in page
    for width in (80, 160):
        said, why = (" ".join(render_text(report, width, why=one).split()) for one in (False, True))
        assert "launch-bound" not in said
        assert "launch-bound, 93.1 us in 12 operations, 1 host sync" in why
    assert '<th scope="col">Launch</th>' not in page
    kernel = msgspec.structs.replace(UNDERSTANDING, operations=(KERNEL,))
    entry = msgspec.structs.replace(report.entries[0], understanding=kernel)
    page = render(msgspec.structs.replace(report, entries=(entry,)), "html")
    for cell in ("<code>triton:silu</code>", f"<td>{KERNEL.launch}</td>", "<td>8.2 kB</td>"):
        assert cell in page
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


# --- what is tried, and what is not ---------------------------------------------------------------


def planned(problem) -> Planned:
    return Planned(target=a_target(), problem=problem, workloads=problem.workloads)


SEVERAL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = x * torch.sigmoid(x)
        return y * torch.tanh(torch.log(1 + torch.exp(y)))


def get_inputs():
    return [torch.rand(64, 128)]
"""
ATTENTION = """
import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1)
        return weights @ v


def get_inputs():
    return [torch.rand(2, 4, 16, 64) for _ in range(3)]
"""


class Verifier(Recorder):
    """A judge that finds nothing faster."""

    def evaluate(self, problem, candidate):
        self.asked.append(candidate.program.source)
        return an_evaluation(candidate, "passed", 1.0, [w.name for w in problem.workloads])


def strategies() -> tuple[Strategy, ...]:
    return default_strategies(PlaybookConfig(compile=False), "cpu")


@pytest.mark.parametrize("most", [1, 12])
@pytest.mark.parametrize("text", [SEVERAL, ATTENTION])
def test_a_dry_run_lists_what_a_scan_tries_and_what_it_does_not(tmp_path, context, text, most):
    problem, recording = problem_and_recording(tmp_path, text)
    context.session, context.strategies = Verifier({}), strategies()
    context.session.recording, context.config = recording, ReviewConfig(num_candidates=most)
    plan = Plan(root=tmp_path, repository="r", targets=(planned(problem),))
    first, *more = preview(plan, context)
    assert context.session.asked == []
    entry = optimize_target(planned(problem), strategies(), context)
    tried = [one.candidate.proposer for one in entry.evaluations]
    assert len(tried) == len({*tried}) > 0
    listed = first.rpartition(": ")[2].partition("; ")[0].split(", ")
    assert listed[0] == tried[0] and sorted(listed) == sorted(tried)
    assert [line.strip() for line in more] == [
        f"not tried: {one.proposer}, {one.reason}" for one in entry.not_tried
    ]
    reasons = {one.proposer: one.reason for one in entry.not_tried}
    assert not {*reasons} & {*tried}
    if most == 1 and text == SEVERAL:
        limit = OVER_THE_LIMIT.format(most=1)
        assert [*reasons.values()].count(limit) >= 1
    if text == ATTENTION:  # the rule over texts gives the same program
        assert reasons == {}


def test_of_two_candidates_with_the_same_edits_the_second_is_not_tried(tmp_path, context):
    class Again:
        """Propose what a recorded rule proposes, written otherwise."""

        name = "again"

        def propose(self, problem, evaluations, n):
            edit = Edit(operator="attention", technique="f", found=("x",), why="", precondition="")
            return [msgspec.structs.replace(a_candidate(problem), edits=(edit,))]

    problem, recording = problem_and_recording(tmp_path, ATTENTION)
    context.session = Verifier({})
    context.session.recording = recording
    entry = optimize_target(planned(problem), [RecordedRewrites(), Again()], context)
    assert [one.candidate.proposer for one in entry.evaluations] == ["playbook:attention"]
    reason = COVERED.format(proposer="playbook:attention")
    assert entry.not_tried == (NotTried(proposer="fake", reason=reason),)


def test_what_had_no_turn_is_listed_with_the_reason(tmp_path, context):
    problem, recording = problem_and_recording(tmp_path, SEVERAL)
    context.session = Verifier({})
    context.session.recording, context.config = recording, ReviewConfig(budget_s=0.001)
    context.started_s -= 1
    entry = optimize_target(planned(problem), strategies(), context)
    assert entry.skipped is not None or not entry.evaluations
    assert {one.reason for one in entry.not_tried} == {entry.skipped or SPENT}
    context.session.reference = "runtime_error"
    context.config = ReviewConfig()
    context.ending.was_cut = False
    refused = optimize_target(planned(problem), strategies(), replaced(context, may_reuse=False))
    assert refused.skipped.startswith("raised an error: ")
    assert {one.reason for one in refused.not_tried} == {refused.skipped}


def test_nothing_is_tried_at_the_floor(tmp_path, context):
    problem, recording = problem_and_recording(tmp_path, SEVERAL)
    grown = tuple(
        msgspec.structs.replace(one, shape=tuple(500 * n for n in one.shape), stride=())
        for one in recording.values
    )
    big = msgspec.structs.replace(recording, values=grown)
    bound_us = understanding_of(timed(big, 1e9, 1.0), problem, H100).bound_us
    context.session = OnGpu({})
    context.session.recording = timed(big, 1.05 * bound_us, 1.0)
    context.strategies = strategies()
    floor = f"at the floor: {time_text(1.05 * bound_us)} of {time_text(bound_us)}"
    entry = optimize_target(planned(problem), context.strategies, context)
    assert (entry.skipped, entry.evaluations, context.session.asked) == (floor, (), [])
    assert {one.reason for one in entry.not_tried} == {floor} and len(entry.not_tried) > 1
    assert class_text(entry.understanding).startswith(floor)
    plan = Plan(root=tmp_path, repository="r", targets=(planned(problem),))
    first, *more = preview(plan, context)
    assert first.endswith(floor) and len(more) == len(entry.not_tried)
    # Another workload may be far from its bound, and so may a backward pass.
    other = msgspec.structs.replace(problem.workloads[0], name="other")
    two = msgspec.structs.replace(problem, workloads=(*problem.workloads, other))
    context.session.others = {"other": timed(big, 9 * bound_us, 1.0)}
    assert optimize_target(planned(two), context.strategies, context).evaluations
    train = msgspec.structs.replace(problem.workloads[0], mode="train")
    trained = msgspec.structs.replace(problem, workloads=(train,))
    assert optimize_target(planned(trained), context.strategies, context).evaluations


class OnGpu(Verifier):
    """A judge on a GPU, with other recordings by the workload's name."""

    def __init__(self, answers):
        super().__init__(answers)
        self.others: dict[str, Recording] = {}

    def device(self):
        return H100

    def record(self, problem, workload):
        return self.others.get(workload.name, self.recording)


def test_a_rule_that_raises_costs_only_itself_and_is_named(tmp_path, context):
    def broken(call):
        yield from ()
        raise ZeroDivisionError("by hand")

    def unwritable(call):
        place = call.source.place(call.graph.operations[0])
        yield Change(place.file, {place.node: "not (python"}, "")

    made = {"family": "f", "why": "", "precondition": ""}
    rules = (
        RecordedRule(name="broken", find=broken, **made),
        RecordedRule(name="unwritable", find=unwritable, **made),
        *(one for one in RULES if one.name == "activation"),
    )
    problem, recording = problem_and_recording(tmp_path, SEVERAL)
    context.session = Verifier({})
    context.session.recording = recording
    entry = optimize_target(planned(problem), [RecordedRewrites(rules=rules)], context)
    assert [one.candidate.proposer for one in entry.evaluations] == ["playbook:activation"]
    first, second = entry.warnings
    assert first.startswith("rule `broken` failed: ZeroDivisionError: by hand (test_underst")
    assert second.startswith("rule `unwritable` failed: ParserSyntaxError: ")
    shown = render_text(published(Report(repository="r", device=CPU, entries=(entry,))))
    assert "rule `broken` failed: ZeroDivisionError" in " ".join(shown.split())


def test_why_is_told_in_every_format(tmp_path, context):
    text = ATTENTION.replace("return weights @ v", "return weights @ v, weights")
    problem, recording = problem_and_recording(tmp_path, text)
    context.session = Verifier({})
    context.session.recording = recording
    one = [*strategies(), FakeProposer(["try 0"])]
    entry = optimize_target(planned(problem), one, context)
    (miss,) = entry.near_misses
    said = (
        "attention at pkg/model.py:7, `torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1)`: "
        "not proposed, since the softmax output is returned to the caller"
    )
    assert near_miss_text(miss) == said
    left = NotTried(proposer="playbook:x", reason="the budget was spent")
    entry = msgspec.structs.replace(entry, not_tried=(left,))
    report = published(Report(repository="r", device=CPU, entries=(entry,)))
    encoded = json.loads(validated(to_json(report)))["entries"][0]
    assert encoded["near_misses"][0]["line"] == 7
    assert encoded["not_tried"] == [{"proposer": "playbook:x", "reason": "the budget was spent"}]
    for width in (70, 120):
        shown = " ".join(render_text(report, width, why=True).split())
        assert said in shown and "playbook:x: the budget was spent" in shown
        assert "not proposed, since" not in render_text(report, width)
    for output in ("html", "md"):
        page = " ".join(render(report, output).split())
        for words in ("Nearly matched", "since the softmax output is returned to the caller"):
            assert words in page, (output, words)
        assert "the budget was spent" in page
    assert "Nearly matched" not in render(published(Report(repository="r", device=CPU)), "html")
