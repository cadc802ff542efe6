"""Hold what is known of a loop whose expressions are written for all turns at once.

Turns become a dimension: `x[:, t]` is `x` with the turns at dimension 1, `self.proj(x[:, t])` is
`self.proj(x)`, `tags[t - 1]` is `tags[:-1]`. What is not known to allow that raises Refused.
`lift_expression` writes an expression by its form; the other modules `lift_*` write its parts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import roots
from cudal1_ci.propose.recorded.bounds import Bounds
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import (
    INDEX_DTYPES,
    Lifted,
    Refused,
    Swap,
    is_ellipsis,
    is_impure,
    is_none,
    size_of,
    within,
)
from cudal1_ci.propose.recorded.source import STRINGS, File, Source, bracketed
from cudal1_ci.propose.recorded.spans import (
    FLOATS,
)
from cudal1_ci.propose.recorded.windows import (
    Locals,
    Moving,
    Starts,
    fits,
    last_end,
)


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
    expression: Callable[[Lift, cst.BaseExpression], Lifted]
    """What writes an expression by its form."""
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
    early: dict[str, str] = field(default_factory=dict)
    """Names by the code that they are bound to before a guard is read."""
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
            return self.expression(self, node)
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

    def dense(self, found: Lifted) -> Lifted:
        """Return the mask of each turn's class as a matrix; other values as they are."""
        if not found.classes or found.code or self.bounds is None:
            return found
        if found.is_searched:
            raise Refused
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

    def is_float(self, node: cst.BaseExpression) -> bool:
        return self.dtype(node).startswith(FLOATS)

    def swapped(self, node: cst.CSTNode, new: dict[cst.BaseExpression, str]) -> str:
        by_node: dict[cst.CSTNode, str] = dict(new.items())
        return self.code(node.visit(Swap(by_node)))  # type: ignore[arg-type]

    def rank_of(self, node: cst.BaseExpression, near: cst.BaseExpression) -> tuple[int, str]:
        """Return dimensions and dtype of an expression, or of a local where another one is."""
        if isinstance(node, cst.Name) and node not in self.ranks:
            for one in self.operations.get(near, []):
                held = self.source.scope(one).get(node.value)
                value = None if held is None else self.source.graph.of(held.value)
                if value is not None:
                    return len(value.shape), value.dtype
        return self.ranks.get(node, (0, ""))

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

    def is_span(self, part: cst.BaseSlice) -> bool:
        """Return whether a part of a subscript is `:n`, with a length of the turn."""
        if not isinstance(part, cst.Slice) or part.upper is None or part.step is not None:
            return False
        starts = part.lower is None or self.code(part.lower) == "0"
        return starts and self.varies(part.upper)

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

    def dtype(self, node: cst.BaseExpression) -> str:
        if node in self.ranks:
            return self.ranks[node][1]
        return self.dtypes.get(node.value, "") if isinstance(node, cst.Name) else ""

    def positions_of(self, part: cst.BaseSlice, base: cst.BaseExpression) -> Lifted | str:
        """Return the position that each turn has in a dimension: code of the turns' numbers, or
        what holds them."""
        if not isinstance(part, cst.Index):
            raise Refused
        offset = None if self.bounds is None else self.bounds.offset(part.value)
        if offset is not None:
            return self.positions(offset, base)
        return self.number_of_turns(part.value)

    def number_of_turns(self, node: cst.BaseExpression) -> Lifted:
        """Return whole numbers, one for each turn, of the host or of a tensor."""
        found = self.lift_any(node)
        is_number = found.is_host or self.dtype(node) in INDEX_DTYPES
        found = replace(found, is_host=False)
        if found.rank or found.turns != 0 or not found.is_tensor or not is_number:
            raise Refused
        return found

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

    def kept_early(self, code: str, wanted: str) -> str:
        """Return a name for code that is assigned before the guards. Raises: Refused, where it
        reads what the loop binds."""
        if names_in(cst.parse_expression(code)) & self.changing:
            raise Refused
        if code not in self.early:
            self.early[code] = self.free_name(wanted)
        return self.early[code]

    def free_name(self, wanted: str) -> str:
        """Return a name that nothing else has."""
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted

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
