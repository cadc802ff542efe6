"""Say which recorded operations a compiler fuses, and what the fusion saves.

Elementwise operations, views, reductions and norms are fused: what one of them returns need not be
written to memory for the next one. Products, convolutions, sorts, choices of an element, indexing
with a tensor, random numbers, writes in place and what the host waits for end a fused run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cudal1_ci.propose.recorded.graph import CASTS, VIEWS, Graph, Operation, values_in
from cudal1_ci.propose.recorded.traffic import NO_COPY, bytes_of, size_of
from cudal1_ci.records.recording import Argument

QUERIES = frozenset(
    (
        *("size", "dim", "numel", "ndimension", "stride", "is_floating_point", "element_size"),
        *("len", "nelement", "get_device", "is_complex"),
    )
)
ARITHMETIC = frozenset(
    (
        *("add", "sub", "rsub", "mul", "div", "rdiv", "neg", "pow", "rpow", "square", "sqrt"),
        *("rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin"),
        *("cos", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2", "erf", "erfc"),
        *("abs", "sign", "floor", "ceil", "round", "trunc", "frac", "fmod", "remainder", "rmod"),
        *("floordiv", "floor_divide", "rfloordiv", "mod", "clamp", "clip", "clamp_min"),
        *("clamp_max", "lerp", "addcmul", "addcdiv", "maximum", "minimum", "fmax", "fmin"),
        *("masked_fill", "where", "nan_to_num", "hypot", "logaddexp", "sigmoid", "logit"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "invert"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "lshift", "rshift"),
    )
)
ACTIVATIONS = frozenset(
    (
        *("relu", "relu6", "gelu", "silu", "elu", "selu", "celu", "leaky_relu", "prelu"),
        *("hardtanh", "hardswish", "hardsigmoid", "softplus", "mish", "logsigmoid", "softsign"),
        *("glu", "threshold", "softmax", "log_softmax", "softmin"),
    )
)
REDUCTIONS = frozenset(
    (
        *("sum", "mean", "amax", "amin", "var", "std", "var_mean", "std_mean", "norm"),
        *("vector_norm", "logsumexp", "prod", "any", "all", "max", "min", "nansum", "nanmean"),
    )
)
NORMS = frozenset(
    (
        *("layer_norm", "group_norm", "rms_norm", "batch_norm", "normalize"),
        *("cosine_similarity", "pairwise_distance"),
    )
)
LOSSES = frozenset(
    (
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "cross_entropy"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "nll_loss"),
        *("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "gaussian_nll_loss"),
        *("cosine_embedding_loss", "triplet_margin_loss", "poisson_nll_loss"),
    )
)
MADE = frozenset(
    (
        *("arange", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "eye"),
        *("new_zeros", "new_ones", "new_full", "linspace"),
    )
)
MOVED = (
    VIEWS
    | NO_COPY
    | frozenset(
        (
            *("cat", "concat", "stack", "hstack", "vstack", "repeat", "repeat_interleave", "tile"),
            *("flip", "roll", "pad", "tril", "triu", "clone", "getitem", "broadcast_to", "t"),
            *("outer", "diagonal", "bool", "int", "long", "short", "dropout"),
            *("broadcast_tensors", "tensor_split", "swapdims"),
        )
    )
) - {"numpy", "data"}
FUSED = QUERIES | ARITHMETIC | ACTIVATIONS | REDUCTIONS | NORMS | LOSSES | MADE | MOVED | CASTS
ROUNDED = frozenset(
    (
        *("pow", "rpow", "exp", "exp2", "log", "log2", "log1p", "sin", "cos", "tan", "tanh"),
        *("sqrt", "rsqrt", "div", "rdiv", "reciprocal", "linspace", "outer", "sigmoid"),
    )
)
"""Operations that a compiler may round otherwise: a table of positions is not computed by it."""
LARGE_TABLE_BYTES = 2**25
"""A table from this size on is worth fusing."""
CALL_US = {"cpu": 3.0, "cuda": 5.0}
"""What an operation takes in eager mode, however small."""
COMPILED_CALL_US = {"cpu": 10.0, "cuda": 15.0}
"""What a call of a compiled function takes, which checks its guards."""
BYTES_PER_US = {"cpu": 1e4, "cuda": 2e6}
"""Bandwidth of memory. These figures are rough: they rank regions, and the verifier measures."""


class Fusible:
    """Which operations of a recording are fused."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.tables = tables_of(graph)
        self.known: dict[int, bool] = {}

    def __contains__(self, operation: Operation) -> bool:
        known = self.known.get(operation.index)
        if known is None:
            known = self.known[operation.index] = self.is_fused(operation)
        return known

    def is_fused(self, operation: Operation) -> bool:
        name, recorded = operation.name, operation.recorded
        if name not in FUSED or recorded.syncs or any(one.name == "out" for one in recorded.kwargs):
            return False
        if any(one in self.tables for one in recorded.outputs):
            return False
        used = [self.graph.recording.values[n] for n in self.values_of(operation)]
        if any("complex" in one.dtype or "quint" in one.dtype for one in used):
            return False
        if len({one.device for one in used if one.shape or one.device != "cpu"}) > 1:
            return False  # it copies to another device
        if name == "dropout":
            return operation.literal(1, "p") == 0.0
        if name == "batch_norm":
            return operation.literal(5, "training") is False
        if name == "where":
            return operation.argument(2, "other") is not None
        if name in ("max", "min"):
            return not any(self.graph.readers.get(one) for one in recorded.outputs[1:])
        if name == "repeat_interleave":
            return operation.value(1, "repeats") is None
        if name == "getitem":
            return all(not is_chosen(one) for one in recorded.args[1:])
        return True

    def values_of(self, operation: Operation) -> Iterator[int]:
        yield from values_in(operation.recorded)
        yield from operation.recorded.outputs

    def is_view(self, operation: Operation) -> bool:
        """Return whether an operation moves no bytes."""
        return bytes_of(operation, self.graph) == 0

    def launched(self, operations: Iterable[Operation]) -> list[Operation]:
        """Return the operations that run a kernel."""
        return [one for one in operations if not self.is_view(one)]


