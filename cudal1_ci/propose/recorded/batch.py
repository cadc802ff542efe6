"""Batch loops that carry nothing from turn to turn but sums, lists and tensors to fill."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_windows import is_backwards, is_cut, window_of
from cudal1_ci.propose.recorded.lifted import (
    INDEX_DTYPES,
    Lifted,
    Refused,
    integer,
    is_basic,
    is_ellipsis,
    is_number,
    is_whole,
    pair_parts,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.rule import Change
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import any_class, host_number, wide_mask
from cudal1_ci.propose.recorded.windows import moving


@dataclass
class Batch:
    """A loop whose turns only add to sums, fill lists and fill tensors."""

    loop: Loop
    lift: Lift
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    locals: set[str] = field(default_factory=set)
    """Names that each turn binds."""
    changes_later: set[str] = field(default_factory=set)
    """Names that the following lines of a turn bind or write into."""
    pending: list[str] = field(default_factory=list)
    """Code that is evaluated after the loop's lines."""
    writes: bool = False
    """Whether turns write into tensors."""
    has_effect: bool = False
    """Whether turns write into tensors that are no locals of theirs."""
    raises_without: bool = False
    """Whether the function raises where the loop has no turn."""
    is_guarded: bool = False
    """Whether the loop stays for calls for which the lines are not made."""
    rest: list[str] = field(default_factory=list)
    """What follows the loop where it stays."""

    @property
    def lines(self) -> list[str]:
        """Return what is written in the place of the loop."""
        assert self.lift.lines is not None
        return self.lift.lines

    def change(self) -> Change:
        """Return the loop as batched lines; raise Refused if it is another one."""
        body = self.loop.chosen_body
        if not body:
            raise Refused("its body has a branch, a loop or a jump")
        self.locals = {name for one in body for name in bound_by(one)} | roots(self.loop.target)
        self.writes = self.lift.writes = any(is_write(one) for one in body)
        self.results = {name for one in body for name in results_of(one)}
        self.results -= self.locals | (self.loop.filled_rows() & set(self.row_writes(body)))
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
        if not (self.results or self.has_effect):
            raise Refused("no sum, list or tensor is made in it")
        if self.loop.is_read_after(self.stored | roots(self.loop.target)):
            raise Refused("what the last pass leaves is read after the loop")
        before, lines = ("\n".join(one) for one in (self.lines[:start], self.lines[start:]))
        if self.lift.needs_turn and not self.raises_without and self.lift.bounds is not None:
            self.lift.guards = [*(self.lift.guards or ()), self.lift.bounds.has_turn()]
        if self.is_guarded and self.lift.guards:
            old = "\n".join([self.loop.code(self.loop.node).strip("\n"), *self.rest])
            lines, old = (textwrap.indent(one, "    ") for one in (lines, old))
            lines = f"if {' and '.join(self.lift.guards)}:\n{lines}\nelse:\n{old}"
        lines = f"{before}\n{lines}".strip("\n")
        return Change(
            file=self.loop.name,
            new={self.loop.node: lines, **self.new},
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
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Subscript):
            if not isinstance(node.operator, cst.AddAssign):
                raise Refused
            self.add_at_positions(node.target, node.value)
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            target = node.targets[0].target
            if isinstance(target, cst.Subscript):
                root = next(iter(roots(target)), "")
                if root in self.locals or (root not in self.results):
                    self.write_rows(target, node.value)
                else:
                    self.write(target, node.value)
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
            self.forget(name)
            self.stored.add(name)
            self.lift.known.pop(name, None)
            self.lift.numbers[name] = number
            return
        if is_edge(value) or is_backwards(self.lift, value) or is_cut(self.lift, value):
            self.forget(name)
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
        is_copy = self.writes and lifted.is_new and lifted.ragged is None
        is_whole = lifted.is_tensor or lifted.pair or (lifted.classes and lifted.code)
        if not is_whole or not (lifted.is_computed or is_copy):
            self.forget(name)
            self.lift.known[name] = lifted
            return
        self.forget(name)
        self.lines.append(f"{name} = {lifted.code}")
        self.lift.known[name] = replace(lifted, code=name)

    def assign_pair(self, target: cst.Tuple, value: cst.BaseExpression) -> None:
        """Assign the values and the positions of a sort."""
        names = [one.value for one in target.elements]
        lifted = self.lift.lift_any(value)
        if not lifted.pair or len(names) != 2 or not all(isinstance(n, cst.Name) for n in names):
            raise Refused
        made = self.loop.operations[value][0]
        listed = [cst.ensure_type(one, cst.Name).value for one in names]
        for name, part, output in zip(
            listed, pair_parts(lifted), made.recorded.outputs, strict=True
        ):
            self.forget(name)
            self.stored.add(name)
            self.lift.known[name] = replace(part, code=name)
            found = self.loop.call.graph.of(output)
            self.lift.dtypes[name] = "" if found is None else found.dtype
        self.lines.append(f"{', '.join(listed)} = {lifted.code}")

    def forget(self, name: str, *, views_too: bool = True) -> None:
        """Refuse to bind a name again, or to write into it, where code for later reads it."""
        for one, known in self.lift.known.items():
            if one == name or (not views_too and not known.is_new and known.ragged is None):
                continue
            codes = [
                known.code,
                known.valid,
                known.classes,
                known.repeats,
                known.picked if views_too else "",
                *(part.code for part in known.ragged or ()),
            ]
            if any(code and name in names_in(cst.parse_expression(code)) for code in codes):
                raise Refused
        if any(name in names_in(cst.parse_expression(one)) for one in self.pending):
            raise Refused

    def row_writes(self, body: list[cst.BaseSmallStatement]) -> Iterator[str]:
        """Yield tensors into which a turn writes by more than its number."""
        for one in body:
            if is_write(one):
                target = cst.ensure_type(
                    cst.ensure_type(one, cst.Assign).targets[0].target, cst.Subscript
                )
                is_plain = isinstance(target.value, cst.Name) and all(
                    is_whole(part.slice) or is_ellipsis(part.slice) for part in target.slice[1:]
                )
                if not is_plain:
                    yield from roots(target)

    def write_rows(self, target: cst.Subscript, value: cst.BaseExpression) -> None:
        """Write into the rows of all turns: by slices, by a mask, by positions."""
        base, parts = target.value, [one.slice for one in target.slice]
        root = next(iter(roots(target)))
        bounds = self.lift.bounds
        if isinstance(base, cst.Name) and base.value not in self.locals:  # out[i, mask]
            index = parts[0].value if isinstance(parts[0], cst.Index) else None
            if bounds is None or index is None or bounds.offset(index) != 0 or len(parts) < 2:
                raise Refused
            span = self.lift.span(0, (base.value, 0))
            rank = self.loop.call.graph.num_dims(self.loop.held(base.value, self.loop.inside)) - 1
            x = Lifted(
                base.value if span == ":" else f"{base.value}[{span}]", rank, 0, is_new=False
            )
            dtype = self.held_dtype(base.value)
            parts = parts[1:]
        else:
            x = self.lift.lift(base)
            dtype = self.lift.dtype(base)
        if x.turns is None or x.is_kept or (x.is_computed and root not in self.lift.known):
            raise Refused
        x = x.first()
        name = root_of(x.code)
        if not x.is_new or root not in self.locals:
            self.check_outer(name, root)
        self.forget(name, views_too=False)
        if self.write_span(x, parts, value, dtype):
            return
        dim = next((at for at, one in enumerate(parts, 1) if not is_whole(one)), 1)
        if dim > 1 and dim == len(parts) <= x.rank and isinstance(parts[-1], cst.Slice):
            if self.lift.varies(value) or not self.lift.varies(parts[-1]):
                raise Refused
            index_code, is_mask = self.span_mask(x, parts[-1], dim), True
            parts, x = parts[-1:], replace(x, code=f"{bracketed(x.code)}.transpose(1, {dim})")
        else:
            index_code, is_mask = self.written_index(x, parts, value)
        if is_mask and len(index_code) > 60:
            lines = self.lift.free_name("mask")
            self.lines.append(f"{lines} = {index_code}")
            index_code = lines
        if root in names_in(value) and not self.lift.varies(value):
            raise Refused  # of all rows, but turns change them
        new = self.written_value(x, parts, value, dtype, is_mask=is_mask)
        if new is None:
            mask = self.lift.lift(cst.ensure_type(parts[0], cst.Index).value).first().code
            other = self.lift.lift(cst.ensure_type(value, cst.Subscript).value).first().code
            self.lines.append(f"{x.code}[:] = torch.where({mask}, {other}, {x.code})")
        else:
            self.lines.append(f"{bracketed(x.code)}[{index_code}] = {new}")

    def write_span(
        self, x: Lifted, parts: list[cst.BaseSlice], value: cst.BaseExpression, dtype: str
    ) -> bool:
        """Write the first positions of another tensor, as many as each turn's length, into the
        same ones of a tensor of its shape: `out[i, :n] = x[i, :n].flip(0)`."""
        if not self.lift.is_span(parts[0]) or not all(map(is_whole, parts[1:])):
            return False
        if not self.lift.varies(value):
            return False
        found = self.lift.lift_any(value)
        upper = cst.ensure_type(parts[0], cst.Slice).upper
        if not found.valid or upper is None or self.lift.lift_any(upper).code != found.length:
            return False
        is_same = (found.rank, self.lift.dtype(value)) == (x.rank, dtype)
        out, other = map(rows_of, (x.code, found.code))
        is_own = out != other and self.loop.is_own(out)
        if not is_same or not is_own or not self.loop.has_shape_of(out, other):
            raise Refused
        new = f"torch.where({wide_mask(found)}, {found.code}, {x.code})"
        self.lines.append(f"{bracketed(x.code)}[:] = {new}")
        return True

    def held_dtype(self, name: str) -> str:
        found = self.loop.call.graph.of(self.loop.held(name, self.loop.inside))
        return "" if found is None else found.dtype

    def check_outer(self, name: str, root: str) -> None:
        """Refuse to write into a tensor from outside that turns read by other ways."""
        self.has_effect = True
        if root in self.locals:
            reads = sum(name in names_in(one) for one in self.loop.chosen_body)
            rows = [n for n, known in self.lift.known.items() if known.code == name]
            if reads or not self.loop.is_unshared(name) or len(rows) != 1 or name in self.locals:
                raise Refused

    def written_index(
        self, x: Lifted, parts: list[cst.BaseSlice], value: cst.BaseExpression
    ) -> tuple[str, bool]:
        """Return the subscript of a write, and whether it is a mask."""
        if not any(self.lift.varies(one) for one in parts):
            if not all(map(is_basic, parts)):
                raise Refused
            return f":, {self.lift.listed(parts)}", False
        only = parts[0]
        if len(parts) != 1 or x.rank < 1:
            raise Refused
        if isinstance(only, cst.Slice):
            return self.span_mask(x, only), True
        index = cst.ensure_type(only, cst.Index).value
        found = self.lift.lift_any(index)
        if found.ragged is not None:
            positions, mask = (one.first() for one in found.ragged)
            if x.rank != 1:
                raise Refused
            blank = mask.code
            if positions.distinct != "all":
                blank = f"torch.zeros_like({x.code}, dtype=torch.bool)"
            return f"{bracketed(blank)}.scatter(1, {positions.code}, {mask.code})", True
        found = self.lift.lift(index).first()
        if found.turns is None:
            raise Refused
        if self.lift.dtype(index) == "bool" and 1 <= found.rank <= x.rank:
            return found.code, True
        if self.lift.dtype(index) not in INDEX_DTYPES or x.rank != 1 or found.rank > 1:
            raise Refused
        if found.rank == 0:  # one position of each row
            return f"{self.lift.turn_column(x)}, {bracketed(found.code)}[:, None]", False
        if not found.distinct and self.lift.lift(value).picked != f"{x.code}, {found.code}":
            raise Refused
        return f"{self.lift.turn_column(x)}, {found.code}", False

    def span_mask(self, x: Lifted, part: cst.Slice, dim: int = 1) -> str:
        """Return the mask of `mask[i, : lengths[i]]`, of a dimension."""
        of = root_of(x.code)
        size = f"{of}.size({dim})" if x.code in (of, f"{of}[{x.code[len(of) + 1 : -1]}]") else ""
        if not size:
            raise Refused
        steps = f"torch.arange({size}, device={of}.device)"
        found = []
        if part.step is not None:
            raise Refused
        for bound, sign in ((part.lower, ">="), (part.upper, "<")):
            if bound is None:
                continue
            found.append(f"{steps} {sign} {self.limit(bound, size)}")
        if len(found) == 1:
            return found[0]
        return " & ".join(f"({one})" for one in found)

    def limit(self, node: cst.BaseExpression, size: str) -> str:
        """Return the bound of a slice as a column of numbers, one for each turn; one below zero
        counts from the end."""
        if not self.lift.varies(node):
            if integer(node) < 0:
                raise Refused
            return self.lift.code(node)
        number, name = bracketed(self.count(node)), self.lift.free_name("bound")
        self.lines.append(
            f"{name} = torch.where({number} < 0, {number} + {size}, {number})[:, None]"
        )
        return name

    def count(self, node: cst.BaseExpression) -> str:
        """Return code of a number of the host that turns have: one for each of them."""
        read = host_number(node)
        if read is not None:
            return self.count(read)
        if not self.lift.varies(node):
            return self.lift.number(node)
        is_of_tensors = node in self.loop.operations
        if (
            isinstance(node, cst.BinaryOperation)
            and isinstance(node.operator, cst.Add | cst.Subtract)
            and not is_of_tensors
        ):
            sign = "+" if isinstance(node.operator, cst.Add) else "-"
            return f"{self.count(node.left)} {sign} {bracketed(self.count(node.right))}"
        return self.lift.number_of_turns(node).code

    def written_value(
        self,
        x: Lifted,
        parts: list[cst.BaseSlice],
        value: cst.BaseExpression,
        dtype: str,
        *,
        is_mask: bool,
    ) -> str | None:
        """Return what is written; None for `other[mask]`, which the mask chooses."""
        if not self.lift.varies(value):
            root = root_of(x.code)
            if self.lift.ranks.get(value) == (0, dtype) and is_mask and self.loop.is_own(root):
                self.lift.check_pure(value)
            else:
                self.check_number(value)
            return self.lift.code(value)
        if is_mask:
            is_same = (
                isinstance(value, cst.Subscript)
                and isinstance(parts[0], cst.Index)
                and [self.lift.code(one.slice) for one in value.slice]
                == [self.lift.code(one) for one in parts]
            )
            if not is_same or not isinstance(value, cst.Subscript):
                raise Refused
            mask = self.lift.lift(parts[0].value)  # type: ignore[attr-defined]
            other = self.lift.lift(value.value)
            ranks = {mask.rank, other.rank, x.rank}
            if len(ranks) != 1 or self.lift.dtype(value.value) != dtype:
                raise Refused
            return None
        found = self.lift.lift(value).first()
        numbers = sum(map(is_number, parts))
        rank = x.rank - numbers
        if any(self.lift.varies(one) for one in parts):
            rank = 1
        out = root_of(x.code)
        is_other = self.loop.is_fresh(out) and out not in names_in(cst.parse_expression(found.code))
        if found.turns is None or found.rank > rank or not (found.is_new or is_other):
            raise Refused
        if found.rank < rank and rank > 0:
            nones = ", ".join([":", *["None"] * (rank - found.rank)])
            return f"{bracketed(found.code)}[{nones}]"
        return found.code

    def check_number(self, node: cst.BaseExpression) -> None:
        """Refuse what may be another thing than a number."""
        for one in within(node):
            if isinstance(one, cst.Call) and self.lift.code(one.func) != "float":
                raise Refused
            if one in self.lift.ranks:
                raise Refused
        if isinstance(node, cst.Name | cst.Attribute):
            held = self.loop.call.source.scope(self.loop.inside[0])
            known = held.get(node.value) if isinstance(node, cst.Name) else None
            if known is not None and known.kind != "literal":
                raise Refused

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

    def write(self, target: cst.Subscript, value: cst.BaseExpression) -> None:
        """Write all positions of `out[:, t] = ...` at once."""
        out = target.value
        bounds = self.lift.bounds
        if not isinstance(out, cst.Name) or bounds is None or not self.loop.is_fresh(out.value):
            raise Refused
        parts = [one.slice for one in target.slice]
        only = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Index) else None
        mask = self.lift.known.get(only.value) if isinstance(only, cst.Name) else None
        if mask is not None and mask.classes and not mask.code:
            self.write_classes(out.value, mask, value)
            return
        turning = [i for i, one in enumerate(parts) if self.lift.varies(one)]
        if len(turning) != 1 or not isinstance(parts[turning[0]], cst.Index):
            raise Refused
        at = turning[0]
        whole = [self.lift.code(one) for one in parts]
        offset = bounds.offset(cst.ensure_type(parts[at], cst.Index).value)
        fixed = [i for i, one in enumerate(parts) if i != at and whole[i] != ":"]
        if offset is None or not all(self.is_fixed_number(parts[i]) for i in fixed):
            raise Refused
        lifted = self.lift.lift(value)
        held = self.loop.held(out.value, self.loop.inside)
        rank = self.loop.call.graph.num_dims(held) - 1 - len(fixed)
        if lifted.turns is None or lifted.rank != rank:
            raise Refused
        whole[at] = self.lift.span(offset, (out.value, at))
        while len(whole) > 1 and whole[-1] == ":":
            whole.pop()
        place = at - sum(one < at for one in fixed)
        self.lines.append(f"{out.value}[{', '.join(whole)}] = {moved(lifted, place)}")

    def is_fixed_number(self, part: cst.BaseSlice) -> bool:
        """Return whether a part of a subscript is a number that is the same in all turns."""
        if not isinstance(part, cst.Index):
            return False
        if isinstance(part.value, cst.Integer):
            return True
        name = part.value.value if isinstance(part.value, cst.Name) else ""
        held = [self.loop.call.source.scope(one).get(name) for one in self.loop.inside]
        return bool(name) and all(one is not None and one.kind == "literal" for one in held)

    def add_at_positions(self, target: cst.Subscript, value: cst.BaseExpression) -> None:
        """Add the turns' values at their positions, `out[to] += x[i]` or `counts[a, b] += 1`, at
        once: several turns may have the same position."""
        out = target.value
        if not isinstance(out, cst.Name) or not self.loop.is_fresh(out.value):
            raise Refused
        held = self.loop.call.graph.of(self.loop.held(out.value, self.loop.inside))
        parts = [one.slice for one in target.slice]
        turning = [i for i, one in enumerate(parts) if self.lift.varies(one)]
        if held is not None and len(turning) == 1 and isinstance(parts[turning[0]], cst.Slice):
            if not all(is_whole(one) for i, one in enumerate(parts) if i != turning[0]):
                raise Refused
            self.add_windows(out, turning[0], target, value)
            return
        places = [self.lift.positions_of(one, out) for one in parts]
        if held is None or all(isinstance(one, str) for one in places):
            raise Refused
        if isinstance(value, cst.Integer | cst.Float):
            added = f"{out.value}.new_tensor({self.lift.code(value)})"
        else:
            x = self.lift.lift(value).first()
            is_same = self.lift.ranks.get(value) == (len(held.shape) - len(parts), held.dtype)
            if x.turns != 0 or not is_same:
                raise Refused
            added = x.code
        listed = ", ".join(one if isinstance(one, str) else one.code for one in places)
        comma = "," if len(places) == 1 else ""
        self.lines.append(f"{out.value}.index_put_(({listed}{comma}), {added}, accumulate=True)")

    def add_windows(
        self, out: cst.Name, dim: int, target: cst.Subscript, value: cst.BaseExpression
    ) -> None:
        """Add the turns' values to windows that may overlap: `out[:, i : i + 4] += x[:, i]`."""
        found = window_of(self.lift, cst.ensure_type(target.slice[dim].slice, cst.Slice))
        bounds, rank = self.lift.bounds, self.lift.rank(target)
        if found is None or bounds is None:
            raise Refused
        step, size = found
        self.lift.need_fit(target, dim, step, size)
        if bounds.may_be_negative():
            self.lift.need_turn()
        start = f"torch.arange({bounds.count}, device={out.value}.device)[:, None]"
        start += "" if step == "1" else f" * {bracketed(step)}"
        places = f"({start} + torch.arange({size}, device={out.value}.device)).flatten()"
        if isinstance(value, cst.Integer | cst.Float):
            places = self.lift.kept(places, "positions")
            count = f"{places}.bincount(minlength={out.value}.size({dim}))"
            count += "[:" + ", None" * (rank - 1 - dim) + "]" if dim < rank - 1 else ""
            number = self.lift.code(value)
            self.lines.append(f"{out.value} += {count}" + f" * {number}" * (number != "1"))
            return
        x = self.lift.lift(value)
        added, windows = (self.loop.shapes(one) for one in (value, target))
        is_same = len(added) == 1 and added == windows
        is_same = is_same and self.lift.dtype(value) == self.lift.dtype(target)
        if x.turns is None or x.rank != rank or not is_same:
            raise Refused
        places = self.lift.kept(places, "positions")
        rows = f"{bracketed(moved(x, dim))}.flatten({dim}, {dim + 1})"
        self.lines.append(f"{out.value}.index_add_({dim}, {places}, {rows})")

    def write_classes(self, out: str, mask: Lifted, value: cst.BaseExpression) -> None:
        """Write the rows of all classes of `out[classes == i] = ...` at once."""
        new = self.lift.lift_any(value)
        held = self.loop.call.graph.of(self.loop.held(out, self.loop.inside))
        is_same = held is not None and (len(held.shape), held.dtype) == self.lift.ranks.get(value)
        if new.classes != mask.classes or not new.code or not is_same or self.lift.bounds is None:
            raise Refused
        is_any = any_class(new, self.lift.bounds.high, self.lift.kept)
        self.lines.append(f"{out}[:] = torch.where({is_any}, {new.code}, {out})")

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
        self.pending.append(lifted.code)
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
    again = loop.lift() if lift.guards else None
    if again is None:
        return change
    again.guards = []
    return Batch(loop, again, is_guarded=True).change()


