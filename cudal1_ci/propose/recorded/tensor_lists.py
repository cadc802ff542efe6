"""Write the formula of one turn of a loop over tensors for the lists of all of them.

The lists are those of `torch._foreach_*`, which torch.optim and torch.nn.utils use: one kernel
does what was one a tensor. Each operation of the formula becomes one call, so values are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword

import libcst as cst

from cudal1_ci.propose.editing.terms import names_in
from cudal1_ci.propose.recorded.graph import Operation
from cudal1_ci.propose.recorded.lifted import Refused, within
from cudal1_ci.propose.recorded.loop import Loop
from cudal1_ci.propose.recorded.source import bracketed
from cudal1_ci.records.recording import Argument

OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "add",
    cst.Subtract: "sub",
    cst.Multiply: "mul",
    cst.Divide: "div",
    cst.Power: "pow",
    cst.AddAssign: "add",
    cst.SubtractAssign: "sub",
    cst.MultiplyAssign: "mul",
    cst.DivideAssign: "div",
}
UNARY = frozenset(
    (
        *("abs", "neg", "sqrt", "exp", "log", "reciprocal", "sign", "tanh", "sigmoid"),
        *("floor", "round", "erf", "log1p", "expm1"),
    )
)
"""Functions of one tensor that exist for lists."""
BINARY = {"add": "alpha", "sub": "alpha", "mul": "", "div": "", "pow": "", "lerp": ""}
"""Functions of two operands, with the named number that they take."""
SAME = frozenset(("data", "grad", "detach"))
"""What gives a tensor that exists already."""
KEPT = frozenset(("clone", "sum", "mean"))
"""Methods of one tensor that have no form for lists."""
MUTABLE = frozenset(("add", "sub", "mul", "div", "lerp", "addcmul", "addcdiv", "copy", "sqrt"))
IN_PLACE = {"zero": "zero", **dict.fromkeys(MUTABLE), "abs": "abs", "neg": "neg", "exp": "exp"}


@dataclass(frozen=True)
class Listed:
    """Code of the tensors of all turns."""

    code: str
    is_fresh: bool
    """Whether the loop makes them."""
    is_number: bool = False
    """Whether they are tensors without dimensions."""


@dataclass
class TensorLists:
    """Lists of the tensors of a loop's turns."""

    loop: Loop
    targets: tuple[str, ...]
    """Names that each turn binds."""
    taken: set[str]
    env: dict[str, Listed | cst.BaseExpression] = field(default_factory=dict)
    """What the turn's own names are: lists, or expressions of tensors that exist."""
    leaves: dict[str, tuple[str, cst.BaseExpression]] = field(default_factory=dict)
    """Name of a list and the expression of its items, by the code of that."""
    lines: list[str] = field(default_factory=list)
    squares: dict[str, Listed] = field(default_factory=dict)
    """What squares are of, by their code."""
    scaled: dict[str, str] = field(default_factory=dict)
    """The list and the number of products, as a sum takes them, by their code."""
    numbers: set[str] = field(default_factory=set)
    """Names of numbers that the body makes of numbers."""
    is_stored: bool = False
    num_calls: int = 0

    def name(self, base: str) -> str:
        """Return a free name for a list of what has a name."""
        new = f"{base}s" if not base.endswith("s") or len(base) == 1 else f"{base}_list"
        new = f"{base}_list" if new in self.taken or iskeyword(new) else new
        while new in self.taken:
            new += "_"
        self.taken.add(new)
        return new

    def of_turn(self, node: cst.CSTNode) -> bool:
        """Return whether an expression reads what a turn binds."""
        return bool(names_in(node) & ({*self.targets} | {*self.env}))

    # --- tensors that exist ----------------------------------------------------------------------

    def leaf(self, node: cst.BaseExpression) -> Listed | None:
        """Return the list of tensors that exist before the loop; None if a turn makes them."""
        resolved = self.resolved(node)
        if resolved is None:
            return None
        code = self.loop.code(resolved)
        known = self.leaves.get(code)
        if known is None:
            if self.is_stored:
                raise Refused  # it may be another tensor by then
            known = self.name(base_name(resolved)), resolved
            self.leaves[code] = known
        return Listed(known[0], is_fresh=False)

    def resolved(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the expression of a tensor that exists, by the loop's own targets."""
        if isinstance(node, cst.Name):
            known = self.env.get(node.value)
            if isinstance(known, cst.BaseExpression):
                return known
            return node if known is None and node.value in self.targets else None
        names = {one.name for one in self.loop.operations.get(node, [])}
        if names - SAME:
            return None
        if isinstance(node, cst.Attribute):
            if node.attr.value not in ("data", "grad"):
                return None
            inner = self.resolved(node.value)
            return None if inner is None else node.with_changes(value=inner)
        if isinstance(node, cst.Call):
            function = node.func
            if node.args or not isinstance(function, cst.Attribute):
                return None
            if function.attr.value != "detach":
                return None
            inner = self.resolved(function.value)
            changed = None if inner is None else function.with_changes(value=inner)
            return None if changed is None else node.with_changes(func=changed)
        if isinstance(node, cst.Subscript) and len(node.slice) == 1:
            part = node.slice[0].slice
            key = part.value if isinstance(part, cst.Index) else None
            is_held = isinstance(key, cst.Name) and key.value in self.targets
            if is_held and not self.of_turn(node.value) and is_path(node.value):
                return node
        return None

    # --- what a turn makes -----------------------------------------------------------------------

    def lift(self, node: cst.BaseExpression) -> Listed:
        """Return the list of an expression's values; raise Refused if there is none."""
        known = self.env.get(node.value) if isinstance(node, cst.Name) else None
        if isinstance(known, Listed):
            return known
        leaf = self.leaf(node)
        if leaf is not None:
            return leaf
        if isinstance(node, cst.BinaryOperation):
            return self.operator(node)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            self.expect(node, "neg")
            return self.made("neg", self.lift(node.expression).code)
        if isinstance(node, cst.Call):
            return self.call(node)
        raise Refused

    def expect(self, node: cst.CSTNode, *names: str) -> list[Operation]:
        """Return the operations of an expression, one a turn, if they have one of these names."""
        found = self.loop.operations.get(node, [])
        if len(found) < MIN_TURNS or not {one.name for one in found} <= {*names}:
            raise Refused
        if not all(is_float(self.loop, one) for one in found):
            raise Refused
        return found

    def between(self, found: Sequence[Operation], count: int) -> None:
        """Raise Refused unless each operation reads as many tensors as there are lists."""
        for one in found:
            if sum(each.value is not None for each in arguments_of(one)) != count:
                raise Refused

    def operator(self, node: cst.BinaryOperation) -> Listed:
        name = OPERATORS.get(type(node.operator))
        if name is None:
            raise Refused
        found = self.expect(node, name, f"r{name}")
        left, right = node.left, node.right
        is_pair = self.of_turn(left) and self.of_turn(right)
        self.between(found, 1 + is_pair)
        if is_pair:
            if name == "mul" and self.loop.code(left) == self.loop.code(right):
                return self.made("pow", self.lift(left).code, "2", square=self.lift(left))
            first, second = self.lift(left), self.lift(right)
            is_number = first.is_number and second.is_number
            if name == "add" and first.code in self.scaled and second.code not in self.scaled:
                first, second = second, first
            return self.made(name, first.code, self.addend(name, second), is_number=is_number)
        if self.of_turn(left):
            first = self.lift(left)
            number = self.number(right, found)
            square = first if name == "pow" and number in ("2", "2.0") else None
            return self.product(name, first, number, square)
        number, second = self.number(left, found), self.lift(right)
        if name == "sub":  # as torch does: -x + 1
            inner = self.made("neg", second.code)
            return self.made("add", inner.code, number, is_number=second.is_number)
        if name == "div":  # as torch does: x.reciprocal() * 1
            inner = self.made("reciprocal", second.code)
            return self.made("mul", inner.code, number, is_number=second.is_number)
        if name not in ("add", "mul"):
            raise Refused
        return self.product(name, second, number)

    def product(
        self, name: str, listed: Listed, number: str, square: Listed | None = None
    ) -> Listed:
        """Return a list combined with a number. A product may become part of a sum."""
        made = self.made(name, listed.code, number, square=square, is_number=listed.is_number)
        if name == "mul":
            self.scaled[made.code] = f"{listed.code}, alpha={number}"
        return made

    def addend(self, name: str, listed: Listed) -> str:
        """Return the arguments of what a sum or a difference takes, scaled in the same call."""
        if name not in ("add", "sub") or listed.code not in self.scaled:
            return listed.code
        self.num_calls -= 1
        return self.scaled[listed.code]

    def number(self, node: cst.BaseExpression, found: Sequence[Operation]) -> str:
        """Return the code of a number that is the same in all turns."""
        if self.of_turn(node) or names_in(node) & (stored_in(self.loop) - self.numbers):
            raise Refused
        if not is_arithmetic(node):
            raise Refused
        texts = {self.text(one, node) for one in found}
        if len(texts) != 1 or not is_number_text(texts.pop()):
            raise Refused
        return self.loop.code(bare(node))

    def text(self, operation: Operation, node: cst.BaseExpression) -> str | None:
        """Return the literal that an argument was; None if it was another thing."""
        source = self.loop.call.source
        place = source.place(operation)
        argument: Argument | None = None
        if place is not None and isinstance(place.node, cst.BinaryOperation):
            held = [one for one in operation.recorded.args if one.kind == "literal"]
            return held[0].text if len(held) == 1 else None  # the other one is of the turn
        for one, given in zip(source.operands(operation), operation.recorded.args, strict=False):
            argument = given if one is node else argument
        if place is not None and isinstance(place.node, cst.Call):
            names = [a.keyword.value for a in place.node.args if a.value is node and a.keyword]
            for keyword in operation.recorded.kwargs:
                argument = keyword.argument if keyword.name in names else argument
        return argument.text if argument is not None and argument.kind == "literal" else None

    def made(
        self, name: str, *codes: str, square: Listed | None = None, is_number: bool = False
    ) -> Listed:
        self.num_calls += 1
        code = f"torch._foreach_{name}({', '.join(codes)})"
        if square is not None:
            self.squares[code] = square
        return Listed(code, is_fresh=True, is_number=is_number)

    def call(self, node: cst.Call) -> Listed:
        """Return the list of a method's values, or of a function of `torch`."""
        function = node.func
        if not isinstance(function, cst.Attribute):
            raise Refused
        name = function.attr.value
        given = list(node.args)
        if self.loop.code(function.value) in ("torch", "torch.linalg"):
            if not given or given[0].keyword is not None or given[0].star:
                raise Refused
            receiver, given = given[0].value, given[1:]
        else:
            receiver = function.value
        if any(one.star for one in given):
            raise Refused
        plain = [one.value for one in given if one.keyword is None]
        named = {one.keyword.value: one.value for one in given if one.keyword is not None}
        if name in ("norm", "vector_norm") or (name == "sum" and not given):
            reduced = self.reduced(node, name, receiver, plain, named)
            if reduced is not None:
                return reduced
        if name in KEPT:
            return self.kept(node, name, receiver, given)
        if name.endswith("_"):
            return self.in_place(node, name[:-1], receiver, plain, named)
        name = {"multiply": "mul", "divide": "div", "subtract": "sub", "square": "pow"}.get(
            name, name
        )
        if name == "pow" and not given:
            self.expect(node, "square")
            inner = self.lift(receiver)
            return self.made("pow", inner.code, "2", square=inner, is_number=inner.is_number)
        found = self.expect(node, name)
        first = self.lift(receiver)
        square = first if name == "pow" and [*map(self.loop.code, plain)] == ["2"] else None
        codes = self.arguments(name, found, plain, named)
        self.between(found, 1 + sum(map(self.of_turn, plain)))
        is_number = first.is_number and not any(map(self.of_turn, plain))
        return self.made(name, first.code, *codes, square=square, is_number=is_number)

    def arguments(
        self,
        name: str,
        found: Sequence[Operation],
        plain: Sequence[cst.BaseExpression],
        named: dict[str, cst.BaseExpression],
    ) -> list[str]:
        """Return the codes of what a function takes besides its first argument."""
        if name in UNARY and not plain and not named:
            return []
        if name in ("addcmul", "addcdiv"):
            if len(plain) != 2 or not {*named} <= {"value"}:
                raise Refused
            codes = [self.lift(one).code for one in plain]
            return codes + [f"value={self.number(one, found)}" for one in named.values()]
        if name in ("clamp", "clip"):
            raise Refused
        if name not in BINARY or not {*named} <= {BINARY[name]} - {""}:
            raise Refused
        if len(plain) != (2 if name == "lerp" else 1):
            raise Refused
        is_list = self.of_turn(plain[0])
        if named and not is_list:
            raise Refused
        codes = [self.lift(plain[0]).code if is_list else self.number(plain[0], found)]
        if name == "pow" and is_list:
            raise Refused
        codes += [self.number(one, found) for one in plain[1:]]
        return codes + [f"{key}={self.number(one, found)}" for key, one in named.items()]

    def reduced(
        self,
        node: cst.Call,
        name: str,
        receiver: cst.BaseExpression,
        plain: Sequence[cst.BaseExpression],
        named: dict[str, cst.BaseExpression],
    ) -> Listed | None:
        """Return the list of a norm, or of a sum of squares; None if it is another sum."""
        if name == "sum":
            self.expect(node, "sum")
            inner = self.lift(receiver)
            square = self.squares.get(inner.code)
            if square is None:
                return None
            self.num_calls -= 1
            norms = self.made("norm", square.code, is_number=True)
            return self.made("pow", norms.code, "2", is_number=True)
        found = self.expect(node, name)
        orders = [*plain, *(one for key, one in named.items() if key in ("p", "ord"))]
        if len(orders) > 1 or len(orders) != len(plain) + len(named):
            raise Refused
        order = [
            self.loop.code(one) for one in orders
        ]  # the recording names it whatever is written
        if order and order[0] not in ("1", "2", "1.0", "2.0"):
            raise Refused
        if any(one.literal(9, "dim") is not None for one in found):
            raise Refused
        shown = [] if order in ([], ["2"], ["2.0"]) else order
        return self.made("norm", self.lift(receiver).code, *shown, is_number=True)

    def kept(
        self, node: cst.Call, name: str, receiver: cst.BaseExpression, given: Sequence[cst.Arg]
    ) -> Listed:
        """Return the list of a method that each tensor still has to be called with."""
        if given or self.loop.code(node.func).startswith("torch."):
            raise Refused
        self.expect(node, name)
        inner = self.lift(receiver)
        if name == "clone" and inner.is_fresh and inner.code.startswith("torch."):
            return inner
        code = f"[one.{name}() for one in {inner.code}]"
        return Listed(code, is_fresh=True, is_number=name != "clone")

    def in_place(
        self,
        node: cst.Call,
        name: str,
        receiver: cst.BaseExpression,
        plain: Sequence[cst.BaseExpression],
        named: dict[str, cst.BaseExpression],
    ) -> Listed:
        """Write a call that changes tensors as a line, and return the list of them."""
        if name not in IN_PLACE:
            raise Refused
        found = self.expect(node, f"{name}_")
        if is_written_twice(self.loop, found):
            raise Refused
        target = self.lift(receiver)
        before = len(self.lines)
        if name == "copy":
            if len(plain) != 1 or named:
                raise Refused
            codes = [self.lift(plain[0]).code]
        elif name == "zero":
            codes = []
        else:
            codes = self.arguments(name, found, plain, named)
        if len(self.lines) > before:
            raise Refused
        self.between(found, 1 + sum(map(self.of_turn, plain)))
        if target.is_fresh and target.code.startswith("torch.") and name != "copy":
            return self.made(name, target.code, *codes)
        if not target.code.isidentifier():
            raise Refused
        self.num_calls += 1
        self.lines.append(f"torch._foreach_{name}_({', '.join([target.code, *codes])})")
        return target

    def written(self, line: cst.AugAssign, name: str) -> None:
        """Write `p *= ...` into tensors that exist, as a line."""
        target = self.leaf(line.target)
        found = operations_at(self.loop, line)
        if target is None or len(found) < MIN_TURNS or is_written_twice(self.loop, found):
            raise Refused
        if {one.name for one in found} != {f"{name}_"}:
            raise Refused
        if not all(is_float(self.loop, one) for one in found):
            raise Refused
        self.between(found, 1 + self.of_turn(line.value))
        if self.of_turn(line.value):
            code = self.addend(name, self.lift(line.value))
        else:
            texts = {one.recorded.args[1].text for one in found}
            is_known = len(texts) == 1 and is_number_text(texts.pop())
            is_stored = names_in(line.value) & (stored_in(self.loop) - self.numbers)
            if not is_known or is_stored or not is_arithmetic(line.value):
                raise Refused
            code = self.loop.code(bare(line.value))
        self.num_calls += 1
        self.lines.append(f"torch._foreach_{name}_({target.code}, {code})")


MIN_TURNS = 4
"""Turns from which on one call for all is faster."""


def base_name(node: cst.BaseExpression) -> str:
    """Return what a tensor is called: `grad` for `p.grad`, `p` for `p.data`."""
    while True:
        if isinstance(node, cst.Name):
            return node.value
        if isinstance(node, cst.Attribute):
            if node.attr.value != "data":
                return node.attr.value
            node = node.value
        elif isinstance(node, cst.Call):
            node = node.func.value if isinstance(node.func, cst.Attribute) else node.func
        elif isinstance(node, cst.Subscript):
            node = node.value
        else:
            return "tensor"


def is_path(node: cst.CSTNode) -> bool:
    """Return whether an expression is a name, or an attribute of one."""
    if isinstance(node, cst.Attribute):
        return is_path(node.value)
    return isinstance(node, cst.Name)


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[], rpar=[]) if getattr(node, "lpar", ()) else node


