"""Parse a Python text: nodes by kind, parents, functions, and the meaning of names.

Names are followed through imports, single assignments (`Event = torch.cuda.Event`), `getattr` and
`sys.modules` with literal names. A name with several bindings, or bound to something computed, has
no meaning. Rules then see less, never something else. Every walk is a loop, so that deep nesting
costs no stack.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar, overload

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Lambda | ast.Module
A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
C = TypeVar("C", bound=ast.AST)

_BUILTINS = frozenset(dir(builtins))
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
LONGEST_CHAIN = 40
"""Most links of a dotted name, and most aliases of aliases, that are followed."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text, as a set."""
    return frozenset(text.split())


METADATA = words(
    "shape size dim ndim numel dtype device is_cuda is_contiguous stride layout element_size "
    "get_device is_floating_point requires_grad nelement itemsize names storage_offset"
)
"""Attributes of a tensor that do not read its values."""
SHAPED_LIKE = words(
    "empty_like zeros_like ones_like full_like rand_like randn_like new_empty new_zeros "
    "new_ones new_full new_tensor_like isinstance len type id hasattr"
)
"""Functions that take a tensor only for its shape and type."""


class PythonText:
    """A parsed module, as Python would read it from a file. A byte order mark is skipped. A line
    that names an encoding is obeyed; with it a comment may hold code (`utf-7`). Raises: one of
    PARSE_ERRORS."""

    def __init__(self, source: str, entry: str = ""):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes do not matter here
            self.tree = ast.parse(source.encode("utf-8"))
        self.lines = source.splitlines()
        self.entry = entry
        self.parents: dict[ast.AST, ast.AST] = {}
        self._kinds: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self.docstrings: set[ast.AST] = set()
        self._scopes: dict[ast.AST, Scope] = {}
        self._functions: dict[ast.AST, Function | None] = {}
        self.index()
        self._bindings: dict[tuple[Scope, str], list[ast.expr | str | None]] = defaultdict(list)
        self._global: dict[Scope, set[str]] = defaultdict(set)
        self.function_names = frozenset(f.name for f in self.functions())
        self._meanings: dict[int, tuple[ast.expr | str | None]] = {}
        self._within: dict[ast.AST, list[ast.AST]] = {}
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.every(ast.Call):
            self._calls[last(call.func)].append(call)
        self._dotted: dict[ast.AST, str | None] = {}
        self.bind_names()

    def index(self) -> None:
        """Record parents, and nodes by kind, in the order of the text."""
        pending: list[ast.AST] = [self.tree]
        self._scopes[self.tree] = self.tree
        self._functions[self.tree] = None
        while pending:
            node = pending.pop()
            self._kinds[type(node)].append(node)
            scope = node if isinstance(node, Scope) else self._scopes[node]
            function = node if isinstance(node, Function) else self._functions[node]
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.docstrings.add(node.value)
            below = children(node)
            for child in below:
                self.parents[child] = node
                self._scopes[child] = scope
                self._functions[child] = function
            below.reverse()
            pending.extend(below)

    @overload
    def every(self, kind: type[A], /) -> Iterator[A]: ...
    @overload
    def every(self, kind: type[A], other: type[B], /) -> Iterator[A | B]: ...
    @overload
    def every(self, kind: type[A], other: type[B], third: type[C], /) -> Iterator[A | B | C]: ...
    def every(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield all nodes of some kinds."""
        for kind in kinds:
            yield from self._kinds.get(kind, ())

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that a node is, or is part of."""
        if isinstance(node, ast.stmt):
            return node
        return next((above for above in self.above(node) if isinstance(above, ast.stmt)), None)

    def scope(self, node: ast.AST) -> Scope:
        """Return the function around a node, or the module."""
        return self._scopes[node]

    def function(self, node: ast.AST) -> Function | None:
        """Return the named function around a node."""
        return self._functions[node]

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method a function is."""
        parent = self.parents.get(node)
        return parent if isinstance(parent, ast.ClassDef) else None

    # --- names ---------------------------------------------------------------------------

    def bind_names(self) -> None:
        """Record what every name is bound to: an import's path, an expression, or None for
        unknown."""
        for node in self.every(ast.Global, ast.Nonlocal):
            self._global[self.scope(node)].update(node.names)
        for imported in self.every(ast.Import):
            for alias in imported.names:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                name = alias.asname or path
                self._bind(imported, name, path)
        for origin in self.every(ast.ImportFrom):
            for alias in origin.names:
                path = f"{'.' * origin.level}{origin.module or ''}.{alias.name}"
                self._bind(origin, alias.asname or alias.name, path)
        for stored in self.every(ast.Name):
            if not isinstance(stored.ctx, ast.Load):
                self._bind(stored, stored.id, self._assigned(stored))
        for caught in self.every(ast.ExceptHandler, ast.MatchAs, ast.MatchStar):
            if caught.name is not None:
                self._bind(caught, caught.name, None)
        for argument in self.every(ast.arg):
            self._bind(argument, argument.arg, None)
        for defined in self.every(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
            self._bind(defined, defined.name, None)

    def _assigned(self, name: ast.Name) -> ast.expr | None:
        """Return the value of `name = value`, where that binds the name."""
        match self.parents.get(name):
            case ast.Assign(targets=[target], value=value) if target is name:
                return value
            case ast.AnnAssign(target=target, value=value) if target is name:
                return value
            case ast.NamedExpr(target=target, value=value) if target is name:
                return value
        return None

    def _bind(self, node: ast.AST, name: str, value: ast.expr | str | None) -> None:
        scope = self.scope(node)
        if name in self._global.get(scope, ()):
            scope = self.tree
        self._bindings[scope, name].append(value)

    def bindings(self, node: ast.AST, name: str) -> list[ast.expr | str | None]:
        """Return what a name is bound to, in the innermost scope that binds it."""
        scope = self.scope(node)
        while (scope, name) not in self._bindings:
            if scope is self.tree:
                return []
            scope = self.scope(scope)
        return self._bindings[scope, name]

    def dotted(self, expression: ast.AST | None) -> str | None:
        """Return a dotted name such as `torch.cuda.Event`, through aliases; None for a computed
        value."""
        if expression is None:
            return None
        if expression in self._dotted:
            return self._dotted[expression]
        tail: list[str] = []
        node: ast.AST | str | None = expression
        for _ in range(LONGEST_CHAIN):
            if not isinstance(node, ast.AST):
                break
            node = self._follow(node, tail)
        path = ".".join((node, *reversed(tail))) if isinstance(node, str) else None
        self._dotted[expression] = path
        return path

    def _follow(self, node: ast.AST, tail: list[str]) -> ast.AST | str | None:
        """Follow an expression by one step. Names of attributes are added to `tail`."""
        match node:
            case ast.Attribute(value=value, attr=attr):
                tail.append(attr)
                return value
            case ast.Name(id=name):
                bound = self.bindings(node, name)
                if not bound:
                    return builtin(name)
                return self._meaning(bound)
            case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)):
                if self.is_named(value, "sys.modules"):
                    return key
                if isinstance(value, ast.Attribute) and value.attr == "__dict__":
                    tail.append(key)
                    return value.value
                if isinstance(value, ast.Call) and self.is_named(value.func, "builtins.vars"):
                    tail.append(key)
                    return value.args[0] if value.args else None
            case ast.Call(func=ast.Name(id="getattr"), args=[value, key, *_]):
                literal = literal_text(key)
                if literal is not None:
                    tail.append(literal)
                    return value
            case ast.Call(func=func, args=[key, *_]) if self.is_named(
                func, "importlib.import_module", "builtins.__import__"
            ):
                return literal_text(key)
        return None

    def _meaning(self, bound: list[ast.expr | str | None]) -> ast.expr | str | None:
        """Return the common meaning of several bindings."""
        found = self._meanings.get(id(bound))
        if found is None:
            # `except ImportError: triton = None` does not make triton something else.
            kinds = {b for b in bound if not is_none(b)}
            found = self._meanings[id(bound)] = (kinds.pop() if len(kinds) == 1 else None,)
        return found[0]

    def is_named(self, expression: ast.AST, *paths: str) -> bool:
        """Return whether an expression names one of some objects, without aliases of aliases."""
        tail: list[str] = []
        node: ast.AST | str | None = expression
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        bound = self.bindings(node, node.id)
        head = bound[0] if bound else builtin(node.id)
        return isinstance(head, str) and ".".join((head, *reversed(tail))) in paths

    # --- what runs when ------------------------------------------------------------------

    def calls_of(self, name: str) -> list[ast.Call]:
        """Return calls of functions with that last word."""
        return self._calls.get(name, [])

    def within(self, function: ast.AST) -> list[ast.AST]:
        """Return the nodes of a function, without those of inner functions."""
        found = self._within.get(function)
        if found is None:
            found = self._within[function] = list(own_nodes(function))
        return found

    def functions(self) -> Iterator[Function]:
        yield from self.every(ast.FunctionDef, ast.AsyncFunctionDef)

    def forwards(self) -> Iterator[Function]:
        """Yield functions that are called for an output: `forward` of modules, and the entry."""
        for function in self.functions():
            owner = self.owner(function)
            if owner is None:
                if function.name in {self.entry, "forward", "custom_kernel"}:
                    yield function
            elif function.name in {"forward", "__call__"} and not is_autograd(owner):
                yield function


def children(node: ast.AST) -> list[ast.AST]:
    """Return a node's children, without operators and contexts, which are leaves."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found.extend(v for v in value if isinstance(v, ast.AST) and v._fields)
        elif isinstance(value, ast.AST) and value._fields:
            found.append(value)
    return found


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes below a function that are not below another one."""
    pending = children(function)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(children(node))


def builtin(name: str) -> str | None:
    """Return the path of a builtin. Other unbound names come from `import *`, or from nowhere."""
    return f"builtins.{name}" if name in _BUILTINS else None


def is_none(value: ast.expr | str | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def is_autograd(owner: ast.ClassDef) -> bool:
    """Return whether a class is a torch.autograd.Function, whose forward has a context and no
    self."""
    return any(
        isinstance(b, ast.Attribute | ast.Name) and last(b) == "Function" for b in owner.bases
    )


def last(expression: ast.AST | None) -> str:
    """Return the last word of a name or an attribute."""
    match expression:
        case ast.Attribute(attr=word) | ast.Name(id=word):
            return word
    return ""


def root(expression: ast.AST) -> ast.AST:
    """Return the start of a chain of attributes, subscripts and calls."""
    while True:
        match expression:
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Call(func=value):
                expression = value
            case _:
                return expression


def literal_text(node: ast.AST | None) -> str | None:
    """Return the value of a string literal, with `X` for each value in an f-string."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in values)
    return None


def parameters(function: Function) -> list[str]:
    """Return names of a function's parameters, without the instance or context."""
    spec = function.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    names += [a.arg for a in (spec.vararg, spec.kwarg) if a is not None]
    return [name for name in names if name not in {"self", "cls", "ctx"}]


def path_text(node: ast.AST) -> str | None:
    """Return a chain of attributes such as `self.cache` as written; None for anything else."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join((node.id, *reversed(words)))
