"""Say what a patch no longer calls, stores or defines. Other code of the tree may rely on it.

A forward that calls a fused operator leaves out the submodules that it replaces: their hooks do not
run, and what is put in their place has no effect. Read from two texts of one file; runs nothing.

    bypassed(before, after)   # (Bypassed(owner="Attention", name="attend", kind="call", line=46),)

A call that is left under a condition is left out where the condition is false, unless the condition
asks for the hooks of what is called. `torch.compile` leaves out the hooks of all that it inlines:
they are not guarded, so a hook that comes after the first call does not run.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cudal1_ci.discover.syntax import (
    Definition,
    Function,
    definitions,
    dotted_name,
    reachable,
    walk,
)

Kind = Literal["call", "method", "function", "store", "removed", "compiled"]
"""`call`: an attribute; `method` and `function`: definitions that are kept and no longer called;
`store`: an attribute that a call leaves behind; `removed`: what is no longer defined."""

Guards = frozenset[str]
CONSTRUCTOR = "__init__"
REGISTERED = ("register_buffer", "register_parameter", "add_module", "register_module")


@dataclass(frozen=True, kw_only=True)
class Bypassed:
    """What other code may rely on."""

    owner: str
    """Qualname of the class; empty at module level."""
    name: str
    kind: Kind
    line: int
    """Of the text before the patch."""
    made_by: str = ""
    """What the constructor calls to make it: `nn.Softmax`."""
    methods: tuple[str, ...] = ()
    """Methods of the class that the patch changed."""


@dataclass
class ClassUses:
    """What the methods of a class do with its attributes."""

    calls: dict[str, dict[Guards, int]] = field(default_factory=lambda: defaultdict(dict))
    """By attribute: the conditions of each call, with its line."""
    loads: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    """Outside of the constructor."""
    made: dict[str, tuple[int, str]] = field(default_factory=dict)
    """In the constructor: the line, and what is called."""
    methods: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Line and syntax."""
    is_compiled: bool = False


def bypassed(before: ast.Module, after: ast.Module) -> tuple[Bypassed, ...]:
    """Return what the second text leaves out that the first one uses or defines."""
    old, new = classes_of(before), classes_of(after)
    found = [
        one for name, uses in old.items() if name in new for one in of_class(name, uses, new[name])
    ]
    return (*found, *of_module(before, after))


def of_class(owner: str, old: ClassUses, new: ClassUses) -> Iterator[Bypassed]:
    """Yield what one class leaves out."""
    changed = tuple(name for name, (_, code) in old.methods.items() if code_of(new, name) != code)
    if not changed:
        return

    def made(name: str, kind: Kind, line: int) -> Bypassed:
        by = old.made.get(name, (0, ""))[1]
        return Bypassed(owner=owner, name=name, kind=kind, line=line, made_by=by, methods=changed)

    gone = [name for name in (*old.made, *old.methods) if name not in {*new.made, *new.methods}]
    for name in dict.fromkeys(gone):
        yield made(name, "removed", old.made.get(name, old.methods.get(name, (0, "")))[0])
    for name, calls in old.calls.items():
        if name not in gone and not is_kept(calls, new.calls.get(name, {})):
            yield made(name, "method" if name in old.methods else "call", min(calls.values()))
    for name, line in old.stores.items():
        if name not in new.stores and name not in new.made:
            yield made(name, "store", line)
    if new.is_compiled and not old.is_compiled:
        for name, calls in old.calls.items():
            if name not in old.methods:
                yield made(name, "compiled", min(calls.values()))


def code_of(uses: ClassUses, name: str) -> str:
    return uses.methods.get(name, (0, ""))[1]


def is_kept(old: dict[Guards, int], new: dict[Guards, int]) -> bool:
    """Return whether each call is still there, under no more conditions."""
    return all(any(after <= before for after in new) for before in old)


def of_module(before: ast.Module, after: ast.Module) -> Iterator[Bypassed]:
    """Yield functions of the file that a changed definition no longer calls, and definitions that
    are gone."""
    old = definitions_of(before)
    new = definitions_of(after)
    for name, node in old.items():
        if name not in new:
            yield Bypassed(owner="", name=name, kind="removed", line=node.lineno)
            continue
        if ast.dump(node) == ast.dump(new[name]):
            continue
        kept = set(called_in(new[name]))
        for called, line in called_in(node).items():
            if called not in kept:
                yield Bypassed(owner="", name=called, kind="function", line=line)


