"""Call the linears, embeddings or small networks of a ModuleList at once, for all turns of a loop
over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.source import File, bracketed

OPERATIONS = {"Linear": "linear", "Embedding": "embedding"}
ACTIVATIONS = frozenset(
    ("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "Tanh", "Sigmoid", "ELU", "SELU", "CELU", "LeakyReLU")
).union(("Softplus", "Hardtanh", "Hardswish", "Hardsigmoid", "LogSigmoid", "Identity"))
"""Layers of a network that have no weights and treat each element alike."""
LISTS = ("nn.ModuleList", "torch.nn.ModuleList")
GROWS = frozenset(("append", "extend", "insert", "pop", "__setitem__"))


def is_stack(file: File, loop: cst.CSTNode, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a list of modules that `layers_of` knows."""
    return bool(layers_of(file, loop, node))


def layers_of(file: File, loop: cst.CSTNode, node: cst.BaseExpression) -> list[str]:
    """Return the kinds of layers of each module, if an expression is `self.name`, and the class
    makes that a ModuleList of linears, embeddings, or networks of linears, of one size and kind."""
    if not isinstance(node, cst.Attribute) or file.code(node.value) != "self":
        return []
    owner = next((one for one in file.above(loop) if isinstance(one, cst.ClassDef)), None)
    name = file.code(node)
    made: list[tuple[cst.BaseExpression, set[str]]] = []
    assigned = 0
    for one in within(owner) if owner is not None else ():
        if isinstance(one, cst.Assign):
            targets = [file.code(target.target) for target in one.targets]
            if any(target.startswith(f"{name}[") for target in targets):
                return []
            if name in targets:
                assigned += 1
                made += listed(file, one.value)
        elif isinstance(one, cst.AugAssign | cst.AnnAssign | cst.NamedExpr):
            if file.code(one.target) == name:
                return []
        elif isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute):
            is_its = file.code(one.func.value) == name
            if is_its and one.func.attr.value in GROWS:
                made += appended(file, one)
                assigned += one.func.attr.value != "append"
    if assigned != 1 or len(made) != 1:
        return []
    element, turning = made[0]
    return [] if names_in(element) & turning else kinds_of(file, element)


def kinds_of(file: File, element: cst.BaseExpression) -> list[str]:
    """Return the kinds of layers that an expression makes: one, or those of a `Sequential` that
    begins with a linear."""
    if is_alike(file, element):
        return [kind_of(file, element)]
    if kind_of(file, element) != "Sequential":
        return []
    layers = [one.value for one in cst.ensure_type(element, cst.Call).args]
    kinds = [kind_of(file, one) for one in layers]
    known = [
        kind in ACTIVATIONS or (kind == "Linear" and is_alike(file, one))
        for kind, one in zip(kinds, layers, strict=True)
    ]
    is_network = bool(kinds) and kinds[0] == "Linear" and all(known)
    return ["Sequential", *kinds] if is_network else []


def kind_of(file: File, node: cst.BaseExpression) -> str:
    """Return the class of torch.nn of which an expression makes a module."""
    if not isinstance(node, cst.Call) or any(one.star for one in node.args):
        return ""
    owner, _, kind = file.code(node.func).rpartition(".")
    return kind if owner in ("nn", "torch.nn") else ""


def listed(file: File, node: cst.BaseExpression) -> list[tuple[cst.BaseExpression, set[str]]]:
    """Return the element of `nn.ModuleList([element for name in ...])`, with its names; nothing
    for an empty list."""
    if not isinstance(node, cst.Call) or file.code(node.func) not in LISTS or len(node.args) > 1:
        return [(node, set())]
    if not node.args:
        return []
    value = node.args[0].value
    if isinstance(value, cst.List) and not value.elements:
        return []
    if isinstance(value, cst.ListComp | cst.GeneratorExp):
        return [(value.elt, roots(cst.ensure_type(value.for_in, cst.CompFor).target))]
    return [(value, set())]


def appended(file: File, call: cst.Call) -> list[tuple[cst.BaseExpression, set[str]]]:
    """Return what a loop appends, with the names that the loop binds."""
    loops = [one for one in file.above(call) if isinstance(one, cst.For)]
    names = {name for one in loops for name in roots(one.target)}
    return [(one.value, names) for one in call.args]


def is_alike(file: File, node: cst.BaseExpression) -> bool:
    """Return whether an expression makes modules that differ in their numbers at most."""
    kind = kind_of(file, node)
    if not isinstance(node, cst.Call) or kind not in OPERATIONS:
        return False
    named = {one.keyword.value: file.code(one.value) for one in node.args if one.keyword}
    plain = [one for one in node.args if one.keyword is None]
    if len(plain) > 2:
        return False
    if kind == "Linear" and named.pop("bias", "True") not in ("True", "False"):
        return False
    sizes = ("in_features", "out_features", "num_embeddings", "embedding_dim")
    return not {*named} - {*sizes, "device", "dtype"}


def module_list(lift: Lift, function: cst.BaseExpression) -> tuple[str, str] | None:
    """Return code of the list of which a turn calls its own module, and of its length."""
    if isinstance(function, cst.Name):
        name = lift.modules.get(function.value)
        return None if name is None else (name, f"len({name})")
    bounds = lift.bounds
    if not isinstance(function, cst.Subscript) or bounds is None or len(function.slice) != 1:
        return None
    part = function.slice[0].slice
    if bounds.low or not isinstance(part, cst.Index) or bounds.offset(part.value) != 0:
        return None
    if not is_stack(lift.file, function, function.value):
        return None
    name = lift.code(function.value)
    is_all = bounds.high == f"len({name})"
    return (name if is_all else f"{name}[: {bounds.high}]"), bounds.high


