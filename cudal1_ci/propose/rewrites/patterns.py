"""Match patterns over terms, and fill the expressions that replace a match.

A pattern is text: `mul(X, sigmoid(X))`. Upper-case names are variables (`K...` only constants).
Numbers match within rounding. Lower-case calls are operations with their arguments by position and
by name. Products and sums match in any order and nesting: `0.5 * x * y`, `y * (x / 2)`.

    match(pattern("mul(X, sigmoid(X))"), term) -> {"X": ...} or None
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from cudal1_ci.propose.rewrites.terms import Term

Bindings = Mapping[str, Term]

ASSOCIATIVE = ("mul", "add")
MAX_FACTORS = 6
"""The most factors of a flattened product or summands of a sum; longer ones have too many orders
to match."""


@functools.cache
def pattern(text: str) -> Term:
    """Return the term of a pattern's text; variables are leaves of the operation `?`."""
    return from_ast(ast.parse(text, mode="eval").body)


def from_ast(node: ast.expr) -> Term:
    """Return a pattern's term. Raise ValueError for what a pattern cannot express."""
    if isinstance(node, ast.Name):
        return Term("?", value=node.id)
    if isinstance(node, ast.Constant):
        return Term("const", value=node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if isinstance(number, int | float):
            return Term("const", value=-number)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        args = tuple(from_ast(arg) for arg in node.args)
        named = sorted((k.arg or "", from_ast(k.value)) for k in node.keywords)
        return Term(node.func.id, args, tuple(named))
    raise ValueError(f"not a pattern: {ast.unparse(node)}")


def match(wanted: Term, term: Term, bound: Bindings | None = None) -> Bindings | None:
    """Return the variables' bindings if a term has the wanted form; otherwise None."""
    return next(matches(wanted, term, bound or {}), None)


def matches(wanted: Term, term: Term, bound: Bindings) -> Iterator[Bindings]:
    """Yield all ways in which a term has the wanted form."""
    if wanted.op == "?":
        yield from bind(wanted.value, term, bound)
    elif wanted.op == "const":
        if term.op == "const" and same_constant(wanted.value, term.value):
            yield bound
    elif wanted.op in ASSOCIATIVE:
        factors = flatten(wanted.op, wanted)
        whole = flatten(wanted.op, term)
        yield from any_order(factors, whole, bound)
        # A local may itself be a product: also match the values of locals.
        opened = flatten(wanted.op, term, through_locals=True)
        if opened != whole:
            yield from any_order(factors, opened, bound)
    elif wanted.op == term.op and len(wanted.args) == len(term.args):
        names = [name for name, _ in wanted.named]
        if names == [name for name, _ in term.named]:
            pairs = [
                *zip(wanted.args, term.args, strict=True),
                *((w, t) for (_, w), (_, t) in zip(wanted.named, term.named, strict=True)),
            ]
            yield from in_order(pairs, bound)


def bind(variable: str, term: Term, bound: Bindings) -> Iterator[Bindings]:
    if variable.startswith("K") and term.op != "const":
        return
    if variable in bound:
        if bound[variable] == term:
            yield bound
    else:
        yield {**bound, variable: term}


def in_order(pairs: Sequence[tuple[Term, Term]], bound: Bindings) -> Iterator[Bindings]:
    if not pairs:
        yield bound
        return
    (wanted, term), *rest = pairs
    for found in matches(wanted, term, bound):
        yield from in_order(rest, found)


def any_order(wanted: Sequence[Term], terms: Sequence[Term], bound: Bindings) -> Iterator[Bindings]:
    """Match each wanted factor with another one; the most specific is tried first."""
    if len(wanted) != len(terms) or len(terms) > MAX_FACTORS:
        return
    if not wanted:
        yield bound
        return
    ordered = sorted(wanted, key=lambda w: (w.op == "?", w.op == "const", -len(list(w.walk()))))
    first, rest = ordered[0], ordered[1:]
    for index, term in enumerate(terms):
        others = [*terms[:index], *terms[index + 1 :]]
        for found in matches(first, term, bound):
            yield from any_order(rest, others, found)


def flatten(op: str, term: Term, through_locals: bool = False) -> list[Term]:
    """Return factors of a product or summands of a sum. Division by a number is a factor, an
    integer power is repeated factors.
    """
    again = functools.partial(flatten, through_locals=through_locals)
    if isinstance(term.node, cst.Name) and not through_locals:
        return [term]
    if term.op == op and len(term.args) == 2 and not term.named:
        return [*again(op, term.args[0]), *again(op, term.args[1])]
    if op == "mul":
        if term.op == "div" and len(term.args) == 2 and is_number(term.args[1]):
            divisor = term.args[1].value
            if divisor:
                return [*again(op, term.args[0]), Term("const", value=1 / divisor)]
        if term.op == "pow" and len(term.args) == 2 and is_number(term.args[1]):
            exponent = term.args[1].value
            if exponent in (2, 3, 4):
                return again(op, term.args[0]) * int(exponent)
        if term.op == "square":
            return again(op, term.args[0]) * 2
    return [term]


def is_number(term: Term) -> bool:
    return (
        term.op == "const"
        and isinstance(term.value, int | float)
        and not isinstance(term.value, bool)
    )


def same_constant(wanted: object, value: object) -> bool:
    """Return whether two values are equal within the usual digits: 0.70710678 is 1/sqrt(2), 0.7071
    is not.
    """
    if isinstance(wanted, bool) or isinstance(value, bool) or wanted is None or value is None:
        return wanted is value
    if isinstance(wanted, int | float) and isinstance(value, int | float):
        return wanted == value or math.isclose(wanted, value, rel_tol=2e-6)
    return wanted == value


# --- writing the replacement --------------------------------------------------------------------


class Fill(cst.CSTTransformer):
    """Replace variables by captured nodes, in parentheses where needed."""

    def __init__(self, bindings: Bindings):
        self.bindings = bindings

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        # An argument needs no parentheses.
        if isinstance(original_node.value, cst.Name):
            bound = self.bindings.get(original_node.value.value)
            if bound is not None and bound.node is not None:
                return updated_node.with_changes(value=bare(bound.node))
        return updated_node

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        value = updated_node.value
        if original_node.attr.value == "shape" and isinstance(original_node.value, cst.Name):
            value = without_casts(value)
        # `torch.T` is no variable.
        return updated_node.with_changes(attr=original_node.attr, value=value)

    def leave_Name(  # noqa: N802
        self,
        original_node: cst.Name,
        updated_node: cst.Name,
    ) -> cst.BaseExpression:
        bound = self.bindings.get(original_node.value)
        if bound is None or bound.node is None:
            return updated_node
        return parenthesized(bound.node)

    def leave_BinaryOperation(  # noqa: N802
        self,
        original_node: cst.BinaryOperation,
        updated_node: cst.BinaryOperation,
    ) -> cst.BinaryOperation:
        # `X * K` of `a * b` is `a * b * K`: the first factors are computed first.
        if not isinstance(original_node.left, cst.Name):
            return updated_node
        bound = self.bindings.get(original_node.left.value)
        if bound is None or bound.node is None or not reads_first(bound.node, original_node):
            return updated_node
        return updated_node.with_changes(left=bound.node)


CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "detach"}
"""Methods whose result has the shape of their tensor."""


