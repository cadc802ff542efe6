"""Batch loops that carry nothing from turn to turn but sums, lists and tensors to fill."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lifted import Lifted, Refused, integer, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.rule import Change
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.rewrites.terms import names_in
from cudal1_ci.propose.rewrites.walk import roots, stored_names


@dataclass
class Batch:
    """A loop whose turns only add to sums, fill lists and fill tensors."""

    loop: Loop
    lift: Lift
    lines: list[str] = field(default_factory=list)
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)

    def change(self) -> Change:
        """Return the loop as batched lines; raise Refused if it is another one."""
        body = self.loop.body
        if not body:
            raise Refused("its body has a branch, a loop or a jump")
        self.results = {name for one in body for name in results_of(one)}
        for name in self.results:
            if sum(name in names_anywhere(one) for one in body) != sum(
                name in results_of(one) for one in body
            ):
                raise Refused(f"`{name}` is read in the loop while it is made")
        for one in body:
            try:
                self.statement(one)
            except Refused as refused:
                fact = "cannot run for all passes at once"
                raise Refused(str(refused) or self.lift.at(one, fact)) from refused
        if not self.results:
            raise Refused("no sum, list or tensor is made in it")
        if self.loop.is_read_after(self.stored | roots(self.loop.target)):
            raise Refused("what the last pass leaves is read after the loop")
        lines = [*(self.lift.lines or []), *self.lines]
        return Change(
            file=self.loop.name,
            new={self.loop.node: "\n".join(lines), **self.new},
            found=shown_loop(self.loop),
            modules=frozenset(("torch",)),
        )

    def statement(self, node: cst.BaseSmallStatement) -> None:
        if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            if not isinstance(node.operator, cst.AddAssign | cst.SubtractAssign):
                raise Refused
            if not self.loop.is_own(node.target.value):
                raise Refused
            sign = "+" if isinstance(node.operator, cst.AddAssign) else "-"
            self.lines.append(f"{node.target.value} {sign}= {self.summed([node.value])}")
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            target = node.targets[0].target
            if isinstance(target, cst.Subscript):
                self.write(target, node.value)
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
            else:
                raise Refused
        elif isinstance(node, cst.Expr) and (appended := append_of(node)) is not None:
            self.append(*appended)
        else:
            raise Refused

    def assign(self, name: str, value: cst.BaseExpression) -> None:
        if name in self.lift.known or name in names_in(value):
            line = self.loop.file.ranges[value].start.line
            raise Refused(f"line {line} carries `{name}` from one pass to the next")
        lifted = self.lift.lift(value)
        self.stored.add(name)
        if name in self.lift.known or not lifted.is_computed:
            self.lift.known[name] = lifted
            return
        self.lines.append(f"{name} = {lifted.code}")
        self.lift.known[name] = Lifted(
            name, lifted.rank, lifted.turns, lifted.is_kept, lifted.is_new, True
        )

    def sums(self, terms: list[tuple[str, cst.BaseExpression]]) -> str:
        """Return what is added to a sum."""
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

    def write(self, target: cst.Subscript, value: cst.BaseExpression) -> None:
        """Write all positions of `out[:, t] = ...` at once."""
        out = target.value
        bounds = self.lift.bounds
        if not isinstance(out, cst.Name) or bounds is None or not self.loop.is_fresh(out.value):
            raise Refused
        parts = [one.slice for one in target.slice]
        turning = [i for i, one in enumerate(parts) if self.lift.varies(one)]
        if len(turning) != 1 or not isinstance(parts[turning[0]], cst.Index):
            raise Refused
        at = turning[0]
        whole = [self.lift.code(one) for one in parts]
        offset = bounds.offset(cst.ensure_type(parts[at], cst.Index).value)
        if offset is None or any(o != ":" for i, o in enumerate(whole) if i != at):
            raise Refused
        lifted = self.lift.lift(value)
        held = self.loop.held(out.value, self.loop.inside)
        if lifted.turns is None or lifted.rank != self.loop.call.graph.num_dims(held) - 1:
            raise Refused
        whole[at] = bounds.span(offset, (out.value, at))
        while len(whole) > 1 and whole[-1] == ":":
            whole.pop()
        self.lines.append(f"{out.value}[{', '.join(whole)}] = {moved(lifted, at)}")

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
        if len(before) != 1 or not is_empty_list(before[0], name) or len(after) != 1:
            raise Refused
        if reads_of(self.loop.function, name) != 2:
            raise Refused
        join = the_join(after[0], name)
        lifted = self.lift.lift(value)
        if join is None:
            raise Refused
        code = joined(self.loop.code(join.func), join, lifted)
        self.new[before[0]] = ""
        if after[0] is lines[at + 1]:
            self.new[join] = code
        else:
            self.lines.append(f"{name} = {code}")
            self.new[join] = name


def shown_loop(loop: Loop) -> str:
    text = " ".join(loop.code(loop.node).strip().split("\n")[0].split())
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- lists that are joined ------------------------------------------------------------------------


def reads_of(function: cst.FunctionDef, name: str) -> int:
    """Return how often a function names a local but to assign it."""
    stores = 0
    count = 0
    for one in within(function):
        if isinstance(one, cst.Name) and one.value == name:
            count += 1
        if isinstance(one, cst.AssignTarget | cst.For | cst.Param):
            target = one.name if isinstance(one, cst.Param) else one.target
            stores += isinstance(target, cst.Name) and target.value == name
    return count - stores


def arg_of(call: cst.Call) -> cst.BaseExpression | None:
    return call.args[0].value if call.args else None


def the_join(node: cst.CSTNode, name: str) -> cst.Call | None:
    """Return the call that joins a list, if nothing else in a node reads it."""
    found = [
        one
        for one in within(node)
        if isinstance(one, cst.Call)
        and isinstance(arg_of(one), cst.Name)
        and arg_of(one).value == name  # type: ignore[union-attr]
    ]
    names = [one for one in within(node) if isinstance(one, cst.Name) and one.value == name]
    return found[0] if len(found) == len(names) == 1 else None


def joined(function: str, join: cst.Call, lifted: Lifted) -> str:
    """Return what joins the turns as `torch.stack` or `torch.cat` did."""
    kind = {"torch.stack": "stack", "torch.cat": "cat", "torch.concat": "cat"}.get(function)
    if kind is None or lifted.turns is None or len(join.args) > 2 or not lifted.is_new:
        raise Refused
    dim = 0
    if len(join.args) == 2:
        keyword = join.args[1].keyword
        if keyword is not None and keyword.value != "dim":
            raise Refused
        dim = integer(join.args[1].value)
    if dim < 0:
        dim += lifted.rank + (kind == "stack")
    if kind == "cat" and lifted.is_kept and lifted.turns == dim:
        return lifted.code
    code = moved(lifted, dim)
    return f"{bracketed(code)}.flatten({dim}, {dim + 1})" if kind == "cat" else code


def moved(lifted: Lifted, dim: int) -> str:
    """Return code with the turns at another dimension."""
    if lifted.is_kept:
        lifted = lifted.first()
    if lifted.turns == dim:
        return lifted.code
    code = bracketed(lifted.code)
    if {lifted.turns, dim} == {0, 1}:
        return f"{code}.transpose(0, 1)"
    return f"{code}.movedim({lifted.turns}, {dim})"


# --- statements -----------------------------------------------------------------------------------


def names_anywhere(node: cst.CSTNode) -> set[str]:
    """Return all names below a node, those of attributes and keywords too."""
    return {one.value for one in within(node) if isinstance(one, cst.Name)}


def results_of(node: cst.BaseSmallStatement) -> set[str]:
    """Return the sum, list or tensor to which a statement adds a turn."""
    if isinstance(node, cst.AugAssign):
        return roots(node.target)
    if isinstance(node, cst.Expr):
        found = append_of(node)
        return {found[0]} if found is not None else set()
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        if isinstance(target, cst.Subscript):
            return roots(target)
        if isinstance(target, cst.Name):
            terms = terms_of(node.value)
            first = terms[0][1]
            rest = [one for _, one in terms[1:]]
            is_same = isinstance(first, cst.Name) and first.value == target.value
            if is_same and rest and not any(target.value in names_in(one) for one in rest):
                return {target.value}
    return set()


def terms_of(node: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]]:
    """Return the terms of a sum with their signs."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        sign = "+" if isinstance(node.operator, cst.Add) else "-"
        if not node.lpar:
            return [*terms_of(node.left), (sign, node.right)]
    return [("+", node)]


def append_of(node: cst.Expr) -> tuple[str, cst.BaseExpression] | None:
    """Return list and value of `outs.append(value)`."""
    call = node.value
    if not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].star:
        return None
    function = call.func
    if not isinstance(function, cst.Attribute) or function.attr.value != "append":
        return None
    return (
        (function.value.value, call.args[0].value) if isinstance(function.value, cst.Name) else None
    )


def is_empty_list(node: cst.CSTNode, name: str) -> bool:
    """Return whether a line is `outs = []`."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return False
    assign = node.body[0]
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    target, value = assign.targets[0].target, assign.value
    is_empty = isinstance(value, cst.List) and not value.elements
    return isinstance(target, cst.Name) and target.value == name and is_empty
