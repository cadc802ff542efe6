"""Read expressions as terms: the same computation is the same term, however it is spelled.

`F.softmax(x, -1)`, `x.softmax(dim=-1)` and `nn.Softmax(dim=-1)` in `self.act` are one term; `a / b`
and `torch.div(a, b)` are another. A local is replaced by its assigned value if nothing in between
can have changed it, so a pattern may span several statements. A term keeps its source node, so that
a capture can be written again.

This module knows spellings, not equivalences: the rules know those.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

Env = Mapping[str, "Local"]

BINARY: dict[type[cst.BaseBinaryOp], str] = {
    cst.Add: "add",
    cst.Subtract: "sub",
    cst.Multiply: "mul",
    cst.Divide: "div",
    cst.MatrixMultiply: "matmul",
    cst.Power: "pow",
    cst.FloorDivide: "floordiv",
    cst.Modulo: "mod",
}

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}

COMPARISON: dict[type[cst.BaseCompOp], str] = {
    cst.Equal: "eq",
    cst.NotEqual: "ne",
    cst.LessThan: "lt",
    cst.LessThanEqual: "le",
    cst.GreaterThan: "gt",
    cst.GreaterThanEqual: "ge",
}

SIGNATURES: dict[str, tuple[str, ...]] = {
    "add": ("input", "other"),
    "sub": ("input", "other"),
    "mul": ("input", "other"),
    "div": ("input", "other"),
    "pow": ("input", "exponent"),
    "matmul": ("input", "other"),
    "mm": ("input", "other"),
    "bmm": ("input", "other"),
    "mv": ("input", "other"),
    "exp": ("input",),
    "log": ("input",),
    "sqrt": ("input",),
    "rsqrt": ("input",),
    "square": ("input",),
    "abs": ("input",),
    "neg": ("input",),
    "tanh": ("input",),
    "erf": ("input",),
    "sigmoid": ("input",),
    "relu": ("input",),
    "silu": ("input",),
    "gelu": ("input",),
    "softplus": ("input",),
    "log1p": ("input",),
    "sum": ("input", "dim", "keepdim"),
    "mean": ("input", "dim", "keepdim"),
    "amax": ("input", "dim", "keepdim"),
    "amin": ("input", "dim", "keepdim"),
    "max": ("input", "dim", "keepdim"),
    "min": ("input", "dim", "keepdim"),
    "maximum": ("input", "other"),
    "minimum": ("input", "other"),
    "var": ("input", "dim", "unbiased", "keepdim", "correction"),
    "norm": ("input", "p", "dim", "keepdim"),
    "softmax": ("input", "dim"),
    "log_softmax": ("input", "dim"),
    "logsumexp": ("input", "dim", "keepdim"),
    "clamp": ("input", "min", "max"),
    "transpose": ("input", "dim0", "dim1"),
    "t": ("input",),
    "unsqueeze": ("input", "dim"),
    "squeeze": ("input", "dim"),
    "diag": ("input",),
    "diag_embed": ("input",),
    "masked_fill": ("input", "mask", "value"),
    "dropout": ("input", "p", "training"),
    "gather": ("input", "dim", "index"),
    "one_hot": ("input", "num_classes"),
    "contiguous": ("input",),
    "clone": ("input",),
    "detach": ("input",),
    "float": ("input",),
    "item": ("input",),
    "cpu": ("input",),
    "where": ("condition", "input", "other"),
    "leaky_relu": ("input", "negative_slope"),
    "hardtanh": ("input", "min_val", "max_val"),
    **{f"{kind}_pool{n}d": ("input", "kernel_size") for kind in ("max", "avg") for n in (1, 2, 3)},
}
"""Parameters of the operations in patterns, in order, for arguments by position or by name."""

DEFAULTS: dict[str, Any] = {
    "keepdim": False,
    "training": True,
}

SYNONYMS = {
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "subtract": "sub",
    "clip": "clamp",
    "absolute": "abs",
    "negative": "neg",
    "swapaxes": "transpose",
    "swapdims": "transpose",
}

STATEFUL = {
    "torch.nn.Dropout": "dropout_module",
    "torch.nn.Linear": "linear_module",
    "torch.nn.ConvTranspose1d": "transposed_module",
    "torch.nn.ConvTranspose2d": "transposed_module",
    "torch.nn.ConvTranspose3d": "transposed_module",
    "torch.nn.GroupNorm": "norm_module",
    "torch.nn.InstanceNorm1d": "norm_module",
    "torch.nn.InstanceNorm2d": "norm_module",
    "torch.nn.InstanceNorm3d": "norm_module",
    "torch.nn.LayerNorm": "norm_module",
}
"""Modules with state, and the operation that their call is."""

MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ReLU": ("relu", ()),
    "Sigmoid": ("sigmoid", ()),
    "Tanh": ("tanh", ()),
    "Softmax": ("softmax", ("dim",)),
    "LogSoftmax": ("log_softmax", ("dim",)),
    "Softplus": ("softplus", ()),
    "SiLU": ("silu", ()),
    "GELU": ("gelu", ()),
    "LeakyReLU": ("leaky_relu", ("negative_slope",)),
    "Hardtanh": ("hardtanh", ("min_val", "max_val")),
    **{
        f"{kind}Pool{n}d": (f"{kind.lower()}_pool{n}d", ("kernel_size",))
        for kind in ("Max", "Avg")
        for n in (1, 2, 3)
    },
}
"""Modules without state as their functions; only with the listed arguments."""


@dataclass(frozen=True)
class Term:
    """An operation on terms, or a leaf. Terms are equal if they compute the same from the same
    inputs.
    """

    op: str
    args: tuple[Term, ...] = ()
    named: tuple[tuple[str, Term], ...] = ()
    value: Any = None
    """A leaf's constant, name with version, or source text."""
    node: cst.BaseExpression | None = field(default=None, compare=False, hash=False, repr=False)
    env: Env | None = field(default=None, compare=False, hash=False, repr=False)
    """What locals held at `node`."""

    def get(self, name: str) -> Term | None:
        """Return a named argument; None if it was not given."""
        return dict(self.named).get(name)

    def walk(self) -> Iterator[Term]:
        """Yield this term and all below."""
        yield self
        for term in (*self.args, *(t for _, t in self.named)):
            yield from term.walk()