def is_batched(loop: Loop) -> bool:
    """Return whether all turns of a loop can run at once."""
    lift = loop.lift() if isinstance(loop.node, cst.For) else None
    try:
        return lift is not None and bool(batched(loop, lift))
    except Refused:
        return False


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
            parts = (
                [o.value for o in target.elements] if isinstance(target, cst.Tuple) else [target]
            )
            stores += sum(isinstance(o, cst.Name) and o.value == name for o in parts)
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


def the_reader(node: cst.CSTNode, name: str) -> cst.Call | cst.Subscript | None:
    """Return the only expression of a node that reads a list: `torch.stack(outs)`, `outs[-1]`."""
    names = [one for one in within(node) if isinstance(one, cst.Name) and one.value == name]
    items = [
        one for one in within(node) if isinstance(one, cst.Subscript) and one.value is names[0]
    ]
    return items[0] if len(items) == len(names) == 1 else the_join(node, name)


def last_of(read: cst.Subscript, lifted: Lifted) -> str:
    """Return what `outs[-1]` is. Raises: Refused, for another subscript."""
    part = read.slice[0].slice
    if len(read.slice) != 1 or not isinstance(part, cst.Index) or integer(part.value) != -1:
        raise Refused
    if lifted.turns is None or lifted.valid or lifted.repeats or not lifted.is_tensor:
        raise Refused
    lifted = lifted.first() if lifted.is_kept else lifted
    return f"{bracketed(lifted.code)}[{':, ' * (lifted.turns or 0)}-1]"


