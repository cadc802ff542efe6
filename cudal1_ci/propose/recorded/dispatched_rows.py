"""Gather the rows of all classes before a loop over classes, and add its results after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Swap, integer, is_none, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.loop_text import JUMPS, is_name
from cudal1_ci.propose.recorded.source import bracketed


@dataclass
class Sort:
    """The rows of all classes in the order of their classes."""

    code: str
    """Code of the classes."""
    has_columns: bool
    is_turned: bool
    """Whether the sort goes through the columns one after another."""
    order: str
    """Name of the sort's positions."""
    counts: str
    """Name of the list of the numbers of rows."""
    rows_by_class: str
    columns_by_class: str
    """"" where the classes are one column."""
    is_counted: bool
    """Whether the program counts the rows itself."""

    @property
    def places(self) -> tuple[str, str]:
        """Return code of the rows and of the columns of all classes."""
        if not self.has_columns:
            return self.order, ""
        size = f"{self.code}.size({0 if self.is_turned else 1})"
        found = f"{self.order} // {size}", f"{self.order} % {size}"
        return found[::-1] if self.is_turned else found

    def lines(self, high: str) -> list[str]:
        """Return the lines that sort."""
        flat = f"{self.code}.flatten()" if self.has_columns else self.code
        by_column = f"{self.code}.t().flatten()" if self.is_turned else flat
        order = f"{self.order} = {by_column}.argsort(stable=True)"
        counts = f"{self.counts} = {flat}.bincount(minlength={high}).tolist()"
        return [order] if self.is_counted else [order, counts]

    def splits(self) -> list[str]:
        """Return the lines that split rows and columns by class."""
        names = self.rows_by_class, self.columns_by_class
        return [
            f"{name} = {bracketed(code)}.split({self.counts})"
            for name, code in zip(names, self.places, strict=True)
            if name
        ]


@dataclass
class Search:
    """The rows of one class in an iteration, and their columns where classes have several."""

    assign: cst.Assign
    row: str
    column: str
    """Name of the columns; "" where the classes are one column."""
    sort: Sort
    """What takes its place."""
    covers_all: bool
    """Whether the classes are a `topk` over all classes: each element is in one iteration."""