@dataclass(frozen=True)
class Local:
    """A local variable at a point: which assignment it holds, and its value."""

    version: int
    term: Term | None = None


@dataclass(frozen=True, eq=False)
class Names:
    """What the names of a file mean: imports, and the modules that `__init__` puts on self."""

    imports: Mapping[str, str]
    """Local name -> dotted name: `F` -> `torch.nn.functional`."""
    attributes: Mapping[str, cst.Call]
    """Attribute of self -> the constructor call assigned to it, if assigned once."""
    pure: Set[str] = frozenset()
    """Code of other calls that are known to do nothing but return a value."""

    def dotted(self, node: cst.BaseExpression) -> str | None:
        """Return `torch.nn.functional.relu` for `F.relu`; None if the name does not start at an
        import.
        """
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name) or node.value not in self.imports:
            return None
        return ".".join([self.imports[node.value], *reversed(parts)])


VALUES = {"max": "amax", "min": "amin"}
"""Reductions that also return indices, and the reduction for the values alone."""

TORCH_PREFIXES = ("torch.nn.functional.", "torch.special.", "torch.linalg.", "torch.")


def torch_op(dotted: str) -> str | None:
    """Return `relu` for `torch.nn.functional.relu` and `torch.relu`."""
    for prefix in TORCH_PREFIXES:
        if dotted.startswith(prefix) and "." not in dotted[len(prefix) :]:
            name = dotted[len(prefix) :]
            return SYNONYMS.get(name, name)
    return None


