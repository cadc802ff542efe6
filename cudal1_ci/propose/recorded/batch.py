"""Batch loops that carry nothing from turn to turn but sums, lists and tensors to fill."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.batch_writes import Writes
from cudal1_ci.propose.recorded.joins import (
    binds,
    bound_value,
    is_empty_list,
    joined,
    last_of,
    reads_of,
    the_reader,
)
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_arithmetic import has_rows
from cudal1_ci.propose.recorded.lift_located import along
from cudal1_ci.propose.recorded.lift_windows import is_backwards, is_cut
from cudal1_ci.propose.recorded.lifted import (
    Refused,
    pair_parts,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop, shown_loop
from cudal1_ci.propose.recorded.loop_lift import lift_of
from cudal1_ci.propose.recorded.rule import Change
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import has_rows_of
from cudal1_ci.propose.recorded.statements import (
    append_of,
    bound_by,
    grown_by,
    is_edge,
    is_write,
    results_of,
    row_writes,
    terms_of,
)
from cudal1_ci.propose.recorded.windows import moving


@dataclass
class Batch:
    """A loop whose turns only add to sums, fill lists and fill tensors."""

    loop: Loop
    lift: Lift
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    changes_later: set[str] = field(default_factory=set)
    """Names that the following lines of a turn bind or write into."""
    raises_without: bool = False
    """Whether the function raises where the loop has no turn."""
    is_guarded: bool = False
    """Whether the loop stays for calls for which the lines are not made."""
    tests: dict[cst.BaseSmallStatement, cst.BaseExpression] = field(default_factory=dict)
    """What must hold for a turn to run a statement."""
    rest: list[str] = field(default_factory=list)
    """What follows the loop where it stays."""

    def __post_init__(self) -> None:
        self.writes = Writes(self.loop, self.lift)

    @property
    def lines(self) -> list[str]:
        """Return what is written in the place of the loop."""
        return self.writes.lines

    def change(self) -> Change:
        """Return the loop as batched lines; raise Refused if it is another one."""
        body = self.loop.chosen_body or self.tested_body()
        if not body:
            raise Refused("its body has a branch, a loop or a jump")
        self.writes.locals = {name for one in body for name in bound_by(one)} | roots(
            self.loop.target
        )
        self.lift.writes = any(is_write(one) for one in body)
        self.results = {name for one in body for name in results_of(one)}
        self.results -= self.writes.locals | (self.loop.filled_rows() & set(row_writes(body)))
        for name in self.results:
            if sum(name in names_anywhere(one) for one in body) != sum(
                name in results_of(one) for one in body
            ):
                raise Refused(f"`{name}` is read in the loop while it is made")
        start = len(self.lines)
        for number, one in enumerate(body):
            rest = body[number + 1 :]
            self.changes_later = {name for o in rest for name in stored_names(o)}
            try:
                self.statement(one)
            except Refused as refused:
                fact = "cannot run for all passes at once"
                raise Refused(str(refused) or self.lift.at(one, fact)) from refused
        if not (self.results or self.writes.has_effect):
            raise Refused("no sum, list or tensor is made in it")
        if self.loop.is_read_after(self.stored | roots(self.loop.target)):
            raise Refused("what the last pass leaves is read after the loop")
        written = {name for one in body for name in stored_names(one)}
        for code in self.lift.early:
            if names_in(cst.parse_expression(code)) & written:
                raise Refused("a pass writes into what a guard would read before the loop")
        before, lines = ("\n".join(one) for one in (self.lines[:start], self.lines[start:]))
        if self.lift.needs_turn and not self.raises_without and self.lift.bounds is not None:
            self.lift.guards = [*(self.lift.guards or ()), self.lift.bounds.has_turn()]
        if self.is_guarded and self.lift.guards:
            old = "\n".join([self.loop.code(self.loop.node).strip("\n"), *self.rest])
            lines, old = (textwrap.indent(one, "    ") for one in (lines, old))
            lines = f"if {' and '.join(self.lift.guards)}:\n{lines}\nelse:\n{old}"
        early = "\n".join(f"{name} = {code}" for code, name in self.lift.early.items())
        lines = "\n".join(one for one in (early, before, lines) if one).strip("\n")
        return Change(
            file=self.loop.name,
            new={self.loop.node: lines, **self.new},
            found=shown_loop(self.loop),
            modules=frozenset(("torch",)),
        )

    def tested_body(self) -> list[cst.BaseSmallStatement]:
        """Return the statements of a body in which a test comes before a write; [] for another."""
        found, node = [], self.loop.node
        for one in node.body.body if isinstance(node, cst.For) and not node.orelse else ():
            lines = one.body.body if isinstance(one, cst.If) and one.orelse is None else (one,)
            line = lines[0] if len(lines) == 1 else None
            small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
            if len(small) != 1 or isinstance(small[0], cst.Continue | cst.Break | cst.Return):
                return []
            if isinstance(one, cst.If):
                if not is_write(small[0]):
                    return []
                self.tests[small[0]] = one.test
            found.append(small[0])
        return found if self.tests else []

    def write_tested(self, node: cst.Assign, target: cst.Subscript) -> None:
        """Write the rows of the classes that have some."""
        mask, bounds = has_rows(self.lift, self.tests[node]), self.lift.bounds
        if mask is None or bounds is None or len(target.slice) != 1:
            raise Refused
        self.writes.write(target, node.value)
        out, _, new = self.lines.pop().partition(" = ")
        held = self.loop.held(self.loop.code(target.value), self.loop.inside)
        rank = self.loop.call.graph.num_dims(held)
        has = has_rows_of(mask, bounds.high, rank, self.lift.kept)
        self.lines.append(f"{out} = torch.where({has}, {new}, {out})")

    def statement(self, node: cst.BaseSmallStatement) -> None:
        if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            if not isinstance(node.operator, cst.AddAssign | cst.SubtractAssign):
                raise Refused
            if not self.loop.is_own(node.target.value):
                raise Refused
            sign = "+" if isinstance(node.operator, cst.AddAssign) else "-"
            self.lines.append(f"{node.target.value} {sign}= {self.summed([node.value])}")
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Subscript):
            if not isinstance(node.operator, cst.AddAssign):
                raise Refused
            self.writes.add_at_positions(node.target, node.value)
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            target = node.targets[0].target
            if isinstance(target, cst.Subscript) and node in self.tests:
                self.write_tested(node, target)
            elif isinstance(target, cst.Subscript):
                root = next(iter(roots(target)), "")
                if root in self.writes.locals or (root not in self.results):
                    self.writes.write_rows(target, node.value)
                else:
                    self.writes.write(target, node.value)
            elif isinstance(target, cst.Name) and (more := grown_by(node)) is not None:
                join = cst.ensure_type(node.value, cst.Call)
                lifted, grown = self.lift.lift_any(more), target.value
                code = joined(self.loop.code(join.func), join, lifted, self.lift.dtype(more))
                dim = "".join(f", {self.loop.code(one)}" for one in join.args[1:])
                self.lines.append(f"{grown} = torch.cat([{grown}, {code}]{dim})")
            elif isinstance(target, cst.Name) and target.value in self.results:
                terms = terms_of(node.value)[1:]
                self.lines.append(f"{target.value} = {target.value}{self.sums(terms)}")
            elif isinstance(target, cst.Name):
                self.assign(target.value, node.value)
            elif isinstance(target, cst.Tuple) and isinstance(node.value, cst.Tuple):
                names = [one.value for one in target.elements]
                values = [one.value for one in node.value.elements]
                if len(names) != len(values) or stored_names(node) & names_in(node.value):
                    raise Refused
                for name, value in zip(names, values, strict=True):
                    self.assign(cst.ensure_type(name, cst.Name).value, value)
            elif isinstance(target, cst.Tuple):
                self.assign_pair(target, node.value)
            else:
                raise Refused
        elif isinstance(node, cst.Expr) and (appended := append_of(node)) is not None:
            self.append(*appended)
        else:
            raise Refused

    def assign(self, name: str, value: cst.BaseExpression) -> None:
        if name in names_in(value) and name not in self.lift.known:
            line = self.lift.line(value)
            raise Refused(f"line {line} carries `{name}` from one pass to the next")
        bounds = self.lift.bounds
        number = None
        if bounds is not None:
            number = moving(value, bounds.index, self.lift.numbers, self.lift.changing)
        self.lift.numbers.pop(name, None)
        self.lift.edges.pop(name, None)
        if number is not None:
            self.writes.forget(name)
            self.stored.add(name)
            self.lift.known.pop(name, None)
            self.lift.numbers[name] = number
            return
        if is_edge(value) or is_backwards(self.lift, value) or is_cut(self.lift, value):
            self.writes.forget(name)
            self.stored.add(name)
            self.lift.known.pop(name, None)
            self.lift.edges[name] = value
            return
        lifted = self.lift.lift_any(value)
        self.stored.add(name)
        made = self.loop.operations.get(value)
        if made:
            self.lift.dtypes[name] = self.lift.ranks.get(value, (0, ""))[1]
        elif isinstance(value, cst.Name):
            self.lift.dtypes[name] = self.lift.dtype(value)
        is_copy = self.lift.writes and lifted.is_new and lifted.ragged is None
        is_whole = lifted.is_tensor or lifted.pair or (lifted.classes and lifted.code)
        if not is_whole or not (lifted.is_computed or is_copy):
            self.writes.forget(name)
            self.lift.known[name] = lifted
            return
        self.writes.forget(name)
        self.lines.append(f"{name} = {lifted.code}")
        self.lift.known[name] = replace(lifted, code=name)

    def assign_pair(self, target: cst.Tuple, value: cst.BaseExpression) -> None:
        """Assign the values and the positions of a sort."""
        names = [one.value for one in target.elements]
        lifted = self.lift.lift_any(value)
        if lifted.located and lifted.axis is None and len(names) == lifted.rank:
            for dim, one in enumerate(names):
                name = cst.ensure_type(one, cst.Name).value
                self.writes.forget(name)
                self.stored.add(name)
                self.lift.known[name] = along(lifted, dim)
            return
        if not lifted.pair or len(names) != 2 or not all(isinstance(n, cst.Name) for n in names):
            raise Refused
        made = self.loop.operations[value][0]
        listed = [cst.ensure_type(one, cst.Name).value for one in names]
        for name, part, output in zip(
            listed, pair_parts(lifted), made.recorded.outputs, strict=True
        ):
            self.writes.forget(name)
            self.stored.add(name)
            self.lift.known[name] = replace(part, code=name)
            found = self.loop.call.graph.of(output)
            self.lift.dtypes[name] = "" if found is None else found.dtype
        self.lines.append(f"{', '.join(listed)} = {lifted.code}")

    def sums(self, terms: list[tuple[str, cst.BaseExpression]]) -> str:
        """Return what is added to a sum."""
        bounds = self.lift.bounds
        numbers = [one for one in terms if isinstance(one[1], cst.Integer | cst.Float)]
        if numbers and bounds is not None and len(numbers) < len(terms):
            if bounds.may_be_negative():
                self.lift.need_turn()
            count = bracketed(bounds.count)
            own = "".join(
                f" {sign} {count}" + ("" if code == "1" else f" * {code}")
                for sign, code in ((sign, self.lift.code(one)) for sign, one in numbers)
            )
            return own + self.sums([one for one in terms if one not in numbers])
        if all(sign == "+" for sign, _ in terms):
            try:
                return f" + {self.summed([one for _, one in terms])}"
            except Refused:
                pass
        return "".join(f" {sign} {self.summed([one])}" for sign, one in terms)

    def summed(self, terms: list[cst.BaseExpression]) -> str:
        """Return the sum of terms over all turns."""
        found = [self.lift.lift(one) for one in terms]
        dtypes = {self.lift.ranks.get(one, (0, ""))[1] for one in terms}
        if len(dtypes) != 1 or not dtypes.pop().startswith(("float", "bfloat")):
            raise Refused
        found = [one.first() if one.is_kept else one for one in found]
        if len({(one.rank, one.turns) for one in found}) != 1 or found[0].turns is None:
            raise Refused
        code = " + ".join(one.code for one in found)
        return f"{bracketed(code)}.sum({found[0].turns})"

    def append(self, name: str, value: cst.BaseExpression) -> None:
        """Join the turns where the list was joined."""
        file, loop = self.loop.file, self.loop.node
        block = file.parents[loop]
        if not isinstance(block, cst.IndentedBlock):
            raise Refused
        lines = list(block.body)
        at = lines.index(loop)  # type: ignore[arg-type]
        before = [one for one in lines[:at] if name in names_anywhere(one)]
        after = [one for one in lines[at + 1 :] if name in names_anywhere(one)]
        if len(before) != 1 or not is_empty_list(before[0], self.results) or not after:
            raise Refused
        is_rebound = block is self.loop.function.body and binds(after[0], name)
        own = sum(isinstance(o, cst.Name) and o.value == name for o in within(loop))
        if not is_rebound and (len(after) != 1 or reads_of(self.loop.function, name) != own + 1):
            raise Refused
        value_read = bound_value(after[0]) if is_rebound else after[0]
        join = None if value_read is None else the_reader(value_read, name)
        lifted = self.lift.lift_any(value)
        if join is None:
            raise Refused
        self.raises_without |= not isinstance(join, cst.Call) or self.loop.code(join.func) != "sum"
        if isinstance(join, cst.Call):
            code = joined(self.loop.code(join.func), join, lifted, self.lift.dtype(value))
        else:
            code = last_of(join, lifted)
        if names_in(cst.parse_expression(lifted.code)) & self.changes_later:
            raise Refused
        self.writes.pending.append(lifted.code)
        if self.is_guarded:
            self.rest.append(f"{name} = {self.loop.code(join)}")
        else:
            self.new[before[0]] = ""
        if after[0] is lines[at + 1] and not self.is_guarded:
            self.new[join] = code
        else:
            self.lines.append(f"{name} = {code}")
            is_copy = is_rebound and bound_value(after[0]) is join
            self.new[after[0] if is_copy else join] = "" if is_copy else name


def batched(loop: Loop, lift: Lift) -> Change:
    """Return a loop as batched lines, next to the loop itself where they are not for all calls.
    Raises: Refused, if it is another loop."""
    lift.guards = []
    change = Batch(loop, lift).change()
    again = lift_of(loop) if lift.guards else None
    if again is None:
        return change
    again.guards = []
    return Batch(loop, again, is_guarded=True).change()


def is_batched(loop: Loop) -> bool:
    """Return whether all turns of a loop can run at once."""
    lift = lift_of(loop) if isinstance(loop.node, cst.For) else None
    try:
        return lift is not None and bool(batched(loop, lift))
    except Refused:
        return False
