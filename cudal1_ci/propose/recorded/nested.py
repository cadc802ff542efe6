"""Compute an element for each pair of rows at once, where nested loops wrote one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.helpers import is_mapped, mapped_frames
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_expressions import lift_expression
from cudal1_ci.propose.recorded.lifted import Refused, Swap, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_lift import lift_of
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule


@dataclass
class Level:
    """One of the loops, from the outside."""

    bounds: Bounds
    rows: dict[str, str] = field(default_factory=dict)
    """Code of the tensors whose rows its turns take, by what a row is called."""


@dataclass
class Nest:
    """Loops in each other that write one element of a tensor a turn."""

    loops: list[Loop]
    """From the outside."""
    lift: Lift
    levels: list[Level] = field(default_factory=list)
    names: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Names of rows by their tensor and the numbers that took them."""

    def change(self) -> Change:
        """Return the loops as one call; raise Refused if they do anything else."""
        outer, inner = self.loops[0], self.loops[-1]
        body = inner.body
        assign = body[-1] if body else None
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            raise Refused
        for loop in self.loops:
            self.levels.append(self.level(loop))
        target: cst.BaseExpression = assign.targets[0].target
        indices = [one.bounds.index for one in self.levels]
        written: list[str] = []
        while isinstance(target, cst.Subscript):  # also out[i][j]
            written = [*(inner.code(one.slice) for one in target.slice), *written]
            target = target.value
        if not isinstance(target, cst.Name):
            raise Refused
        out = target.value
        if written != indices or not outer.is_fresh(out) or out in names_in(assign.value):
            raise Refused
        lines, locals_ = self.steps(body[:-1])
        value = self.element(assign.value)
        params = ", ".join(row for level in self.levels for row in level.rows)
        definition = ""
        if lines:
            name = self.lift.free_name("element")
            inside = "".join(f"    {one}\n" for one in [*lines, f"return {value}"])
            definition, value = f"def {name}({params}):\n{inside}", f"{name}({params})"
        for level in self.levels[::-1]:
            if not level.rows:
                raise Refused
            code = f"torch.vmap(lambda {', '.join(level.rows)}: {value})"
            value = f"{code}({', '.join(level.rows.values())})"
        if names_in(cst.parse_expression(value)) & {*indices}:
            raise Refused
        bound = {name for one in self.loops for name in roots(one.target)}
        if out in locals_ or outer.is_read_after(bound | locals_):
            raise Refused
        spans = [one.bounds.span(0, (out, number)) for number, one in enumerate(self.levels)]
        where = ", ".join(spans) if any(one != ":" for one in spans) else ":"
        return Change(
            file=outer.name,
            new={outer.node: definition + self.guarded(f"{out}[{where}] = {value}")},
            found=shown_loop(outer),
            modules=frozenset(("torch",)),
        )

    def steps(self, body: Sequence[cst.BaseSmallStatement]) -> tuple[list[str], set[str]]:
        """Return the lines before the last one, which bind locals, and their names."""
        lines = []
        later = {name for one in body for name in stored_names(one)}
        locals_: set[str] = set()
        for one in body:
            if not isinstance(one, cst.Assign) or len(one.targets) != 1:
                raise Refused
            target = one.targets[0].target
            if not isinstance(target, cst.Name) or names_in(one.value) & (later - locals_):
                raise Refused
            lines.append(f"{target.value} = {self.element(one.value)}")
            locals_.add(target.value)
        return lines, locals_

    def guarded(self, line: str) -> str:
        """Return a line that runs only if each loop has a turn: `vmap` calls with no row too."""
        counts = [one.bounds.high for one in self.levels if not one.bounds.high.isdigit()]
        return f"if {' and '.join(counts)}:\n    {line}" if counts else line

    def level(self, loop: Loop) -> Level:
        """Return what a loop counts, and the rows that it takes."""
        if isinstance(loop.target, cst.Name):
            bounds = loop.bounds(loop.target.value)
            if bounds is None or bounds.low:
                raise Refused
            return Level(bounds)
        lift = lift_of(loop)
        if lift is None or lift.bounds is None or lift.turns or len(lift.known) != 1:
            raise Refused
        ((row, whole),) = lift.known.items()
        self.names[(whole.code, lift.bounds.index)] = row
        return Level(lift.bounds, {row: whole.code})

    def element(self, node: cst.BaseExpression) -> str:
        """Return an element's code with names of rows."""
        new: dict[cst.CSTNode, str] = {}
        for taken in self.subscripts(node):
            new[taken] = self.row(taken)
        indices = {one.bounds.index for one in self.levels}
        for one in within(node):
            if isinstance(one, cst.NamedExpr | cst.Await | cst.Yield | cst.Lambda | cst.BaseComp):
                raise Refused
            made = self.lift.operations.get(one, [])
            if not all(is_mapped(o) for o in made):
                raise Refused
            if isinstance(one, cst.Call) and not made:
                mapped_frames(self.lift, one)
            if isinstance(one, cst.Name) and one.value in indices and not self.is_in(one, new):
                raise Refused
        return self.lift.code(node.visit(Swap(new)))  # type: ignore[arg-type]

    def is_in(self, node: cst.CSTNode, new: dict[cst.CSTNode, str]) -> bool:
        return any(one in new for one in self.lift.file.above(node))

    def subscripts(self, node: cst.CSTNode) -> Iterator[cst.Subscript]:
        """Yield the subscripts of a node by numbers of the loops."""
        indices = {one.bounds.index for one in self.levels}
        if isinstance(node, cst.Subscript) and any(names_in(o) & indices for o in node.slice):
            yield node
            return
        for child in node.children:
            yield from self.subscripts(child)

    def row(self, node: cst.Subscript) -> str:
        """Return the name of a row `x[i]` or `x[i, j]`, taken by the loops in their order, with
        what else is taken of it."""
        counted = [one.bounds.index for one in self.levels]
        parts = [self.lift.code(one.slice) for one in node.slice]
        rest = [one for one in parts if one not in counted]
        if any(names_in(one) & {*counted} for one in node.slice[len(parts) - len(rest) :]):
            raise Refused
        parts = parts[: len(parts) - len(rest)]
        if not isinstance(node.value, cst.Name) or [o for o in counted if o in parts] != parts:
            raise Refused
        whole = node.value.value
        if whole in self.lift.changing or whole in roots(node.slice[0]):
            raise Refused
        code = whole
        taken: tuple[str, ...] = (whole,)
        for part in parts:
            level = self.levels[counted.index(part)]
            where = (whole, len(taken) - 1)
            span = level.bounds.span(0, where)
            source = code if span == ":" else f"{code}[{span}]"
            taken = (*taken, part)
            if taken not in self.names:
                self.names[taken] = self.lift.free_name(f"{whole}_{part}")
            code = self.names[taken]
            level.rows.setdefault(code, source)
        return f"{code}[{', '.join(rest)}]" if rest else code