class Reader:
    """Turn source expressions into terms, with what is known at that point."""

    def __init__(self, names: Names):
        self.names = names

    def term(self, node: cst.BaseExpression, env: Env) -> Term:
        """Return the term of an expression; an opaque leaf if it is not understood."""
        return replace(self.read(node, env), env=env)

    def read(self, node: cst.BaseExpression, env: Env) -> Term:
        if isinstance(node, cst.Name):
            return self.name(node, env)
        if isinstance(node, cst.Integer | cst.Float):
            return Term("const", value=node.evaluated_value, node=node)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.term(node.expression, env)
            if inner.op == "const":
                return Term("const", value=-inner.value, node=node)
            return Term("neg", (inner,), node=node)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
            return Term("invert", (self.term(node.expression, env),), node=node)
        if isinstance(node, cst.BinaryOperation) and type(node.operator) in BINARY:
            pair = (self.term(node.left, env), self.term(node.right, env))
            return fold(Term(BINARY[type(node.operator)], pair, node=node))
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            (comparison,) = node.comparisons
            op_name = COMPARISON.get(type(comparison.operator))
            if op_name:
                pair = (self.term(node.left, env), self.term(comparison.comparator, env))
                return Term(op_name, pair, node=node)
        if isinstance(node, cst.Call):
            return self.call(node, env)
        if isinstance(node, cst.Attribute):
            return self.attribute(node, env)
        if isinstance(node, cst.Subscript):
            return self.subscript(node, env)
        if isinstance(node, cst.SimpleString):
            return Term("const", value=node.evaluated_value, node=node)
        if isinstance(node, cst.FormattedString):
            texts = [p.value for p in node.parts if isinstance(p, cst.FormattedStringText)]
            if len(texts) == len(node.parts):
                return Term("const", value="".join(texts), node=node)
        if isinstance(node, cst.Tuple | cst.List):
            items = tuple(self.term(e.value, env) for e in node.elements)
            return Term("tuple", items, node=node)
        return self.opaque(node, env)

    def name(self, node: cst.Name, env: Env) -> Term:
        if node.value in ("True", "False", "None"):
            return Term("const", value={"True": True, "False": False}.get(node.value), node=node)
        local = env.get(node.value)
        if local is None:
            return Term("name", value=(node.value, 0), node=node)
        if local.term is not None:
            found = local.term
            return Term(found.op, found.args, found.named, found.value, node)
        return Term("name", value=(node.value, local.version), node=node)

    def subscript(self, node: cst.Subscript, env: Env) -> Term:
        """Return the largest values for `x.max(dim=-1)[0]`; other indexing is opaque."""
        base = self.term(node.value, env)
        if base.op in VALUES and base.get("dim") is not None and len(node.slice) == 1:
            index = node.slice[0].slice
            if isinstance(index, cst.Index) and code(index.value) == "0":
                return Term(VALUES[base.op], base.args, base.named, node=node)
        return self.opaque(node, env)

    def attribute(self, node: cst.Attribute, env: Env) -> Term:
        dotted = self.names.dotted(node)
        if dotted in ("math.pi", "numpy.pi", "torch.pi"):
            return Term("const", value=3.141592653589793, node=node)
        if dotted in ("math.inf", "torch.inf", "numpy.inf"):
            return Term("const", value=float("inf"), node=node)
        if dotted:
            return Term("symbol", value=dotted, node=node)
        base = self.term(node.value, env)
        if base.op in VALUES and base.get("dim") is not None and node.attr.value == "values":
            return Term(VALUES[base.op], base.args, base.named, node=node)
        if node.attr.value in ("T", "mT"):
            return Term("t" if node.attr.value == "T" else "mT", (base,), node=node)
        return Term("attr", (base,), value=node.attr.value, node=node)

    def opaque(self, node: cst.BaseExpression, env: Env) -> Term:
        """Return a leaf that is equal to the same text over the same assignments."""
        text = code(node)
        versions = tuple(sorted((n, env[n].version) for n in names_in(node) if n in env))
        return Term("opaque", value=(text, versions), node=node)

    def call(self, node: cst.Call, env: Env) -> Term:
        function = node.func
        dotted = self.names.dotted(function)
        if dotted in ("math.sqrt", "numpy.sqrt") and len(node.args) == 1:
            inner = self.term(node.args[0].value, env)
            if inner.op == "const" and isinstance(inner.value, int | float):
                return Term("const", value=math.sqrt(inner.value), node=node)
            return Term("msqrt", (inner,), node=node)
        if dotted in ("math.log", "math.exp", "float") and len(node.args) == 1:
            inner = self.term(node.args[0].value, env)
            return Term(f"m{dotted.rpartition('.')[2]}", (inner,), node=node)
        if isinstance(function, cst.Name) and function.value == "float" and len(node.args) == 1:
            text = node.args[0].value
            if isinstance(text, cst.SimpleString) and str(text.evaluated_value) in ("-inf", "inf"):
                return Term("const", value=float(str(text.evaluated_value)), node=node)
        if dotted is not None:
            op = torch_op(dotted)
            if op is None:
                return self.opaque_call(node, env, dotted)
            return self.operation(op, (), node, env)
        if isinstance(function, cst.Attribute):
            stateful = self.stateful_module(function, node, env)
            if stateful is not None:
                return stateful
            held = self.held_module(function)
            if held is not None:
                op, named = held
                return self.operation(op, (), node, env, named)
            if not is_self(function.value):
                base = self.term(function.value, env)
                op = SYNONYMS.get(function.attr.value, function.attr.value)
                return self.operation(op, (base,), node, env)
        return self.opaque_call(node, env, code(function))

    def stateful_module(self, function: cst.Attribute, node: cst.Call, env: Env) -> Term | None:
        """Return the term of `self.drop(x)`, `self.fc(x)`, `self.up(x)` or `self.norm(x)`. These
        are an nn.Dropout, an nn.Linear with a bias, an nn.ConvTranspose, and normalizations of each
        input alone.
        """
        made = self.names.attributes.get(function.attr.value) if is_self(function.value) else None
        dotted = None if made is None else self.names.dotted(made.func)
        if made is None or len(node.args) != 1 or node.args[0].star or node.args[0].keyword:
            return None
        op = STATEFUL.get(dotted or "")
        has_no_bias = any(arg.keyword and arg.keyword.value == "bias" for arg in made.args)
        if op is None or (op == "linear_module" and (has_no_bias or len(made.args) != 2)):
            return None
        inner = self.term(node.args[0].value, env)
        return Term(op, (inner,), value=f"self.{function.attr.value}", node=node)

    def held_module(self, function: cst.Attribute) -> tuple[str, dict[str, Term]] | None:
        """Return the function that `self.act(...)` is, for a module without state."""
        if not is_self(function.value):
            return None
        made = self.names.attributes.get(function.attr.value)
        dotted = None if made is None else self.names.dotted(made.func)
        if made is None or dotted is None or not dotted.startswith("torch.nn."):
            return None
        known = MODULES.get(dotted.removeprefix("torch.nn."))
        if known is None:
            return None
        op, parameters = known
        named: dict[str, Term] = {}
        for position, arg in enumerate(made.args):
            name = arg.keyword.value if arg.keyword else (parameters + ("",) * 9)[position]
            if name not in parameters:
                return None
            named[name] = self.term(arg.value, {})
        return op, named

    def operation(
        self,
        op: str,
        first: tuple[Term, ...],
        node: cst.Call,
        env: Env,
        also: Mapping[str, Term] | None = None,
    ) -> Term:
        """Return a call with its arguments by position, if the signature is known."""
        if any(arg.star for arg in node.args):
            return self.opaque_call(node, env, op)
        positional = list(first)
        named: dict[str, Term] = dict(also or {})
        for arg in node.args:
            value = self.term(arg.value, env)
            if arg.keyword is None:
                positional.append(value)
            else:
                named[{"axis": "dim"}.get(arg.keyword.value, arg.keyword.value)] = value
        parameters = SIGNATURES.get(op)
        if parameters is None:
            return Term(op, tuple(positional), tuple(sorted(named.items())), node=node)
        if op in ("max", "min") and len(positional) == 2 and positional[1].op != "const":
            return Term(f"{op}imum", tuple(positional), node=node)
        if len(positional) > len(parameters):
            return Term(f"{op}*", tuple(positional), tuple(sorted(named.items())), node=node)
        named.update(zip(parameters, positional, strict=False))
        num_main = 2 if parameters[1:2] and parameters[1] in ("other", "exponent") else 1
        main = [named.pop(p) for p in parameters[:num_main] if p in named]
        kept = {
            k: v
            for k, v in named.items()
            if not (k in DEFAULTS and v.op == "const" and v.value == DEFAULTS[k])
        }
        return Term(op, tuple(main), tuple(sorted(kept.items())), node=node)

    def opaque_call(self, node: cst.Call, env: Env, what: str) -> Term:
        """Return a call of an unknown function: its arguments are terms, so that versions count."""
        args = tuple(self.term(arg.value, env) for arg in node.args)
        keywords = tuple(arg.keyword.value if arg.keyword else arg.star for arg in node.args)
        return Term("call", args, value=(what, keywords), node=node)


def code(node: cst.CSTNode) -> str:
    """Return a node's source text."""
    return cst.Module(body=[]).code_for_node(node)


def fold(term: Term) -> Term:
    """Fold arithmetic on plain numbers: `2.0 / math.pi` is a constant."""
    left, right = term.args
    if not (left.op == right.op == "const"):
        return term
    a, b = left.value, right.value
    if isinstance(a, bool) or isinstance(b, bool):
        return term
    if not (isinstance(a, int | float) and isinstance(b, int | float)):
        return term
    try:
        value = ARITHMETIC[term.op](a, b) if term.op in ARITHMETIC else None
    except ArithmeticError:
        return term
    return Term("const", value=value, node=term.node) if isinstance(value, int | float) else term


def is_self(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "self"


def names_in(node: cst.CSTNode) -> set[str]:
    """Return names read anywhere below a node (attributes and keywords are not names)."""
    found: set[str] = set()

    class Collect(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
            found.add(node.value)

        def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:  # noqa: N802
            node.value.visit(self)
            return False

    node.visit(Collect())
    return found
