"""Pick what a one-hot matrix selects instead of multiplying with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.terms import portable
from cudal1_ci.propose.recorded.algebra import (
    OneHot,
    in_one_block,
    in_place_of,
    index_code,
    inserted,
    one_hot,
    only_arguments,
    read_only_by,
    scattered,
    sums_over,
)
from cudal1_ci.propose.recorded.certainty import unstated
from cudal1_ci.propose.recorded.graph import Graph, Operation
from cudal1_ci.propose.recorded.lookups import scattered_lines
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import Place, bare, bracketed


@dataclass(frozen=True)
class Selected:
    """A sum of a one-hot matrix times other values: what it selects."""

    hot: OneHot
    values: int
    last: Operation
    """The operation whose result is replaced: the sum, or the negation of it."""
    is_negative: bool
    reduction: str
    """Of what is selected: `none`, `mean` or `sum`."""
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class WeightedSum:
    """A sum of products, with one factor as the weights."""

    total: Operation
    product: Operation
    dims: tuple[int, ...]
    """Dimensions that the sum is over; () for all."""
    weights: int | None
    values: int | None
    is_negative: bool
    signs: tuple[Operation, ...]
    """Negations of the product and of the weights."""


def weighted_sums(graph: Graph) -> Iterator[WeightedSum]:
    """Yield the sums of products, each with either factor as the weights."""
    for operation in graph.operations:
        dims = sums_over(graph, operation)
        product, flips = without_signs(graph, operation.value(0))
        maker = graph.made_by(product, "mul")
        if dims is None or maker is None:
            continue
        outer = negations(graph, operation.value(0))
        for first, second in (graph.parts(maker), graph.parts(maker)[::-1]):
            weights, is_turned = without_signs(graph, first)
            values, is_negative = without_signs(graph, second)
            yield WeightedSum(
                operation,
                maker,
                dims,
                weights,
                values,
                (flips + is_turned + is_negative) % 2 == 1,
                (*outer, *negations(graph, first)),
            )


def selections(call: Call) -> Iterator[Selected]:
    """Yield sums of products with a one-hot matrix that nothing else reads."""
    graph = call.graph
    for one in weighted_sums(graph):
        hot = one_hot(call, one.weights)
        known, wide = graph.of(one.values), graph.of(one.weights)
        if hot is None or known is None or wide is None or one.values is None:
            continue
        if known.shape != wide.shape or (one.dims and one.dims != (hot.dim,)):
            continue
        ends, reduction = reduced(graph, one.total, "none" if one.dims else "sum")
        last = ends[-1]
        sign = one.is_negative != (last.name == "neg")
        chain = (one.total, one.product, *hot.operations)
        every = [*chain, *one.signs, *ends[1:]]
        inner = [made.output for made in every if made is not last]
        if in_one_block(call, every) and all(read_only_by(call, made, every) for made in inner):
            yield Selected(hot, one.values, last, sign, reduction, chain)


def reduced(graph: Graph, operation: Operation, reduction: str) -> tuple[list[Operation], str]:
    """Return a sum with the mean or the sum over everything and the negation that follow it, as
    far as a cross-entropy can do them; and the reduction that they are."""
    ends = [operation]
    reader = graph.sole_reader(operation.output)
    is_all = reader is not None and len(reader.recorded.args) == 1 and not reader.recorded.kwargs
    if reduction == "none" and is_all and reader is not None and reader.name in ("mean", "sum"):
        following = graph.sole_reader(reader.output)
        if following is not None and following.name == "neg":
            return [operation, reader, following], reader.name
    if reader is not None and reader.name == "neg":
        ends.append(reader)
    return ends, reduction


def without_signs(graph: Graph, value: int | None) -> tuple[int | None, bool]:
    """Return a value before negations, and whether they change its sign."""
    is_negative = False
    while (maker := graph.made_by(value, "neg")) is not None:
        value, is_negative = maker.value(0), not is_negative
    return value, is_negative


def negations(graph: Graph, value: int | None) -> list[Operation]:
    """Return the negations that a value was made by."""
    found = []
    while (maker := graph.made_by(value, "neg")) is not None:
        found.append(maker)
        value = maker.value(0)
    return found


def find_selections(call: Call) -> Iterator[Change]:
    """Find `-(one_hot * log_softmax(x)).sum(1)`, and other sums that select one element."""
    source = call.source
    for one in selections(call):
        place = source.place(one.last)
        if place is None:
            continue
        removed = scattered_lines(call, one.operations, place.function, 1)
        if removed is None:
            continue
        code, modules = cross_entropy(call, one, place)
        if code is None:
            values = source.expression(one.values, one.last)
            column = index_code(call, one.hot, one.last, with_dim=True)
            if values is None or column is None:
                continue
            dim = one.hot.dim
            picked = f"{bracketed(values)}.gather({dim}, {column})"
            picked += f".squeeze({dim})" if one.reduction == "none" else f".{one.reduction}()"
            code = in_place_of(call, place, f"-{picked}") if one.is_negative else picked
        yield Change(place.file, {place.node: code, **removed}, shown(one.last, source), modules)


def cross_entropy(call: Call, one: Selected, place: Place) -> tuple[str | None, frozenset[str]]:
    """Return the code of a cross-entropy, if what is selected are negative log-probabilities."""
    graph = call.graph
    maker = graph.made_by(one.values, "log_softmax")
    if not one.is_negative or maker is None or not is_log_softmax(graph, maker, one.hot.dim):
        return None, frozenset()
    if maker.literal(1, "dim") != 1 or not in_one_block(call, [maker, one.last]):
        return None, frozenset()
    logits = call.source.expression(maker.value(0), one.last)
    index = index_code(call, one.hot, one.last, with_dim=False)
    if logits is None or index is None or not read_only_by(call, maker.output, one.operations):
        return None, frozenset()
    prefix, modules = call.source.functional(place.file)
    how = "" if one.reduction == "mean" else f', reduction="{one.reduction}"'
    return f"{prefix}.cross_entropy({logits}, {index}{how})", modules


def is_log_softmax(graph: Graph, maker: Operation, dim: int) -> bool:
    """Return whether a log_softmax is over a dimension, without a cast."""
    given = maker.literal(1, "dim")
    rank = graph.num_dims(maker.value(0))
    return (
        isinstance(given, int)
        and given % rank == dim
        and only_arguments(maker, "dim", "_stacklevel")
    )


def find_smoothed(call: Call) -> Iterator[Change]:
    """Find a cross-entropy with `one_hot * (1 - s) + s / num_classes`."""
    graph, source = call.graph, call.source
    for one in weighted_sums(graph):
        logs = graph.made_by(one.values, "log_softmax")
        ends, reduction = reduced(graph, one.total, "none" if one.dims else "sum")
        last = ends[-1]
        found, place = smoothed(call, one.weights), source.place(last)
        is_loss = one.is_negative != (last.name == "neg")
        if logs is None or found is None or place is None or not is_loss:
            continue
        hot, code, inner = found
        is_by_row = logs.literal(1, "dim") == 1 and is_log_softmax(graph, logs, 1)
        if not is_by_row or one.dims not in ((), (1,)):
            continue
        if not in_one_block(call, [one.total, one.product, logs, last, *inner]):
            continue
        inner = (*inner, *one.signs, *ends[:-1])
        chain = [one.total, one.product, *inner]
        if not all(read_only_by(call, made.output, [*chain, last]) for made in inner):
            continue
        if not read_only_by(call, logs.output, chain):
            continue
        index = index_code(call, hot, last, with_dim=False)
        logits = source.expression(logs.value(0), last)
        removed = scattered_lines(call, hot.operations, place.function, 1)
        if index is None or logits is None or removed is None:
            continue
        prefix, modules = call.source.functional(place.file)
        how = "" if reduction == "mean" else f'reduction="{reduction}", '
        new = f"{prefix}.cross_entropy({logits}, {index}, {how}label_smoothing={code})"
        yield Change(place.file, {place.node: new, **removed}, shown(last, source), modules)


def smoothed(call: Call, value: int | None) -> tuple[OneHot, str, tuple[Operation, ...]] | None:
    """Return the one-hot matrix that is smoothed, the code of the smoothing, and the operations."""
    graph, source = call.graph, call.source
    total = graph.made_by(value, "add")
    if total is None or not only_arguments(total):
        return None
    rest = total.literal(1, "other")
    scaled = graph.made_by(total.value(0), "mul")
    if scaled is None or not isinstance(rest, float):
        return None
    kept = scaled.literal(1, "other")
    hot = one_hot(call, scaled.value(0))
    known = graph.of(value)
    if hot is None or known is None or not isinstance(kept, float):
        return None
    if abs(1 - kept - rest * known.shape[hot.dim]) > 1e-6:
        return None
    nodes = source.operands(scaled), source.operands(total)
    if not all(nodes) or nodes[0][1] is None or nodes[1][1] is None:
        return None
    keep, share = nodes[0][1], nodes[1][1]
    if not isinstance(keep, cst.BinaryOperation) or not isinstance(keep.operator, cst.Subtract):
        return None
    if not isinstance(share, cst.BinaryOperation) or not isinstance(share.operator, cst.Divide):
        return None
    file = source.file((source.place(total) or Place("", keep, keep, None)).file)
    if file is None or file.code(keep.left) not in ("1", "1.0"):
        return None
    smoothing = file.code(keep.right)
    if file.code(share.left) != smoothing or names_number(share.right):
        return None
    return hot, smoothing, (total, scaled, *hot.operations)


FILLS = {"fill_": 1, "full_like": 1, "new_full": 2}
"""Operations that give each element the same number, and the place of that argument."""


SUM_OF_TWO = """
def sum_of_two(values, column, low, high, dim):
    \"\"\"Return the sum over a dimension of values times `high` at `column`, `low` elsewhere.\"\"\"
    if dim % values.dim() == {place} and low * (high - low) > 0:
        picked = values.gather({place}, column).squeeze({place})
        return low * values.sum({place}) + (high - low) * picked
    weights = torch.full_like(values, low).scatter({place}, column, high)
    return (weights * values).sum(dim)