def arguments_of(operation: Operation) -> Iterator[Argument]:
    yield from operation.recorded.args
    yield from (one.argument for one in operation.recorded.kwargs)


def is_number_text(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def is_float(loop: Loop, operation: Operation) -> bool:
    """Return whether an operation reads and makes floating numbers, and reads no tensor but those
    of its turn."""
    graph = loop.call.graph
    values = [one.value for one in arguments_of(operation) if one.value is not None]
    values += operation.recorded.outputs
    return bool(values) and all(
        (known := graph.of(one)) is not None and known.dtype in FLOATS for one in values
    )


def operations_at(loop: Loop, node: cst.CSTNode) -> list[Operation]:
    """Return the operations of a statement such as `p *= 2`, which is no expression."""
    file, source = loop.file, loop.call.source
    found = []
    for one in loop.call.graph.operations:
        span, frame = one.recorded.span, source.frame(one)
        if frame is None or frame.file != loop.name or span is None or span.column is None:
            continue
        where = file.ranges[node]
        is_first = (span.line, file.characters(span.line, span.column)) == (
            where.start.line,
            where.start.column,
        )
        if is_first and span.last_line == where.end.line and one.name.endswith("_"):
            found.append(one)
    return found


FLOATS = ("float16", "bfloat16", "float32", "float64")


def is_written_twice(loop: Loop, found: Sequence[Operation]) -> bool:
    """Return whether a turn writes a tensor that another turn wrote."""
    turns: dict[int, int] = {}
    for each in (*loop.operations.values(), found):
        written = [one for one in each if one.name.endswith("_")]
        for turn, one in enumerate(written):
            turns |= dict.fromkeys(one.recorded.outputs, turn)
    return any(turns.get(one.value(0) or 0, turn) != turn for turn, one in enumerate(found))


def stored_in(loop: Loop) -> set[str]:
    """Return names that the loop's body binds."""
    node = loop.node
    if not isinstance(node, cst.For):
        return set()
    return {
        one.target.value
        for one in within(node.body)
        if isinstance(one, cst.AssignTarget | cst.AugAssign | cst.NamedExpr)
        and isinstance(one.target, cst.Name)
    }


def is_arithmetic(node: cst.BaseExpression) -> bool:
    """Return whether an expression computes with numbers, and calls `math` at most."""
    for one in within(node):
        if isinstance(one, cst.Await | cst.NamedExpr | cst.Lambda | cst.BaseComp):
            return False
        if isinstance(one, cst.Call):
            owner = one.func.value if isinstance(one.func, cst.Attribute) else None
            if not isinstance(owner, cst.Name) or owner.value != "math":
                return False
    return True


def is_harmless(node: cst.BaseExpression) -> bool:
    """Return whether a condition only looks at a turn's tensor, or at its name."""
    for one in within(node):
        if isinstance(one, cst.Call):
            called = one.func.attr.value if isinstance(one.func, cst.Attribute) else ""
            name = one.func.value if isinstance(one.func, cst.Name) else ""
            if called not in LOOKS and name not in ("len", "isinstance", "hasattr"):
                return False
        if isinstance(one, cst.NamedExpr | cst.Await | cst.Lambda | cst.BaseComp | cst.Yield):
            return False
    return True


LOOKS = frozenset(
    (
        *("dim", "numel", "size", "is_floating_point", "startswith", "endswith", "is_complex"),
        "get",
    )
)


def negated(condition: str) -> str:
    """Return the code of the opposite of a condition."""
    tree = cst.parse_expression(condition)
    if isinstance(tree, cst.UnaryOperation) and isinstance(tree.operator, cst.Not):
        return cst.Module([]).code_for_node(bare(tree.expression))
    if isinstance(tree, cst.Comparison) and len(tree.comparisons) == 1:
        turned = {
            cst.Is: cst.IsNot,
            cst.IsNot: cst.Is,
            cst.In: cst.NotIn,
            cst.NotIn: cst.In,
            cst.Equal: cst.NotEqual,
            cst.NotEqual: cst.Equal,
        }.get(type(tree.comparisons[0].operator))
        if turned is not None:
            only = tree.comparisons[0].with_changes(operator=turned())
            return cst.Module([]).code_for_node(tree.with_changes(comparisons=[only]))
    return f"not {bracketed(condition)}"
