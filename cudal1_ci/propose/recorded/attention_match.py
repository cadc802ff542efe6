"""Match attention in the operations of a recorded call. Nothing here looks at text."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.near import changed_scores, changed_weights, other_reader
from cudal1_ci.propose.recorded.rule import Call

COPIES = (*CASTS, "contiguous", "clone")
VIEWS = ("view", "reshape")
GAINS = (*COPIES, "clamp", "exp", "mul", "div", "sigmoid", "softplus", "abs")
"""Operations that keep the shape of a parameter."""
ONE_NUMBER = ((1, 1), (1,), ())
"""The last two dimensions of a factor that is the same for all queries and keys."""
SIZES = frozenset(("size", "dim", "numel", "new_zeros", "zeros_like", "is_floating_point"))
"""Functions that read a tensor's shape and dtype only."""


@dataclass(frozen=True)
class Step:
    """An operation between the product of queries and keys and the softmax."""

    kind: str
    """`mul`, `div`, `gain` (a factor of each head), `add`, `sub`, `fill`, `keep` (where the
    condition holds), `view`, `none`."""
    operation: Operation
    position: int = 1
    """Of the argument that is not the scores."""


@dataclass
class Attention:
    """What was matched."""

    softmax: Operation
    product: Operation
    final: Operation
    steps: list[Step]
    after: list[Operation]
    is_transposed: bool = False
    """Whether the last product is values @ weights, both transposed."""
    extra: list[Operation] = field(default_factory=list)
    """Operations whose result is not read: casts to the same dtype, maxima."""


def matched(call: Call, softmax: Operation) -> Attention | None:
    """Return the attention around a softmax."""
    graph = call.graph
    back = scores(call, softmax.value(0), 0)
    if back is None:
        call.miss(softmax, changed_scores(call, softmax))
        return None
    product, steps = back
    found = Attention(softmax, product, softmax, steps, [])
    chain = [product, *(one.operation for one in steps), softmax]
    for before, after in itertools.pairwise(chain):
        if not flows(call, found, before.output, after):
            call.miss(softmax, other_reader(call, softmax, before.output, after))
            return None
    value, is_transposed = softmax.output, False
    while True:
        reader = only_reader(call, found, value)
        if reader is None:
            call.miss(softmax, other_reader(call, softmax, value, None))
            return None
        if is_product(reader):
            break
        if reader.name in ("transpose", "permute", "swapaxes", "mT"):
            if is_transposed or untransposed(call, reader) is None:
                call.miss(softmax, changed_weights(call, reader))
                return None
            is_transposed = True
        elif reader.name not in (*COPIES, *VIEWS, "dropout") or reader.value(0) != value:
            call.miss(softmax, changed_weights(call, reader))
            return None
        found.after.append(reader)
        value = reader.output
    found.final, found.is_transposed = reader, is_transposed
    position = 1 if is_transposed else 0
    if reader.name != "einsum" and reader.value(position) != value:
        return None
    if reader.name == "einsum" and (is_transposed or einsum_values(reader)[:1] != [value]):
        return None
    if reader.name == "baddbmm" or graph.num_dims(reader.output) < 3:
        return None
    return found


def scores(call: Call, value: int | None, depth: int) -> tuple[Operation, list[Step]] | None:
    """Return the product that scores are made of, and what was done to it, in order."""
    graph = call.graph
    one = graph.maker.get(value) if value is not None else None
    if one is None or depth > 24 or one.output != value:
        return None
    if is_product(one):
        return one, []
    name = one.name.removesuffix("_")
    left, right = graph.parts(one)
    choices: list[tuple[int | None, Step]] = []
    if name in (*COPIES, "detach"):
        choices = [(left, Step("none", one))]
    elif name in VIEWS:
        choices = [(left, Step("view", one))]
    elif name in ("mul", "div"):
        if left is not None and is_number(call, one, 1):
            choices = [(left, Step(name, one, 1))]
        elif right is not None and name == "mul" and is_number(call, one, 0):
            choices = [(right, Step(name, one, 0))]
        elif left is not None and right is not None:
            choices = [(left, Step("gain", one, 1)), (right, Step("gain", one, 0))]
            choices = choices[:1] if name == "div" else choices
            choices = [c for c in choices if is_gain(call, one.value(c[1].position, "other"))]
    elif name == "add" and not one.recorded.kwargs and left is not None and right is not None:
        choices = [(left, Step("add", one, 1)), (right, Step("add", one, 0))]
    elif name == "sub" and not one.recorded.kwargs and left is not None and right is not None:
        maximum = graph.made_by(graph.before_casts(right), "max", "amax")
        is_shift = (
            maximum is not None
            and graph.before_casts(maximum.value(0)) == graph.before_casts(left)
            and graph.is_last_dim(maximum)
            and maximum.literal(2, "keepdim") is True
        )
        choices = [(left, Step("none" if is_shift else "sub", one, 1))]
    elif name == "masked_fill":
        choices = [(left, Step("fill", one, 1))]
    elif name == "where" and len(one.recorded.args) == 3:
        choices = [(right, Step("keep", one, 2)), (one.value(2), Step("fill", one, 1))]
    for before, step in choices:
        found = scores(call, before, depth + 1)
        shape, known = graph.of(value), graph.of(before)
        is_wider = shape is None or known is None or shape.shape != known.shape
        if is_wider and step.kind != "view":
            continue  # a mask that gives the scores more rows
        if found is not None:
            return found[0], [*found[1], step]
    return None


