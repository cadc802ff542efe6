"""Write what turns put into tensors, for all turns at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots
from cudal1_ci.propose.recorded.joins import moved
from cudal1_ci.propose.recorded.lift import Lift
from cudal1_ci.propose.recorded.lift_windows import window_of
from cudal1_ci.propose.recorded.lifted import (
    INDEX_DTYPES,
    Lifted,
    Refused,
    integer,
    is_basic,
    is_number,
    is_whole,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.propose.recorded.spans import any_class, host_number, wide_mask


@dataclass
class Writes:
    """Lines that write into tensors, in the place of the writes of a loop's turns."""

    loop: Loop
    lift: Lift
    locals: set[str] = field(default_factory=set)
    """Names that each turn binds."""
    pending: list[str] = field(default_factory=list)
    """Code that is evaluated after the loop's lines."""
    has_effect: bool = False
    """Whether turns write into tensors that are no locals of theirs."""

    @property
    def lines(self) -> list[str]:
        """Return what is written in the place of the loop."""
        assert self.lift.lines is not None
        return self.lift.lines

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
                known.located,
                known.picked if views_too else "",
                *(part.code for part in known.ragged or ()),
            ]
            if any(code and name in names_in(cst.parse_expression(code)) for code in codes):
                raise Refused
        if any(name in names_in(cst.parse_expression(one)) for one in self.pending):
            raise Refused

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


def root_of(code: str) -> str:
    """Return the local that a chain of subscripts and attributes begins with."""
    return next(iter(roots(cst.parse_expression(code))), "")


def rows_of(code: str) -> str:
    """Return the local that code takes rows of, perhaps with their positions in another order;
    "" for other code."""
    node = cst.parse_expression(code)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value if node.func.attr.value == "gather" else node
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""