def kind_and_dimension(function: str, join: cst.Call) -> tuple[str, int]:
    """Return whether a list of tensors is stacked (`stack`) or concatenated (`cat`), and where."""
    kind = {"torch.stack": "stack", "torch.cat": "cat", "torch.concat": "cat"}.get(function)
    if kind is None or len(join.args) > 2:
        raise Refused
    if len(join.args) < 2:
        return kind, 0
    keyword = join.args[1].keyword
    if keyword is not None and keyword.value != "dim":
        raise Refused
    return kind, integer(join.args[1].value)


def joined(function: str, join: cst.Call, lifted: Lifted, dtype: str = "") -> str:
    """Return what joins the turns as `torch.stack`, `torch.cat` or `sum` did."""
    if lifted.valid and kind_and_dimension(function, join) == ("cat", 0):
        return f"{lifted.code}[{lifted.valid}]"
    if lifted.repeats and kind_and_dimension(function, join) == ("cat", 0):
        return f"torch.repeat_interleave({lifted.code}, {lifted.repeats}, dim=0)"
    if lifted.turns is None or not (lifted.is_new or lifted.has_windows) or not lifted.is_tensor:
        raise Refused
    if function == "sum" and len(join.args) == 1 and dtype.startswith(("float", "bfloat")):
        first = lifted.first()
        return f"{bracketed(first.code)}.sum(0)"
    kind, dim = kind_and_dimension(function, join)
    if dim < 0:
        dim += lifted.rank + (kind == "stack")
    if kind == "cat" and lifted.is_kept and lifted.turns == dim:
        return lifted.code
    code = moved(lifted, dim)
    code = f"{bracketed(code)}.flatten({dim}, {dim + 1})" if kind == "cat" else code
    return code if lifted.is_new else f"{bracketed(code)}.clone()"


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
        if isinstance(target, cst.Name) and grown_by(node) is not None:
            return {target.value}
        if isinstance(target, cst.Name):
            terms = terms_of(node.value)
            first = terms[0][1]
            rest = [one for _, one in terms[1:]]
            is_same = isinstance(first, cst.Name) and first.value == target.value
            if is_same and rest and not any(target.value in names_in(one) for one in rest):
                return {target.value}
    return set()


