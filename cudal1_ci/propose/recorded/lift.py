"""Write an expression of a loop's body for all turns at once.

Turns become a dimension: `x[:, t]` is `x` with the turns at dimension 1, `self.proj(x[:, t])` is
`self.proj(x)`, `tags[t - 1]` is `tags[:-1]`. What is not known to allow that raises Refused.
"""

from __future__ import annotations

import ast
import math
import string
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots
from cudal1_ci.propose.recorded.bounds import Bounds, split
from cudal1_ci.propose.recorded.graph import Operation, values_in
from cudal1_ci.propose.recorded.lifted import (
    ALIASING,
    BINARY,
    COPIES,
    IMAGES,
    INDEX_DTYPES,
    KEEPS_RANK,
    LIKE,
    MATRICES,
    OVER_DIM,
    PAIRS,
    ROWWISE,
    SCATTERS,
    SPECTRA,
    UNARY,
    WHOLE,
    Lifted,
    Refused,
    Swap,
    aligned,
    integer,
    is_basic,
    is_ellipsis,
    is_impure,
    is_none,
    is_number,
    is_pair_operation,
    is_whole,
    one_more,
    pair_parts,
    shifted,
    size_of,
    within,
)
from cudal1_ci.propose.recorded.source import STRINGS, File, Source, bracketed, calls_functional
from cudal1_ci.propose.recorded.spans import (
    FLOATS,
    REDUCED,
    any_class,
    by_class,
    flipped,
    host_number,
    masked,
    reduced,
    rolled,
    softmax_by_class,
    spread_to_rows,
)
from cudal1_ci.propose.recorded.windows import (
    Locals,
    Moving,
    Starts,
    clipped,
    cut_lengths,
    fits,
    last_end,
    moving,
    reduced_windows,
    terms_of,
    unfolded,
    width,
)

MOST_COMPARED = 2**24
"""Pairs of elements that are compared at once."""
ROLLING = frozenset(("sum", "mean", "amax", "amin"))
"""Reductions of windows that the ends of a tensor cut."""


