"""Know what reads a value: by operations, and by names in the text, so that no branch that this
call did not take reads it too.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import BINARY, UNARY, within
from cudal1_ci.propose.recorded.purity import WITH_STATE, is_pure
from cudal1_ci.propose.recorded.rule import Call
from cudal1_ci.propose.recorded.source import IMPURE, File, Place
from cudal1_ci.propose.recorded.tables import ALIASES

PRODUCTS = frozenset(("matmul", "rmatmul", "linear", "addmm", "baddbmm", "einsum"))
REDUCTIONS = frozenset(
    (
        *("sum", "mean", "amax", "amin", "argmax", "argmin", "var", "std", "norm", "logsumexp"),
        *("max", "min", "prod", "any", "all", "softmax", "log_softmax", "cumsum", "topk", "sort"),
    )
)
READING = (UNARY | BINARY | REDUCTIONS | PRODUCTS | {"cat", "stack", "embedding", "layer_norm"}) - (
    ALIASES
)
"""Operations that only read their operands and write new tensors, however those are laid out."""
VIEWING = ALIASES - {"view", "data", "numpy", "as_strided", "squeeze_", "contiguous"}
"""Views that any layout allows."""
HARMLESS = (IMPURE | WITH_STATE) - {"setitem", "dropout_", "normal_", "uniform_"}
"""Operations with an effect, but not on a tensor that the text reads."""
FACTS = frozenset(("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "size", "dim"))
"""Attributes of a tensor that are no data."""
BETWEEN = (
    *(cst.Arg, cst.Tuple, cst.List, cst.Element, cst.ComparisonTarget, cst.SubscriptElement),
    *(cst.Index, cst.Slice),
)
"""Nodes between an operand and the operation that reads it."""
READERS = (cst.BinaryOperation, cst.Comparison, cst.UnaryOperation, cst.Call, cst.Subscript)


def operations_by_node(call: Call, name: str) -> dict[cst.CSTNode, list[Operation]]:
    """Return the operations of a file by their expressions."""
    found: dict[cst.CSTNode, list[Operation]] = {}
    for one in call.graph.operations:
        place = call.source.place(one)
        if place is not None and place.file == name:
            found.setdefault(place.node, []).append(one)
    return found


def reader_of(file: File, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the expression that has a node as an operand; None if it is no operation."""
    below = node
    for one in file.above(node):
        if isinstance(one, cst.Attribute):
            parent = file.parents.get(one)
            if not isinstance(parent, cst.Call) or parent.func is not one:
                return one
        elif isinstance(one, READERS):
            is_called = isinstance(one, cst.Call) and one.func is below
            return one if not is_called or isinstance(below, cst.Attribute) else None
        elif not isinstance(one, BETWEEN):
            return None
        below = one
    return None


def is_fact(file: File, name: cst.CSTNode) -> bool:
    """Return whether only the shape, dtype or device of a local is read."""
    parent = file.parents.get(name)
    return isinstance(parent, cst.Attribute) and parent.value is name and parent.attr.value in FACTS


def assigned_to(file: File, place: Place) -> str | None:
    """Return the local that an expression is assigned to, by itself."""
    parent = file.parents.get(place.node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return None
    target = parent.targets[0].target
    return target.value if isinstance(target, cst.Name) else None


def loads_of(file: File, place: Place, name: str) -> list[cst.Name] | None:
    """Return where a local may be read that a statement has assigned: to the next one that does,
    or to the end of the function. None if that is not known."""
    if place.function is None:
        return None
    found: list[cst.Name] = []
    node: cst.CSTNode = place.statement
    while node is not place.function:
        block = file.parents.get(node)
        if isinstance(block, cst.For | cst.While):
            found += loads_in(file, block, name)
        if isinstance(block, cst.IndentedBlock):
            body = list(block.body)
            for one in body[body.index(node) + 1 :]:  # type: ignore[arg-type]
                is_bound = isinstance(one, cst.For) and name in bound_names(one.target)
                found += loads_in(file, one.iter if is_bound else one, name)  # type: ignore[attr-defined]
                if is_plain_binding(one, name):
                    return list(dict.fromkeys(found))
        if block is None:
            return None
        node = block
    return list(dict.fromkeys(found))


def is_plain_binding(node: cst.CSTNode, name: str) -> bool:
    """Return whether a statement of a block binds a name, whatever happens."""
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    return any(
        isinstance(one, cst.Assign)
        and any(name in bound_names(target.target) for target in one.targets)
        for one in node.body
    )


def bound_names(target: cst.BaseExpression) -> set[str]:
    """Return the names that a target binds."""
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Tuple | cst.List):
        return set().union(*(bound_names(one.value) for one in target.elements))
    return set()


