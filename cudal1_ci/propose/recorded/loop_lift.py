"""Find how a loop's expressions can be written for all turns: what it counts and takes in turn."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.distributions import distribution
from cudal1_ci.propose.recorded.folded import folded, joined_parts
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.helpers import mapped
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_expressions import lift_expression
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.loop_text import (
    FLAT,
    drawn_from,
    is_name,
    kept_rows,
    listed_tensor,
    rebinds,
    size_read,
    slices_of,
    within_calls,
)
from cudal1_ci.propose.recorded.reads import has_hidden_writes, is_unwritten
from cudal1_ci.propose.recorded.stacked import is_stack, stacked
from cudal1_ci.propose.recorded.turn_losses import loss
from cudal1_ci.propose.recorded.windows import Locals, Moving, Starts, is_fixed


def lift_of(loop: Loop, *, any_order: bool = False) -> Lift | None:
    """Return what writes expressions of the body for all turns; with `any_order` also of a
    loop that counts down."""
    changing = stored_names(loop.node) | roots(loop.target)
    changing -= loop.filled_rows()
    if names_in(loop.over) & changing:
        return None
    lift = Lift(loop.file, loop.call.source, loop.operations, changing, None, lift_expression)
    lift.taken = names_anywhere(loop.function)
    lift.lines = [] if isinstance(loop.node, cst.For) else None
    lift.helper, lift.stacked = mapped, stacked
    lift.folded, lift.joined = folded, joined_parts
    lift.loss, lift.distribution = loss, distribution
    lift.known_locals = lambda: known_locals(loop)
    lift.functional = loop.call.source.functional(loop.name)[0]
    if isinstance(loop.target, cst.Name):
        lift.bounds = loop.bounds(loop.target.value, any_order=any_order, keep=lift.kept)
        if lift.bounds is not None:
            return lift
        if knows_steps(loop, lift, loop.target.value):
            return lift
    drawn = list(drawn_from(loop.target, loop.over))
    overs = [over for _, over in drawn if over is not None]
    if not is_even(loop, overs):
        overs = [listed_tensor(one) or one for one in overs]
        if not all(is_name(one) or is_flat_view(loop, one) for one in overs):
            return None
        lengths = ", ".join(f"len({named(loop, lift, one)})" for one in overs)
        lift.turns = lift.kept(f"min({lengths})", "turns")
    for target, over in drawn:
        if over is None:
            first = next((one for _, one in drawn if one is not None), None)
            first = None if first is None else listed_tensor(first) or first
            first, dim = (None, 0) if first is None else slices_of(first)
            if first is None or not (is_name(first) or is_stack(loop.file, loop.node, first)):
                return None
            code = loop.code(first)
            high = lift.turns or (f"{code}.size({dim})" if dim else f"len({code})")
            sizes = frozenset([*loop.sizes, *([] if lift.turns else [(high, code, dim)])])
            lift.bounds = Bounds(target, 0, high, sizes)
        elif not draw(loop, lift, target, over):
            return None
    return lift if drawn else None


def knows_steps(loop: Loop, lift: Lift, index: str) -> bool:
    """Know the positions of `for start in range(0, high, step)`."""
    over = loop.over
    if not isinstance(over, cst.Call) or loop.code(over.func) != "range" or len(over.args) != 3:
        return False
    low, high, step = (one.value for one in over.args)
    is_plain = loop.code(low) == "0" and is_fixed(step, lift.changing)
    if not is_plain or (isinstance(loop.node, cst.For) and rebinds(loop.node.body, index)):
        return False
    lift.bounds = Bounds("", 0, f"len({loop.code(over)})", frozenset(loop.sizes))
    lift.numbers[index] = Moving(loop.code(step))
    lift.starts = Starts(high, known_locals(loop))
    return True


def known_locals(loop: Loop) -> Locals:
    """Return what locals are that are bound once before the loop, to what is bound before."""
    bindings, (start, _) = loop.bindings, loop.lines()
    found: dict[str, cst.BaseExpression | tuple[str, int]] = {}
    for name, ((line, assign), *more) in bindings.items():
        if more or assign is None or not 0 < line < start or len(assign.targets) > 1:
            continue
        read = [at for one in names_in(assign.value) for at, _ in bindings.get(one, [])]
        if is_name(assign.targets[0].target) and all(at < line for at in read):
            found[name] = assign.value
    return found | {code: (tensor, dim) for code, tensor, dim in loop.sizes}


def draw(loop: Loop, lift: Lift, target: str, over: cst.BaseExpression) -> bool:
    """Know what a name is that takes the rows of a tensor in turn."""
    graph, is_list = loop.call.graph, False
    over, dim = slices_of(over)
    if is_stack(loop.file, loop.node, over):
        lift.modules[target] = loop.code(over)
        return True
    if is_name(over):
        made = list_made_of(loop, loop.code(over))
        is_list, over = made is not None, over if made is None else made
    elif (read := listed_tensor(over)) is not None:
        is_list, over = True, read
    if is_name(over):
        held = graph.of(loop.held(loop.code(over), around(loop)))
    elif (is_flat_view(loop, over) or is_unique(loop, over)) and lift.lines is not None:
        held = graph.of(loop.operations[over][0].output)
    else:
        return False
    if held is None or len(held.shape) <= dim or (dim and lift.turns):
        return False
    turn = graph.of(loop.held(target, loop.inside))
    if is_list:
        if len(held.shape) != 1:
            return False
    elif not held.shape[dim] or (turn is not None and len(held.shape) != len(turn.shape) + 1):
        return False  # a function of the checkout may be all that reads the name
    code = named(loop, lift, over)
    code = f"{code}[:{' ' * (not lift.turns.isidentifier())}{lift.turns}]" if lift.turns else code
    classes = labels_of(loop, code, over)
    if classes is not None:
        lift.bounds = Bounds("", 0, f"len({code})", frozenset(loop.sizes))
        lift.class_names[target] = classes, code
    lift.known[target] = Lifted(code, len(held.shape) - 1, dim, is_new=False)
    lift.dtypes[target] = held.dtype
    return True


def labels_of(loop: Loop, name: str, over: cst.BaseExpression) -> str | None:
    """Return the labels whose classes a local lists in order: `torch.unique(labels)`. The loop is
    over the local, or over the call itself."""
    bindings = loop.bindings
    (line, assign), *more = bindings.get(name, [(0, None)])
    call = None if assign is None or more else assign.value
    if isinstance(over, cst.Call):
        line, call = loop.lines()[0], over
    made = loop.operations.get(call, []) if call is not None else []
    if not isinstance(call, cst.Call) or {one.name for one in made} != {"unique"}:
        return None
    given = [one.value for one in call.args]
    if isinstance(call.func, cst.Attribute) and loop.code(call.func.value) != "torch":
        given = [call.func.value, *given]
    labels = given[0].value if len(given) == 1 and isinstance(given[0], cst.Name) else ""
    is_bound = all(at < line for at, _ in bindings.get(labels, [(line, None)]))
    span = made[-1].index, loop.inside[-1].index
    is_same = all(is_unwritten(loop.call, one, span) for one in (made[0].value(0), made[0].output))
    is_same = is_same and not has_hidden_writes(loop.call, made[0])
    return labels if is_bound and is_same else None


def is_unique(loop: Loop, node: cst.BaseExpression) -> bool:
    """Return whether an expression lists the classes of labels."""
    made = loop.operations.get(node, [])
    return isinstance(node, cst.Call) and {one.name for one in made} == {"unique"}


def named(loop: Loop, lift: Lift, node: cst.BaseExpression) -> str:
    """Return the name of a tensor, which an expression gets before the loop."""
    return loop.code(node) if is_name(node) else lift.kept(loop.code(node), "rows")


def is_flat_view(loop: Loop, node: cst.BaseExpression) -> bool:
    """Return whether an expression has the elements of a tensor in one dimension, or some of
    its rows: `x.view(-1)`, `edges[1:]`."""
    if isinstance(node, cst.Subscript) and is_name(node.value) and len(node.slice) == 1:
        part = node.slice[0].slice
        is_fixed_part = isinstance(part, cst.Slice) and not within_calls(part)
        return is_fixed_part and node in loop.operations
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    given = [loop.code(one) for one in node.args]
    name = node.func.attr.value
    is_flat = given == ["-1"] if name in ("view", "reshape") else name in FLAT and not given
    return is_flat and is_name(node.func.value) and node in loop.operations


def is_even(loop: Loop, drawn: list[cst.BaseExpression]) -> bool:
    """Return whether tensors have the same number of rows for any inputs: `zip` ends with the
    shortest."""
    if len(drawn) < 2:
        return True
    names = []
    for one in drawn:
        made = list_made_of(loop, loop.code(one)) if is_name(one) else listed_tensor(one)
        names.append(loop.code(made or one))
    tied = {names[0]}
    links = [*row_links(loop)]
    for _ in links:
        for link in links:
            if link & tied:
                tied |= link
    return tied.issuperset(names)


def row_links(loop: Loop) -> Iterator[set[str]]:
    """Yield names of tensors, and code of sizes, that are of the same number of rows."""
    for code, tensor, dim in loop.sizes:
        node = cst.parse_expression(code)
        read = size_read(node)
        if dim == 0 and (read is not None or isinstance(node, cst.Name | cst.Integer)):
            yield {code, tensor, read[0]} if read and not read[1] else {code, tensor}
    bindings, (start, last) = loop.bindings, loop.lines()
    for name, (first, *more) in bindings.items():
        line, assign = first
        made = None if more or assign is None or line >= start else kept_rows(assign)
        if made in bindings and all(at < line or at > last for at, _ in bindings[made]):
            yield {name, made}


def list_made_of(loop: Loop, name: str) -> cst.BaseExpression | None:
    """Return the tensor whose numbers a local lists, if it is bound once, and the tensor's
    name too."""
    made: list[cst.BaseExpression | None] = []
    stored: list[str] = []
    for one in within(loop.function.body):
        if isinstance(one, cst.SimpleStatementLine | cst.For | cst.With):
            stored += stored_names(one)
        if isinstance(one, cst.Assign) and stored_names(one) == {name}:
            made.append(listed_tensor(one.value))
    found = made[0] if len(made) == 1 else None
    if not isinstance(found, cst.Name) or stored.count(name) != 1 or found.value in stored:
        return None
    return found


def around(loop: Loop) -> list[Operation]:
    """Return the operations of the function's own frames."""
    frames = {one.recorded.frame for one in loop.inside}
    callers = {loop.call.graph.recording.frames[one].caller for one in frames if one is not None}
    if isinstance(loop.node, cst.For):
        return [one for one in loop.inside if one.recorded.frame in frames]
    wanted = frames | callers  # before Python 3.12 a comprehension has a frame of its own
    first = min(one.index for one in loop.inside)
    last = max(one.index for one in loop.inside)
    near = loop.call.graph.operations[max(first - 200, 0) : last + 200]
    return [one for one in near if one.recorded.frame in wanted]


def not_batched(loop: Loop, refused: Refused) -> str:
    """Return why a loop that takes its turns from tensors is not batched, for people; "" for
    another one, such as a loop over layers."""
    changing = roots(loop.target)
    own = set(loop.operations)
    is_over_tensor = lift_of(loop) is not None and not isinstance(loop.over, cst.Call)
    for one in within(loop.node):
        if isinstance(one, cst.Subscript) and one in own and names_in(one) & changing:
            is_over_tensor = True
    return str(refused) if is_over_tensor else ""
