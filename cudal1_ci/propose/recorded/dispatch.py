"""Sort rows by their class once, where a loop over classes searches all rows for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_anywhere, names_in
from cudal1_ci.propose.editing.walk import roots, stored_names
from cudal1_ci.propose.recorded.dispatch_searches import Searches, is_index
from cudal1_ci.propose.recorded.dispatched_rows import Rows, Search, Sort
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import (
    BINARY,
    ROWWISE,
    UNARY,
    Refused,
    Swap,
    integer,
    is_basic,
    is_whole,
    within,
)
from cudal1_ci.propose.recorded.loop import Loop, loops_in
from cudal1_ci.propose.recorded.loop_text import is_name, rebinds
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import bracketed

BY_ROW = UNARY.union(
    BINARY,
    ROWWISE,
    ("getitem", "setitem", "add_", "index_add_", "nonzero", "squeeze", "unsqueeze", "bool"),
    ("any", "where", "numel", "size", "len"),
)
"""Operations that compute each row by itself, if they are given rows."""
LEAVES = (
    *(cst.Expr, cst.For, cst.While, cst.With, cst.NamedExpr, cst.Else),
    *(cst.Break, cst.Return, cst.Raise, cst.Yield),
)


@dataclass
class Dispatch(Searches):
    """A loop whose turns look for the rows of one class each."""

    new: dict[cst.CSTNode, str] = field(default_factory=dict)
    searches: list[Search] = field(default_factory=list)
    joined: cst.For | None = None
    """A loop over the columns of the classes that is not needed any more."""

    def __post_init__(self) -> None:
        node = cst.ensure_type(self.loop.node, cst.For)
        self.node = node
        self.names = names_anywhere(self.loop.function)
        self.changing = stored_names(node) | roots(self.loop.target)
        self.made: dict[tuple[str, bool], Sort] = {}

    def change(self) -> Change:
        """Return the loop with parts of one sort in it; raise Refused if it has no search."""
        if rebinds(self.node.body, self.index):
            raise Refused
        for one in within(self.node.body):
            if isinstance(one, cst.Assign) and len(one.targets) == 1:
                self.assigned(one)
        return self.written()

    def written(self) -> Change:
        """Return the loop with what was found."""
        if not self.made:
            raise Refused
        lines = [line for one in self.made.values() for line in one.lines(self.high)]
        more, after = self.gathered() or self.split()
        lines += more
        loop = self.node.with_changes(leading_lines=[])
        text = self.loop.code(cst.ensure_type(loop.visit(Rewrite(self.new, self.joined)), cst.For))
        return Change(
            file=self.loop.name,
            new={self.loop.node: "\n".join([*lines, text.rstrip(), *after])},
            found=" ".join(self.loop.code(self.node).strip().split("\n")[0].split()),
        )

    def split(self) -> tuple[list[str], list[str]]:
        """Return the lines before and after a loop that picks the rows of its class itself."""
        return [line for one in self.made.values() for line in one.splits()], []

    def gathered(self) -> tuple[list[str], list[str]] | None:
        """Return the lines before and after a loop whose rows are picked before it, and change its
        code; None if it reads nothing by rows."""
        if len(self.searches) != 1:
            return None
        [search] = self.searches
        sort = search.sort
        rows = Rows(self.loop, self.index, search, self.joined)
        if not rows.find(self.new):
            return None
        (row, column), lines = sort.places, []
        read = [one for one in (search.row, search.column) if one and rows.is_read(one)]
        if sort.has_columns:
            name = self.free_name("all_rows")
            lines, row = [f"{name} = {row}"], name
        if search.column in read or rows.reads_columns:
            name = self.free_name("all_columns")
            lines, column = [*lines, f"{name} = {column}"], name
        lines += rows.before(row, column, self.free_name)
        kept = {search.row: (row, sort.rows_by_class)}
        kept |= {search.column: (column, sort.columns_by_class)}
        lines += [f"{kept[o][1]} = {kept[o][0]}.split({sort.counts})" for o in read]
        right = ", ".join(f"{kept[one][1]}[{self.index}]" for one in read)
        self.new |= rows.new
        self.new[search.assign] = f"{', '.join(read)} = {right}"
        if not read:
            self.new[self.loop.file.parents[search.assign]] = ""
        return lines, rows.after()

    def assigned(self, assign: cst.Assign) -> None:
        """Put parts of a sort in the place of a search."""
        target, value = assign.targets[0].target, assign.value
        num_dims = self.loop.call.graph.num_dims
        if isinstance(target, cst.Tuple):
            searched, turned = self.searched(value), self.turned(value)
            rank = 0 if searched is None else num_dims(searched.value(0))
            if len(target.elements) == 2 and (rank == 2 or turned):
                covers_all = self.covers_all(value, searched)
                self.found(assign, self.sort(searched, turned=turned or ""), covers_all=covers_all)
            elif len(target.elements) == rank == 1:
                self.found(assign, self.sort(searched), covers_all=False)
            return
        rows = self.rows(value)
        if rows is not None and isinstance(target, cst.Name):
            inner = self.column_loop(rows, assign, target.value)
            if inner is not None:
                self.joined = inner
                base = cst.ensure_type(self.compared_node(rows), cst.Subscript).value
                covers_all = self.covers_all(value, rows)
                self.found(assign, self.sort(rows, base=base), covers_all=covers_all)
            elif num_dims(rows.value(0)) == 1:
                self.found(assign, self.sort(rows), covers_all=False)
            return
        masked = self.masked(value)
        if masked is not None and isinstance(target, cst.Name):
            uses = self.uses(target.value, assign)
            if uses is not None:
                covers_all = self.covers_all(value, masked)
                self.found(assign, self.sort(masked), covers_all=covers_all)
                self.new |= uses

    def found(self, assign: cst.Assign, sort: Sort, *, covers_all: bool) -> None:
        """Put the rows of a sort, and their columns, in the place of a search."""
        target = assign.targets[0].target
        if isinstance(target, cst.Tuple):
            names = [self.loop.code(one.value) for one in target.elements]
            row, column = names[::-1] if sort.is_turned else [*names, ""][:2]
        else:
            row = self.loop.code(target)
            column = "" if self.joined is None else self.loop.code(self.joined.target)
        found = [(row, sort.rows_by_class), (column, sort.columns_by_class)]
        found = [one for one in (found[::-1] if sort.is_turned else found) if one[0]]
        left = ", ".join(name for name, _ in found)
        right = ", ".join(f"{by_class}[{self.index}]" for _, by_class in found)
        self.new[assign] = f"{left} = {right}"
        covers_all = covers_all and sort.has_columns
        self.searches.append(Search(assign, row, column, sort, covers_all))

    # --- classes that have rows ---

    def of_hits(self, mask: int, positions: int | None, chosen: str) -> Change:
        """Return a loop over the numbers of the classes that have rows, where it was over a tensor
        of them, and searched a mask.

        Args:
            mask: The one-hot mask of classes, columns and rows.
            positions: The classes, rows before columns.
            chosen: Code of the classes.
        """
        covers_all = self.topk(positions) is not None
        body = list(self.node.body.body)
        unpacked = f"{self.index} = {self.index}[0]"
        is_number = self.loop.code(body[0]).strip() == unpacked
        allowed: set[cst.CSTNode] = set()
        for one in within(self.node.body):
            if isinstance(one, cst.Assign) and self.hit(one.value, mask, is_number=is_number):
                target = one.targets[0].target
                if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
                    raise Refused
                self.found(one, self.sort(None, turned=chosen), covers_all=covers_all)
                allowed |= {*within(one.value)}
        if is_number:
            self.new[body[0]] = ""
            allowed |= {*within(body[0])}
        for name in self.named(self.node.body, self.index):
            part = self.loop.file.parents[name]
            whole = self.loop.file.parents[self.loop.file.parents[part]]
            is_compared = is_number and isinstance(part, cst.Comparison)
            if name in allowed or is_compared:
                continue
            is_item = isinstance(part, cst.Index) and isinstance(whole, cst.Subscript)
            if not is_item or not isinstance(whole, cst.Subscript) or len(whole.slice) != 1:
                raise Refused
            made = {one.name for one in self.loop.operations.get(whole, [])}
            if not is_number and not made <= {"index"}:  # rows by a tensor of one number
                raise Refused
        if self.loop.is_read_after({self.index}) or len(self.made) != 1:
            raise Refused
        [sort] = self.made.values()
        self.new[self.loop.over] = f"[i for i, count in enumerate({sort.counts}) if count]"
        return self.written()

    # --- what takes its place ---------------------------------------------------------------------

    def sort(
        self,
        compared: Operation | None,
        *,
        turned: str = "",
        base: cst.BaseExpression | None = None,
    ) -> Sort:
        """Return the sort whose parts are an iteration's rows, and their columns."""
        code, has_columns = turned, True
        if compared is not None:
            node = base or self.compared_node(compared)
            has_columns = base is not None or not self.is_column(compared)
            code = "" if node is None else self.loop.code(node)
        if not code or names_in(cst.parse_expression(code)) & self.changing:
            raise Refused
        code = bracketed(code)
        if (code, bool(turned)) not in self.made:
            known = self.counted(code)
            counts = known or self.free_name("counts")
            names = ["order", "rows_by_class"] + ["columns_by_class"] * has_columns
            order, rows, *columns = map(self.free_name, names)
            self.made[code, bool(turned)] = Sort(
                *(code, has_columns, bool(turned), order, counts, rows),
                *(columns[0] if columns else "", known is not None),
            )
        return self.made[code, bool(turned)]

    def free_name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        while wanted in self.names:
            wanted += "_"
        self.names.add(wanted)
        return wanted

    def uses(self, mask: str, assign: cst.Assign) -> dict[cst.CSTNode, str] | None:
        """Return new code where a mask is read, for the positions that it lets through; None if
        that is not all."""
        found: dict[cst.CSTNode, str] = {}
        reads = self.named(self.node.body, mask)
        for one in reads:
            parent = self.loop.file.parents[one]
            if parent is assign.targets[0]:
                continue
            above = self.loop.file.parents[parent]
            if isinstance(parent, cst.Index):
                whole = self.loop.file.parents[above]
                if not isinstance(whole, cst.Subscript) or whole.slice[0] is not above:
                    return None
                if not all(self.is_single(part.slice) for part in whole.slice[1:]):
                    return None
            elif isinstance(parent, cst.Attribute) and parent.value is one:
                if parent.attr.value not in ("any", "sum") or not isinstance(above, cst.Call):
                    return None
                if above.args:
                    return None
                node: cst.CSTNode = above
                after = self.loop.file.parents[node]
                if isinstance(after, cst.Attribute) and after.attr.value == "item":
                    node = self.loop.file.parents[after]
                    after = self.loop.file.parents[node]
                is_asked = isinstance(after, cst.If | cst.BooleanOperation | cst.UnaryOperation)
                is_asked = is_asked or isinstance(after, cst.Comparison | cst.ComparisonTarget)
                if not is_asked:
                    return None
                found[node] = f"len({mask})"
            else:
                return None
        return found if len(reads) == len(self.named(self.loop.function, mask)) else None

    def is_single(self, part: cst.BaseSlice) -> bool:
        """Return whether a further part of a subscript means the same next to a mask and next to
        positions: a number, or a slice."""
        if isinstance(part, cst.Slice):
            return True
        node = cst.ensure_type(part, cst.Index).value
        if isinstance(node, cst.Name):
            held = self.loop.call.source.scope(self.loop.inside[0]).get(node.value)
            is_number = held is not None and str(held.text).isdigit()
            return is_number or node.value in (self.index, "None")
        try:
            integer(node)
        except Refused:
            return False
        return True

    # --- columns ----------------------------------------------------------------------------------

    def column_loop(self, compared: Operation, assign: cst.Assign, rows: str) -> cst.For | None:
        """Return the loop over the columns of a topk, if all of them can be taken at once: its
        turns add to rows, and compute each row by itself."""
        node, topk = self.compared_node(compared), self.topk(compared.value(0))
        inner = next((a for a in self.loop.file.above(assign) if isinstance(a, cst.For)), None)
        if inner is None or inner is self.node or topk is None or inner.orelse:
            return None
        if not isinstance(node, cst.Subscript) or not isinstance(inner.target, cst.Name):
            return None
        parts = [one.slice for one in node.slice]
        slot, base = inner.target.value, self.loop.code(node.value)
        if len(parts) != 2 or not is_whole(parts[0]) or not is_index(parts[1], slot):
            return None
        number = self.loop.call.source.argument_code(topk, 1, self.loop.inside[0])
        all_columns = [f"range({one})" for one in (number, f"{base}.size(1)", f"{base}.shape[1]")]
        if self.loop.code(inner.iter) not in all_columns:
            return None
        reads = self.named(inner.body, slot)
        for one in reads:
            index = self.loop.file.parents[one]
            whole = self.loop.file.parents[self.loop.file.parents[index]]
            is_part = isinstance(index, cst.Index) and isinstance(whole, cst.Subscript)
            if not is_part or not isinstance(whole, cst.Subscript) or len(whole.slice) < 2:
                return None
            if whole is not node and not (
                whole.slice[1].slice is index
                and is_index(whole.slice[0].slice, rows)
                and all(map(is_basic, (part.slice for part in whole.slice[2:])))
            ):
                return None
        if len(self.named(self.node, slot)) != len(reads) + 1 or not self.only_adds(inner, rows):
            return None
        places = {*within(inner)}
        indices = [
            one.index
            for made, found in self.loop.operations.items()
            if made in places
            for one in found
        ]
        between = self.loop.call.graph.operations[min(indices) : max(indices) + 1]
        return inner if all(one.name in BY_ROW for one in between) else None

    def only_adds(self, inner: cst.For, rows: str) -> bool:
        """Return whether a loop's turns bind locals that only they read, and add to rows."""
        stored: set[str] = set()
        results: set[str] = set()
        is_last = inner is self.node.body.body[-1]
        for one in within(inner.body):
            if isinstance(one, cst.Assign):
                if not all(is_name(t.target) for t in one.targets):
                    return False
                stored |= stored_names(one)
            elif isinstance(one, cst.AugAssign):
                target = one.target
                if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
                    return False
                parts = [part.slice for part in target.slice]
                if len(parts) != 1 or not is_index(parts[0], rows):
                    return False
                if not isinstance(one.operator, cst.AddAssign | cst.SubtractAssign):
                    return False
                results |= {target.value.value}
            elif isinstance(one, LEAVES) or (isinstance(one, cst.Continue) and not is_last):
                return False
        function = self.loop.function
        is_own = all(len(self.named(inner, o)) == len(self.named(function, o)) for o in stored)
        return is_own and all(len(self.named(inner, one)) == 1 for one in results)

    def named(self, node: cst.CSTNode, name: str) -> list[cst.Name]:
        """Return where a local is named below a node."""
        found = []
        for one in within(node):
            if isinstance(one, cst.Name) and one.value == name:
                parent = self.loop.file.parents[one]
                is_attribute = isinstance(parent, cst.Attribute) and parent.attr is one
                if not is_attribute and not (isinstance(parent, cst.Arg) and parent.keyword is one):
                    found.append(one)
        return found


