"""Understand one recorded call: what each expression costs, and where the time goes.

    understanding = understanding_of(recording, problem, device)

The time of a call is split in five: the host between operations, its waits for the device, the
fixed cost of calling each operation, memory, and arithmetic. The largest part names the target's
class. A target is at the floor if its time is near the least that the device's figures allow
(`propose/roofline.py`), and that bound holds for any form of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cudal1_ci.propose.recorded.graph import Graph, Operation, graph_of, time_us, values_in
from cudal1_ci.propose.recorded.source import Source
from cudal1_ci.propose.recorded.traffic import bytes_of, size_of
from cudal1_ci.propose.roofline import DeviceFacts, facts_of, least_us
from cudal1_ci.records import Demand, Device, Problem, Understanding
from cudal1_ci.records import Operation as Expression
from cudal1_ci.records.recording import Launch, Recording
from cudal1_ci.records.report import TargetClass

CALL_US = {"cpu": 4.0, "cuda": 10.0}
"""What calling an operation takes by itself, in eager mode: dispatch, and on a GPU a launch."""
SYNC_US = {"cpu": 0.0, "cuda": 20.0}
"""What the device idles while the host waits for a number of it: the copy, the way back to Python,
and the launch of the next operation."""
LAUNCH_US = 2.0
"""The least time of a kernel, however small."""
NEAR = 0.8
"""At the floor is what takes no more than the least time over this."""
FLOPS_PER_BYTE = 8.0
"""Above it a product takes its time by arithmetic; for devices without figures."""
MOST_AT_THE_FLOOR = 8
"""Operations, without views, of a call whose bound is believed."""
MOST_SHOWN = 10
"""Expressions that a report keeps."""
MAX_CODE_CHARS = 120
MAX_LAUNCH_CHARS = 240
CONVOLUTIONS = frozenset(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
PRODUCTS = frozenset(("matmul", "linear", "addmm", "baddbmm", "addbmm", "mv", "dot", *CONVOLUTIONS))
HEAVY = frozenset(("einsum", "tensordot", "bilinear", "lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Products whose arithmetic is not counted here."""
ATTENTION = "scaled_dot_product_attention"


