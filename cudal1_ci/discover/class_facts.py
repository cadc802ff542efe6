"""Turn one class statement into facts: bases, methods, own forward and own parts.

Heads and short bodies are read from the syntax tree. Long bodies are read as text, because only the
names in them are needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from cudal1_ci.discover.facts import ClassFact, ForwardKind
from cudal1_ci.discover.syntax import Function, dotted_name, first_line_of, reachable

_CALL_ON_SELF = re.compile(rb"self\.(\w+)\(")
_ASSEMBLES = re.compile(
    rb"^[ \t]+self\.\w+[ \t]*(?::[^=\n]+)?=[^=]|\bself\.(?:add_module|register_\w+|append)\(",
    re.MULTILINE,
)
_ACTS_AS_MODULE = re.compile(
    rb"\bnn\.[A-Z]\w*\(|\bregister_(?:buffer|parameter)\(|\bParameter\(|\bF\.\w+\(|\btorch\.\w+\("
)


def class_fact(
    node: ast.ClassDef, qualname: str, last_line: int, text_of: Callable[[ast.stmt], bytes]
) -> ClassFact:
    """Return the facts of a class; `text_of` returns the lines of a statement."""
    text = text_of(node)
    methods = {
        statement.name: statement
        for statement in reachable(node.body)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    forward = forward_kind(node, methods)
    init = methods.get("__init__")
    return ClassFact(
        qualname,
        first_line_of(node),
        last_line,
        bases=tuple(base for expression in node.bases for base in base_names(expression)),
        forward=forward,
        methods=tuple(methods),
        calls_on_self=tuple(
            sorted({name.decode("utf-8", "replace") for name in _CALL_ON_SELF.findall(text)})
        ),
        assembles=init is not None and _ASSEMBLES.search(text_of(init)) is not None,
        acts_as_module=forward == "own"
        and takes_self(methods.get("forward"))
        and _ACTS_AS_MODULE.search(text) is not None,
    )


def base_names(expression: ast.expr) -> Iterator[str]:
    """Yield the names in a base: `A`; Generic of `Generic[T]`; both of `with_metaclass(M, A)`."""
    match expression:
        case ast.Subscript(value=value):
            yield from base_names(value)
        case ast.Call(args=args):
            for argument in args:
                yield from base_names(argument)
        case ast.IfExp(body=left, orelse=right):
            yield from base_names(left)
            yield from base_names(right)
        case _:
            dotted = dotted_name(expression)
            if dotted is not None:
                yield dotted


def forward_kind(node: ast.ClassDef, methods: dict[str, Function]) -> ForwardKind:
    """Return which forward a class defines itself: a method, or a name that is assigned."""
    if "forward" in methods:
        return "abstract" if is_abstract(methods["forward"]) else "own"
    for statement in node.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "forward" for target in statement.targets
        ):
            return "own"
    return "none"


def is_abstract(function: Function) -> bool:
    """Return whether a body only documents, passes or raises NotImplementedError."""
    for statement in function.body:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Raise(exc=ast.expr() as raised):
                called = raised.func if isinstance(raised, ast.Call) else raised
                if dotted_name(called) == "NotImplementedError":
                    continue
        return False
    return True


def takes_self(function: Function | None) -> bool:
    """Return whether the first parameter is `self`, unlike in `autograd.Function.forward`."""
    if function is None:
        return False
    first = [*function.args.posonlyargs, *function.args.args][:1]
    return bool(first) and first[0].arg == "self"