def definitions_of(tree: ast.Module) -> dict[str, Definition]:
    """Return the functions and classes of a file by their names."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name: node for node in reachable(tree.body) if isinstance(node, kinds)}


def called_in(node: ast.AST) -> dict[str, int]:
    """Return the dotted names that are called below a node, with a line of each."""
    names = [(dotted_name(one.func), one.lineno) for one in walk(node) if isinstance(one, ast.Call)]
    return {name: line for name, line in names if name and not name.startswith("self.")}


def unused(before: ast.Module, after: ast.Module) -> tuple[Bypassed, ...]:
    """Return attributes that a constructor makes and no method reads any more."""
    old, new = classes_of(before), classes_of(after)
    return tuple(
        Bypassed(owner=owner, name=name, kind="call", line=line, made_by=by)
        for owner, uses in new.items()
        if owner in old
        for name, (line, by) in uses.made.items()
        if name not in uses.loads and name in old[owner].loads
    )


def classes_of(tree: ast.Module) -> dict[str, ClassUses]:
    """Return the classes of a file that can be imported, by qualname."""
    found = {
        name: uses_of(node)
        for name, node in definitions(tree.body)
        if isinstance(node, ast.ClassDef) and "<locals>" not in name
    }
    for node in reachable(tree.body):  # `Attention = torch.compile(Attention)`, `X.forward = ...`
        match node:
            case ast.Assign(targets=[target], value=ast.Call() as value) if compiles(value.func):
                name = (dotted_name(target) or "").removesuffix(".forward")
                if name in found:
                    found[name].is_compiled = True
    return found


def uses_of(node: ast.ClassDef) -> ClassUses:
    """Return what the methods of a class do."""
    uses = ClassUses()
    for statement in reachable(node.body):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            uses.is_compiled |= compiles(statement.value.func)
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        uses.is_compiled |= any(compiles(one) for one in statement.decorator_list)
        uses.methods[statement.name] = statement.lineno, ast.dump(statement)
        if statement.name == CONSTRUCTOR:
            read_constructor(statement, uses)
        else:
            MethodReader(uses, aliases_in(statement)).body(statement.body, frozenset())
    return uses


def compiles(expression: ast.expr) -> bool:
    """Return whether an expression is `torch.compile`, or a call or partial of it."""
    names = (dotted_name(one) for one in walk(expression) if isinstance(one, ast.expr))
    return any(name in ("torch.compile", "compile") for name in names if name)


def read_constructor(node: Function, uses: ClassUses) -> None:
    """Note what a constructor makes, and what it reads of that."""
    for one in walk(node):
        match one:
            case ast.Assign(targets=targets, value=value):
                for made in filter(None, map(attribute_of_self, targets)):
                    uses.made.setdefault(made, (one.lineno, made_by(value)))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                if found := attribute_of_self(target):
                    uses.made.setdefault(found, (one.lineno, made_by(value)))
            case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]):
                if attr in REGISTERED:
                    uses.made.setdefault(name, (one.lineno, attr))
            case ast.Attribute(ctx=ast.Load()):
                if read := attribute_of_self(one):
                    uses.loads.setdefault(read, one.lineno)


def made_by(value: ast.expr) -> str:
    """Return what is called to make a value, or one of what is: `nn.Softmax`."""
    for one in walk(value):
        if isinstance(one, ast.Call) and (name := dotted_name(one.func)):
            return name
    return ""


def attribute_of_self(node: ast.AST) -> str | None:
    """Return the name of `self.name`."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def aliases_in(node: Function) -> dict[str, str]:
    """Return local names by the attribute of self that they stand for, or are an item of."""
    found: dict[str, str] = {}
    for one in walk(node):
        match one:
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                pass
            case ast.Assign(targets=[target], value=ast.Attribute() | ast.Subscript() as value):
                pass
            case _:
                continue
        names = {name for each in walk(value) if (name := attribute_of_self(each))}
        if len(names) == 1:
            [name] = names
            found |= {each.id: name for each in walk(target) if isinstance(each, ast.Name)}
    return found


class MethodReader:
    """Read one method: which attributes it calls, under which conditions."""

    def __init__(self, uses: ClassUses, aliases: dict[str, str]):
        self.uses, self.aliases = uses, aliases

    def body(self, body: Sequence[ast.stmt], guards: Guards) -> None:
        """Read statements. What follows an `if` that returns is under its opposite."""
        for statement in body:
            match statement:
                case ast.If(test=test, body=then, orelse=other):
                    self.expression(test, guards)
                    yes, no = ast.unparse(test), f"not ({ast.unparse(test)})"
                    self.body(then, guards | {yes})
                    self.body(other, guards | {no})
                    if ends(then):
                        guards |= {no}
                    elif other and ends(other):
                        guards |= {yes}
                case ast.For(target=target, iter=value, body=inner, orelse=other):
                    self.expression(value, guards, is_iterated=True)
                    self.expression(target, guards)
                    self.body([*inner, *other], guards)
                case ast.While(test=test, body=inner, orelse=other):
                    self.expression(test, guards)
                    self.body([*inner, *other], guards)
                case ast.With(items=items, body=inner):
                    for item in items:
                        self.expression(item, guards)
                    self.body(inner, guards)
                case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=last):
                    self.body([*inner, *other, *last], guards)
                    for handler in handlers:
                        self.body(handler.body, guards | {"except"})
                case _:
                    self.expression(statement, guards)

    def expression(self, node: ast.AST, guards: Guards, *, is_iterated: bool = False) -> None:
        """Note what an expression, or a simple statement, does."""
        chained = {id(one.value) for one in walk(node) if isinstance(one, ast.Attribute)}
        chained |= {id(one.value) for one in walk(node) if isinstance(one, ast.Subscript)}
        iterated = {id(one.iter) for one in walk(node) if isinstance(one, ast.comprehension)}
        for one in walk(node):
            match one:
                case ast.Call(func=ast.Name(id=name)) if name in self.aliases:
                    self.call(self.aliases[name], guards, one.lineno)
                case ast.Call(func=ast.Subscript(value=inner)):
                    if called := attribute_of_self(inner):
                        self.call(called, guards, one.lineno)
            used = attribute_of_self(one)
            if used is None or not isinstance(one, ast.Attribute):
                continue
            if isinstance(one.ctx, ast.Store):
                self.uses.stores.setdefault(used, one.lineno)
                continue
            self.uses.loads.setdefault(used, one.lineno)
            is_passed = id(one) not in chained | iterated and not is_iterated
            if is_passed:  # called, or given to what may call it
                self.call(used, guards, one.lineno)

    def call(self, name: str, guards: Guards, line: int) -> None:
        """Note a call. A condition on the hooks of what is called keeps them."""
        kept = frozenset(one for one in guards if not (f"self.{name}." in one and "_hooks" in one))
        self.uses.calls[name].setdefault(kept, line)


def ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether a body leaves the function."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise)