PICKED = frozenset(
    (
        *("getitem", "embedding", "index_select", "gather", "take", "take_along_dim", "setitem"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones"),
        *("new_empty", "new_full", "rand_like", "randn_like", "type_as", "copy_"),
    )
)
"""Operations that need not read all of what they are given."""


@dataclass
class Group:
    """The operations of one expression."""

    path: str
    line: int | None
    code: str | None
    operations: list[Operation] = field(default_factory=list)


def understanding_of(
    recording: Recording, problem: Problem, device: Device, path: str = ""
) -> Understanding:
    """Return what a recording shows of a problem's reference on a device. `path` is the file of a
    program that is a text."""
    graph = graph_of(recording)
    operations = graph.operations
    times = [time_us(one) for one in operations]
    facts = facts_of(device.name) if device.kind == "cuda" else None
    groups = expressions(graph, Source(problem.reference, graph), path)
    demand = demand_of(graph)
    bound, bound_us = bound_of(demand, facts)
    is_on_gpu = any(one.recorded.device_us is not None for one in operations)
    shown = [shown_group(one, graph, sum(times)) for one in groups]
    return Understanding(
        category=class_of(graph, device.kind, facts, bound_us),
        bound=bound,
        bound_us=bound_us,
        total_us=recording.total_us,
        device_us=sum(times) if is_on_gpu else None,
        host_us=sum(one.recorded.host_us for one in operations),
        share=None if problem.share is None else min(problem.share, 1.0),
        num_operations=len(operations),
        num_syncs=sum(one.recorded.syncs for one in operations),
        operations=tuple(sorted(shown, key=lambda one: -(one.share or 0.0))),
    )


# --- where the time goes -------------------------------------------------------------------------


def class_of(
    graph: Graph, kind: str, facts: DeviceFacts | None, bound_us: float | None
) -> TargetClass:
    """Return the class of a recorded call."""
    total_us = graph.recording.total_us
    if not graph.operations or not total_us:
        return "unknown"
    if bound_us is not None and bound_us >= NEAR * total_us and is_bound_sure(graph):
        return "at the floor"
    between_us = max(0.0, total_us - sum(map(time_us, graph.operations)))
    num_syncs = sum(one.recorded.syncs for one in graph.operations)
    waiting_us = min(between_us, num_syncs * SYNC_US.get(kind, 0.0))
    parts: dict[TargetClass, float] = {
        "host-bound": between_us - waiting_us,
        "sync-bound": waiting_us,
        "launch-bound": 0.0,
        "memory-bound": 0.0,
        "compute-bound": 0.0,
    }
    for one in graph.operations:
        calling_us = min(time_us(one), launch_us(one, kind))
        parts["launch-bound"] += calling_us
        by: TargetClass = "compute-bound" if is_arithmetic(one, graph, facts) else "memory-bound"
        parts[by] += time_us(one) - calling_us
    return max(parts, key=lambda one: parts[one])


def launch_us(operation: Operation, kind: str) -> float:
    """Return the least time of an operation's launches. On a GPU this is the time that the host
    takes to enqueue it: a device that is not behind is idle meanwhile. Where an operation waits for
    the device, the host's time includes that wait and does not count."""
    least_us = CALL_US.get(kind, CALL_US["cpu"])
    recorded = operation.recorded
    if recorded.device_us is None or recorded.syncs:
        return least_us
    return max(least_us, recorded.host_us)


def is_bound_sure(graph: Graph) -> bool:
    """Return whether no form of a call can beat its bound: it has few operations, none of them
    twice, and at most one product, of what is given. Arithmetic of several products, or of matrices
    that the call makes itself, may be saved; what a kernel of the user's needs is not known."""
    if graph.recording.is_cut or any(one.recorded.launch for one in graph.operations):
        return False
    working = [one for one in graph.operations if bytes_of(one, graph)]
    spans = [(one.recorded.frame, one.recorded.span) for one in working]
    if len(working) > MOST_AT_THE_FLOOR or len({*spans}) < len(spans):
        return False
    products = [one for one in working if one.name in PRODUCTS or one.name in (*HEAVY, ATTENTION)]
    made = {n for one in working for n in one.recorded.outputs}
    return not products or (
        len(products) == 1
        and products[0].name not in HEAVY
        and not made.intersection(values_in(products[0].recorded))
    )


def is_arithmetic(operation: Operation, graph: Graph, facts: DeviceFacts | None) -> bool:
    """Return whether an operation's arithmetic takes longer than its memory traffic."""
    if operation.name in HEAVY:
        return True
    flops = flops_of(operation, graph)
    least = FLOPS_PER_BYTE if facts is None else 1e3 * facts.fp32_tflop_s / facts.bandwidth_gb_s
    return flops > least * max(bytes_of(operation, graph), 1)


def bound_of(demand: Demand, facts: DeviceFacts | None) -> tuple[str, float | None]:
    """Return what no form of a call can be faster than, and its least time."""
    if facts is None:
        return "unknown", None
    memory_us = least_us(Demand(num_bytes=demand.num_bytes), facts)
    found_us = least_us(demand, facts)
    if found_us <= LAUNCH_US:
        return "launches", LAUNCH_US
    return ("arithmetic" if found_us > memory_us else "memory"), found_us


def demand_of(graph: Graph) -> Demand:
    """Return the least that a recorded call demands of any device: each given tensor that must be
    read is read once, and what is returned is written once."""
    recording = graph.recording
    used, known = values_used(graph), dict[int, int]()
    given = [n for n in graph.readers if recording.values[n].origin != "operation"]
    made = [n for n in recording.outputs if n in graph.maker and bytes_of(graph.maker[n], graph)]
    products = {True: 0, False: 0}
    for one in graph.operations:
        products[one.name in CONVOLUTIONS] += flops_of(one, graph)
    first = next((graph.of(n) for n in recording.outputs), None)
    return Demand(
        num_bytes=sum(bytes_read(graph, n, used, known) for n in dict.fromkeys(given))
        + sum(size_of(recording.values[n]) for n in dict.fromkeys(made)),
        product_flops=products[False],
        convolution_flops=products[True],
        dtype="none" if first is None else first.dtype,
    )


def values_used(graph: Graph) -> set[int]:
    """Return the values that the outputs of a call are made of, and the outputs."""
    used: set[int] = set()
    waiting = [*graph.recording.outputs]
    while waiting:
        value = waiting.pop()
        if value not in used:
            used.add(value)
            maker = graph.maker.get(value)
            waiting += [] if maker is None else [*values_in(maker.recorded)]
    return used


def bytes_read(graph: Graph, value: int, used: set[int], known: dict[int, int]) -> int:
    """Return the least bytes of a given tensor that must be read: none where only its shape or its
    rows by number are, those of a slice where that is all, and none for an unused result. `known`
    keeps what was found, and ends a circle: `broadcast_tensors` may return what it is given."""
    if value in known:
        return known[value]
    known[value] = most = 0
    for one in graph.readers.get(value, []):
        if not used.intersection(one.recorded.outputs):
            continue
        if not bytes_of(one, graph):  # a view
            parts = [made for made in one.recorded.outputs if made != value]
            most = max(most, sum(bytes_read(graph, made, used, known) for made in parts))
        elif one.name not in PICKED:
            most = size_of(graph.recording.values[value])
    known[value] = most
    return most


def flops_of(operation: Operation, graph: Graph) -> int:
    """Return additions and multiplications of a product; 0 of anything else."""
    out = graph.of(operation.output)
    if out is None:
        return 0
    num_made = math.prod(out.shape)
    if operation.name in CONVOLUTIONS:
        weight, taken = graph.of(operation.value(1, "weight")), graph.of(operation.value(0))
        if weight is None or taken is None or not weight.shape or not weight.shape[0]:
            return 0
        each = 2 * math.prod(weight.shape) // weight.shape[0]
        return each * (math.prod(taken.shape) if "transpose" in operation.name else num_made)
    if operation.name == ATTENTION:
        key = graph.of(operation.value(1, "key"))
        query = graph.of(operation.value(0, "query"))
        if key is None or query is None or len(key.shape) < 2:
            return 0
        return 2 * key.shape[-2] * (num_made + math.prod(query.shape))
    if operation.name in PRODUCTS:
        position = 1 if operation.name in ("addmm", "baddbmm", "addbmm") else 0
        left = graph.of(operation.value(position, "input"))
        return 2 * num_made * left.shape[-1] if left is not None and left.shape else 0
    return 0


# --- expressions ---------------------------------------------------------------------------------


def expressions(graph: Graph, source: Source, path: str) -> list[Group]:
    """Return the operations by the expression that called them, in the order of their first."""
    groups: dict[object, Group] = {}
    for one in graph.operations:
        frame, span = source.frame(one), one.recorded.span
        key = None if frame is None else (frame.file, span)
        if key not in groups:
            groups[key] = Group(
                path="" if frame is None else frame.file or path,
                line=None if span is None else span.line,
                code=code_of(one, source),
            )
        groups[key].operations.append(one)
    return [*groups.values()]


def code_of(operation: Operation, source: Source) -> str | None:
    """Return the expression of an operation on one line, or its first line before Python 3.11."""
    frame, span = source.frame(operation), operation.recorded.span
    file = None if frame is None else source.file(frame.file)
    if file is None or span is None:
        return None
    place = source.place(operation)
    lines = file.lines[span.line - 1 : span.line]
    text = " ".join((file.code(place.node) if place else "".join(lines)).split())
    return text if len(text) <= MAX_CODE_CHARS else f"{text[: MAX_CODE_CHARS - 3]}..."


def shown_group(group: Group, graph: Graph, total_us: float) -> Expression:
    """Return what is shown of an expression."""
    spent_us = sum(map(time_us, group.operations))
    is_timed = any(one.recorded.device_us is not None for one in group.operations)
    return Expression(
        name=", ".join(names_of(group.operations)),
        num_calls=len(group.operations),
        device_us=spent_us if is_timed else None,
        host_us=sum(one.recorded.host_us for one in group.operations),
        share=min(spent_us / total_us, 1.0) if total_us else None,
        backward_us=backward_us(group.operations),
        num_bytes=sum(bytes_of(one, graph) for one in group.operations),
        num_syncs=sum(one.recorded.syncs for one in group.operations),
        path=group.path,
        line=group.line,
        code=group.code,
        launch="; ".join(
            dict.fromkeys(
                launch_text(one.recorded.launch)
                for one in group.operations
                if one.recorded.launch is not None
            )
        )[:MAX_LAUNCH_CHARS],
    )


def launch_text(launch: Launch) -> str:
    """Return how a kernel was launched; of an extension only what is known: nothing."""
    parts = [f"grid {' x '.join(map(str, launch.grid))}"] if launch.grid else []
    parts += [f"{one.name}={one.argument.text}" for one in launch.constants]
    for number, word in ((launch.num_warps, "warp"), (launch.num_stages, "stage")):
        parts += [] if number is None else [f"{number} {word}{'' if number == 1 else 's'}"]
    return "".join(filter(str.isprintable, ", ".join(parts)))


def backward_us(operations: Sequence[Operation]) -> float | None:
    """Return the time of a backward pass; None where it is not known."""
    times = [one.recorded.backward_us for one in operations]
    known = [one for one in times if one is not None]
    return sum(known) if known else None


def names_of(operations: Sequence[Operation]) -> Iterator[str]:
    """Yield the names of the three that take the most time, and `...` if there are others."""
    times: dict[str, float] = {}
    for one in operations:
        times[one.name] = times.get(one.name, 0.0) + time_us(one)
    yield from sorted(times, key=lambda one: -times[one])[:3]
    if len(times) > 3:
        yield "..."