def without_casts(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return `x` of `x.float()`, for code that only reads the shape."""
    while (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in CASTS
    ):
        node = node.func.value
    return node


PRODUCTS = (cst.Multiply, cst.Divide, cst.MatrixMultiply)


BINDING = ((cst.Add, cst.Subtract), PRODUCTS, (cst.Power,))
"""Operators by how tightly they bind, the loosest first."""


def reads_first(left: cst.BaseExpression, whole: cst.BinaryOperation) -> bool:
    """Return whether a one-line operation needs no parentheses to the left of a sum or product: it
    binds at least as tightly.
    """
    if left.lpar or "\n" in cst.Module(body=[]).code_for_node(left):
        return False
    if isinstance(left, cst.UnaryOperation):
        return isinstance(left.operator, cst.Minus) and not isinstance(whole.operator, cst.Power)
    if not isinstance(left, cst.BinaryOperation) or isinstance(whole.operator, cst.Power):
        return False
    ranks = [
        next((rank for rank, kinds in enumerate(BINDING) if isinstance(one.operator, kinds)), None)
        for one in (left, whole)
    ]
    return None not in ranks and ranks[0] >= ranks[1]  # type: ignore[operator]


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an operation without the parentheses that only an outer operator required."""
    if isinstance(node, cst.BinaryOperation | cst.UnaryOperation):
        return node.with_changes(lpar=[], rpar=[])
    return node


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a node that may precede a dot or be an operand."""
    atoms = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)
    if isinstance(node, atoms) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def fill(template: str, bindings: Bindings) -> cst.BaseExpression:
    """Return the replacement's expression. `X.dim` in a template is an attribute of what X
    captured.
    """
    whole = bindings.get(template)
    if whole is not None and whole.node is not None:
        return whole.node
    filled = cst.parse_expression(template).visit(Fill(bindings))
    assert isinstance(filled, cst.BaseExpression)
    return filled