@dataclass
class Rows:
    """What a loop reads by the rows of a class, and where it adds to them."""

    loop: Loop
    index: str
    search: Search
    joined: cst.For | None
    """A loop over the columns that is taken away."""
    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    parts: str = ""
    """Name of the list of what is added."""
    sums: str = ""

    def __post_init__(self) -> None:
        self.body = cst.ensure_type(self.loop.node, cst.For).body
        self.stored = stored_names(self.loop.node)
        self.num_rows = f"{self.search.sort.counts}[{self.index}]"
        self.gathered: dict[cst.Subscript, tuple[str, int]] = {}
        """Subscript of all rows, and the dimension that it goes along."""
        self.sum: tuple[cst.BaseSmallStatement, str, cst.BaseExpression] | None = None
        """The statement that adds to rows, the name of what it adds to, and what it adds."""

    def find(self, known: dict[cst.CSTNode, str]) -> bool:
        """Find what is gathered; return whether there is any.

        What the iterations change must be new memory, so that no row changes before it is read.

        Args:
            known: New code of the loop, with the numbers of rows in the place of masks.
        """
        is_size = f"len({self.search.row})"
        self.new = {o: self.num_rows for o, code in known.items() if code == is_size}
        assigns = [one for one in within(self.body) if isinstance(one, cst.Assign)]
        if any(isinstance(one.value, cst.Name) for one in assigns):
            return False  # another name of what may be changed
        bound = {
            target.target.value
            for one in assigns
            for target in one.targets
            if isinstance(target.target, cst.Name)
        }
        bound |= roots(self.loop.target) | {self.search.row, self.search.column}
        if not all(self.loop.is_fresh(one) for one in self.stored - bound):
            return False
        for one in within(self.body):
            if isinstance(one, cst.Subscript) and (read := self.read(one)) is not None:
                self.gathered[one] = read
            elif self.is_size(one):
                self.new[one] = self.num_rows
        self.sum = self.found_sum() if self.search.covers_all else None
        return bool(self.gathered)

    def read(self, node: cst.Subscript) -> tuple[str, int] | None:
        """Return a subscript of all rows in the place of those of a class, and the dimension that
        it goes along; None if it reads other elements, or what an iteration changes."""
        if not isinstance(node.value, cst.Name) or node.value.value in self.stored:
            return None
        parts = [one.slice for one in node.slice]
        names = [self.loop.code(one) for one in parts]
        if names[0] == "None" and len(parts) == 2 and names[1] == self.search.row:
            return f"{node.value.value}[None, {{rows}}]", 1
        wanted = [self.search.row, self.search.column]
        count = 2 if self.search.column and names[:2] == wanted else 1
        if names[:count] != wanted[:count] or not all(map(is_none, parts[count:])):
            return None
        if any(one.name.endswith("_") for one in self.readers(node)):
            return None  # a view of all rows cannot be written to while gradients are recorded
        columns = ", {columns}" if count == 2 else ""
        rest = "".join(", None" for _ in parts[count:])
        return f"{node.value.value}[{{rows}}{columns}{rest}]", 0

    @property
    def reads_columns(self) -> bool:
        return any("{columns}" in code for code, _ in self.gathered.values())

    def readers(self, node: cst.CSTNode) -> list[Operation]:
        graph = self.loop.call.graph
        made = self.loop.operations.get(node, [])
        return [reader for one in made for reader in graph.readers.get(one.output or 0, [])]

    def is_size(self, node: cst.CSTNode) -> bool:
        """Return whether a node reads the number of rows from them."""
        row = self.search.row
        sizes = (f"{row}.numel()", f"len({row})", f"{row}.shape[0]", f"{row}.size(0)")
        is_read = isinstance(node, cst.Call | cst.Subscript) and self.loop.code(node) in (
            *sizes,
            self.num_rows,
        )
        return is_read or self.new.get(node) == self.num_rows

    # --- what is added ----------------------------------------------------------------------------

    def found_sum(self) -> tuple[cst.BaseSmallStatement, str, cst.BaseExpression] | None:
        """Return the only statement that adds to rows, if every row of every class reaches it."""
        found = [
            (one, *made)
            for one in within(self.body)
            if isinstance(one, cst.AugAssign | cst.Expr) and (made := self.added(one)) is not None
        ]
        if len(found) != 1 or cst.ensure_type(self.loop.node, cst.For).orelse:
            return None
        statement, name, _ = found[0]
        named = [o for o in within(self.loop.node) if isinstance(o, cst.Name) and o.value == name]
        return found[0] if len(named) == 1 and self.is_always_reached(statement) else None

    def added(self, node: cst.AugAssign | cst.Expr) -> tuple[str, cst.BaseExpression] | None:
        """Return the name and the value in `name[rows] += value` and in
        `name.index_add_(0, rows, value)`, if nothing is cast or broadcast."""
        graph, row = self.loop.call.graph, self.search.row
        if isinstance(node, cst.AugAssign):
            target, value = node.target, node.value
            if not isinstance(node.operator, cst.AddAssign) or not isinstance(
                target, cst.Subscript
            ):
                return None
            if [self.loop.code(one.slice) for one in target.slice] != [row]:
                return None
            owner: cst.BaseExpression = target.value
            stores = [o for o in self.loop.operations.get(target, []) if o.name == "setitem"]
            sums = [graph.made_by(one.value(2)) for one in stores]
            pairs = [
                (store.value(0), made.value(1) if made else None)
                for store, made in zip(stores, sums, strict=True)
            ]
        else:
            call = node.value
            if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
                return None
            if call.func.attr.value != "index_add_" or len(call.args) != 3:
                return None
            if any(one.keyword for one in call.args):
                return None
            if [self.loop.code(one.value) for one in call.args[:2]] != ["0", row]:
                return None
            owner, value = call.func.value, call.args[2].value
            adds = self.loop.operations.get(call, [])
            pairs = [(one.value(0), one.value(3, "source")) for one in adds]
        known = [(graph.of(whole), graph.of(part)) for whole, part in pairs]
        is_alike = known and all(
            whole is not None
            and part is not None
            and whole.dtype == part.dtype
            and whole.shape[1:] == part.shape[1:]
            and len(whole.shape) == len(part.shape)
            for whole, part in known
        )
        if not is_alike or not is_name(owner) or not isinstance(owner, cst.Name):
            return None
        return owner.value, value

    def is_always_reached(self, statement: cst.CSTNode) -> bool:
        """Return whether a statement is left out only where a class has no row."""
        for one in self.loop.file.above(statement):
            if one is self.loop.node:
                break
            if isinstance(one, cst.If):
                if one.orelse is not None or self.asks(one.test) is not True:
                    return False
            elif one is not self.joined and isinstance(
                one, cst.For | cst.While | cst.With | cst.Try | cst.Else
            ):
                return False
        return all(
            isinstance(one, cst.Continue) and self.skips(one)
            for one in within(self.body)
            if type(one) in JUMPS
        )

    def skips(self, jump: cst.Continue) -> bool:
        """Return whether an iteration is left only where its class has no row."""
        test = next((o for o in self.loop.file.above(jump) if isinstance(o, cst.If)), None)
        if test is None or test.orelse is not None:
            return False
        return self.asks(test.test) is False

    def asks(self, test: cst.BaseExpression) -> bool | None:
        """Return whether a test is true where there are rows, or where there is none; None if it
        asks something else."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return False if self.is_size(test.expression) else None
        if self.is_size(test):
            return True
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return None
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        if not self.is_size(test.left) or not isinstance(right, cst.Integer) or integer(right):
            return None
        if isinstance(operator, cst.GreaterThan | cst.NotEqual):
            return True
        return False if isinstance(operator, cst.Equal) else None

    # --- code -------------------------------------------------------------------------------------

    def before(self, rows: str, columns: str, free_name: Callable[[str], str]) -> list[str]:
        """Return the lines before the loop, and put what they name into it.

        Args:
            rows: Code of the rows of all classes.
            columns: Code of their columns.
            free_name: Returns a name that nothing else has.
        """
        lines, names = [], {}
        for node, (text, dim) in self.gathered.items():
            if text not in names:
                owner = cst.ensure_type(node.value, cst.Name).value
                names[text] = free_name(f"{owner}_by_class")
                picked = text.format(rows=rows, columns=columns)
                along = f", {dim}" if dim else ""
                lines.append(f"{names[text]} = {picked}.split({self.search.sort.counts}{along})")
            self.new[node] = f"{names[text]}[{self.index}]"
        if self.sum is not None:
            statement, _, value = self.sum
            self.parts, self.sums = free_name("parts"), free_name("sums")
            added = value.visit(Swap(self.new))
            assert isinstance(added, cst.CSTNode)
            self.new[statement] = f"{self.parts}.append({self.loop.code(added)})"
            lines.append(f"{self.parts} = []")
        return lines

    def after(self) -> list[str]:
        """Return the lines after the loop: each row adds what its columns made."""
        if self.sum is None:
            return []
        sort = self.search.sort
        shape, dim = (f"{sort.code}.t().shape", 0) if sort.is_turned else (f"{sort.code}.shape", 1)
        placed = f"torch.empty_like({self.sums}).index_copy_(0, {sort.order}, {self.sums})"
        return [
            f"if {self.parts}:",
            f"    {self.sums} = torch.cat({self.parts})",
            f"    {self.sum[1]} += {placed}.unflatten(0, {shape}).sum({dim})",
        ]

    def is_read(self, name: str) -> bool:
        """Return whether the new loop, or what comes after it, reads a local of the search."""
        gone = {self.search.assign, *self.new, *self.gathered}
        if self.joined is not None:
            gone |= {self.joined.target, self.joined.iter}
        if self.sum is not None:
            statement, _, value = self.sum
            gone |= {one for one in within(statement) if isinstance(one, cst.Name)}
            gone -= {*within(value)} - {*self.new, *self.gathered}
        return self.loop.is_read_after({name}) or any(
            isinstance(one, cst.Name)
            and one.value == name
            and gone.isdisjoint([one, *self.loop.file.above(one)])
            for one in within(self.body)
        )
