"""Pad a list of tensors by one call, where a loop copies each of them into a filled tensor."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.editing.walk import stored_names
from cudal1_ci.propose.recorded.joins import is_empty_list
from cudal1_ci.propose.recorded.lifted import Refused, is_ellipsis, is_whole, within
from cudal1_ci.propose.recorded.loop import Loop, loops_in, shown_loop
from cudal1_ci.propose.recorded.loop_text import is_name
from cudal1_ci.propose.recorded.repeats import free_name
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.statements import append_of

MIN_TURNS = 4
EXACT = 2**53
"""Whole numbers up to this one are exact as a float, which padding is."""
FILLS = {"zeros": "0", "new_zeros": "0", "ones": "1", "new_ones": "1"}
PADDED = '''
def pad_rows(rows, size, like, value=0.0, counts=None):
    """Return rows filled up to a size, of the type of `like`; None where they do not fit."""
    sizes, tail = [row.shape for row in rows], tuple(size[2:])
    if len(rows) != size[0] or {tuple(one[1:]) for one in sizes} != {tail} or () in sizes:
        return None
    if (rows[0].dtype, rows[0].device) != (like.dtype, like.device):
        return None
    lengths = [one[0] for one in sizes]
    rest = size[1] - max(lengths)
    if rest < 0 or (counts is not None and [*counts] != lengths):
        return None
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)
    if rest:
        ends = (0, 0) * len(tail) + (0, rest)
        padded = torch.nn.functional.pad(padded, ends, value=value)
    return padded
'''


@dataclass(frozen=True)
class Filled:
    """The line that makes a tensor with the same number everywhere."""

    line: cst.SimpleStatementLine
    size: str
    """Code of its size, a tuple or a list."""
    like: str
    """Code of an empty tensor of its dtype, on its device."""
    value: str


@dataclass
class Padding:
    """A loop whose turns copy tensors of a list into rows."""

    loop: Loop
    index: str = ""
    """The turn's number."""
    high: str = ""
    """Code of the number of turns, of a loop over a range."""
    rows: dict[str, str] = field(default_factory=dict)
    """Code of lists of tensors, by the code of a turn's tensor."""
    counts: dict[str, str] = field(default_factory=dict)
    """Code of lists of lengths, by the code of a turn's length."""
    outs: dict[str, str] = field(default_factory=dict)
    """Names of tensors that are filled, by the name of a turn's row."""
    lengths: dict[str, str] = field(default_factory=dict)
    """Code of the list that a turn's lengths are of, by the name of a length."""
    copied: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Code of the tensors and of their lengths, by the name of the tensor that they fill."""
    marked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Code of the lengths and of a number, by the name of a mask."""
    zipped: list[str] = field(default_factory=list)
    """Names of what the loop goes through."""
    listed: dict[str, str] = field(default_factory=dict)
    """Code of the lengths that are appended, by the name of the list."""

    def read(self) -> None:
        """Read the loop. Raises: Refused, for another one."""
        node = self.loop.node
        if not isinstance(node, cst.For) or node.orelse or node.asynchronous:
            raise Refused
        self.read_target(self.loop.target, self.loop.over)
        for line in node.body.body:
            if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
                raise Refused
            self.read_statement(line.body[0])
        if not self.copied:
            raise Refused

    def read_target(self, target: cst.BaseExpression, over: cst.BaseExpression) -> None:
        """Read what a turn's names are."""
        called = self.loop.code(over.func) if isinstance(over, cst.Call) else ""
        given = [one.value for one in over.args] if isinstance(over, cst.Call) else []
        parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple) else []
        if called == "range" and len(given) == 1 and isinstance(target, cst.Name):
            self.index, self.high = target.value, self.loop.code(given[0])
            kinds = cst.Name | cst.Call | cst.Attribute | cst.Subscript | cst.Integer
            if not isinstance(given[0], kinds) or any(self.is_changed(o) for o in given):
                raise Refused
        elif called == "enumerate" and len(given) == 1 and len(parts) == 2:
            self.index = self.loop.code(parts[0])
            self.read_target(parts[1], given[0])
        elif called == "zip" and len(given) == len(parts):
            for one, of in zip(parts, given, strict=True):
                self.read_target(one, of)
        elif isinstance(target, cst.Name) and is_name(over):
            held = self.held(self.loop.code(over))
            name = self.loop.code(over)
            self.zipped.append(name)
            if held == "tensor" and self.filled(name) is not None:
                self.outs[target.value] = name
            elif held == "tensors":
                self.rows[target.value] = name
            elif held in ("numbers", "tensor"):
                self.counts[target.value] = name
            else:
                raise Refused
        else:
            raise Refused

    def held(self, name: str) -> str:
        """Return what a local is in the loop: `tensor`, `tensors`, `numbers` or another thing."""
        held = self.loop.call.source.scope(self.loop.inside[0]).get(name)
        if held is None:
            return ""
        if held.kind == "value":
            return "tensor"
        kinds = {one.kind for one in held.items}
        if held.kind not in ("list", "tuple") or len(kinds) != 1:
            return ""
        return {"value": "tensors", "literal": "numbers"}.get(kinds.pop(), "")

    def is_changed(self, node: cst.CSTNode) -> bool:
        """Return whether the loop binds a name of an expression, or calls what is no size."""
        names = {one for line in self.loop.body for one in stored_names(line)}
        calls = [one for one in within(node) if isinstance(one, cst.Call)]
        is_size = all(
            self.loop.code(one.func) == "len" or self.loop.code(one.func).endswith(".size")
            for one in calls
        )
        return bool(names & names_in(node)) or not is_size

    def read_statement(self, node: cst.BaseSmallStatement) -> None:
        """Read a statement of a turn."""
        if isinstance(node, cst.Expr):
            appended = append_of(node)
            if appended is not None:
                self.listed[appended[0]] = self.length_of(appended[1])
                return
            call = node.value
            function = call.func if isinstance(call, cst.Call) else None
            if not isinstance(function, cst.Attribute) or function.attr.value != "copy_":
                raise Refused
            assert isinstance(call, cst.Call)
            if len(call.args) != 1 or call.args[0].keyword is not None:
                raise Refused
            self.read_write(function.value, call.args[0].value)
            return
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            raise Refused
        target = node.targets[0].target
        if isinstance(target, cst.Subscript):
            self.read_write(target, node.value)
        elif isinstance(target, cst.Name) and (rows := self.rows_of(node.value)):
            self.rows[target.value] = rows
        elif isinstance(target, cst.Name):
            self.lengths[target.value] = self.length_of(node.value)
        else:
            raise Refused

    def rows_of(self, node: cst.BaseExpression) -> str:
        """Return the list that a turn's tensor is of; "" for another expression."""
        code = self.loop.code(node)
        if code in self.rows:
            return self.rows[code]
        name = self.item_of(node)
        return name if name and self.held(name) == "tensors" else ""

    def item_of(self, node: cst.BaseExpression) -> str:
        """Return the list of `rows[i]`."""
        if not isinstance(node, cst.Subscript) or not is_name(node.value) or not self.index:
            return ""
        is_own = self.loop.code(node).endswith(f"[{self.index}]") and len(node.slice) == 1
        return self.loop.code(node.value) if is_own else ""

    def length_of(self, node: cst.BaseExpression | None) -> str:
        """Return code of the lengths of which an expression is a turn's. Raises: Refused."""
        if node is None:
            raise Refused
        code = self.loop.code(node)
        if code in self.lengths:
            return self.lengths[code]
        if code in self.counts:
            return self.counted(self.counts[code])
        name = self.item_of(node)
        if name and self.held(name) in ("numbers", "tensor"):
            return self.counted(name)
        of: cst.BaseExpression | None = None
        if isinstance(node, cst.Call) and self.loop.code(node.func) == "len":
            of = node.args[0].value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            is_size = node.func.attr.value == "size" and len(node.args) == 1
            of = node.func.value if is_size and self.loop.code(node.args[0].value) == "0" else None
        elif isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
            is_shape = node.value.attr.value == "shape" and self.loop.code(node).endswith("[0]")
            of = node.value.value if is_shape else None
        rows = "" if of is None else self.rows_of(of)
        if not rows:
            raise Refused
        return lengths_of(rows)

    def counted(self, name: str) -> str:
        return f"{name}.tolist()" if self.held(name) == "tensor" else name

    def read_write(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """Read `out[i, :n] = x`, also of a mask. Raises: Refused, for another write."""
        parts: list[cst.BaseSlice] = []
        while isinstance(target, cst.Subscript):
            parts = [*(one.slice for one in target.slice), *parts]
            target = target.value
        name = self.loop.code(target)
        if name in self.outs:
            name = self.outs[name]
        elif not parts or not is_index(self.loop, parts.pop(0), self.index):
            raise Refused
        if not parts or not all(is_whole(one) or is_ellipsis(one) for one in parts[1:]):
            raise Refused
        first = parts[0]
        if not isinstance(first, cst.Slice) or first.step is not None or not is_name(target):
            raise Refused
        if first.lower is not None and self.loop.code(first.lower) != "0":
            raise Refused
        lengths, rows = self.length_of(first.upper), self.rows_of(value)
        if name in self.copied or name in self.marked:
            raise Refused
        if rows:
            self.copied[name] = rows, lengths
            return
        known = self.loop.call.graph.of(self.loop.held(name, self.loop.inside))
        is_plain = self.loop.code(value) in ("True", "False", "0", "1")
        if known is None or len(known.shape) != 2 or not is_plain:
            raise Refused
        self.marked[name] = lengths, self.loop.code(value)

    def filled(self, name: str) -> Filled | None:
        """Return how a tensor is made before the loop; None where it has another content."""
        loop, ((line, assign), *more) = self.loop, self.loop.bindings.get(name, [(0, None)])
        start, last = loop.lines()
        block = loop.file.parents[loop.node]
        above = None if assign is None else loop.file.parents[assign]
        if more or assign is None or line >= start or len(assign.targets) != 1:
            return None
        if not isinstance(above, cst.SimpleStatementLine) or loop.file.parents[above] is not block:
            return None
        made = filled_by(loop, assign.value)
        held = loop.call.source.scope(loop.inside[0]).get(name)
        if made is None or held is None or held.value is None:
            return None
        readers = loop.call.graph.readers.get(held.value, [])
        readers = [one for one in readers if one.index < loop.inside[0].index]
        if any(one.name not in ("size", "dim", "unbind") for one in readers):
            return None
        names = {one for code in made for one in names_in(cst.parse_expression(code))}
        lines = [at for one in names for at, _ in loop.bindings.get(one, [])]
        if any(line <= at <= last for at in lines):
            return None
        return Filled(above, *made)

    def change(self) -> Change:
        """Return the loop as calls that pad. Raises: Refused, if it is another loop."""
        self.read()
        loop = self.loop
        if len(self.copied) != 1:
            raise Refused
        [(out, (rows, lengths))] = self.copied.items()
        made = self.filled(out)
        stored = {*self.rows, *self.lengths, *self.counts, *self.outs, self.index}
        names = [one.value for one in within(loop.node) if isinstance(one, cst.Name)]
        written = {*self.copied, *self.marked, *self.listed}
        if made is None or loop.is_read_after({one for one in stored if one.isidentifier()}):
            raise Refused
        if any(names.count(one) > 1 for one in written) or not {*self.outs.values()} <= {out}:
            raise Refused
        if self.num_tensors(rows) < MIN_TURNS:
            raise Refused("it has few passes")
        block = cst.ensure_type(loop.file.parents[loop.node], cst.IndentedBlock)
        lines = list(block.body)
        at = lines.index(loop.node)  # type: ignore[arg-type]
        between = lines[lines.index(made.line) + 1 : at]
        for name, code in self.listed.items():
            before = [one for one in lines[:at] if name in names_in(one)]
            if len(before) != 1 or not is_empty_list(before[0], {name}):
                raise Refused
            if code != lengths_of(rows):
                raise Refused
        given = {lengths, *(of for of, _ in self.marked.values())} - {lengths_of(rows)}
        ends = (f"len({rows})", first_of(made.size))
        tests = [] if self.high in ("", *ends) else [f"{self.high} == len({rows})"]
        tests += [
            f"len({one}) == len({rows})" for one in self.zipped if one not in (rows, out, *given)
        ]
        if len(given) > 1:
            raise Refused
        is_kept = any(out in names_in(one) for one in between)
        size, like = (f"{out}.shape", out) if is_kept else (made.size, made.like)
        options = [made.value] * (made.value != "0") + [f"counts={one}" for one in given]
        name = free_name(loop.function, "padded") if is_kept else out
        text = f"{name} = pad_rows({', '.join([rows, size, like, *options])})"
        text += f" if {' and '.join(tests)} else None" if tests else ""
        then = [f"{out} = {name}"] * is_kept
        for mask, (of, number) in self.marked.items():
            device = f"device={mask}.device"
            counts = free_name(loop.function, "lengths")
            then.append(f"{counts} = torch.tensor({of}, {device})[:, None]")
            valid = f"torch.arange({mask}.size(1), {device}) < {counts}"
            part = "" if first_of_mask(self, mask) == first_of(made.size) else f"[: len({rows})]"
            then.append(f"{mask}{part}.masked_fill_({valid}, {number})")
        then += [f"{one} += {lengths_of(rows)}" for one in self.listed]
        old = loop.code(loop.node.with_changes(leading_lines=[])).strip("\n")
        old = old if is_kept else f"{loop.code(made.line).strip()}\n{old}"
        old = textwrap.indent(old, "    ")
        done = textwrap.indent("\n".join(then), "    ")
        test = f"if {name} is not None:\n{done}\nelse" if then else f"if {name} is None"
        new: dict[cst.CSTNode, str] = {loop.node: f"{text}\n{test}:\n{old}"}
        new |= {} if is_kept else {made.line: ""}
        return Change(loop.name, new, shown_loop(loop), frozenset(("torch",)), PADDED)

    def num_tensors(self, name: str) -> int:
        """Return how many tensors a list has in the call."""
        held = self.loop.call.source.scope(self.loop.inside[0]).get(name)
        return 0 if held is None else len(held.items)


def lengths_of(rows: str) -> str:
    """Return code of the lengths of the tensors of a list."""
    return f"[row.size(0) for row in {rows}]"


def first_of(size: str) -> str:
    """Return code of the first size of a tuple or a list of them."""
    node = cst.parse_expression(size)
    if not isinstance(node, cst.Tuple | cst.List):
        return ""
    return cst.Module([]).code_for_node(node.elements[0].value)


def first_of_mask(padding: Padding, mask: str) -> str:
    """Return code of the number of rows with which a mask is made."""
    made = padding.filled(mask)
    return "" if made is None else first_of(made.size)


def is_index(loop: Loop, part: cst.BaseSlice, index: str) -> bool:
    """Return whether a part of a subscript is the turn's number."""
    return bool(index) and isinstance(part, cst.Index) and loop.code(part.value) == index


def filled_by(loop: Loop, node: cst.BaseExpression) -> tuple[str, str, str] | None:
    """Return size, like and value, as `Filled` has them, of an expression that makes a tensor with
    the same number everywhere."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    owner, name = node.func.value, node.func.attr.value
    plain = [one.value for one in node.args if one.keyword is None and not one.star]
    named = {one.keyword.value: one.value for one in node.args if one.keyword is not None}
    if len(plain) + len(named) != len(node.args):
        return None
    value = FILLS.get(name, "")
    if name == "fill_" and len(plain) == 1 and isinstance(owner, cst.Call):
        value, node = loop.code(plain[0]), owner
        inner = filled_by(loop, node) if is_made(node, "zeros", "ones", "new_zeros") else None
        if inner is not None:
            return (*inner[:2], value) if is_number_code(plain[0]) else None
        if not is_made(node, "empty", "new_empty", "new") or node.args[:0]:
            return None
        return None if not is_number_code(plain[0]) else sized(loop, node, value)
    if name in ("full", "new_full"):
        number = named.pop("fill_value", plain.pop() if len(plain) == 2 else None)
        if number is None or len(plain) != 1 or not is_number_code(number):
            return None
        if name == "full" and "dtype" not in named:
            return None
        rest = [one for one in node.args if one.value is not number]
        return sized(loop, node.with_changes(args=rest), loop.code(number), is_one=True)
    return sized(loop, node, value) if value else None


def is_made(node: cst.Call, *names: str) -> bool:
    """Return whether a call is of a function or a method of one of these names."""
    return isinstance(node.func, cst.Attribute) and node.func.attr.value in names


def sized(
    loop: Loop, node: cst.Call, value: str, *, is_one: bool = False
) -> tuple[str, str, str] | None:
    """Return size, like and value of a call of sizes, such as `torch.zeros(n, m, dtype=dtype)`."""
    function = cst.ensure_type(node.func, cst.Attribute)
    owner, name = loop.code(function.value), function.attr.value
    is_torch = owner == "torch"
    if is_torch != (not name.startswith("new")):
        return None
    named = [one for one in node.args if one.keyword is not None]
    sizes = [one.value for one in node.args if one.keyword is None]
    if any(one.keyword.value not in ("dtype", "device") for one in named if one.keyword):
        return None
    if not is_torch and not isinstance(function.value, cst.Name | cst.Subscript | cst.Attribute):
        return None
    if not sizes or not all(map(is_plain_code, [*sizes, *(one.value for one in named)])):
        return None
    is_listed = len(sizes) == 1 and not isinstance(sizes[0], cst.Integer)
    if is_one or is_listed:
        if not isinstance(sizes[0], cst.Tuple | cst.List) or len(sizes[0].elements) < 2:
            return None
        size = loop.code(sizes[0])
    elif len(sizes) < 2:
        return None
    else:
        size = f"({', '.join(loop.code(one) for one in sizes)})"
    options = "".join(f", {loop.code(one).rstrip(', ')}" for one in named)
    return size, f"{owner}.{'empty' if is_torch else 'new_empty'}(0{options})", value


def is_plain_code(node: cst.BaseExpression) -> bool:
    """Return whether an expression reads names, sizes and numbers, and calls nothing else than
    what gives one: `max(lengths)`, `x.size(0)`, `len(rows)`."""
    for one in within(node):
        if isinstance(one, cst.NamedExpr | cst.Await | cst.Lambda | cst.BaseComp | cst.Yield):
            return False
        if isinstance(one, cst.Call):
            function = one.func
            is_size = isinstance(function, cst.Attribute) and function.attr.value == "size"
            is_size = is_size or (
                isinstance(function, cst.Name) and function.value in ("max", "len", "int")
            )
            if not is_size:
                return False
    return True


def is_number_code(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a number that padding keeps: written out, or a name."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Minus) and is_number_code(node.expression)
    if isinstance(node, cst.Integer):
        return node.evaluated_value <= EXACT
    if isinstance(node, cst.Call):
        return isinstance(node.func, cst.Name) and node.func.value == "float"
    return isinstance(node, cst.Float | cst.Name | cst.Attribute)


def find_padded(call: Call) -> Iterator[Change]:
    """Find `for i, x in enumerate(rows): out[i, : len(x)] = x`, also with a mask."""
    for loop in loops_in(call):
        if not isinstance(loop.node, cst.For):
            continue
        try:
            yield Padding(loop).change()
        except Refused as refused:
            call.miss(loop.inside[0], str(refused), loop.node)


RULES = (
    RecordedRule(
        name="padded_rows",
        family="vectorization",
        why="one call pads all tensors of a list, and one comparison makes their mask; each "
        "iteration launched a copy of one tensor, and a fill",
        precondition="the loop copies each tensor to the start of a row of a new tensor, and does "
        "nothing else than to mark it in a mask; the loop stays for tensors that differ in shape "
        "or type",
        find=find_padded,
    ),
)