@dataclass
class Lift:
    """Write expressions of one loop for all its turns."""

    file: File
    source: Source
    operations: dict[cst.CSTNode, list[Operation]]
    """By the expression."""
    changing: set[str]
    """Names that the loop binds or whose tensors it changes."""
    bounds: Bounds | None
    """Of an index that counts."""
    known: dict[str, Lifted] = field(default_factory=dict)
    """What names of the loop are for all turns."""
    lines: list[str] | None = None
    """What is to be assigned before the expressions."""
    taken: set[str] = field(default_factory=set)
    """Names of the function."""
    dtypes: dict[str, str] = field(default_factory=dict)
    """Of tensors that names of the loop hold."""
    writes: bool = False
    """Whether turns write into tensors of their own."""
    helper: Callable[[Lift, cst.Call], Lifted] | None = None
    """What writes a call of a function of the checkout for all turns."""
    stacked: Callable[[Lift, cst.Call], Lifted | None] | None = None
    """What writes a call of each turn's own module for all turns."""
    folded: Callable[[Lift, cst.Call, cst.BaseExpression], Lifted] | None = None
    """What writes a call of a layer on each turn's batch for all turns."""
    loss: Callable[[Lift, cst.Call, str, Sequence[cst.BaseExpression]], Lifted | None] | None = None
    """What writes a loss of a turn for all turns."""
    joined: Callable[[Lift, cst.Call, str], Lifted] | None = None
    """What writes a join of a turn's tensors for all turns."""
    distribution: Callable[[Lift, cst.Call], Lifted | None] | None = None
    """What makes the distributions of all turns as one, and calls their methods."""
    modules: dict[str, str] = field(default_factory=dict)
    """Code of the lists of which names of the loop are the modules."""
    turns: str = ""
    """Code of the number of turns, if tensors may have more rows."""
    functional: str = "torch.nn.functional"
    numbers: dict[str, Moving] = field(default_factory=dict)
    """Numbers of the host that names of the loop hold."""
    edges: dict[str, cst.BaseExpression] = field(default_factory=dict)
    """Ends of windows that names of the loop hold: `max(0, t - 4)`."""
    class_names: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Labels and the list of their classes, by the name that is a turn's class."""
    starts: Starts | None = None
    """Of a loop over a range with a step."""
    guards: list[str] | None = None
    """What must hold in each call, for lines that keep the old loop for other ones."""
    needs_turn: bool = False
    """Whether what is written raises, or gives another thing, if there is no turn."""
    known_locals: Callable[[], Locals] = dict
    """Returns what locals are that are bound before the loop."""

    def __post_init__(self) -> None:
        self.columns: dict[str, str] = {}
        """Code of the turns' numbers as a column, by the tensor that they are for."""
        self.ranks: dict[cst.CSTNode, tuple[int, str]] = {}
        graph = self.source.graph
        for node, found in self.operations.items():
            out = graph.of(found[0].output)
            if out is not None:
                self.ranks[node] = len(out.shape), out.dtype
            operands = self.source.operands(found[0])
            for operand, argument in zip(operands, found[0].recorded.args, strict=False):
                value = graph.of(argument.value)
                if operand is not None and value is not None:
                    self.ranks[operand] = len(value.shape), value.dtype

    def code(self, node: cst.CSTNode) -> str:
        return self.file.code(node)

    def varies(self, node: cst.CSTNode) -> bool:
        return bool(names_in(node) & self.changing)

    def rank(self, node: cst.CSTNode) -> int:
        return self.ranks[node][0] if node in self.ranks else 0

    def lift(self, node: cst.BaseExpression) -> Lifted:
        """Return an expression for all turns. Raises: Refused, with the innermost reason."""
        found = self.dense(self.lift_any(node))
        if not found.is_tensor:
            raise Refused(self.at(node, "is more than one tensor of one size in all passes"))
        return found

    def lift_any(self, node: cst.BaseExpression) -> Lifted:
        """Return an expression for all turns, or what is not one tensor for all of them."""
        try:
            return self.lifted(node)
        except Refused as refused:
            if refused.args:
                raise
            raise Refused(self.at(node, "cannot be computed for all passes at once")) from refused

    def at(self, node: cst.CSTNode, fact: str) -> str:
        """Return a fact about a part of the loop, with its line."""
        text = " ".join(self.code(node).split())
        text = text if len(text) <= 50 else f"{text[:47]}..."
        return f"`{text}` at line {self.line(node)} {fact}"

    def line(self, node: cst.CSTNode) -> int:
        """Return the line of an expression, also of one that is made of the file's."""
        known = next(one for one in within(node) if one in self.file.ranges)
        return self.file.ranges[known].start.line

    def lifted(self, node: cst.BaseExpression) -> Lifted:
        if not self.varies(node):
            self.check_pure(node)
            return Lifted(self.code(node), self.rank(node), None)
        part = self.part_of_pair(node)
        if part is not None:
            return part
        if isinstance(node, cst.Name):
            found = self.known.get(node.value)
            if found is None and node.value in self.numbers.keys() | self.edges.keys():
                raise Refused
            if found is None:
                line = self.line(node)
                raise Refused(f"line {line} carries `{node.value}` from one pass to the next")
            return found
        if isinstance(node, cst.Subscript):
            return self.subscript(node)
        classes = self.classes(node)
        if classes is not None:
            return classes
        read = host_number(node)
        if read is not None:
            number = self.lift(read)
            if number.rank or number.turns != 0 or self.dtype(read) not in INDEX_DTYPES:
                raise Refused
            return replace(number, is_host=True)
        if isinstance(node, cst.Call) and self.distribution is not None:
            law = self.distribution(self, node)
            if law is not None:
                return law
        if isinstance(node, cst.Call) and node not in self.operations and self.helper is not None:
            return self.helper(self, node)
        if isinstance(node, cst.IfExp):
            return self.chosen(node)
        operation = self.operation(node)
        if isinstance(node, cst.BinaryOperation | cst.Comparison | cst.UnaryOperation):
            return self.elementwise(node, self.children(node))
        if isinstance(node, cst.Call):
            return self.call(node, operation)
        if isinstance(node, cst.Attribute) and operation.name in ("mT", "T"):
            x = self.lift(node.value).first()
            if x.rank != 2:
                raise Refused
            return replace(x, code=f"{bracketed(x.code)}.mT", is_new=False)
        raise Refused

    def classes(self, node: cst.BaseExpression) -> Lifted | None:
        """Return what `classes == i` is, with the turn's number."""
        if not isinstance(node, cst.Comparison) or self.bounds is None or self.bounds.low:
            return None
        left, right = self.children(node)
        for one, other in ((left, right), (right, left)):
            name = one.value if isinstance(one, cst.Name) else ""
            if name in self.class_names and self.code(other) == self.class_names[name][0]:
                labels, listed = self.class_names[name]
                if self.operation(node).name != "eq" or self.rank(node) != 1:
                    return None
                if self.dtype(other) not in INDEX_DTYPES:
                    return None
                numbers = self.kept(f"torch.searchsorted({listed}, {labels})", "numbers")
                return Lifted("", 1, 0, classes=numbers)
            if isinstance(one, cst.Name) and one.value == self.bounds.index:
                is_fixed = not self.varies(other) and self.operation(node).name == "eq"
                if not is_fixed or self.rank(node) != 1 or self.dtype(other) not in INDEX_DTYPES:
                    return None
                self.check_pure(other)
                return Lifted("", 1, 0, classes=self.code(other))
        return None

    def dense(self, found: Lifted) -> Lifted:
        """Return the mask of each turn's class as a matrix; other values as they are."""
        if not found.classes or found.code or self.bounds is None:
            return found
        device = f"{bracketed(found.classes)}.device"
        numbers = f"{self.arange(0, device)}[:, None]"
        return Lifted(f"{bracketed(found.classes)} == {numbers}", 1, 0, is_computed=True)

    def check_pure(self, node: cst.BaseExpression) -> None:
        """Refuse what may not be moved."""
        for one in within(node):
            if isinstance(one, cst.NamedExpr | cst.Await | cst.Yield | cst.Lambda | cst.BaseComp):
                raise Refused
            if isinstance(one, cst.Call):
                if isinstance(one.func, cst.Name) and one.func.value == "len":
                    continue
                if self.code(one.func).startswith("math."):
                    continue
                if self.code(one.func) == "float" and isinstance(one.args[0].value, STRINGS):
                    continue
                made = self.operations.get(one, [])
                if not made or any(map(is_impure, made)):
                    raise Refused

    def operation(self, node: cst.BaseExpression) -> Operation:
        """Return the operation of an expression; they are equal in all turns. That the expression
        is a test as well is another matter."""
        found = [one for one in self.operations.get(node, []) if one.name != "bool"]
        ranks = {self.source.graph.num_dims(one.output) for one in found}
        if not found or len(ranks) != 1 or any(is_impure(one) for one in found):
            raise Refused
        return found[-1]

    def children(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        if isinstance(node, cst.BinaryOperation):
            return [node.left, node.right]
        if isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.Not):
            return [node.expression]
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return [node.left, node.comparisons[0].comparator]
        raise Refused

    def elementwise(
        self, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]
    ) -> Lifted:
        operation = self.operation(node)
        if operation.name == "matmul":
            return self.matmul(node, operands)
        is_pairwise = operation.name in ("max", "min") and operation.value(1, "other") is not None
        if operation.name not in BINARY | UNARY and not is_pairwise:
            raise Refused
        parts = [self.operand(one, operands) for one in operands]
        if any(one.classes for one in parts):
            return self.of_classes(node, operands, parts)
        valid = {one.valid for one in parts} - {""}
        if len(valid) > 1 or (valid and any(one.rank and not one.valid for one in parts)):
            raise Refused
        tensors = [one for one in operands if one in self.ranks and size_of(one) is None]
        dtypes = {self.ranks[one][1] for one in tensors}
        if len(dtypes) > 1 and any(p.turns is not None and p.rank == 0 for p in parts):
            raise Refused  # a tensor without dimensions promotes no other
        picked = self.picked_by(node, parts)
        new = self.rebuilt(node, operands, aligned(parts))
        return replace(new, valid="".join(valid), picked=picked)

    def of_classes(
        self, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression], parts: list[Lifted]
    ) -> Lifted:
        """Return an operation on the rows of each class, at the rows of all of them."""
        x = next(one for one in parts if one.classes)
        if {one.classes for one in parts} - {x.classes, ""} or self.bounds is None:
            raise Refused
        new, high = {}, self.bounds.high
        for operand, part in zip(operands, parts, strict=True):
            if part.classes and not part.is_computed:
                safe = f"torch.where({any_class(x, high, self.kept)}, {part.code}, 1)"
                part = replace(part, code=self.kept(safe, "rows"))
            elif part.turns is not None and not part.classes:
                if part.turns or part.is_kept or part.rank != x.rank - 1:
                    raise Refused
                part = spread_to_rows(part, x, high, self.kept)
            if part.rank != (x.rank if part.classes else 0):
                raise Refused
            new[operand] = part.code
        dtypes = {self.dtype(one) for one in operands if one in self.ranks}
        if self.rank(node) != x.rank or len(dtypes) > 1:
            raise Refused
        return replace(x, code=self.swapped(node, new), is_computed=True)

    def picked_by(self, node: cst.BaseExpression, parts: Sequence[Lifted]) -> str:
        """Return the positions on whose elements alone an operation's elements depend."""
        given = values_in(self.operation(node).recorded)
        read = [one for one in given if self.source.graph.num_dims(one) > 0]
        picked = [one.picked for one in parts if one.rank]
        return picked[0] if len(read) == len(picked) and len({*picked}) == 1 else ""

    def operand(self, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]) -> Lifted:
        """Return an operand for all turns; the turn's number as a tensor, next to one whose dtype
        that does not change."""
        offset = None if self.bounds is None else self.bounds.offset(node)
        others = [one for one in operands if one is not node]
        if offset is None or len(others) != 1 or self.bounds is None:
            count = self.cut_count(node, others[0]) if len(others) == 1 else None
            if count is not None and self.is_float(others[0]):
                return Lifted(count, 0, 0, is_computed=True)
            found = self.lift_any(node)
            if found.is_host and len(others) == 1 and self.is_float(others[0]):
                code = f"{bracketed(found.code)}.to({self.near(others[0])}.device)"
                return replace(found, code=code, is_host=False)
            return found if found.valid or (found.classes and found.code) else self.lift(node)
        if not self.is_float(others[0]) and self.dtype(others[0]) != "int64":
            raise Refused
        device = bracketed(self.lift(others[0]).code)
        return Lifted(self.arange(offset, f"{device}.device"), 0, 0, is_computed=True)

    def near(self, node: cst.BaseExpression) -> str:
        """Return code of a tensor on the device of an expression's value."""
        names = [one for one in within(node) if isinstance(one, cst.Name)]
        cut = (self.edges[one.value] for one in names if one.value in self.edges)
        read = (
            *(one.value for one in cut if isinstance(one, cst.Subscript)),
            *(one for one in names if one in self.ranks),
        )
        fixed = next((one for one in read if not self.varies(one)), None)
        return self.code(fixed) if fixed is not None else bracketed(self.lift(node).code)

    def is_float(self, node: cst.BaseExpression) -> bool:
        return self.dtype(node).startswith(FLOATS)

    def matmul(self, node: cst.BaseExpression, operands: Sequence[cst.BaseExpression]) -> Lifted:
        parts = [self.lift(one) for one in operands]
        if any(one.rank < 2 for one in parts):
            raise Refused
        parts = aligned([one.first() for one in parts])
        if isinstance(node, cst.Call) and self.code(node.func).rpartition(".")[2] in ("mm", "bmm"):
            found = self.rebuilt(node, operands, parts)  # which take no more dimensions
            code = " @ ".join(bracketed(one.code) for one in parts)
            return replace(found, code=code)
        return self.rebuilt(node, operands, parts)

    def of_matrices(self, node: cst.Call, operands: Sequence[cst.BaseExpression]) -> Lifted:
        """Return an operation that takes matrices, for those of all turns."""
        listed = [one for one in operands if one in self.ranks or self.varies(one)]
        parts = [self.lift(one).first() for one in listed]
        if not listed or any(one.rank != 2 for one in parts):
            raise Refused
        new = {one: part.code for one, part in zip(listed, parts, strict=True)}
        for one in operands:
            if one not in new:
                self.check_pure(one)
        return Lifted(self.swapped(node, new), self.rank(node), 0, is_computed=True)

    def rebuilt(
        self, node: cst.CSTNode, old: Sequence[cst.BaseExpression], new: Sequence[Lifted]
    ) -> Lifted:
        """Return an expression with other operands."""
        code = self.swapped(node, dict(zip(old, (one.code for one in new), strict=True)))
        turning = [one for one in new if one.turns is not None]
        rank = self.rank(node)
        if not turning or rank != max(one.rank for one in new):
            raise Refused
        return Lifted(code, rank, turning[0].turns, turning[0].is_kept, is_computed=True)

    def swapped(self, node: cst.CSTNode, new: dict[cst.BaseExpression, str]) -> str:
        by_node: dict[cst.CSTNode, str] = dict(new.items())
        return self.code(node.visit(Swap(by_node)))  # type: ignore[arg-type]

    def chosen(self, node: cst.IfExp) -> Lifted:
        """Return one of two values, as a test of each turn's number says."""
        ending = self.at_end(node)
        if ending is not None:
            return ending
        test, *values = (self.lift(one).first() for one in (node.test, node.body, node.orelse))
        dtypes = {self.dtype(one) for one in (node.body, node.orelse)}
        ranks = {one.rank for one in values}
        if test.rank or test.turns is None or len(dtypes) != 1 or len(ranks) != 1:
            raise Refused
        if self.dtype(node.test) != "bool" or not dtypes <= {"float32", "float64"}:
            raise Refused
        rank = ranks.pop()
        wide = f"{bracketed(test.code)}[{', '.join([':', *['None'] * rank])}]"
        self.ranks[node] = rank, dtypes.pop()
        listed = ", ".join([wide if rank else test.code, *(one.code for one in values)])
        return Lifted(f"torch.where({listed})", rank, 0, is_computed=True)

    def at_end(self, node: cst.IfExp) -> Lifted | None:
        """Return a value that the first or the last turn takes from elsewhere: `last_value if
        t == steps - 1 else values[t + 1]`. None for another test."""
        bounds, test = self.bounds, node.test
        if bounds is None or not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return None
        end = self.code(test.comparisons[0].comparator)
        if self.code(test.left) != bounds.index or end not in (bounds.last, str(bounds.low)):
            return None
        operator = test.comparisons[0].operator
        is_last = end == bounds.last
        own, others = node.body, node.orelse
        if isinstance(operator, cst.NotEqual | (cst.LessThan if is_last else cst.GreaterThan)):
            own, others = others, own
        elif not isinstance(operator, cst.Equal):
            return None
        if self.varies(own) or names_in(others) & self.known.keys():
            raise Refused
        self.check_pure(own)
        low, high = bounds.low + (not is_last), bounds.last if is_last else bounds.high
        self.bounds = replace(bounds, low=low, high=high)
        try:
            rest = self.lift(others).first()
        finally:
            self.bounds = bounds
        known = self.rank_of(own, others)
        if rest.turns is None or known != (self.rank(others), self.dtype(others)):
            raise Refused
        self.ranks[node] = known
        parts = [rest.code, f"{bracketed(self.code(own))}[None]"]
        code = f"torch.cat([{', '.join(parts if is_last else parts[::-1])}])"
        return Lifted(code, known[0], 0, is_computed=True)

    def rank_of(self, node: cst.BaseExpression, near: cst.BaseExpression) -> tuple[int, str]:
        """Return dimensions and dtype of an expression, or of a local where another one is."""
        if isinstance(node, cst.Name) and node not in self.ranks:
            for one in self.operations.get(near, []):
                held = self.source.scope(one).get(node.value)
                value = None if held is None else self.source.graph.of(held.value)
                if value is not None:
                    return len(value.shape), value.dtype
        return self.ranks.get(node, (0, ""))

    # --- values with positions, and numbers ---

    def part_of_pair(self, node: cst.BaseExpression) -> Lifted | None:
        """Return the values or the positions of `torch.sort(x)[0]`, `torch.topk(x, k).indices`."""
        index: int | None = None
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            with suppress(Refused, cst.ParserSyntaxError):
                part = node.slice[0].slice
                index = integer(part.value) if isinstance(part, cst.Index) else None
        elif isinstance(node, cst.Attribute):
            index = {"values": 0, "indices": 1}.get(node.attr.value)
        if index is None or not isinstance(node, cst.Subscript | cst.Attribute):
            return None
        base, made = node.value, self.operations.get(node.value, [])
        is_pair = isinstance(base, cst.Name) and base.value in self.known
        is_pair = is_pair and bool(self.known[base.value].pair)  # type: ignore[attr-defined]
        if not is_pair and not (made and is_pair_operation(made[0])):
            return None
        if index == 0 and made and made[0].name in ("max", "min") and isinstance(base, cst.Call):
            over = self.source.operands(made[0])[0]
            name = f"a{made[0].name}"
            if over is not None and self.varies(over):
                x, dtype = self.lift_any(over), self.dtype(over)
                if x.valid:
                    return reduced(base, made, x, name, dtype, self.kept)
                if x.classes and x.code and self.is_float(over) and self.bounds is not None:
                    return by_class(base, made, x, name, self.bounds.high, self.kept)
        pair = self.lift_any(base)
        if not pair.pair or index not in (0, 1):
            raise Refused
        return pair_parts(pair)[index]

    def pair(self, node: cst.Call, name: str, operands: list[cst.BaseExpression]) -> Lifted:
        """Return a call that returns values and positions."""
        x = self.lift(operands[0]).first()
        given = operands[1:]
        new = {operands[0]: x.code}
        at = PAIRS[name] - 1
        dims = dims_of(node) or given[at : at + 1]
        for one in dims:
            new[one] = shifted(one)
        for one in [*given[:at], *given[at + 1 :]]:
            new[one] = self.number(one)
        if x.turns is None or x.rank < 1 or (x.rank > 1 and not dims):
            raise Refused
        rank = self.rank(node)
        return Lifted(self.swapped(node, new), rank, 0, is_computed=True, pair=name)

    def number(self, node: cst.BaseExpression) -> str:
        """Return code of a number of the host that is the same in all turns."""
        new: dict[cst.BaseExpression, str] = {}
        for one in within(node):
            if isinstance(one, cst.Call | cst.Subscript):
                read = size_of(one)
                if read is not None:
                    new[one] = self.size(*read)
        bare = node.visit(Swap(dict(new.items())))
        if not isinstance(bare, cst.BaseExpression) or self.varies(bare):
            raise Refused
        for one in within(node):
            if isinstance(one, cst.NamedExpr | cst.Await | cst.Yield | cst.Lambda | cst.BaseComp):
                raise Refused
            is_plain = isinstance(one, cst.Call) and self.code(one.func) in ("min", "max", "int")
            if isinstance(one, cst.Call) and one not in new and not is_plain:
                made = self.operations.get(one, [])
                if not made or any(map(is_impure, made)):
                    raise Refused
        return self.code(bare)

    def size(self, name: str, dim: int) -> str:
        """Return code of the size of a local's dimension in every turn."""
        if name not in self.changing:
            return f"{name}.size({dim})"
        known = self.known.get(name)
        if known is None or not known.is_tensor or known.turns is None:
            raise Refused
        x = known.first()
        return f"{bracketed(x.code)}.size({dim + 1 if dim >= 0 else dim})"

    # --- calls ------------------------------------------------------------------------------------

    def call(self, node: cst.Call, operation: Operation) -> Lifted:
        own = None if self.stacked is None else self.stacked(self, node)
        if own is not None:
            return own
        operands = self.source.operands(operation)
        plain = [one.value for one in node.args if one.keyword is None and not one.star]
        named = [one.value for one in node.args if one.keyword is not None]
        if operation.name == "gather":
            named = [o.value for o in node.args if o.keyword and o.keyword.value != "index"]
        if any(one.star for one in node.args) or any(self.varies(one) for one in named):
            raise Refused
        for one in named:
            self.check_pure(one)
        names = {one.name for one in self.operations[node]}
        is_torch = self.is_torch(node)
        if not is_torch:  # a submodule
            if len(plain) != 1 or self.folded is None or self.varies(node.func):
                raise Refused
            whole = self.source.graph.in_one_call
            parts = {o.name for one in self.operations[node] for o in whole(one)}
            if parts == {"embedding"}:
                return self.looked_up(node, operation, plain[0])
            if not parts <= ROWWISE | UNARY - ALIASING | {"dim"}:
                return self.folded(self, node, plain[0])
            x = self.rows(self.lift(plain[0]))
            code = self.swapped(node, {plain[0]: x.code})
            return Lifted(code, x.rank, x.turns, is_computed=True)
        if len(names) != 1 or not operands:
            if names == {"einsum"}:
                return self.einsum(node, plain)
            raise Refused
        real = [one for one in operands if one is not None]
        name = operation.name
        is_whole_max = name in ("max", "min") and len(node.args) + self.is_method(node) == 1
        name = WHOLE[name] if is_whole_max else name
        if name == "softmax" and self.varies(real[0]) and self.bounds is not None:
            x = self.lift_any(real[0])
            if x.classes and x.code and self.is_float(real[0]):
                made = self.operations[node]
                return softmax_by_class(node, made, x, self.bounds.high, self.kept)
        window = self.edges.get(real[0].value) if isinstance(real[0], cst.Name) else real[0]
        if name in ROLLING and isinstance(window, cst.Subscript):
            rolling = self.rolling(node, name, window)
            if rolling is not None:
                return rolling
        if name in REDUCED and self.varies(real[0]):
            x, made, dtype = self.lift_any(real[0]), self.operations[node], self.dtype(real[0])
            if x.valid:
                return reduced(node, made, x, name, dtype, self.kept)
            if x.classes and x.code and self.is_float(real[0]) and self.bounds is not None:
                return by_class(node, made, x, name, self.bounds.high, self.kept)
        name = operation.name
        if name == "flip" and self.varies(real[0]):
            x, dims = self.lift_any(real[0]), [self.code(one) for one in (*real[1:], *named)]
            if x.valid and [one.strip("[(,)]") for one in dims] == ["0"]:
                return flipped(x, self.kept)
        if name == "einsum":
            return self.einsum(node, plain)
        if name == "isin" and len(real) == len(node.args) == 2:
            return self.found_in(node, *real)
        own = None if self.loss is None else self.loss(self, node, name, real)
        if own is not None:
            return own
        if name == "matmul":
            return self.matmul(node, real)
        if name in MATRICES:
            return self.of_matrices(node, real)
        if name in ("cat", "concat", "stack") and self.joined is not None:
            return self.joined(self, node, name)
        if name == "embedding" and not any(self.varies(one) for one in real[1:]):
            for one in real[1:]:
                self.check_pure(one)
            return self.looked_up(node, operation, real[0])
        if name in SPECTRA and any(integer(one) != -1 for one in dims_of(node)):
            raise Refused
        if name in ROWWISE | SPECTRA or name in IMAGES:
            if any(self.varies(one) for one in real[1:]):
                raise Refused
            for one in real[1:]:
                self.check_pure(one)
            if name in IMAGES and self.folded is not None:
                return self.folded(self, node, real[0])
            x = self.rows(self.lift(real[0]))
            return Lifted(self.swapped(node, {real[0]: x.code}), x.rank, x.turns, is_computed=True)
        if name in UNARY | LIKE and not any(self.varies(one) for one in real[1:]):
            return self.unary(node, name, real)
        if name in BINARY or (name in ("max", "min") and operation.value(1, "other") is not None):
            return self.elementwise(node, real)
        if is_pair_operation(operation):
            return self.pair(node, name, real)
        return self.with_dims(node, name, real)

    def found_in(
        self, node: cst.Call, one: cst.BaseExpression, others: cst.BaseExpression
    ) -> Lifted:
        """Return whether each turn's elements are among its others."""
        x, y = self.lift(one).first(), self.lift(others).first()
        sizes = [self.source.graph.of(made.output) for made in self.operations[node]]
        if y.turns is None:
            return replace(x, code=self.swapped(node, {one: x.code}), is_new=True, is_computed=True)
        given = [self.source.graph.of(made.value(1)) for made in self.operations[node]]
        compared = sum(
            math.prod((*a.shape, *b.shape))
            for a, b in zip(sizes, given, strict=True)
            if a is not None and b is not None
        )
        if x.rank != 1 or y.rank != 1 or compared > MOST_COMPARED:
            raise Refused
        code = f"({bracketed(x.code)}[..., None] == {bracketed(y.code)}[:, None]).any(-1)"
        return Lifted(code, 1, 0, is_computed=True)

    def looked_up(self, node: cst.Call, operation: Operation, index: cst.BaseExpression) -> Lifted:
        """Return rows of a table that is the same in all turns."""
        norm, frequency = (
            operation.argument(at, name)
            for at, name in ((3, "max_norm"), (5, "scale_grad_by_freq"))
        )
        if (norm is not None and norm.text != "None") or (frequency and frequency.text != "False"):
            raise Refused("a turn changes the table, or counts what it reads")
        x = self.lift(index)
        x = x.first() if x.is_kept else x
        code = self.swapped(node, {index: x.code})
        return Lifted(code, x.rank + 1, x.turns, is_computed=True)

    def is_torch(self, node: cst.Call) -> bool:
        """Return whether a function of torch or a method of a tensor is called."""
        function = node.func
        if not isinstance(function, cst.Attribute):
            return False
        root = self.code(function.value)
        if root in (
            "torch",
            "F",
            "torch.fft",
            "torch.linalg",
            "torch.nn.functional",
            "nn.functional",
        ):
            return True
        return function.value in self.ranks

    def rows(self, x: Lifted) -> Lifted:
        """Return a value whose last dimension is not the turns."""
        if x.rank < 1:
            raise Refused
        return x.first() if x.is_kept or x.turns == x.rank else x

    def unary(self, node: cst.Call, name: str, operands: list[cst.BaseExpression]) -> Lifted:
        for one in operands[1:]:
            self.check_pure(one)
        x = self.dense(self.lift_any(operands[0]))
        if not x.valid and not x.is_tensor and not (x.classes and x.code):
            raise Refused
        if name == "clone" and x.is_new and not self.writes:
            return x
        code = self.swapped(node, {operands[0]: x.code})
        is_new = x.is_new if name in COPIES - {"clone"} or name in ALIASING else True
        is_computed = x.is_computed or name not in COPIES
        picked = self.picked_by(node, [x])
        return replace(x, code=code, is_new=is_new, is_computed=is_computed, picked=picked)

    def with_dims(self, node: cst.Call, name: str, operands: list[cst.BaseExpression]) -> Lifted:
        """Return a call whose dimensions are counted from the turns."""
        x = self.lift(operands[0])
        rank, given = self.rank(node), operands[1:]
        if calls_functional(self.file, node):  # F.softmax(x, -1) is recorded with a name
            given = [one.value for one in node.args if one.keyword is None][1:]
            if any(self.varies(one) for one in given):
                raise Refused
        for argument in node.args:
            if argument.keyword is not None and argument.keyword.value == "dim":
                given = [argument.value]
            if argument.keyword is not None and argument.keyword.value == "index":
                given = [*given, argument.value]
        if name == "unsqueeze" and len(given) == 1:
            dim = integer(given[0])
            dim = dim + rank if dim < 0 else dim
            if x.turns == dim and not x.is_kept:
                return replace(x, rank=rank, is_kept=True)
        windows = x.code if x.has_windows and x.turns == 1 else ""
        x = x.first()
        if name in ("view", "reshape"):
            return self.reshaped(node, x, operands, windows)
        if name == "roll" and len(operands) in (2, 3) and self.varies(operands[1]):
            named = [one for one in node.args if one.keyword is not None]
            dims = [*operands[2:], *(one.value for one in named)]
            shift = self.lift_any(operands[1])
            is_plain = len(dims) == 1 and x.turns is not None and x.rank > 0
            if not is_plain or not shift.is_host:
                raise Refused
            return rolled(x, shift, integer(dims[0]), self.kept)
        is_copied = name in ("repeat", "expand") and len(given) == rank and self.varies(given[0])
        if is_copied and x.turns == 0 and x.rank + 1 == rank:
            rest = "1" if name == "repeat" else "-1"
            count = self.lift_any(given[0])
            if not count.is_host or any(self.code(one) != rest for one in given[1:]):
                raise Refused
            return Lifted(x.code, rank, 0, repeats=count.code)
        if name == "repeat" and x.turns is not None and len(given) == x.rank == rank:
            sizes = ", ".join(["1", *map(self.number, given)])
            return Lifted(f"{bracketed(x.code)}.repeat({sizes})", rank, 0, is_computed=True)
        if name in ("flatten", "permute") and x.turns is not None and x.rank > 0:
            return self.arranged(node, name, x, operands[0])
        if name == "t" and x.rank == 2:
            return replace(x, code=f"{bracketed(x.code)}.mT", is_new=False)
        if name in WHOLE and rank == 0 and len(node.args) == (not self.is_method(node)):
            return self.reduced(name, x)
        return self.over_dims(node, name, x, operands[0], given)

    def arranged(
        self, node: cst.Call, name: str, x: Lifted, receiver: cst.BaseExpression
    ) -> Lifted:
        """Return a call that joins dimensions of each turn or puts them in another order."""
        named = {one.keyword.value: one.value for one in node.args if one.keyword is not None}
        plain = [
            one.value for one in node.args if one.keyword is None and one.value is not receiver
        ]
        if name == "flatten":
            ends = dict(zip(("start_dim", "end_dim"), plain, strict=False)) | named
            if len(plain) > 2 or ends.keys() - {"start_dim", "end_dim"}:
                raise Refused
            start, end = ends.get("start_dim"), ends.get("end_dim")
            listed = "1" if start is None else shifted(start)
            listed += "" if end is None else f", {shifted(end)}"
        else:
            if len(plain) == 1 and isinstance(plain[0], cst.Tuple | cst.List):
                plain = [one.value for one in plain[0].elements]
            if named or len(plain) != x.rank:
                raise Refused
            listed = ", ".join(["0", *map(shifted, plain)])
        code = f"{bracketed(x.code)}.{name}({listed})"
        return replace(x, code=code, rank=self.rank(node), is_new=False)

    def over_dims(
        self,
        node: cst.Call,
        name: str,
        x: Lifted,
        receiver: cst.BaseExpression,
        given: list[cst.BaseExpression],
    ) -> Lifted:
        """Return a call that names dimensions and does no more than shift them."""
        rank, new = self.rank(node), {receiver: x.code}
        is_view = name in ("unsqueeze", "squeeze", "transpose")
        if not is_view and name != "gather" and name not in OVER_DIM | SCATTERS:
            raise Refused
        dims = given[:2] if name == "transpose" else given[:1]
        if name == "normalize" and not dims_of(node):
            raise Refused
        if not dims and not (name == "argsort" and x.rank == 1):
            raise Refused
        for one in dims:
            new[one] = shifted(one)
        if name in SCATTERS | {"gather"}:
            if len(given) != 2 + (name in SCATTERS):
                raise Refused
            for one in given[1:]:
                part = self.lift(one).first()
                if part.turns is None and (name == "gather" or one in self.ranks):
                    raise Refused
                new[one] = part.code
        if x.turns is None or (name in KEEPS_RANK and rank != x.rank):
            raise Refused
        return Lifted(
            self.swapped(node, new),
            rank,
            0,
            is_new=x.is_new or not is_view,
            is_computed=x.is_computed or not is_view,
            distinct="all" if name == "argsort" and rank == 1 else "",
        )

    def is_method(self, node: cst.Call) -> bool:
        return isinstance(node.func, cst.Attribute) and node.func.value in self.ranks

    def reduced(self, name: str, x: Lifted) -> Lifted:
        """Return a reduction of all elements of each turn."""
        if x.turns is None or x.rank < 1:
            raise Refused
        flat = f"{bracketed(x.code)}.flatten(1)" if x.rank > 1 else bracketed(x.code)
        return Lifted(f"{flat}.{WHOLE[name]}(dim=1)", 0, 0, is_computed=True)

    def reshaped(
        self, node: cst.Call, x: Lifted, operands: Sequence[cst.BaseExpression], windows: str = ""
    ) -> Lifted:
        function = node.func
        sizes = operands[1:]
        is_method = isinstance(function, cst.Attribute) and function.value is operands[0]
        if not is_method or self.bounds is None or not sizes or len(sizes) != self.rank(node):
            raise Refused
        if x.rank < 1 or x.turns is None:
            raise Refused
        for one in sizes:
            if self.varies(one) or isinstance(one, cst.Tuple):
                raise Refused
            self.check_pure(one)
        spelled = [self.code(one) for one in sizes]
        if spelled == ["-1"]:
            flat = f"{bracketed(x.code)}.flatten(1)" if x.rank > 1 else x.code
            return replace(x, code=flat, rank=1, is_new=False)
        if x.rank == 1 and sorted(spelled) == ["-1", *["1"] * (len(spelled) - 1)]:
            listed = ", ".join([":", *(":" if one == "-1" else "None" for one in spelled)])
            return replace(
                x, code=f"{bracketed(x.code)}[{listed}]", rank=len(spelled), is_new=False
            )
        if "-1" in spelled and split(self.bounds.count)[1] < 0:
            raise Refused
        if "-1" in spelled or self.bounds.may_be_negative():
            self.need_turn()
        of, _, kept = windows.partition(".unfold(1, ")
        if kept and spelled[0] in (f"{of}.size(0)", f"{of}.shape[0]"):  # the rows stay first
            listed = ", ".join([spelled[0], self.bounds.count, *spelled[1:]])
            code = f"{windows}.reshape({listed})"
            return replace(x, code=code, rank=self.rank(node), turns=1, is_new=False)
        listed = ", ".join([self.bounds.count, *spelled])
        code = f"{bracketed(x.code)}.reshape({listed})"
        return replace(x, code=code, rank=self.rank(node), is_new=False)

    def einsum(self, node: cst.Call, plain: Sequence[cst.BaseExpression]) -> Lifted:
        """Return an einsum with a letter for the turns."""
        if not plain or not isinstance(plain[0], cst.SimpleString):
            raise Refused
        equation = str(plain[0].evaluated_value).replace(" ", "")
        reads, arrow, result = equation.partition("->")
        if not arrow or "." in equation:
            raise Refused
        letter = next(one for one in "t" + string.ascii_letters if one not in equation)
        new, spelled = {}, []
        for one, letters in zip(plain[1:], reads.split(","), strict=True):
            x = self.lift(one)
            if x.turns is not None:
                x = x.first() if x.is_kept else x
                letters = f"{letters[: x.turns]}{letter}{letters[x.turns :]}"
            new[one] = x.code
            spelled.append(letters)
        new[plain[0]] = f'"{",".join(spelled)}->{letter}{result}"'
        return Lifted(self.swapped(node, new), self.rank(node), 0, is_computed=True)

    # --- subscripts -------------------------------------------------------------------------------

    def subscript(self, node: cst.Subscript) -> Lifted:
        self.operation(node)  # of a tensor
        base = node.value
        parts = [one.slice for one in node.slice]
        if self.varies(base):
            if len(parts) == 1 and self.is_span(parts[0]):
                return self.spanned(self.lift(base).first(), parts[0], self.rank(node))
            return self.of_turn(node, self.lift(base).first(), parts)
        self.check_pure(base)
        if len(parts) > 1 and self.is_span(parts[1]) and all(map(is_whole, parts[2:])):
            return self.spanned(self.row_of(base, parts[0]), parts[1], self.rank(node))
        only = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Index) else None
        mask = self.known.get(only.value) if isinstance(only, cst.Name) else None
        mask = mask or (self.classes(only) if only is not None else None)
        if mask is not None and mask.classes and not mask.code:
            return Lifted(self.code(base), self.rank(node), 0, classes=mask.classes)
        turning = [i for i, one in enumerate(parts) if self.varies(one)]
        plain = self.plain(node, parts)
        if len(turning) == 1 and all(plain[i] for i in range(len(parts)) if i not in turning):
            return self.picked(node, parts, turning[0])
        return self.gathered(node, parts)

    def is_span(self, part: cst.BaseSlice) -> bool:
        """Return whether a part of a subscript is `:n`, with a length of the turn."""
        if not isinstance(part, cst.Slice) or part.upper is None or part.step is not None:
            return False
        starts = part.lower is None or self.code(part.lower) == "0"
        return starts and self.varies(part.upper)

    def row_of(self, base: cst.BaseExpression, part: cst.BaseSlice) -> Lifted:
        """Return the row of a tensor that has the turn's number."""
        index = part.value if isinstance(part, cst.Index) else None
        if index is None or self.bounds is None or self.bounds.offset(index) != 0:
            raise Refused
        span = self.span(0, (self.code(base), 0))
        code = self.code(base) if span == ":" else f"{bracketed(self.code(base))}[{span}]"
        return Lifted(code, 1, 0, is_new=False)

    def spanned(self, x: Lifted, part: cst.BaseSlice, rank: int) -> Lifted:
        """Return the first positions of each turn."""
        upper = cst.ensure_type(part, cst.Slice).upper
        if upper is None or x.turns != 0:
            raise Refused
        bound = self.lift_any(upper)
        is_number = bound.is_host or self.dtype(upper) in INDEX_DTYPES
        if bound.rank or bound.turns != 0 or not replace(bound, is_host=False).is_tensor:
            raise Refused
        if not is_number:
            raise Refused
        return masked(x, bound, rank, self.kept)

    def plain(self, node: cst.Subscript, parts: list[cst.BaseSlice]) -> list[bool]:
        """Return which parts of a subscript make a view, by its text or the recorded numbers."""
        given = self.operation(node).argument(1)
        items = () if given is None else given.items or (given,)
        numbers = [(one.text or "").lstrip("-").isdigit() for one in items]
        if len(numbers) != len(parts):
            return [is_basic(one) for one in parts]
        return [is_basic(one) or known for one, known in zip(parts, numbers, strict=True)]

    def of_turn(self, node: cst.Subscript, x: Lifted, parts: list[cst.BaseSlice]) -> Lifted:
        """Return a subscript of a value that differs between turns."""
        rank = self.rank(node)
        if not any(self.varies(one) for one in parts) and all(self.plain(node, parts)):
            code = f"{bracketed(x.code)}[:, {self.listed(parts)}]"
            distinct = x.distinct and rank == 1 and "some"
            return Lifted(code, rank, 0, is_new=False, distinct=distinct or "")
        only = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Index) else None
        if only is None:
            raise Refused
        index = self.lift(only).first()
        if x.turns is None or index.turns is None:
            raise Refused
        if self.dtype(only) == "bool" and x.rank == index.rank == 1 and x.distinct:
            return Lifted("", 1, 0, ragged=(x, index))
        if self.dtype(only) == "bool" and index.rank == 1 and x.rank == rank:
            return replace(x, is_new=False, valid=self.kept(index.code, "chosen"), distinct="")
        if self.dtype(only) in INDEX_DTYPES and x.rank == index.rank == 1 and index.distinct:
            code = f"{bracketed(x.code)}.gather(1, {index.code})"
            return Lifted(code, 1, 0, is_computed=True, distinct=x.distinct and "some")
        if self.dtype(only) in INDEX_DTYPES and x.rank >= index.rank == 1 and x.turns == 0:
            code = f"{bracketed(x.code)}[{self.turn_column(x)}, {index.code}]"
            picked = f"{x.code}, {index.code}" if x.rank == 1 else ""
            return Lifted(code, x.rank, 0, is_computed=True, picked=picked)
        raise Refused

    def picked(self, node: cst.Subscript, parts: list[cst.BaseSlice], at: int) -> Lifted:
        """Return a slice of a tensor in place of one position of it, or an index."""
        rank, base = self.rank(node), self.code(node.value)
        part = parts[at]
        is_kept = isinstance(part, cst.Slice)
        turns = self.position(parts, at, rank, is_kept)
        source_dim = sum(not is_none(one) for one in parts[:at])
        if isinstance(part, cst.Slice):
            index = part.lower
            if index is None or part.upper is None or part.step is not None:
                raise Refused
            sliding = self.sliding(node, parts, at)
            if sliding is not None:
                return sliding
            if not one_more(self.code(part.upper), self.code(index)):
                raise Refused
        else:
            index = cst.ensure_type(part, cst.Index).value
        is_plain = not any(isinstance(one, cst.Index) for one in parts[:at])
        if self.bounds is not None and (offset := self.bounds.offset(index)) is not None:
            where = (self.code(node.value), source_dim) if is_plain else None
            written = self.span(offset, where)
            listed = [self.spelled(one) for one in parts]
            listed[at] = written
            while listed and listed[-1] == ":":
                listed.pop()
            code = f"{base}[{', '.join(listed)}]" if listed else base
            return Lifted(code, rank, turns, is_kept, is_new=False)
        if not is_kept and is_plain and self.is_backwards(index):
            span = self.span(0, (base, source_dim)) if self.bounds is not None else ":"
            listed = [self.spelled(one) for one in parts]
            listed[at] = span
            code = base if all(one == ":" for one in listed) else f"{base}[{', '.join(listed)}]"
            return Lifted(f"{bracketed(code)}.flip({turns})", rank, turns, is_computed=True)
        picks = self.lift(index)
        if picks.rank or picks.turns != 0 or self.dtype(index) not in INDEX_DTYPES:
            raise Refused
        if not all(is_whole(one) for i, one in enumerate(parts) if i != at):
            raise Refused
        if is_kept:
            code = f"{base}.index_select({turns}, {picks.code})"
        else:
            code = f"{base}[{', '.join([*[':'] * at, picks.code])}]"
        return Lifted(code, rank, turns, is_kept, is_computed=True)

    def span(self, offset: int, where: tuple[str, int] | None) -> str:
        """Return the slice that takes the positions of all turns of a tensor's dimension."""
        assert self.bounds is not None
        if self.bounds.is_difference() and not self.bounds.is_to_end(offset, where):
            self.need_turn()
        return self.bounds.span(offset, where)

    def arange(self, offset: int, device: str) -> str:
        """Return code of the turns' numbers."""
        assert self.bounds is not None
        if self.bounds.is_difference():
            self.need_turn()
        return self.bounds.arange(offset, device)

    def window(self, part: cst.Slice) -> tuple[str, str] | None:
        """Return by how much a window moves in each turn, and its size; None for another slice."""
        if self.bounds is None or self.bounds.low or part.lower is None or part.upper is None:
            return None
        lower, upper = (
            moving(one, self.bounds.index, self.numbers, self.changing)
            for one in (part.lower, part.upper)
        )
        size = width(lower, upper)
        if lower is None or size is None or (size == "1" and lower.step == "1"):
            return None
        self.need(lower.step, 1)
        self.need(size, 0)
        return lower.step, size

    def is_backwards(self, node: cst.BaseExpression) -> bool:
        """Return whether an index counts from the last position down: `n - 1 - i`."""
        bounds = self.bounds
        if bounds is None or bounds.low or not bounds.index:
            return False
        if isinstance(node, cst.Name) and node.value in self.edges:
            node = self.edges[node.value]
        wanted = terms_of(cst.parse_expression(bounds.high), {})
        wanted.update({"": -1, bounds.index: -1})
        found = terms_of(node, {})
        return {k: n for k, n in found.items() if n} == {k: n for k, n in wanted.items() if n}

    def sliding(self, node: cst.Subscript, parts: list[cst.BaseSlice], at: int) -> Lifted | None:
        """Return windows that begin at each turn's position; None if they are single positions."""
        found = self.window(cst.ensure_type(parts[at], cst.Slice))
        if found is None or self.bounds is None:
            return None
        step, size = found
        rank, base = self.rank(node), self.code(node.value)
        turns, count = self.position(parts, at, rank, is_kept=True), self.bounds.count
        listed = [self.spelled(one) for one in parts]
        listed[at] = ":"
        if self.starts is not None:
            are_whole = all(one in (":", "...") for one in listed)
            more = self.starts.more(size, (base, turns, rank)) if are_whole else None
            if more is None or more > 0:
                raise Refused  # the last window may be shorter
            count = count if more else ""
        else:
            self.need_fit(node, at, step, size)
        self.need_turn()
        while listed and listed[-1] in (":", "..."):
            listed.pop()
        base = f"{base}[{', '.join(listed)}]" if any(o != ":" for o in listed) else base
        code = unfolded(base, turns, size, step, count, rank)
        return Lifted(code, rank, turns, is_new=False, has_windows=True)

    def rolling(self, node: cst.Call, name: str, of: cst.Subscript) -> Lifted | None:
        """Return the reduction of windows around each position that the ends of a tensor cut:
        `x[:, max(0, t - 4) : t + 1].mean(1)`. None for another one."""
        parts, rank = [one.slice for one in of.slice], self.rank(of)
        turning = [i for i, one in enumerate(parts) if self.varies(one)]
        bounds, base = self.bounds, self.code(of.value)
        if self.varies(of.value) or len(turning) != 1 or bounds is None or bounds.low:
            return None
        at = turning[0]
        dim, part = self.position(parts, at, rank, is_kept=True), parts[at]
        others = [one for i, one in enumerate(parts) if i != at]
        if not isinstance(part, cst.Slice) or not all(
            is_whole(o) or is_ellipsis(o) for o in others
        ):
            return None
        sizes = {one for one, *where in bounds.sizes if where == [base, dim]}
        ends = sizes | {f"{base}.{how}" for how in (f"size({dim})", f"shape[{dim}]")}
        ends |= {f"len({base})"} if dim == 0 else set()
        reach = clipped(part, bounds.index, ends, self.edges, self.changing)
        is_float = self.dtype(of).startswith(FLOATS)
        if reach is None or bounds.high not in ends or not (is_float and base.isidentifier()):
            return None
        held = {self.code(of), *self.edges}
        given = [one.value for one in node.args if self.code(one.value) not in held]
        if [one % rank for one in map(integer, given)] != [dim] and (given or rank > 1):
            return None
        for one in reach[:2]:
            self.need(one, 0)
        code = reduced_windows(base, dim, rank, reach, name, self.kept)
        return Lifted(code, rank - 1, dim, is_computed=True)

    def need(self, code: str, least: int) -> None:
        """Let a number be at least another one in each call. Raises: Refused, where that is
        neither certain nor can be asked."""
        node = cst.parse_expression(code)
        number = ast.literal_eval(code) if not names_in(node) else None
        if isinstance(number, int) and number >= least:
            return
        if self.guards is None or number is not None:
            raise Refused
        guard = f"{code} > 0" if least == 1 else f"{code} >= {least}"
        self.guards += [guard] * (guard not in self.guards)

    def need_turn(self) -> None:
        """Let there be a turn. Raises: Refused, where that cannot be asked."""
        if self.guards is None:
            raise Refused
        self.needs_turn = True

    def need_fit(self, node: cst.Subscript, at: int, step: str, size: str) -> None:
        """Let the last window end in a tensor. Raises: Refused, where that cannot be asked."""
        assert self.bounds is not None
        parts = [one.slice for one in node.slice]
        after = [one for one in parts[at + 1 :] if not is_none(one)]
        is_open = any(is_ellipsis(one) for one in parts[:at])
        dim = -1 - len(after) if is_open else sum(not is_none(one) for one in parts[:at])
        tensor, rank = self.code(node.value), self.rank(node.value)
        count = self.bounds.count
        if rank and fits(count, step, size, (tensor, dim, rank), self.known_locals()):
            return
        if self.guards is None:
            raise Refused
        guard = f"{last_end(count, step, size)} <= {bracketed(tensor)}.size({dim})"
        self.guards += [guard] * (guard not in self.guards)

    def need_even(self, one: str, other: str) -> None:
        """Let two tensors have the same number of positions behind the turns. Raises: Refused,
        where that cannot be asked before the loop."""
        nodes = [cst.parse_expression(code) for code in (one, other)]
        rows = [node.value if is_rows(node) else node for node in nodes]  # type: ignore[attr-defined]
        if self.guards is None or not all(isinstance(node, cst.Name) for node in rows):
            raise Refused
        if any(self.varies(node) for node in rows):
            raise Refused
        guard = " == ".join(f"{self.code(node)}.size(1)" for node in rows)
        self.guards += [guard] * (guard not in self.guards)

    def is_cut(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a window between ends that names of the turn hold."""
        return isinstance(node, cst.Subscript) and any(
            isinstance(one.slice, cst.Slice) and names_in(one.slice) & self.edges.keys()
            for one in node.slice
        )

    def cut_count(self, node: cst.BaseExpression, near: cst.BaseExpression) -> str | None:
        """Return code of how many positions the turns' windows have, where `node` is the
        difference of their ends; None for another number."""
        bounds = self.bounds
        if not isinstance(node, cst.BinaryOperation) or bounds is None or bounds.low:
            return None
        ends = [one.value for one in (node.left, node.right) if isinstance(one, cst.Name)]
        is_difference = isinstance(node.operator, cst.Subtract) and len(ends) == 2
        if not is_difference or not self.edges.keys() >= {*ends}:
            return None
        part = cst.Slice(lower=node.right, upper=node.left)
        reach = clipped(part, bounds.index, {bounds.high}, self.edges, self.changing)
        if reach is None:
            return None
        for one in reach[:2]:
            self.need(one, 0)
        steps = self.kept(f"torch.arange({bounds.high}, device={self.near(near)}.device)", "steps")
        return cut_lengths(steps, reach, bounds.high)

    def dtype(self, node: cst.BaseExpression) -> str:
        if node in self.ranks:
            return self.ranks[node][1]
        return self.dtypes.get(node.value, "") if isinstance(node, cst.Name) else ""

    def position(self, parts: list[cst.BaseSlice], at: int, rank: int, is_kept: bool) -> int:
        """Return which dimension of the result the turns are."""
        before = parts[:at]
        if any(is_ellipsis(one) for one in before):
            after = sum(not is_number(one) for one in parts[at + 1 :])
            return rank - after - is_kept
        return sum(not is_number(one) for one in before)

    def gathered(self, node: cst.Subscript, parts: list[cst.BaseSlice]) -> Lifted:
        """Return a subscript by tensors, one position of the result each."""
        rank = self.rank(node)
        found = self.operation(node).argument(1)
        given = [] if found is None else list(found.items) if found.items else [found]
        while parts and is_whole(parts[-1]):
            parts = parts[:-1]
        if len(given) < len(parts):
            raise Refused
        indices: list[tuple[Lifted | str, int]] = []
        for part, argument in zip(parts, given, strict=False):
            if not isinstance(part, cst.Index):
                raise Refused
            value = self.source.graph.of(argument.value)
            if value is not None and value.dtype in INDEX_DTYPES:
                indices.append((self.lift(part.value).first(), len(value.shape)))
            else:
                indices.append((self.positions_of(part, node.value), 0))
        most = max((one[1] for one in indices), default=0)
        if all(isinstance(index, str) for index, _ in indices):
            raise Refused
        listed = []
        for index, dims in indices:
            if isinstance(index, str):
                whole = f"{index}[{', '.join([':', *['None'] * most])}]" if most else index
                listed.append(self.kept(whole, "positions"))
            elif index.turns is not None and dims != most:
                raise Refused
            else:
                listed.append(index.code)
        code = f"{self.code(node.value)}[{', '.join(listed)}]"
        picked = ""
        if most == rank == 1 and len(parts) == 2 and not isinstance(indices[1][0], str):
            with suppress(Refused):
                picked = f"{self.row_of(node.value, parts[0]).code}, {indices[1][0].code}"
        return Lifted(code, rank, 0, is_computed=True, picked=picked)

    def positions_of(self, part: cst.BaseSlice, base: cst.BaseExpression) -> Lifted | str:
        """Return the position that each turn has in a dimension: code of the turns' numbers, or
        what holds them."""
        if not isinstance(part, cst.Index):
            raise Refused
        offset = None if self.bounds is None else self.bounds.offset(part.value)
        if offset is not None:
            return self.positions(offset, base)
        index = self.lift_any(part.value)
        is_number = index.is_host or self.dtype(part.value) in INDEX_DTYPES
        index = replace(index, is_host=False)
        if index.rank or index.turns != 0 or not index.is_tensor or not is_number:
            raise Refused
        return index

    def positions(self, offset: int, base: cst.BaseExpression) -> str:
        assert self.bounds is not None
        return self.arange(offset, f"{self.code(base)}.device")

    def turn_column(self, x: Lifted) -> str:
        """Return the numbers of the turns as a column, to choose positions of each turn's row."""
        root = next(iter(roots(cst.parse_expression(x.code))), "")
        if root not in self.columns:
            code = f"torch.arange(len({x.code}), device={bracketed(x.code)}.device)"
            if self.bounds is not None and not self.bounds.low and root not in self.changing:
                code = self.positions(0, cst.Name(root)) if root else code
            self.columns[root] = self.kept(f"{code}[:, None]", "positions")
        return self.columns[root]

    def kept(self, code: str, wanted: str) -> str:
        """Return a name for code that is assigned before; the code where there is no room."""
        if self.lines is None or code.isidentifier():
            return code
        known = {value: name for name, _, value in (one.partition(" = ") for one in self.lines)}
        if code not in known or names_in(cst.parse_expression(code)) & self.changing:
            known[code] = self.free_name(wanted)
            self.lines.append(f"{known[code]} = {code}")
        return known[code]

    def free_name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted

    def spelled(self, part: cst.BaseSlice) -> str:
        if isinstance(part, cst.Index):
            return self.code(part.value)
        return self.code(part)

    def listed(self, parts: Iterable[cst.BaseSlice]) -> str:
        return ", ".join(self.spelled(one) for one in parts)


def is_rows(node: cst.BaseExpression) -> bool:
    """Return whether an expression takes rows of a tensor: `x[:n]`."""
    return (
        isinstance(node, cst.Subscript)
        and len(node.slice) == 1
        and isinstance(node.slice[0].slice, cst.Slice)
    )


def dims_of(node: cst.Call) -> list[cst.BaseExpression]:
    """Return the argument `dim`, if it is named."""
    return [o.value for o in node.args if o.keyword is not None and o.keyword.value == "dim"]