def loads_in(file: File, node: cst.CSTNode, name: str) -> list[cst.Name]:
    """Return the places below a node that read a name, or write into it."""
    found = []
    for one in within(node):
        if not isinstance(one, cst.Name) or one.value != name:
            continue
        parent = file.parents.get(one)
        is_attribute = isinstance(parent, cst.Attribute) and parent.attr is one
        is_keyword = isinstance(parent, cst.Arg) and parent.keyword is one
        is_bound = isinstance(parent, cst.AssignTarget) or (
            isinstance(parent, cst.Element)
            and any(isinstance(above, cst.AssignTarget) for above in file.above(one))
            and not any(isinstance(above, cst.Subscript) for above in file.above(one))
        )
        if not (is_attribute or is_keyword or is_bound):
            found.append(one)
    return found


def read_by(call: Call, operation: Operation) -> list[tuple[cst.CSTNode, list[Operation]]] | None:
    """Return the expressions that read what an operation gives, as operands, with what they ran;
    None if something else may read it: a branch that did not run, a return, another name."""
    place = call.source.place(operation)
    file = None if place is None else call.source.file(place.file)
    if place is None or file is None:
        return None
    name = assigned_to(file, place)
    nodes: list[cst.CSTNode] = [place.node]
    if name is not None:
        loads = loads_of(file, place, name)
        if loads is None or name in free_names(place.function):
            return None
        nodes = [one for one in loads if not is_fact(file, one)]
    ran = operations_by_node(call, place.file)
    found: list[tuple[cst.CSTNode, list[Operation]]] = []
    for node in nodes:
        reader = reader_of(file, node)
        if reader is None or reader not in ran:
            return None
        found.append((node, ran[reader]))
    return found


def free_names(function: cst.FunctionDef | None) -> set[str]:
    """Return the names that functions inside of a function read."""
    return {
        name.value
        for one in (within(function.body) if function is not None else ())
        if isinstance(one, cst.Lambda | cst.FunctionDef | cst.Global | cst.Nonlocal)
        for name in within(one)
        if isinstance(name, cst.Name)
    }


def only_read(call: Call, operation: Operation, by: frozenset[str] = READING) -> bool:
    """Return whether what an operation gives is only read, by these operations or by views that
    they read: nothing writes into it, keeps it or returns it, in this call or in the text."""
    value, graph = operation.output, call.graph
    seen = read_by(call, operation)
    if value is None or seen is None or value in graph.recording.outputs:
        return False
    expected = {one.index for _, operations in seen for one in operations}
    for reader in graph.readers.get(value, []):
        if reader.index not in expected or not is_pure(reader):
            return False
        if reader.name in VIEWING and reader.output != value:
            if not only_read(call, reader, by):
                return False
        elif reader.name not in by:
            return False
    return True


def writes(call: Call, first: Operation, last: int) -> bool:
    """Return whether something writes into a tensor from an operation to another one, or may in a
    branch that did not run."""
    between = call.graph.operations[first.index : last]
    return any(map(is_write, between)) or has_hidden_writes(call, first)


def is_write(operation: Operation) -> bool:
    """Return whether an operation changes a tensor that it is given."""
    return not is_pure(operation) and operation.name not in HARMLESS


def is_unwritten(call: Call, value: int | None, span: tuple[int, int]) -> bool:
    """Return whether nothing writes to a tensor while a loop runs."""
    return not any(
        is_write(one) and one.value(0) is not None and is_of_memory(call, one, value)
        for one in call.graph.operations[span[0] : span[1] + 1]
    )


def is_of_memory(call: Call, write: Operation, value: int | None) -> bool:
    """Return whether a write may reach a tensor: it has its dtype."""
    written, known = call.graph.of(write.value(0)), call.graph.of(value)
    return written is None or known is None or written.dtype == known.dtype


def has_hidden_writes(call: Call, operation: Operation) -> bool:
    """Return whether the function of an operation writes into a tensor in a branch that did not
    run."""
    place = call.source.place(operation)
    if place is None or place.function is None:
        return True
    ran = operations_by_node(call, place.file)
    names = {
        one.name
        for scope in call.graph.recording.scopes
        for one in scope.locals
        if one.argument.kind == "value"
    }
    file = call.source.file(place.file)
    assert file is not None
    lines = {
        one.recorded.span.line
        for one in call.graph.operations
        if is_write(one) and one.recorded.span is not None
    }
    for one in within(place.function.body):
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute):
            name = one.func.attr.value
            if name.endswith("_") and not name.endswith("__") and one not in ran:
                return True
        target = one.target if isinstance(one, cst.AugAssign | cst.AssignTarget) else None
        is_item = isinstance(target, cst.Subscript) and file.code(target.value) in names
        is_augmented = isinstance(one, cst.AugAssign) and file.code(one.target) in names
        if (is_item or is_augmented) and file.ranges[one].start.line not in lines:
            return True
    return False


def nodes_above(file: File, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what is around a node within its function."""
    for one in file.above(node):
        if isinstance(one, cst.FunctionDef):
            return
        yield one