def find_nested(call: Call) -> Iterator[Change]:
    """Find `for i in range(n): for j in range(m): out[i, j] = f(x[i], y[j])`."""
    loops = [one for one in loops_in(call) if isinstance(one.node, cst.For)]
    by_node = {one.node: one for one in loops}
    for outer in loops:
        chain, body = [outer], cst.ensure_type(outer.node, cst.For).body
        while isinstance(body, cst.IndentedBlock) and len(body.body) == 1:
            inner = by_node.get(body.body[0])  # type: ignore[call-overload]
            if inner is None:
                break
            chain.append(inner)
            body = cst.ensure_type(inner.node, cst.For).body
        above = outer.file.parents.get(outer.file.parents[outer.node])
        is_first = not isinstance(above, cst.For) or len(above.body.body) > 1
        if len(chain) < 2 or not is_first:
            continue
        changing = {name for one in chain for name in roots(one.target)}
        lift = Lift(outer.file, call.source, outer.operations, changing, None, lift_expression)
        lift.taken = names_anywhere(outer.function)
        try:
            yield Nest(chain, lift).change()
        except Refused as refused:
            call.miss(outer.inside[0], str(refused), outer.node)


RULES = (
    RecordedRule(
        name="pairs_at_once",
        family="loops",
        why="each operation runs once for all pairs where nested loops launched it for each",
        precondition="each iteration writes one element, and reads rows of unchanged tensors",
        find=find_nested,
    ),
)
