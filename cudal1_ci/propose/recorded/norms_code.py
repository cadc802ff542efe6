"""Write one normalization that was matched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.certainty import (
    conditions,
    has_inner_casts,
    is_straight,
    leaf_code,
    number_of,
    unstated,
    written_arguments,
)
from cudal1_ci.propose.recorded.formulas import (
    RESHAPED,
)
from cudal1_ci.propose.recorded.graph import CASTS, Operation
from cudal1_ci.propose.recorded.norms_match import Epsilon, Norm
from cudal1_ci.propose.recorded.purity import pure_calls
from cudal1_ci.propose.recorded.rule import Change, shown
from cudal1_ci.propose.recorded.source import (
    IMPURE,
    Place,
    Source,
    bracketed,
    is_statement,
)


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
    _, modules = source.functional(place.file)
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
        names = names_in(small.targets[0].target)
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
    name, _ = source.functional(place.file)
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
                stored |= names_in(target.target)
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
    rest = names_in(new) - names_in(cst.parse_expression(code))
    if rest & stored or conditions(file, place.node) != conditions(file, statement):
        return None
    old = body[first].with_changes(leading_lines=[])
    fast = file.module.code_for_node(new).strip()
    condition = f"if {bracketed(x)}.dtype == {bracketed(state)}.dtype:"
    return {body[first]: f"{condition}\n    {fast}\n{file.module.code_for_node(old)}"}