def stacked(lift: Lift, node: cst.Call) -> Lifted | None:
    """Return the call of each turn's linear for all turns; None if it calls another thing."""
    found = module_list(lift, node.func)
    if found is None:
        return None
    name, count = found
    operations = lift.operations.get(node, [])
    if len(node.args) != 1 or node.args[0].keyword is not None or node.args[0].star:
        raise Refused
    whole = name.partition("[")[0]
    layers = layers_of(lift.file, node, cst.parse_expression(whole))
    if layers[:1] == ["Sequential"]:
        return network(lift, node, (name, count), layers[1:])
    check_weights(lift, operations, whole)
    names = {one.name for one in operations}
    if len(names) != 1 or not names <= {*OPERATIONS.values()}:
        raise Refused
    if names == {"embedding"}:
        shown = lift.free_name("one")
        tables = f"[{shown}.weight for {shown} in {name}]"
        return looked_up(lift, node.args[0].value, tables, count, lift.rank(node))
    return linear(lift, node.args[0].value, operations, (name, count), "", lift.rank(node))


def check_weights(lift: Lift, operations: Sequence[Operation], whole: str, *place: str) -> None:
    """See that operations have the weights `name.NUMBER.place.weight` of the list's own modules."""
    name, after = whole.removeprefix("self."), [*place, "weight"]
    for one in operations:
        weight = lift.source.graph.of(one.value(1))
        path = [] if weight is None else weight.path.split(".")
        if path[-len(after) :] != after or path[: -len(after) - 1][-1:] != [name]:
            raise Refused


def network(lift: Lift, node: cst.Call, of: tuple[str, str], layers: Sequence[str]) -> Lifted:
    """Return the call of each turn's small network for all turns, layer by layer."""
    whole = of[0].partition("[")[0]
    calls = [lift.source.graph.in_one_call(one) for one in lift.operations.get(node, [])]
    made = [number for number, kind in enumerate(layers) if kind != "Identity"]
    if not calls or any(len(one) != len(made) for one in calls):
        raise Refused
    x: cst.BaseExpression | Lifted = node.args[0].value
    for place, number in enumerate(made):
        own, kind = [one[place] for one in calls], layers[number]
        if kind == "Linear":
            check_weights(lift, own, whole, str(number))
            x = linear(lift, x, own, of, f"[{number}]", lift.rank(node))
        else:
            assert isinstance(x, Lifted)
            x = replace(x, code=f"{whole}[0][{number}]({x.code})")
    assert isinstance(x, Lifted)
    return x


def linear(
    lift: Lift,
    argument: cst.BaseExpression | Lifted,
    operations: Sequence[Operation],
    of: tuple[str, str],
    place: str,
    rank: int,
) -> Lifted:
    """Return each turn's linear, of the turns' inputs or of one for all of them. `place` is that of
    the linear in a network."""
    name, count = of
    if any(one.name != "linear" for one in operations):
        raise Refused
    has_bias = all(one.value(2, "bias") is not None for one in operations)
    shown = lift.free_name("one")
    both = [
        f"[{shown}{place}.{each} for {shown} in {name}]"
        for each in ("weight", "bias")[: 1 + has_bias]
    ]
    if not isinstance(argument, Lifted) and not lift.varies(argument):
        joined = [lift.kept(f"torch.cat({one})", n) for one, n in zip(both, NAMES, strict=False)]
        code = f"{lift.functional}.linear({', '.join([lift.code(argument), *joined])})"
        first = f"{name.partition('[')[0]}[0]{place}"
        width = "-1" if count == f"len({name})" else f"{first}.out_features"
        lift.check_pure(argument)
        return Lifted(f"{code}.unflatten(-1, ({count}, {width}))", rank, rank - 1, is_computed=True)
    x = (argument if isinstance(argument, Lifted) else lift.lift(argument)).first()
    if x.turns is None or x.rank < 1:
        raise Refused
    joined = [lift.kept(f"torch.stack({one})", n) for one, n in zip(both, NAMES, strict=False)]
    if x.rank == 2:
        weight_code = f"{joined[0]}.mT"
        if not has_bias:
            return Lifted(f"{bracketed(x.code)} @ {weight_code}", rank, 0, is_computed=True)
        code = f"torch.baddbmm({joined[1]}[:, None], {x.code}, {weight_code})"
        return Lifted(code, rank, 0, is_computed=True)
    code = f'torch.einsum("n...i,noi->n...o", {x.code}, {joined[0]})'
    if has_bias:
        nones = "".join(", None" for _ in range(rank - 1))
        code += f" + {joined[1]}" + (f"[:{nones}]" if nones else "")
    return Lifted(code, rank, 0, is_computed=True)


def looked_up(
    lift: Lift, argument: cst.BaseExpression, weights: str, count: str, rank: int
) -> Lifted:
    """Return rows of each turn's own table."""
    x = lift.lift(argument).first()
    lift.check_pure(argument)
    tables = lift.kept(f"torch.stack({weights})", "tables")
    if x.turns is None:
        return Lifted(f"{tables}[:, {x.code}]", rank, 0, is_computed=True)
    nones = "".join(", None" for _ in range(x.rank))
    positions = f"torch.arange({count}, device={bracketed(x.code)}.device)"
    positions += f"[:{nones}]" if nones else ""
    return Lifted(f"{tables}[{positions}, {x.code}]", rank, 0, is_computed=True)


NAMES = ("weight", "bias")