class Rewrite(Swap):
    """Put code in the place of expressions and assignments, and a loop's body in its place."""

    def __init__(self, new: dict[cst.CSTNode, str], joined: cst.For | None):
        super().__init__(new)
        self.joined = joined

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        if self.new.get(original_node) == "":
            return cst.RemoveFromParent()
        if original_node is self.joined:
            return cst.FlattenSentinel(cst.ensure_type(updated_node, cst.For).body.body)
        if isinstance(original_node, cst.BaseSmallStatement) and original_node in self.new:
            line = cst.parse_statement(self.new[original_node])
            return cst.ensure_type(line, cst.SimpleStatementLine).body[0]
        return super().on_leave(original_node, updated_node)


def classes_of(loop: Loop) -> tuple[str, str] | None:
    """Return the index of a turn, and code of the number of turns."""
    target = loop.target
    if isinstance(target, cst.Name):
        bounds = loop.bounds(target.value)
        if bounds is None:
            return own_classes_of(loop, target.value)
        return target.value, bounds.high
    over = loop.over
    if not isinstance(target, cst.Tuple) or not isinstance(over, cst.Call):
        return None
    first = target.elements[0].value
    if loop.code(over.func) != "enumerate" or len(over.args) != 1 or not is_name(first):
        return None
    listed = over.args[0].value
    if not isinstance(listed, cst.Name | cst.Attribute):
        return None
    return cst.ensure_type(first, cst.Name).value, f"len({loop.code(listed)})"