def grown_by(node: cst.Assign) -> cst.BaseExpression | None:
    """Return what `x = torch.cat([x, more])` puts behind a tensor."""
    call, target = node.value, node.targets[0].target
    if not isinstance(call, cst.Call) or not isinstance(target, cst.Name) or not call.args:
        return None
    listed = call.args[0].value
    if not isinstance(listed, cst.List | cst.Tuple) or len(listed.elements) != 2:
        return None
    first, more = (one.value for one in listed.elements)
    is_cat = cst.Module([]).code_for_node(call.func) in ("torch.cat", "torch.concat")
    is_same = isinstance(first, cst.Name) and first.value == target.value
    return more if is_cat and is_same and target.value not in names_in(more) else None


def terms_of(node: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]]:
    """Return the terms of a sum with their signs, also of one in brackets."""
    return terms_within(node.with_changes(lpar=(), rpar=()))


def terms_within(node: cst.BaseExpression) -> list[tuple[str, cst.BaseExpression]]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        sign = "+" if isinstance(node.operator, cst.Add) else "-"
        if not node.lpar:
            return [*terms_within(node.left), (sign, node.right)]
    return [("+", node)]


def bound_by(node: cst.BaseSmallStatement) -> set[str]:
    """Return the names that an assignment binds, but for sums."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return set()
    target = node.targets[0].target
    return set() if isinstance(target, cst.Subscript) or results_of(node) else roots(target)


def root_of(code: str) -> str:
    """Return the local that a chain of subscripts and attributes begins with."""
    return next(iter(roots(cst.parse_expression(code))), "")


def is_edge(node: cst.BaseExpression) -> bool:
    """Return whether an expression is the end of a window that another end cuts."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value in ("max", "min")
        and len(node.args) == 2
    )