def is_chosen(argument: Argument) -> bool:
    """Return whether an index chooses by numbers that a tensor or a list holds."""
    if argument.kind in ("value", "list", "other"):
        return True
    return argument.kind == "tuple" and any(map(is_chosen, argument.items))


def tables_of(graph: Graph) -> frozenset[int]:
    """Return small values that are computed from counted numbers and state alone, with rounding:
    a table of positions."""
    constant: set[int] = {
        number for number, one in enumerate(graph.recording.values) if one.origin == "buffer"
    }
    counted: set[int] = set()
    rounded: set[int] = set()
    for one in graph.operations:
        given = [*values_in(one.recorded)]
        if not all(value in constant for value in given):
            continue
        made = one.recorded.outputs
        constant.update(made)
        if not given or any(value in counted for value in given):
            counted.update(made)
            if one.name in ROUNDED or any(value in rounded for value in given):
                rounded.update(made)
    values = graph.recording.values
    return frozenset(one for one in rounded if size_of(values[one]) < LARGE_TABLE_BYTES)


# --- what is saved -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saving:
    """What fusing operations saves."""

    saved_bytes: int = 0
    saved_launches: int = 0
    saved_us: float = 0.0
    calls: int = 0

    def __add__(self, other: Saving) -> Saving:
        return Saving(
            self.saved_bytes + other.saved_bytes,
            self.saved_launches + other.saved_launches,
            self.saved_us + other.saved_us,
            self.calls + other.calls,
        )


def saving_of(fusible: Fusible, operations: Sequence[Operation], kind: str) -> Saving:
    """Return what is saved where operations run as one kernel, from one call."""
    launched = fusible.launched(operations)
    if len(launched) < 2:
        return Saving(calls=1)
    graph = fusible.graph
    now_bytes = [bytes_of(one, graph) for one in launched]
    fused_bytes = fused_bytes_of(fusible, operations)
    call_us, bytes_per_us = CALL_US[kind], BYTES_PER_US[kind]
    now_us = sum(max(call_us, one / bytes_per_us) for one in now_bytes)
    fused_us = max(COMPILED_CALL_US[kind], fused_bytes / bytes_per_us)
    return Saving(sum(now_bytes) - fused_bytes, len(launched) - 1, now_us - fused_us, 1)


def fused_bytes_of(fusible: Fusible, operations: Sequence[Operation]) -> int:
    """Return the bytes of what a fused kernel is given and of what others read of it."""
    graph, values = fusible.graph, fusible.graph.recording.values
    inside = {one.index for one in operations}
    base: dict[int, int] = {}
    """What a view is of."""
    read: dict[int, set[int]] = {}
    for one in operations:
        given = dict.fromkeys(values_in(one.recorded))
        if fusible.is_view(one) and given:
            first = next(iter(given))
            base.update({made: base.get(first, first) for made in one.recorded.outputs})
            continue
        for value in given:
            source = base.get(value, value)
            maker = graph.maker.get(source)
            if maker is None or maker.index not in inside:
                read.setdefault(source, set()).add(value)
    written = {
        base.get(value, value)
        for one in operations
        for value in one.recorded.outputs
        if value in graph.recording.outputs
        or any(reader.index not in inside for reader in graph.readers.get(value, ()))
    }
    total = sum(size_of(values[one]) for one in written if is_made(graph, one, inside))
    for source, views in read.items():
        total += min(size_of(values[source]), sum(size_of(values[one]) for one in views))
    return total


def is_made(graph: Graph, value: int, inside: set[int]) -> bool:
    maker = graph.maker.get(value)
    return maker is not None and maker.index in inside
