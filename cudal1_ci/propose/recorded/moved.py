"""Find tensors of the CPU that every call copies to the device."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.layout import with_argument
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule, shown
from cudal1_ci.propose.recorded.source import File

CREATORS = frozenset(("zeros", "ones", "full", "arange", "eye", "empty", "linspace", "tensor"))
MOVES = frozenset(("to", "cuda", "type_as"))


def find_made(call: Call) -> Iterator[Change]:
    """Find `torch.ones(8).to(x.device)`."""
    source = call.source
    for operation in call.graph.operations:
        made = call.graph.made_by(operation.value(0))
        place, there = source.place(operation), None if made is None else source.place(made)
        if operation.name != "to" or made is None or place is None or there is None:
            continue
        file, node, inner = source.file(place.file), place.node, there.node
        is_method = isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        if made.name not in CREATORS or file is None or not is_method or len(node.args) != 1:  # type: ignore[attr-defined]
            continue
        (argument,) = cst.ensure_type(node, cst.Call).args
        device = file.code(argument.value)
        if not isinstance(inner, cst.Call) or file.parents.get(file.parents.get(inner)) is not node:  # type: ignore[arg-type]
            continue
        has_device = any(one.name == "device" for one in made.recorded.kwargs)
        if device.endswith(".device") and not argument.keyword and not has_device:
            new = with_argument(inner, "device", argument.value)
            yield Change(place.file, {node: file.code(new)}, shown(operation, source))


def find_kept(call: Call) -> Iterator[Change]:
    """Find `self.table.to(x.device)` of a tensor that the constructor keeps as an attribute."""
    for operation in call.graph.operations:
        before, after = call.graph.of(operation.value(0)), call.graph.of(operation.output)
        place = call.source.place(operation)
        if operation.name not in MOVES or before is None or after is None or place is None:
            continue
        if before.device != "cpu" or after.device == "cpu" or before.origin != "other":
            continue
        file, node = call.source.file(place.file), place.node
        if file is None or not isinstance(node, cst.Call):
            continue
        kept = node.func.value if isinstance(node.func, cst.Attribute) else None
        if not isinstance(kept, cst.Attribute):
            continue
        assigned = kept_once(file, kept)
        if assigned is not None:
            line, value = assigned
            owner, _, name = file.code(kept).rpartition(".")
            new = f'{owner}.register_buffer("{name}", {file.code(value)}, persistent=False)'
            yield Change(place.file, {line: new}, shown(operation, call.source))


def kept_once(
    file: File, kept: cst.Attribute
) -> tuple[cst.SimpleStatementLine, cst.BaseExpression] | None:
    """Return the line of a constructor that gives `self.table` its value, and the value; None where
    there is another such line, or where the module was not set up before it."""
    owner = next((one for one in file.above(kept) if isinstance(one, cst.ClassDef)), None)
    code = file.code(kept)
    if owner is None or not code.startswith("self.") or code.count(".") != 1:
        return None
    stores = [
        one
        for one in file.ranges
        if isinstance(one, cst.Attribute)
        and file.code(one) == code
        and isinstance(file.parents[one], cst.AssignTarget | cst.AugAssign | cst.AnnAssign)
        and owner in file.above(one)
    ]
    if len(stores) != 1:
        return None
    above = list(file.above(stores[0]))
    line = next((one for one in above if isinstance(one, cst.SimpleStatementLine)), None)
    init = next((one for one in above if isinstance(one, cst.FunctionDef)), None)
    if line is None or init is None or init.name.value != "__init__" or line not in init.body.body:
        return None
    earlier = init.body.body[: init.body.body.index(line)]
    (first, *others) = line.body
    is_one = not others and isinstance(first, cst.Assign) and len(first.targets) == 1
    if not is_one or not any("__init__(" in file.code(one) for one in earlier):
        return None
    return line, cst.ensure_type(first, cst.Assign).value


RULES = (
    RecordedRule(
        name="create_on_device",
        family="host synchronization",
        why="made where it is needed: no copy over the bus",
        precondition="a tensor made on the CPU and moved to the device of another one",
        find=find_made,
        is_small=True,
    ),
    RecordedRule(
        name="kept_on_device",
        family="host synchronization",
        why="a buffer moves with its module: no call copies it over the bus, and a CUDA graph can "
        "hold the call",
        precondition="a tensor that the constructor keeps as an attribute, and that calls move to "
        "the GPU; no key is added to the state_dict",
        find=find_kept,
    ),
)