def rows_of(code: str) -> str:
    """Return the local that code takes rows of, perhaps with their positions in another order;
    "" for other code."""
    node = cst.parse_expression(code)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value if node.func.attr.value == "gather" else node
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def is_write(node: cst.BaseSmallStatement) -> bool:
    """Return whether a statement writes into a tensor."""
    return (
        isinstance(node, cst.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0].target, cst.Subscript)
    )


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


def bound_value(node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return what a line assigns."""
    line = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return line.value if isinstance(line, cst.Assign) and len(node.body) == 1 else None  # type: ignore[attr-defined]


def binds(node: cst.CSTNode, name: str) -> bool:
    """Return whether a line is an assignment to a name alone."""
    return bound_value(node) is not None and all(
        isinstance(one.target, cst.Name) and one.target.value == name
        for one in within(node)
        if isinstance(one, cst.AssignTarget)
    )


def is_empty_list(node: cst.CSTNode, names: set[str]) -> bool:
    """Return whether a line is `outs = []`, or `outs, sums = [], []`."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return False
    assign = node.body[0]
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    target, value = assign.targets[0].target, assign.value
    targets: list[cst.CSTNode] = [target]
    values: list[cst.CSTNode] = [value]
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        targets = [one.value for one in target.elements]
        values = [one.value for one in value.elements]
    are_empty = all(isinstance(one, cst.List) and not one.elements for one in values)
    return are_empty and all(isinstance(o, cst.Name) and o.value in names for o in targets)
