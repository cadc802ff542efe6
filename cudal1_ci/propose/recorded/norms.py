"""Recognize normalizations by what they compute: over rows, channels, groups, or with kept
statistics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import numpy as np

from cudal1_ci.propose.recorded.certainty import (
    conditions,
    functional,
    has_inner_casts,
    is_straight,
    leaf_code,
    number_of,
    unstated,
    written_arguments,
)
from cudal1_ci.propose.recorded.formulas import (
    REDUCTIONS,
    RESHAPED,
    Array,
    Cone,
    Formula,
    inputs_of,
)
from cudal1_ci.propose.recorded.graph import CASTS, Graph, Operation
from cudal1_ci.propose.recorded.purity import pure_calls
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import (
    IMPURE,
    Place,
    Source,
    bracketed,
    is_statement,
    names_read,
)

PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41)
MOST_ELEMENTS = 2**21
"""Of a tensor that a formula is computed for in its own size."""
MOST_TRIES = 3
"""Calls of one expression that are looked at."""
OUTER = ("add", "mul", "div", "sub", "view", "reshape")
LAST, CHANNEL = "last", "channel"


@dataclass(frozen=True)
class Epsilon:
    """The number that keeps a denominator from zero."""

    value: float = 0.0
    operation: Operation | None = None
    argument: int | str = 0


@dataclass(frozen=True)
class Norm:
    """A normalization that a formula is."""

    kind: str
    formula: Formula
    x: int
    epsilon: Epsilon
    weight: int | None = None
    bias: int | None = None
    statistics: tuple[int, int] | None = None
    """Mean and variance that are kept."""
    num_dims: int = 1
    reduction: Operation | None = None

    @property
    def state(self) -> list[int]:
        """Return the tensors besides x that it reads."""
        given = (*(self.statistics or ()), self.weight, self.bias)
        return [one for one in given if one is not None]


def find_norms(call: Call) -> Iterator[Change]:
    """Find normalizations by hand."""
    graph, source = call.graph, call.source
    taken: set[int] = set()
    tries: dict[object, int] = {}
    for operation in reversed(graph.operations):
        span = operation.recorded.span
        if operation.name not in OUTER or operation.index in taken or span is None:
            continue
        key = (span, place.file if (place := source.place(operation)) else None)
        tries[key] = tries.get(key, 0) + 1
        if tries[key] > MOST_TRIES:
            continue
        for norm in norms_of(graph, operation):
            change = change_of(source, norm, operation)
            if change is not None:
                taken |= {one.index for one in norm.formula.operations}
                yield change
                break


def norms_of(graph: Graph, operation: Operation) -> Iterator[Norm]:
    """Yield the normalizations that an operation ends."""
    output = operation.output
    wanted = graph.of(output)
    if output is None or wanted is None or len(wanted.shape) < 2 or "float" not in wanted.dtype:
        return
    cone = Cone(graph, output)
    names = {one.name for one in cone.operations}
    has_root = names & {"sqrt", "rsqrt", "pow", "std", "norm", "linalg_norm", "linalg_vector_norm"}
    if len(cone.operations) < 3 or not has_root:
        return
    values = dict.fromkeys(v for one in cone.operations for v in inputs_of(one))
    formulas = []
    for x in values:
        known = graph.of(x)
        if known is not None and known.shape == wanted.shape and "float" in known.dtype:
            formula = cut(graph, cone, x)
            if formula is not None:
                formulas.append((x, formula))
    formulas.sort(key=lambda one: -len(one[1].operations))
    computed: dict[object, Array | None] = {}
    for x, formula in formulas:
        others = [one for one in formula.leaves if one != x]
        for epsilon in epsilons(formula):
            reductions = [one for one in formula.operations if one.name in REDUCTIONS]
            for norm in hypotheses(graph, formula, x, others, epsilon, reductions):
                if is_computed(graph, norm, computed):
                    yield norm


def cut(graph: Graph, cone: Cone, x: int) -> Formula | None:
    """Return the formula from a tensor and small ones on; their views are part of it."""
    formula = cone.until([x])
    if x not in formula.leaves or not len(formula.operations) > 2:
        return None
    whole = graph.of(x)
    others = [graph.of(one) for one in formula.leaves if one != x]
    if whole is None or len(others) > 4:
        return None
    total = math.prod(whole.shape)
    is_small = all(one is not None and math.prod(one.shape) * 2 <= total for one in others)
    return formula if is_small else None


def epsilons(formula: Formula) -> Iterator[Epsilon]:
    """Yield the small numbers that are added or keep from zero, then none."""
    for one in formula.operations:
        if one.name not in ("add", "clamp", "clamp_min", "clip", "maximum"):
            continue
        given: list[tuple[int | str, object]] = [
            (n, one.literal(n)) for n in range(1, len(one.recorded.args))
        ]
        given += [(k.name, one.literal(99, k.name)) for k in one.recorded.kwargs]
        for name, value in given:
            if isinstance(value, float) and 0 < value < 0.1:
                yield Epsilon(value, one, name)
    yield Epsilon()


def hypotheses(
    graph: Graph,
    formula: Formula,
    x: int,
    others: Sequence[int],
    epsilon: Epsilon,
    reductions: Sequence[Operation],
) -> Iterator[Norm]:
    """Yield the normalizations that a formula may be, from its reductions."""
    if not reductions:
        for given in itertools.permutations(others):
            if 2 <= len(given) <= 4:
                state = (*given[2:], None, None)
                kept = given[0], given[1]
                yield Norm("batch", formula, x, epsilon, state[0], state[1], kept)
                if len(given) == 3:
                    yield Norm("batch", formula, x, epsilon, None, given[2], kept)
        return
    if len(others) > 2:
        return
    first = reductions[0]
    value, whole = first.value(0), graph.of(x)
    known = graph.of(value)
    dims = graph.dims(first.literal(1, "dim"), value)
    if known is None or whole is None or not dims:
        return
    rank = len(known.shape)
    pairs: list[tuple[int | None, int | None]] = [(None, None)]
    if len(others) == 1:
        pairs = [(others[0], None), (None, others[0])]
    elif len(others) == 2:
        pairs = [(others[0], others[1]), (others[1], others[0])]
    for weight, bias in pairs:
        kinds: list[tuple[str, int]] = []
        if known.shape != whole.shape:
            kinds = [("group", 1)] if dims == tuple(range(2, rank)) else []
            if kinds and has_channels(graph, formula, whole.shape):
                kinds.append(("instance", 1))
        elif dims == tuple(range(rank - len(dims), rank)):
            kinds = [("layer", len(dims)), ("rms", len(dims))]
            if dims == tuple(range(2, rank)):
                kinds.append(("instance", 1))
        elif dims == (1,):
            kinds = [("channel_layer", 1), ("channel_rms", 1)]
        if len(dims) == 1 and weight is None and bias is None and known.shape == whole.shape:
            kinds.append(("unit", 1))
        for kind, num_dims in kinds:
            if bias is None or "rms" not in kind:
                yield Norm(
                    kind,
                    formula,
                    x,
                    epsilon,
                    weight,
                    bias,
                    num_dims=num_dims,
                    reduction=first,
                )


def has_channels(graph: Graph, formula: Formula, shape: Sequence[int]) -> bool:
    """Return whether a statistic is viewed as one number a sample and channel."""
    wanted = (*shape[:2], *[1] * (len(shape) - 2))
    outputs = [graph.of(o.output) for o in formula.operations if o.name in RESHAPED]
    return shape[1] > 1 and any(one is not None and one.shape == wanted for one in outputs)


def is_computed(graph: Graph, norm: Norm, computed: dict[object, Array | None]) -> bool:
    """Return whether the formula gives the numbers of the normalization; keep what was computed."""
    known = {one: graph.of(one) for one in norm.formula.leaves}
    if any(one is None for one in known.values()):
        return False
    shapes = {one: value.shape for one, value in known.items() if value is not None}
    large = dict.fromkeys(s for shape in shapes.values() for s in shape if s > 8)
    small = {}
    if len(large) <= len(PRIMES):
        small = dict(zip(large, PRIMES, strict=False))
    for renamed in (small, {}):
        if not renamed and math.prod(shapes[norm.x]) > MOST_ELEMENTS:
            return False
        is_possible = True
        rng = np.random.default_rng(0)
        for scale in (1.0, math.sqrt(norm.epsilon.value or 1e-6)):
            given: dict[int, Array] = {}
            for one, shape in shapes.items():
                numbers = rng.standard_normal([renamed.get(s, s) for s in shape])
                given[one] = (numbers + 0.3) * scale if one == norm.x else np.abs(numbers) + 0.2
                if norm.statistics and one == norm.statistics[1]:
                    given[one] = given[one] * scale**2
            key = norm.x, scale, bool(renamed), (norm.statistics or (0, 0))[1]
            if key not in computed:
                computed[key] = norm.formula.computed(given, renamed)
            found = computed[key]
            if found is None:
                is_possible = False
                break
            wanted = normalized(graph, norm, given, renamed)
            if wanted is None and renamed:  # groups that the smaller sizes do not divide into
                is_possible = False
                break
            if wanted is None or wanted.shape != found.shape:
                return False
            if not np.allclose(found, wanted, rtol=1e-7, atol=1e-9):
                return False
        if is_possible:
            return True
    return False


def normalized(
    graph: Graph, norm: Norm, given: dict[int, Array], renamed: dict[int, int]
) -> Array | None:
    """Return what torch's function gives for these numbers; None if it refuses them."""
    x, epsilon = given[norm.x], norm.epsilon.value
    weight = None if norm.weight is None else given[norm.weight]
    bias = None if norm.bias is None else given[norm.bias]
    shape = [1] * x.ndim
    if norm.kind == "unit":
        dim = dims_of(graph, norm)[0]
        length = np.sqrt(np.sum(x * x, axis=dim, keepdims=True))
        divided: Array = x / np.maximum(length, epsilon)
        return divided
    if norm.kind in ("layer", "rms"):
        axes = tuple(range(x.ndim - norm.num_dims, x.ndim))
        shape = [*x.shape[x.ndim - norm.num_dims :]]
    elif norm.kind.startswith("channel"):
        axes = (1,)
        shape[1] = x.shape[1]
    else:
        axes = tuple(range(2, x.ndim))
        shape[1] = x.shape[1]
    if any(one is not None and one.size != math.prod(shape) for one in (weight, bias)):
        return None
    rows = x
    if norm.kind == "batch":
        if norm.statistics is None or any(given[s].size != shape[1] for s in norm.statistics):
            return None
        mean, var = (given[one].reshape(shape) for one in norm.statistics)
    else:
        if norm.kind == "group":
            view = graph.of(None if norm.reduction is None else norm.reduction.value(0))
            num_groups = renamed.get(view.shape[1], view.shape[1]) if view is not None else 1
            if x.ndim < 3 or x.shape[1] % num_groups:
                return None
            rows, axes = x.reshape(x.shape[0], num_groups, -1), (2,)
        is_rms = norm.kind.endswith("rms")
        mean = np.zeros(1) if is_rms else rows.mean(axis=axes, keepdims=True)
        var = np.mean((rows - mean) ** 2, axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        made: Array = ((rows - mean) / np.sqrt(var + epsilon)).reshape(x.shape)
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


def dims_of(graph: Graph, norm: Norm) -> tuple[int, ...]:
    one = norm.reduction
    return () if one is None else graph.dims(one.literal(1, "dim"), one.value(0))


def change_of(source: Source, norm: Norm, operation: Operation) -> Change | None:
    """Return the change to torch's function; None if the code does not guarantee that it is."""
    place = source.place(operation)
    formula = norm.formula
    if place is None or has_inner_casts(source, formula):
        return None
    if any(k.name == "dtype" for one in formula.operations for k in one.recorded.kwargs):
        return None
    epsilon = norm.epsilon
    for one, (name, _, _) in unstated(source, formula.operations):
        is_epsilon = one is epsilon.operation and name == epsilon.argument
        is_dim = norm.kind == "unit" and one is norm.reduction and name in (1, "dim")
        if not is_epsilon and not is_dim and one.name not in RESHAPED:
            return None
    if not is_straight(source, formula.operations, operation):
        return None
    if not norm.state or is_of_dtype(source, norm, operation):
        code = code_of(source, norm, operation, place)
        new = None if code is None else {place.node: code, **unread_pairs(source, norm, place)}
    else:
        new = guarded(source, norm, operation, place)
    if new is None:
        return None
    _, modules = functional(source, place)
    return Change(
        file=place.file,
        new=new,
        found=shown(operation, source),
        modules=modules,
    )


def unread_pairs(source: Source, norm: Norm, place: Place) -> dict[cst.CSTNode, str]:
    """Return the removal of `var, mean = ...` whose names only the old expression reads."""
    file = source.file(place.file)
    found: dict[cst.CSTNode, str] = {}
    if file is None or place.function is None:
        return found
    pure = pure_calls(source, place.file, place.function)
    frames = source.graph.recording.frames
    for one in norm.formula.operations:
        own = source.place(one)
        node: cst.CSTNode | None = None if own is None else own.node
        frame = None if one.recorded.frame is None else frames[one.recorded.frame]
        if frame is not None and own is not None and own.function is not place.function:
            node = None if frame.call is None else file.node_at(frame.call)
            if node is None or file.code(node) not in pure:
                continue
        line = next((a for a in file.above(node) if is_statement(a)), None) if node else None
        if not isinstance(line, cst.SimpleStatementLine) or line in found:
            continue
        small = line.body[0]
        if not isinstance(small, cst.Assign) or small.value is not node or len(line.body) > 1:
            continue
        if not isinstance(small.targets[0].target, cst.Tuple):
            continue
        names = names_read(small.targets[0].target)
        uses = [
            node
            for node in file.ranges
            if isinstance(node, cst.Name)
            and node.value in names
            and place.function in file.above(node)
            and place.node not in file.above(node)
            and line not in file.above(node)
        ]
        if not uses:
            found[line] = ""
    return found


def is_of_dtype(source: Source, norm: Norm, operation: Operation) -> bool:
    """Return whether x surely has the dtype of parameters: a layer with weights just made it."""
    graph = source.graph
    value: int | None = norm.x
    while (maker := graph.made_by(value)) is not None:
        if maker.recorded.frame != operation.recorded.frame:
            return False
        if maker.name in ("linear", "conv1d", "conv2d", "conv3d", "layer_norm"):
            weight = graph.of(maker.value(1, "weight"))
            return weight is not None and weight.origin == "parameter"
        if maker.name not in RESHAPED:
            return False
        value = maker.value(0)
    return False


def code_of(source: Source, norm: Norm, at: Operation, place: Place) -> str | None:
    """Return the call of torch's function, as it is written at an operation."""
    graph = source.graph
    x = leaf_code(source, norm.formula, norm.x, at)
    epsilon = epsilon_code(source, norm.epsilon, at)
    state = [source.expression(one, at) for one in norm.state]
    if x is None or epsilon is None or None in state:
        return None
    name, _ = functional(source, place)
    is_name = isinstance(cst.parse_expression(x), cst.Name | cst.Attribute)
    known = graph.of(norm.x)
    if known is None:
        return None
    codes = dict(zip(norm.state, state, strict=True))
    size = math.prod(known.shape[-norm.num_dims :])
    if norm.kind not in ("layer", "rms"):
        size = known.shape[1]

    def flat(value: int | None) -> str | None:
        if value is None:
            return None
        one = graph.of(value)
        code = codes[value]
        if one is None or code is None or math.prod(one.shape) != size:
            return None
        is_fit = len(one.shape) == 1 or (
            norm.kind in ("layer", "rms") and one.shape == known.shape[-norm.num_dims :]
        )
        return code if is_fit else f"{bracketed(code)}.flatten()"

    weight, bias = flat(norm.weight), flat(norm.bias)
    if norm.kind == "unit":
        dim = dims_code(source, norm, at)
        return None if dim is None else f"{name}.normalize({x}, dim={dim}, eps={epsilon})"
    if norm.kind == "batch" and norm.statistics is not None:
        mean, var = (flat(one) for one in norm.statistics)
        more = [f"weight={weight}"] * (weight is not None) + [f"bias={bias}"] * (bias is not None)
        return f"{name}.batch_norm({', '.join([x, str(mean), str(var), *more])}, eps={epsilon})"
    if norm.kind in ("group", "instance"):
        groups = f"{x}.shape[1]" if norm.kind == "instance" and is_name else None
        if norm.kind == "group":
            groups = groups_code(source, norm, at)
        if groups is None:
            return None
        more = [f"weight={weight}"] * (weight is not None) + [f"bias={bias}"] * (bias is not None)
        return f"{name}.group_norm({', '.join([x, groups, *more])}, eps={epsilon})"
    one = graph.of(norm.weight)
    if weight is not None and one is not None and "flatten" not in weight:
        shape = f"{bracketed(weight)}.shape"
        if not isinstance(cst.parse_expression(weight), cst.Name | cst.Attribute):
            return None
    elif is_name:
        shape = f"{x}.shape[1:2]" if norm.kind.startswith("channel") else f"{x}.shape[-1:]"
        if norm.num_dims > 1:
            shape = f"{x}.shape[-{norm.num_dims}:]"
    else:
        return None
    given = f"{bracketed(x)}.movedim(1, -1)" if norm.kind.startswith("channel") else x
    if norm.kind.endswith("rms"):
        more = [weight] if weight is not None else []
        call = f"{name}.rms_norm({', '.join([given, shape, *more])}, eps={epsilon})"
    elif weight is None and bias is None:
        call = f"{name}.layer_norm({given}, {shape}, eps={epsilon})"
    else:
        call = f"{name}.layer_norm({given}, {shape}, {weight}, {bias}, {epsilon})"
    if norm.kind.startswith("channel"):
        call += ".movedim(-1, 1).contiguous()"
    return call


def epsilon_code(source: Source, epsilon: Epsilon, at: Operation) -> str | None:
    """Return how the code states epsilon."""
    operation = epsilon.operation
    if operation is None:
        return "0.0"
    place = source.place(operation)
    for name, node, argument in written_arguments(source, operation):
        if name != epsilon.argument or node is None or place is None:
            continue
        if operation.recorded.frame == at.recorded.frame:
            code = source.repeated(node, operation, at)
            if code is not None:
                return code
        if number_of(source, place, node) is not None:
            return argument.text
    return None


def dims_code(source: Source, norm: Norm, at: Operation) -> str | None:
    """Return how the code states the dimension of a reduction."""
    reduction = norm.reduction
    for name, node, argument in () if reduction is None else written_arguments(source, reduction):
        place = None if reduction is None else source.place(reduction)
        if name not in (1, "dim") or node is None or reduction is None or place is None:
            continue
        if reduction.recorded.frame == at.recorded.frame:
            code = source.repeated(node, reduction, at)
            if code is not None and argument.kind == "literal":
                return code
        if number_of(source, place, node) is not None:
            return argument.text
    return None


def groups_code(source: Source, norm: Norm, at: Operation) -> str | None:
    """Return the code of the number of groups: the second size of the view that is reduced."""
    graph = source.graph
    view = graph.made_by(norm.reduction.value(0) if norm.reduction else None, "view", "reshape")
    if view is None or view.value(0) != norm.x:
        return None
    place = source.place(view)
    nodes = source.operands(view)
    node = nodes[2] if len(nodes) > 3 else None
    if node is None or place is None:
        return None
    if view.recorded.frame == at.recorded.frame:
        code = source.repeated(node, view, at)
        if code is not None:
            return code
    return None


def guarded(
    source: Source, norm: Norm, operation: Operation, place: Place
) -> dict[cst.CSTNode, str] | None:
    """Return the fast call before the old lines, for where x has the dtype of the state: torch's
    functions take no other one, and the old lines do."""
    file = source.file(place.file)
    statement = place.statement
    if file is None or not isinstance(statement, cst.SimpleStatementLine):
        return None
    if len(statement.body) != 1 or not isinstance(statement.body[0], cst.Return):
        return None
    own = [o for o in norm.formula.operations if o.recorded.frame == operation.recorded.frame]
    places = [(one, source.place(one)) for one in own]
    lines = {p.statement for _, p in places if p is not None}
    block = file.parents[statement]
    body: Sequence[cst.BaseStatement] = getattr(block, "body", ())
    indices = [body.index(one) for one in lines if one in body]
    if len(indices) != len(lines):
        return None
    first = min(indices)
    skipped = body[first : body.index(statement)]
    stored: set[str] = set()
    for one in skipped:
        if not isinstance(one, cst.SimpleStatementLine):
            return None
        for small in one.body:
            if not isinstance(small, cst.Assign):
                return None
            for target in small.targets:
                if not isinstance(target.target, cst.Name | cst.Tuple):
                    return None
                stored |= names_read(target.target)
    spans = [(file.ranges[one].start.line, file.ranges[one].end.line) for one in skipped]
    for other in source.graph.operations:
        span = other.recorded.span
        is_here = other.recorded.frame == operation.recorded.frame and span is not None
        if is_here and span is not None and any(a <= span.line <= b for a, b in spans):
            is_written = other.name.endswith("_") or other.name in ("setitem", *IMPURE)
            if is_written or (other.name in CASTS and other not in own):
                return None
    start = next(one for one, p in places if p is not None and p.statement is body[first])
    code = code_of(source, norm, start, place)
    x = leaf_code(source, norm.formula, norm.x, start)
    state = source.expression(norm.state[-1 if norm.weight is None else 0], start)
    if norm.weight is not None:
        state = source.expression(norm.weight, start)
    if code is None or x is None or state is None:
        return None
    new = statement.deep_replace(place.node, cst.parse_expression(code))
    new = cst.ensure_type(new, cst.SimpleStatementLine).with_changes(leading_lines=[])
    rest = names_read(new) - names_read(cst.parse_expression(code))
    if rest & stored or conditions(file, place.node) != conditions(file, statement):
        return None
    old = body[first].with_changes(leading_lines=[])
    fast = file.module.code_for_node(new).strip()
    condition = f"if {bracketed(x)}.dtype == {bracketed(state)}.dtype:"
    return {body[first]: f"{condition}\n    {fast}\n{file.module.code_for_node(old)}"}


WHY = "one routine keeps the row in cache and writes the result once, where the formula writes "
WHY += "every intermediate to memory"

RULES = (
    RecordedRule(
        name="norm",
        family="operation fusion",
        why=WHY,
        precondition="the formula gives the numbers of the normalization, epsilon included; "
        "with weights, x has their dtype or the old lines stay for other ones",
        find=find_norms,
    ),
)