def is_product(operation: Operation) -> bool:
    """Return whether an operation is a product of two batches of matrices."""
    if operation.name == "einsum":
        return len(einsum_values(operation)) == 2
    return operation.name in ("matmul", "baddbmm")


def einsum_values(operation: Operation) -> list[int]:
    """Return the tensors of an einsum."""
    return [one.value for one in operation.recorded.args[1:] if one.value is not None]


def is_number(call: Call, operation: Operation, position: int) -> bool:
    """Return whether an operand is a number, or a tensor made of one number."""
    value = operation.value(position, "other")
    if value is None:
        return isinstance(operation.literal(position, "other"), int | float)
    return call.graph.made_by(value, "full", "tensor") is not None and (
        call.graph.num_dims(value) == 0
    )


def is_gain(call: Call, value: int | None) -> bool:
    """Return whether a factor is one number for all scores of a head, made of a parameter."""
    graph = call.graph
    known = graph.of(value)
    if known is None or known.shape[-2:] not in ONE_NUMBER:
        return False
    while known is not None and not known.path:
        maker = graph.made_by(value, *GAINS)
        value = None if maker is None else maker.value(0)
        known = graph.of(value)
    return known is not None and known.shape[-2:] in ONE_NUMBER


def only_reader(call: Call, found: Attention, value: int | None) -> Operation | None:
    """Return the only operation that reads a value for its numbers; what changes nothing is added
    to `found.extra`."""
    graph = call.graph
    if value is None or value in graph.recording.outputs:
        return None
    readers = []
    for one in graph.readers.get(value, []):
        is_same = one.name in COPIES and one.recorded.outputs == (value,)
        is_like = one.name in ("type_as", "to") and one.value(0) != value
        if one.name == "dropout" and one.recorded.outputs == (value,):
            found.after.append(one)  # not in training
        elif is_same or one.name in ("max", "amax"):
            found.extra.append(one)
        elif is_like or one.name in SIZES:
            continue
        else:
            readers.append(one)
    return readers[0] if len(readers) == 1 else None


def flows(call: Call, found: Attention, value: int | None, into: Operation) -> bool:
    """Return whether a value is read by an operation, and by nothing else."""
    graph = call.graph
    if only_reader(call, found, value) is not into:
        return False
    for one in graph.readers.get(value or 0, []):
        if one.name in ("max", "amax"):
            reads = {r for made in one.recorded.outputs for r in graph.readers.get(made, [])}
            if {r.index for r in reads} - {into.index} or into.name.removesuffix("_") != "sub":
                return False
    return True


def untransposed(call: Call, operation: Operation | None) -> int | None:
    """Return the value whose last two dimensions an operation swaps."""
    if operation is None:
        return None
    value = operation.value(0)
    rank = call.graph.num_dims(value)
    if operation.name in ("transpose", "swapaxes"):
        given = (operation.literal(1, "dim0"), operation.literal(2, "dim1"))
        is_swap = call.graph.dims(given, value) == (rank - 2, rank - 1)
    elif operation.name == "permute":
        first = operation.literal(1, "dims")
        rest = [operation.literal(n) for n in range(1, len(operation.recorded.args))]
        order = list(first) if isinstance(first, tuple) else rest
        wanted = [*range(rank - 2), rank - 1, rank - 2]
        is_swap = [one % rank for one in order if isinstance(one, int)] == wanted
    else:
        is_swap = operation.name == "mT"
    return value if is_swap else None


def beta(product: Operation) -> object:
    """Return how much of its first argument `baddbmm` adds."""
    found = product.literal(3, "beta")
    return 1 if found is None else found
