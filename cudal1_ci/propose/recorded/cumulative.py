"""Write loops that add each step to the sum of those before as one cumulative sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.batch import Batch
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_expressions import lift_expression
from cudal1_ci.propose.recorded.lifted import Lifted, Refused
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.recurrence import steps_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.statements import append_of, results_of

ZEROS = ("zeros", "zeros_like", "new_zeros")


def find_cumulative(call: Call) -> Iterator[Change]:
    """Find `total = total + x[:, t]; out[:, t] = total`, also from the last step to the first."""
    for loop in loops_in(call):
        if isinstance(loop.node, cst.For):
            try:
                yield cumulative(loop)
            except Refused:
                continue


def cumulative(loop: Loop) -> Change:
    """Return a loop as one sum; raise Refused if it is another one."""
    bounds, backwards = steps_of(loop)
    body = loop.body
    state, term = added(body[0]) if len(body) == 2 else ("", None)
    if term is None or state in names_in(term):
        raise Refused
    bounds = replace(bounds, sizes=frozenset(loop.sizes))
    changing = stored_names(loop.node) | roots(loop.target)
    lift = Lift(
        loop.file, loop.call.source, loop.operations, changing, bounds, lift_expression, lines=[]
    )
    lift.taken = names_anywhere(loop.function)
    lifted = lift.lift(term)
    check_state(loop, body[0], state)
    if lifted.turns is None or lifted.is_kept or (backwards and append_is(body[1])):
        raise Refused
    turned, dim = f".flip({lifted.turns})" if backwards else "", lifted.turns
    code = f"{bracketed(lifted.code)}{turned}.cumsum({dim}){turned}"
    lift.known[state] = Lifted(code, lifted.rank, dim, is_computed=True)
    batch = Batch(loop, lift)
    batch.results = results_of(body[1])
    if not batch.results or batch.results & (names_in(term) | {state}):
        raise Refused
    batch.statement(body[1])
    if loop.is_read_after({state} | roots(loop.target)):
        raise Refused
    return Change(
        file=loop.name,
        new={loop.node: "\n".join(batch.lines), **batch.new},
        found=shown_loop(loop),
        modules=frozenset(("torch",)),
    )


def added(node: cst.BaseSmallStatement) -> tuple[str, cst.BaseExpression | None]:
    """Return the local to which a statement adds, and what; it binds a new tensor."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return "", None
    target, value = node.targets[0].target, node.value
    is_sum = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add)
    if not isinstance(target, cst.Name) or not is_sum:
        return "", None
    left, right = value.left, value.right  # type: ignore[attr-defined]
    for one, other in ((left, right), (right, left)):
        if isinstance(one, cst.Name) and one.value == target.value:
            return target.value, other
    return "", None


def check_state(loop: Loop, statement: cst.BaseSmallStatement, state: str) -> None:
    """Refuse a sum that does not begin with zeros, or is of another shape than its terms."""
    graph, scope = loop.call.graph, loop.call.source.scope
    sums = loop.operations.get(cst.ensure_type(statement, cst.Assign).value, [])
    if not sums or any(one.name != "add" or one.recorded.kwargs for one in sums):
        raise Refused
    held = scope(sums[0]).get(state)
    is_number = held is not None and held.kind == "literal" and held.text in ("0", "0.0")
    is_zeros = held is not None and graph.made_by(held.value, *ZEROS) is not None
    if not is_number and not is_zeros:
        raise Refused
    for one in sums:
        total = graph.of(one.output)
        parts = [graph.of(part) for part in graph.parts(one)]
        known = [part for part in parts if part is not None]
        if total is None or not total.dtype.startswith("float") or not known:
            raise Refused
        if any((part.shape, part.dtype) != (total.shape, total.dtype) for part in known):
            raise Refused


def append_is(node: cst.BaseSmallStatement) -> bool:
    """Return whether a statement appends to a list."""
    return isinstance(node, cst.Expr) and append_of(node) is not None


RULES = (
    RecordedRule(
        name="cumulative_sum",
        family="loops",
        why="one cumulative sum runs where each step launched a sum and a copy",
        precondition="the sum begins with zeros, and each step adds its own position",
        find=find_cumulative,
    ),
)
