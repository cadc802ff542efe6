"""What an expression of torch is in a Triton kernel that holds whole rows of `x`.

    terms = Terms(row_shape=(4096, 512), shapes=..., norms={})
    terms.of(ast.parse("torch.relu(x)", mode="eval").body)    # Term(node=<tl.maximum(x, 0.0)>, ...)

A value in a kernel is `full` (as `x`), `kept` (one of a row, its dimension kept), `row` (one of a
row, without that dimension), `column` (one of each place of a row) or a `number`. What has no
such form is refused. Knows syntax and shapes, runs nothing.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from model_training.variants.kernels.calls import (
    Call,
    Extent,
    Term,
    Untranslatable,
    constant,
    is_last,
    joined,
    made,
)
from model_training.variants.kernels.functions import REDUCTIONS, TEMPLATES
from model_training.variants.shapes import Shape, Shapes

RESERVED = frozenset({"place", "row", "column", "inside", "num_rows", "width", "out", "size"})
"""Names that a kernel has for itself."""


@dataclass
class Terms:
    """Translates the expressions of statements in a row; `loads` is what they read from outside,
    by their text: `{"self.gain": ("gain", "column")}`."""

    row_shape: Shape
    shapes: Shapes
    norms: Mapping[str, float]
    """Layer norms among the submodules, and their epsilon."""
    known: dict[str, Extent] = field(default_factory=dict)
    """Names that were assigned in the kernel."""
    loads: dict[str, tuple[str, Extent]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    reduces: bool = False

    def assign(self, name: str, value: ast.expr) -> None:
        """`name = value` as a line of the kernel."""
        if name in RESERVED:
            raise Untranslatable(name)
        term = self.of(value)
        loaded = {local for local, _ in self.loads.values()}
        if name in loaded and self.loads.get(name, ("", ""))[0] != name:
            raise Untranslatable(name)
        self.known[name] = term.extent
        self.lines.append(f"{name} = {ast.unparse(term.node)}")

    def of(self, node: ast.expr) -> Term:
        """Raises: Untranslatable."""
        number = constant(node)
        if number is not None:
            return Term(node=ast.Constant(number), extent="number")
        match node:
            case ast.Name() | ast.Attribute(value=ast.Name(id="self")):
                return self.read(ast.unparse(node))
            case ast.BinOp(op=ast.Pow(), left=left, right=right):
                return self.power(self.of(left), right)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                one, other = self.of(node.left), self.of(node.right)
                both = ast.BinOp(left=one.node, op=node.op, right=other.node)
                return Term(node=both, extent=joined(one.extent, other.extent))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.of(operand)
                return Term(node=ast.UnaryOp(ast.USub(), inner.node), extent=inner.extent)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                one, other = self.of(left), self.of(right)
                truth = ast.Compare(one.node, [op], [other.node])
                return Term(node=truth, extent=joined(one.extent, other.extent))
            case ast.Subscript():
                return self.subscript(node)
            case ast.Attribute(value=ast.Call() as call, attr="values"):
                return self.reduction(*Call.of(call).parts)
            case ast.Call():
                return self.call(Call.of(node))
        raise Untranslatable(ast.unparse(node))

    def read(self, text: str) -> Term:
        """A name of the kernel, or what it has to load."""
        if text in self.known:
            return Term(node=ast.Name(text), extent=self.known[text])
        shape = self.shapes.get(text)
        if shape is None:
            raise Untranslatable(text)
        return self.load(text, self.extent_of(shape))

    def load(self, text: str, extent: Extent) -> Term:
        name = text.rpartition("self.")[2].replace(".", "_")
        taken = {local for key, (local, _) in self.loads.items() if key != text}
        if name in RESERVED or name in taken or name in self.known:
            raise Untranslatable(text)
        if self.loads.setdefault(text, (name, extent))[1] != extent:
            raise Untranslatable(text)
        return Term(node=ast.Name(name), extent=extent)

    def extent_of(self, shape: Shape) -> Extent:
        if shape == self.row_shape:
            return "full"
        if len(self.row_shape) > 1 and shape == (*self.row_shape[:-1], 1):
            return "kept"
        if len(self.row_shape) > 1 and shape == self.row_shape[-1:]:
            return "column"
        if math.prod(shape) == 1 and len(shape) < 2:
            return "number"
        raise Untranslatable(str(shape))

    def subscript(self, node: ast.Subscript) -> Term:
        index = ast.unparse(node.slice)
        if isinstance(node.value, ast.Call) and index == "0":
            return self.reduction(*Call.of(node.value).parts)
        text = ast.unparse(node.value)
        is_of_rows = len(self.row_shape) == 2 and self.shapes.get(text) == self.row_shape[:1]
        if index in ("(:, None)", ":, None") and is_of_rows and text not in self.known:
            return self.load(text, "kept")
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        is_last_place = index in ("-1", str(len(self.row_shape) - 1))
        if is_shape and is_last_place and self.is_full(text.removesuffix(".shape")):
            return Term(node=ast.Name("width"), extent="number")
        raise Untranslatable(ast.unparse(node))

    def is_full(self, name: str) -> bool:
        """Of a name in the kernel, or outside."""
        if name in self.known:
            return self.known[name] == "full"
        return self.shapes.get(name) == self.row_shape

    def power(self, base: Term, exponent: ast.expr) -> Term:
        number = constant(exponent)
        if number is None or number != int(number) or not 1 <= number <= 5:
            raise Untranslatable(ast.unparse(exponent))
        one = self.named(base)
        made = one.node
        for _ in range(int(number) - 1):
            made = ast.BinOp(left=made, op=ast.Mult(), right=one.node)
        return Term(node=made, extent=base.extent)

    def named(self, term: Term) -> Term:
        """The term as a name, so that it can be read more than once."""
        if isinstance(term.node, ast.Name):
            return term
        number = 1
        while (name := f"term_{number}") in self.known:
            number += 1
        self.known[name] = term.extent
        self.lines.append(f"{name} = {ast.unparse(term.node)}")
        return Term(node=ast.Name(name), extent=term.extent)

    def call(self, call: Call) -> Term:
        name, arguments, keywords = call.parts
        if name in ("to", "unsqueeze", "gather", "one_hot"):
            return self.label(call)
        if name in REDUCTIONS and name not in ("max", "min"):
            return self.reduction(name, arguments, keywords)
        if name in self.norms and len(arguments) == 1:
            return self.layer_norm(name, self.of(arguments[0]))
        if name in ("softmax", "log_softmax") and is_last(keywords, self.row_shape):
            return self.softmax(name, self.of(arguments[0]))
        if name == "pow" and len(arguments) == 2:
            return self.power(self.of(arguments[0]), arguments[1])
        if name == "clamp" and set(keywords) <= {"min", "max"} and len(arguments) == 1:
            return self.clamp(self.of(arguments[0]), keywords)
        if name in TEMPLATES and not keywords:
            terms = [self.of(one) for one in arguments]
            template = TEMPLATES[name]
            if template.count("A") > 1:
                terms = [self.named(one) for one in terms]
            return made(template, *terms)
        raise Untranslatable(name)

    def clamp(self, term: Term, keywords: Mapping[str, ast.expr]) -> Term:
        for key, function in (("min", "maximum"), ("max", "minimum")):
            if key in keywords:
                term = made(f"tl.{function}(A, B)", term, self.of(keywords[key]))
        return term

    def label(self, call: Call) -> Term:
        """Numbers of classes, one of a row: what is made of them in `forward` is a comparison."""
        name, arguments, _ = call.parts
        if name == "to" and ast.unparse(arguments[1]).endswith(".dtype"):
            return made("A.to(tl.float32)", self.of(arguments[0]))
        if name == "one_hot" and ast.unparse(arguments[1]).endswith(".shape[1]"):
            return made("column == A", self.of_rows(arguments[0]), extent="full")
        if name == "gather" and constant(arguments[1]) == 1:
            index = arguments[2]
            match index:
                case ast.Call(func=ast.Attribute(value=labels, attr="unsqueeze")):
                    self.reduces = True
                    chosen = "tl.sum(tl.where(column == B, A, 0.0), axis=1, keep_dims=True)"
                    full = self.of(arguments[0])
                    return made(chosen, full, self.of_rows(labels), extent="kept")
        raise Untranslatable(name)

    def of_rows(self, node: ast.expr) -> Term:
        """A tensor with one number for each row."""
        text = ast.unparse(node)
        if len(self.row_shape) != 2 or self.shapes.get(text) != self.row_shape[:1]:
            raise Untranslatable(text)
        self.reduces = True  # only a kernel of rows knows the row
        return self.load(text, "kept")

    def reduction(
        self, name: str, arguments: list[ast.expr], keywords: Mapping[str, ast.expr]
    ) -> Term:
        if name not in REDUCTIONS or len(arguments) != 1 or not is_last(keywords, self.row_shape):
            raise Untranslatable(name)
        if set(keywords) - {"dim", "keepdim"}:
            raise Untranslatable(name)
        value = self.of(arguments[0])
        if value.extent != "full":
            raise Untranslatable(name)
        keeps = "keepdim" in keywords and constant(keywords["keepdim"]) == 1
        self.reduces = True
        term = self.named(value) if name == "norm" else value
        return made(REDUCTIONS[name], term, extent="kept" if keeps else "row")

    def softmax(self, name: str, value: Term) -> Term:
        if value.extent != "full":
            raise Untranslatable(name)
        self.reduces = True
        one = self.named(value)
        high = self.named(made(f"A - {REDUCTIONS['max']}", one, extent="full"))
        if name == "log_softmax":
            total = REDUCTIONS["sum"].replace("A", "tl.exp(A)")
            return made(f"A - tl.log({total})", high, extent="full")
        shifted = self.named(made("tl.exp(A)", high))
        return made(f"A / {REDUCTIONS['sum']}", shifted, extent="full")

    def layer_norm(self, name: str, value: Term) -> Term:
        if value.extent != "full":
            raise Untranslatable(name)
        self.reduces = True
        one = self.named(value)
        centered = self.named(made(f"A - {REDUCTIONS['mean']}", one, extent="full"))
        variance = REDUCTIONS["mean"].replace("A", "A * A")
        scaled = made(f"A * tl.rsqrt({variance} + {self.norms[name]})", centered, extent="full")
        for parameter, template in ((".weight", "A * B"), (".bias", "A + B")):
            text = f"{name}{parameter}"
            if text in self.shapes:
                scaled = made(template, scaled, self.load(text, "column"))
        return scaled