def own_classes_of(loop: Loop, index: str) -> tuple[str, str] | None:
    """Return the index, and code of the number of turns, of `for i in range(self.low, self.high)`:
    the classes of one process of several."""
    over = loop.over
    if not isinstance(over, cst.Call) or loop.code(over.func) != "range" or len(over.args) != 2:
        return None
    low, high = (loop.code(one.value) for one in over.args)
    is_own = all(one.startswith("self.") and one[5:].isidentifier() for one in (low, high))
    return (index, high) if is_own else None


def find_dispatched(call: Call) -> Iterator[Change]:
    """Find `for i in range(n): token, slot = torch.where(chosen == i)`."""
    for loop in loops_in(call):
        if not isinstance(loop.node, cst.For):
            continue
        hits = hits_of(loop)
        classes = classes_of(loop) if hits is None else None
        try:
            if hits is not None:
                mask, positions, chosen, high = hits
                index = cst.ensure_type(loop.target, cst.Name).value
                yield Dispatch(loop, index, high).of_hits(mask, positions, chosen)
            elif classes is not None:
                yield Dispatch(loop, *classes).change()
        except Refused:
            continue


def hits_of(loop: Loop) -> tuple[int, int | None, str, str] | None:
    """Return the mask, the classes, their code, and code of their number, of a loop over
    `(mask.sum(dim=(-1, -2)) > 0).nonzero()` of a one-hot mask of classes, columns and rows."""
    graph, source = loop.call.graph, loop.call.source
    if not isinstance(loop.target, cst.Name) or not isinstance(loop.over, cst.Name):
        return None
    held = source.scope(loop.inside[0]).get(loop.over.value)
    found = None if held is None else graph.made_by(held.value, "nonzero")
    more = None if found is None else graph.made_by(found.value(0), "gt", "greater")
    total = None if more is None else graph.made_by(more.value(0), "sum")
    if found is None or more is None or total is None or found.literal(1, "as_tuple"):
        return None
    if more.literal(1, "other") != 0 or total.literal(2, "keepdim"):
        return None
    mask = total.value(0)
    turned = graph.made_by(mask, "permute")
    order = () if turned is None else tuple(o.text for o in turned.recorded.args[1:])
    hot = None if turned is None else graph.made_by(turned.value(0), "one_hot")
    place = None if hot is None else source.place(hot)
    if graph.dims(total.literal(1, "dim"), mask) != (1, 2) or order != ("2", "1", "0"):
        return None
    if mask is None or hot is None or place is None or not isinstance(place.node, cst.Call):
        return None
    if graph.num_dims(hot.value(0)) != 2 or len(place.node.args) != 2:
        return None
    number = place.node.args[1].value
    chosen = source.expression(hot.value(0), at=loop.inside[0])
    if not chosen or not names_in(number) <= {"self"}:
        return None
    return mask, hot.value(0), chosen, loop.code(number)


RULES = (
    RecordedRule(
        name="sorted_dispatch",
        family="loops",
        why="one sort finds the rows of all classes, and one read picks them; each iteration "
        "searched all rows and waited",
        precondition="the classes are positions, and no iteration changes them",
        find=find_dispatched,
    ),
)