"""
"""Of numbers with other signs, infinite values would cancel to NaN."""


@dataclass(frozen=True)
class TwoValued:
    """A matrix with one number everywhere, but for another one at an index of each row."""

    hot: OneHot
    low: str
    high: str


def two_valued(call: Call, value: int | None, at: Operation) -> TwoValued | None:
    """Return how a value has two numbers, with their code at another place."""
    graph, source = call.graph, call.source
    passed = []
    while (copy := graph.made_by(value, "clone", "detach", "data")) is not None:
        passed.append(copy)
        value = copy.value(0)
    maker = graph.made_by(value, "scatter_", "scatter")
    base = None if maker is None else graph.made_by(maker.value(0), *FILLS)
    if maker is None or base is None or maker.value(3, "src") is not None:
        return None
    place = FILLS[base.name]
    numbers = base.literal(place, "fill_value"), maker.literal(3, "value")
    if not all(isinstance(one, float | int) for one in numbers) or not numbers[0]:
        return None
    hot = scattered(graph, maker, (*passed, maker, base))
    low, high = source.argument_code(base, place, at), source.argument_code(maker, 3, at)
    if hot is None or low is None or high is None:
        return None
    return TwoValued(hot, bracketed(low), bracketed(high))


def find_two_valued(call: Call) -> Iterator[Change]:
    """Find `(weights * x).sum(dim)` with weights of two numbers, such as smoothed labels that are
    written by `fill_` and `scatter_`."""
    graph, source = call.graph, call.source
    for one in weighted_sums(graph):
        operation, place = one.total, source.place(one.total)
        found = two_valued(call, one.weights, operation)
        known, wide = graph.of(one.values), graph.of(one.weights)
        if found is None or place is None or known is None or wide is None:
            continue
        hot = found.hot
        is_same = (known.shape, known.dtype) == (wide.shape, wide.dtype)
        if not is_same or known.dtype == "float16" or one.dims != (hot.dim,):
            continue  # the sum of all values may be too large for float16
        every = [operation, one.product, *hot.operations, *one.signs]
        inner = [made.output for made in every if made is not operation]
        if not all(read_only_by(call, made, every) for made in inner):
            continue
        code = source.expression(one.values, operation)
        column = index_code(call, hot, operation, with_dim=True)
        removed = scattered_lines(call, hot.operations, place.function, 1)
        if code is None or not code.isidentifier() or column is None or removed is None:
            continue
        dim, definition = dimension_code(call, operation), ""
        modules: frozenset[str] = frozenset()
        sign = "-" if one.is_negative else ""
        if dim is None and is_sure(found):
            picked = f"{code}.gather({hot.dim}, {column}).squeeze({hot.dim})"
            new = f"{sign}{found.low} * {code}.sum({hot.dim}) {sign or '+'} "
            new += f"({found.high} - {found.low}) * {picked}"
        else:  # the dimension and the numbers may be others in another call
            definition, modules = SUM_OF_TWO.format(place=hot.dim), frozenset(("torch",))
            numbers = ", ".join(portable(bare(number)) for number in (found.low, found.high))
            new = f"{sign}sum_of_two({code}, {column}, {numbers}, {dim or hot.dim})"
        changes = {place.node: in_place_of(call, place, new), **removed}
        yield Change(place.file, changes, shown(operation, source), modules, definition)


def is_sure(found: TwoValued) -> bool:
    """Return whether two numbers are written out, and their sums cancel no infinite values."""
    try:
        low, high = (float(portable(bare(one))) for one in (found.low, found.high))
    except ValueError:
        return False
    return low * (high - low) > 0


KL_OF_TWO = """
def kl_of_two(logs, column, low, high):
    \"\"\"Return kl_div of each row with a target of `high` at `column` and `low` elsewhere.\"\"\"
    if not 0 < low < high:  # infinite terms could cancel below
        target = torch.full_like(logs, low).scatter({dim}, column, high)
        return torch.nn.functional.kl_div(logs, target, reduction="none").sum({dim})
    picked = logs.gather({dim}, column).squeeze({dim})
    rest = low * logs.sum({dim}) + (high - low) * picked
    return high * math.log(high) + (logs.size({dim}) - 1) * low * math.log(low) - rest
