"""Find where a loop over classes searches the rows of one."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.experts import routed
from cudal1_ci.propose.recorded.graph import CASTS, VIEWS, Operation
from cudal1_ci.propose.recorded.lifted import INDEX_DTYPES, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.loop_text import is_name

POSITIONS = {"topk": 1, "sort": 1, "max": 1, "min": 1, "argmax": 0, "argmin": 0, "argsort": 0}
"""Operations that return positions, with the number of that output."""


@dataclass
class Searches:
    """A loop over classes, and what its expressions search."""

    loop: Loop
    index: str
    """The turn's class."""
    high: str
    """Code of the number of classes."""

    def turned(self, node: cst.BaseExpression) -> str | None:
        """Return code of the classes whose one-hot mask is searched, columns before rows."""
        chosen = self.routed(node)
        if chosen is None or not self.is_position(chosen):
            return None
        return self.loop.call.source.expression(chosen, at=self.loop.inside[0])

    def routed(self, node: cst.BaseExpression) -> int | None:
        """Return the classes whose one-hot mask is searched, columns before rows."""
        found = self.loop.operations.get(node, [])
        if {one.name for one in found} != {"where"} or any(
            len(o.recorded.args) != 1 for o in found
        ):
            return None
        return routed(self.loop, found, self.index, self.high)

    def searched(self, node: cst.BaseExpression) -> Operation | None:
        """Return the comparison of which all positions are taken."""
        found = self.loop.operations.get(node, [])
        name = {one.name for one in found}
        if name not in ({"where"}, {"nonzero"}) or any(len(o.recorded.args) != 1 for o in found):
            return None
        if name == {"nonzero"} and any(o.literal(1, "as_tuple") is not True for o in found):
            return None
        return self.compared([one.value(0) for one in found])

    def rows(self, node: cst.BaseExpression) -> Operation | None:
        """Return the comparison in `(x == i).nonzero().squeeze(-1)` and `torch.where(x == i)[0]`,
        of a column."""
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            part = node.slice[0].slice
            if not isinstance(part, cst.Index) or self.loop.code(part.value) != "0":
                return None
            searched = self.searched(node.value)
            return None if searched is None or not self.is_column(searched) else searched
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return None
        given = [self.loop.code(one.value) for one in node.args]
        flat = {"squeeze": ["-1", "1"], "flatten": [], "view": ["-1"], "reshape": ["-1"]}
        wanted = flat.get(node.func.attr.value)
        if wanted is None or len(given) > 1 or (given or [""])[0] not in (wanted or [""]):
            return None
        found = self.loop.operations.get(node.func.value, [])
        if {one.name for one in found} != {"nonzero"}:
            return None
        if any(len(o.recorded.args) != 1 or o.recorded.kwargs for o in found):
            return None
        compared = self.compared([one.value(0) for one in found])
        return compared if compared is not None and self.is_column(compared) else None

    def masked(self, node: cst.BaseExpression) -> Operation | None:
        """Return the comparison in `x == i`, and in `(x == i).any(-1)` of positions of a topk."""
        found = self.loop.operations.get(node, [])
        names = {one.name for one in found}
        graph = self.loop.call.graph
        if names == {"eq"}:
            compared = self.compared([one.output for one in found])
            return compared if compared is not None and self.is_column(compared) else None
        if names != {"any"}:
            return None
        compared = self.compared([one.value(0) for one in found])
        if compared is None or graph.num_dims(compared.value(0)) != 2:
            return None
        dims = {graph.dims(one.literal(1, "dim"), one.value(0)) for one in found}
        is_flat = all(one.literal(2, "keepdim") in (None, False) for one in found)
        return compared if dims == {(1,)} and is_flat and self.topk(compared.value(0)) else None

    def is_column(self, compared: Operation) -> bool:
        return self.loop.call.graph.num_dims(compared.value(0)) == 1

    def compared(self, values: list[int | None]) -> Operation | None:
        """Return the comparison with the turn's class that made values, if it reads positions
        that no turn changes."""
        graph = self.loop.call.graph
        made = [graph.made_by(one, "eq") for one in values]
        if not made or any(one is None for one in made):
            return None
        first = made[0]
        assert first is not None
        places = {
            place.node
            for one in made
            if one is not None and (place := self.loop.call.source.place(one)) is not None
        }
        node = self.compared_node(first)
        read = {self.whole(one.value(0)) for one in made if one is not None}
        if len(places) != 1 or len(read) != 1 or node is None:
            return None
        known = graph.of(first.value(0))
        if known is None or known.dtype not in INDEX_DTYPES or not self.is_position(first.value(0)):
            return None
        return first

    def whole(self, value: int | None) -> int | None:
        """Return the tensor of which a column is taken, or the tensor."""
        maker = self.loop.call.graph.made_by(value, "getitem")
        return value if maker is None else maker.value(0)

    def compared_node(self, compared: Operation) -> cst.BaseExpression | None:
        """Return what is compared with the turn's class."""
        place = self.loop.call.source.place(compared)
        node = None if place is None else place.node
        if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
            return None
        sides = [node.left, node.comparisons[0].comparator]
        for one, other in (sides, sides[::-1]):
            if isinstance(one, cst.Name) and one.value == self.index:
                return other
        return None

    def is_position(self, value: int | None) -> bool:
        """Return whether a tensor holds positions, which are not negative."""
        graph = self.loop.call.graph
        while (maker := graph.made_by(value)) is not None:
            at = POSITIONS.get(maker.name)
            if at is not None:
                outputs = maker.recorded.outputs
                return len(outputs) == at + 1 and outputs[at] == value
            if maker.name not in VIEWS | CASTS | {"getitem", "clone", "detach"}:
                return False
            value = maker.value(0)
        return False

    def topk(self, value: int | None) -> Operation | None:
        """Return the topk over the last dimension that made positions."""
        graph = self.loop.call.graph
        while (maker := graph.made_by(value, "getitem", "topk")) is not None:
            if maker.name == "topk":
                dim = maker.literal(2, "dim")
                is_last = dim is None or graph.dims(dim, maker.value(0)) == (
                    graph.num_dims(maker.value(0)) - 1,
                )
                return maker if is_last else None
            value = maker.value(0)
        return None

    def hit(self, node: cst.BaseExpression, mask: int, *, is_number: bool) -> bool:
        """Return whether an expression searches a mask at the turn's class."""
        graph, source = self.loop.call.graph, self.loop.call.source
        found = self.loop.operations.get(node, [])
        for one in found:
            value = one.value(0)
            squeezed = graph.made_by(value, "squeeze")
            if squeezed is not None:
                if is_number or squeezed.literal(1, "dim") != 0:
                    return False
                value = squeezed.value(0)
            elif not is_number:
                return False
            picked = graph.made_by(value, "getitem")
            place = None if picked is None else source.place(picked)
            if picked is None or picked.value(0) != mask or place is None:
                return False
            if not isinstance(place.node, cst.Subscript) or len(place.node.slice) != 1:
                return False
            if not is_index(place.node.slice[0].slice, self.index):
                return False
        return {one.name for one in found} == {"where"} and all(
            len(one.recorded.args) == 1 for one in found
        )

    def covers_all(self, search: cst.BaseExpression, compared: Operation | None) -> bool:
        """Return whether each element of the searched positions is found in one iteration: they
        are of a `topk` over as many classes as there are iterations."""
        graph, source = self.loop.call.graph, self.loop.call.source
        chosen = self.routed(search) if compared is None else compared.value(0)
        picked = graph.made_by(chosen, "getitem")
        whole = chosen if picked is None else picked.value(0)
        topk = self.topk(whole)
        among, classes = graph.of(topk.value(0) if topk else None), graph.of(whole)
        place = None if compared is None else source.place(compared)
        times = len(self.loop.operations.get(search if place is None else place.node, []))
        is_some = isinstance(self.loop.target, cst.Name) and self.loop.bounds(self.index) is None
        if among is None or classes is None or is_some:
            return False
        return times == among.shape[-1] * (1 if picked is None else classes.shape[1])

    def counted(self, code: str) -> str | None:
        """Return the list of the numbers of rows that the program itself makes before the loop, and
        reads in it at the turn's class, so that it has one for each."""
        flat = [f"{code}{one}" for one in ("", ".flatten()", ".view(-1)", ".reshape(-1)")]
        starts = [f"torch.bincount({one}, minlength=" for one in flat]
        starts += [f"{one}.bincount(minlength=" for one in flat]
        for one in within(self.loop.function.body):
            if not isinstance(one, cst.Assign) or not is_name(one.targets[0].target):
                continue
            name, value = self.loop.code(one.targets[0].target), self.loop.code(one.value)
            if not value.endswith(").tolist()") or not value.startswith(tuple(starts)):
                continue
            stored = [o for o in within(self.loop.function.body) if is_stored(o, name)]
            read = [o for o in within(self.loop.node) if self.loop.code(o) == self.count_of(name)]
            is_before = (
                self.loop.file.ranges[one].end.line
                < self.loop.file.ranges[self.loop.node].start.line
            )
            if len(stored) == 1 and read and is_before:
                return name
        return None

    def count_of(self, counts: str) -> str:
        return f"{counts}[{self.index}]"


def is_stored(node: cst.CSTNode, name: str) -> bool:
    """Return whether a statement binds or changes a local."""
    return isinstance(node, cst.BaseSmallStatement) and name in stored_names(node)


def is_index(part: cst.BaseSlice, name: str) -> bool:
    """Return whether a part of a subscript is a name."""
    if not isinstance(part, cst.Index) or not isinstance(part.value, cst.Name):
        return False
    return part.value.value == name
