"""Count the bytes that recorded operations read and write."""

from __future__ import annotations

from itertools import accumulate

from cudal1_ci.propose.recorded.graph import VIEWS, Graph, Operation, flat, values_in
from cudal1_ci.propose.roofline import tensor_bytes
from cudal1_ci.records import TensorSpec
from cudal1_ci.records.recording import RecordedValue

NO_COPY = (VIEWS - {"contiguous", "reshape", "flatten"}) | frozenset(
    ("detach", "chunk", "split", "unbind", "narrow", "select", "view_as", "data", "numpy")
)
MAYBE_COPY = frozenset(("contiguous", "reshape", "flatten"))


def bytes_of(operation: Operation, graph: Graph) -> int:
    """Return the bytes that an operation reads and writes; none for a view of its input."""
    made = [graph.recording.values[one] for one in operation.recorded.outputs]
    read = [graph.recording.values[one] for one in dict.fromkeys(values_in(operation.recorded))]
    if not made:
        return 0
    if operation.recorded.launch is not None:
        return bytes_launched(operation, graph)
    if operation.name in NO_COPY or (operation.name == "getitem" and len(read) == 1):
        return 0
    if operation.name in MAYBE_COPY and read and is_contiguous(read[0]):
        return 0
    if {*operation.recorded.outputs} <= {*values_in(operation.recorded)}:
        return 0  # it returned what it was given: a cast to the dtype that it has
    if operation.name in ("getitem", "index_select", "gather", "embedding"):
        # What is chosen is read, not what it is chosen from.
        return 2 * sum(map(size_of, made)) + sum(map(size_of, read[-1:]))
    return sum(map(size_of, [*read, *made]))


def bytes_launched(operation: Operation, graph: Graph) -> int:
    """Return the bytes of what a kernel reads and of what it writes. Where its source does not show
    which that is, each tensor counts once, and what it returns."""
    recorded, launch = operation.recorded, operation.recorded.launch
    assert launch is not None
    given = {one.name: [*flat([one.argument])] for one in recorded.kwargs}
    names = launch.reads if launch.is_sure else (*launch.reads, *launch.writes)
    read = [value for name in names for value in given[name]]
    num_written = sum(len(given[name]) for name in launch.writes)
    made = recorded.outputs if launch.is_sure else recorded.outputs[num_written:]
    return sum(size_of(graph.recording.values[one]) for one in [*dict.fromkeys(read), *made])


def is_contiguous(value: RecordedValue) -> bool:
    """Return whether elements lie in memory in their order."""
    whole = [*accumulate(reversed(value.shape[1:]), lambda a, b: a * b, initial=1)][::-1]
    pairs = zip(value.shape, value.stride, whole, strict=False)
    return all(size == 1 or stride == wanted for size, stride, wanted in pairs)


def size_of(value: RecordedValue) -> int:
    """Return the bytes of a tensor's elements."""
    stride = value.stride if len(value.stride) == len(value.shape) else None
    spec = TensorSpec(shape=value.shape, dtype=value.dtype, stride=stride)
    return tensor_bytes(spec) or 0
