"""Take out of a recurrence what only feeds its outputs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.batch import is_batched
from cudal1_ci.propose.recorded.joins import is_empty_list, joined, reads_of, the_join
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    BINARY,
    COPIES,
    UNARY,
    Lifted,
    Refused,
    Swap,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_lift import lift_of
from cudal1_ci.propose.recorded.rule import Call, Change
from cudal1_ci.propose.recorded.statements import append_of

NEW = (BINARY | UNARY) - ALIASING - COPIES


def find_sunk(call: Call) -> Iterator[Change]:
    """Find `outs.append(f(state, x[:, t]))` of a recurrence, whose list is joined."""
    for loop in loops_in(call):
        lift = lift_of(loop) if isinstance(loop.node, cst.For) else None
        if lift is not None and not is_batched(loop):
            try:
                yield sunk(loop, lift)
            except Refused:
                continue


def sunk(loop: Loop, lift: Lift) -> Change:
    """Return a loop that keeps its states, and what makes the outputs of all of them."""
    body = loop.body
    appended = append_of(body[-1]) if body and isinstance(body[-1], cst.Expr) else None
    if appended is None or any(one.name.endswith("_") for one in loop.inside):
        raise Refused
    outs, output = appended
    rest, dropped = body[:-1], None
    joins = joined_list(loop, outs)
    maker = rest[-1] if isinstance(output, cst.Name) and rest else None
    if isinstance(output, cst.Name) and isinstance(maker, cst.Assign):
        name = output.value
        if stored_names(maker) == {name}:
            dropped = maker
            rest.pop()
            if not is_bound_by(loop, joins, name) and loop.is_read_after({name}):
                raise Refused
            if any(name in names_in(one) for one in (*rest, dropped.value)):
                raise Refused
            output = dropped.value
    state = state_of(loop, rest, output)
    held = {loop.call.source.scope(one).get(state) for one in loop.operations.get(output, [])}
    ranks = {loop.call.graph.num_dims(one.value) for one in held if one is not None}
    if len(ranks) != 1 or None in held:
        raise Refused
    lift.known[state] = Lifted(f"torch.stack({outs})", ranks.pop(), 0)
    if lift.lines:
        raise Refused  # names that are bound before the loop
    lift.lines = None
    lifted = lift.lift(output)
    if not lifted.is_computed:
        raise Refused
    old = appended[1]
    kept = cst.ensure_type(loop.node, cst.For).with_changes(leading_lines=[])
    if dropped is not None:
        line = loop.file.parents[dropped]
        lines = [one for one in kept.body.body if one is not line]
        kept = kept.with_changes(body=kept.body.with_changes(body=lines))
    text = loop.code(cst.ensure_type(kept.visit(Swap({old: state})), cst.For))
    return Change(
        file=loop.name,
        new={loop.node: text, joins: joined(loop.code(joins.func), joins, lifted)},
        found=shown_loop(loop),
        modules=frozenset(("torch",)),
    )


def state_of(loop: Loop, rest: list[cst.BaseSmallStatement], output: cst.BaseExpression) -> str:
    """Return the local that turns hand on, if an output reads it once and each turn makes a new
    tensor of it."""
    stored = {name for one in rest for name in stored_names(one)}
    read = [one.value for one in within(output) if isinstance(one, cst.Name)]
    found = [one for one in read if one in stored]
    makers = [one for one in rest if found and found[0] in stored_names(one)]
    if len(found) != 1 or len(makers) != 1 or not isinstance(makers[0], cst.Assign):
        raise Refused
    name, maker = found[0], makers[0]
    made = loop.operations.get(maker.value, [])
    is_carried = any(name in names_in(one.value) for one in rest if isinstance(one, cst.Assign))
    if not isinstance(maker.targets[0].target, cst.Name) or not is_carried:
        raise Refused
    if not made or any(one.name not in NEW for one in made):
        raise Refused
    return name


def is_bound_by(loop: Loop, joins: cst.Call, name: str) -> bool:
    """Return whether the line of a join binds a name again."""
    parent = loop.file.parents[joins]
    return isinstance(parent, cst.Assign) and stored_names(parent) == {name}


def joined_list(loop: Loop, outs: str) -> cst.Call:
    """Return the call that joins a list right after the loop, which nothing else reads."""
    block = loop.file.parents[loop.node]
    if not isinstance(block, cst.IndentedBlock):
        raise Refused
    lines = list(block.body)
    at = lines.index(loop.node)  # type: ignore[arg-type]
    before = [one for one in lines[:at] if outs in names_anywhere(one)]
    join = the_join(lines[at + 1], outs) if at + 1 < len(lines) else None
    if join is None or len(before) != 1 or not is_empty_list(before[0], {outs}):
        raise Refused
    if reads_of(loop.function, outs) != 2:
        raise Refused
    return join