"""


def find_divergences(call: Call) -> Iterator[Change]:
    """Find `F.kl_div(logs, target)` with a target of two numbers, such as smoothed labels."""
    graph, source = call.graph, call.source
    for one in graph.operations:
        known, wide = graph.of(one.value(0)), graph.of(one.value(1, "target"))
        if one.name != "kl_div" or known is None or wide is None:
            continue
        found = two_valued(call, one.value(1, "target"), one)
        is_same = (known.shape, known.dtype) == (wide.shape, wide.dtype)
        if found is None or not is_same or known.dtype not in ("float32", "float64"):
            continue
        legacy = (one.argument(at, name) for at, name in ((2, "size_average"), (3, "reduce")))
        if any(given is not None and given.text != "None" for given in legacy):
            continue
        if one.literal(5, "log_target") not in (None, False, "False"):
            continue
        if not states_reduction(call, one):
            continue
        hot = found.hot
        after = divergence_after(call, one, hot.dim)
        every = [one, *hot.operations]
        if after is None or not all(
            read_only_by(call, made.output, every) for made in hot.operations
        ):
            continue
        last, suffix = after
        place, code = source.place(last), source.expression(one.value(0), last)
        column = index_code(call, hot, last, with_dim=True)
        function = None if place is None else place.function
        removed = scattered_lines(call, hot.operations, function, 1)
        if place is None or code is None or column is None or removed is None:
            continue
        numbers = ", ".join(portable(bare(number)) for number in (found.low, found.high))
        new = f"kl_of_two({code}, {column}, {numbers}){suffix}"
        definition = KL_OF_TWO.format(dim=hot.dim)
        changes = {place.node: new, **removed}
        modules = frozenset(("math", "torch"))
        yield Change(place.file, changes, shown(last, source), modules, definition)


def states_reduction(call: Call, one: Operation) -> bool:
    """Return whether the code says how a divergence is reduced."""
    place = call.source.place(one)
    if place is None or not isinstance(place.node, cst.Call):
        return False
    written = [(key, node) for _, (key, node, _) in unstated(call.source, [one])]
    is_default = all(key != "reduction" and node is None for key, node in written)
    return is_default and not any(argument.star for argument in place.node.args)


def divergence_after(call: Call, one: Operation, dim: int) -> tuple[Operation, str] | None:
    """Return the operation that reduces a divergence, and the code that does it for rows; None if
    the elements are read otherwise."""
    graph, rank = call.graph, call.graph.num_dims(one.value(0))
    reduction = one.literal(4, "reduction")
    if reduction == "sum":
        return one, ".sum()"
    if reduction == "batchmean" and rank == 2 and dim == 1:
        return one, ".mean()"
    reader = graph.sole_reader(one.output)
    if reduction != "none" or reader is None or not in_one_block(call, [one, reader]):
        return None
    suffix = ""
    if reader.name == "masked_fill" and reader.literal(2, "value") == 0:
        mask = inserted(graph, reader.value(1, "mask"))
        code = None if mask is None else call.source.expression(mask[0], reader)
        following = graph.sole_reader(reader.output)
        is_of_rows = mask is not None and mask[1] == dim and graph.num_dims(mask[0]) == rank - 1
        if code is None or following is None or not is_of_rows:
            return None
        suffix, reader = f".masked_fill({code}, 0)", following
    sums = sums_over(graph, reader)
    if sums not in ((), (dim,)) or not in_one_block(call, [one, reader]):
        return None
    return reader, suffix + ".sum()" * (not sums)


def dimension_code(call: Call, operation: Operation) -> str | None:
    """Return the code of a sum's dimension; None where that is a number."""
    place = call.source.place(operation)
    file = None if place is None else call.source.file(place.file)
    if place is None or file is None or not isinstance(place.node, cst.Call):
        return None
    named = [
        one.value
        for one in place.node.args
        if one.keyword is not None and one.keyword.value in ("dim", "axis")
    ]
    operands = call.source.operands(operation)
    node = named[0] if named else operands[1] if len(operands) > 1 else None
    inner = node.expression if isinstance(node, cst.UnaryOperation) else node
    return None if node is None or isinstance(inner, cst.Integer) else file.code(node)


def names_number(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a number."""
    return isinstance(node, cst.Integer | cst.Float)


RULES = (
    RecordedRule(
        name="one_hot_selection",
        family="algebra",
        why="a sum of products with a one-hot matrix picks one element of each row",
        precondition="nothing else reads the one-hot matrix",
        find=find_selections,
    ),
    RecordedRule(
        name="label_smoothing",
        family="algebra",
        why="cross_entropy smooths labels without a matrix of them",
        precondition="labels are smoothed evenly",
        find=find_smoothed,
    ),
    RecordedRule(
        name="two_valued_weights",
        family="algebra",
        why="a sum or a KL divergence with weights of two numbers is a plain sum and one element "
        "of each row",
        precondition="`fill_` and `scatter_` write the weights, and nothing else reads them",
        find=lambda call: [*find_two_valued(call), *find_divergences(call)],
    ),
)
