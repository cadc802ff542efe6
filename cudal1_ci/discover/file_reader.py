"""Look through one file for what relies on a name that a patch leaves out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cudal1_ci.discover.bypassed import CONSTRUCTOR, Bypassed, attribute_of_self, classes_of
from cudal1_ci.discover.syntax import Function, dotted_name, walk

if TYPE_CHECKING:
    from cudal1_ci.discover.readers import Readers

How = Literal["hook", "path", "override", "replaced", "state_dict", "read", "every", "unused"]
HOOKS = re.compile(r"register_(?:module_)?(?:full_)?(?:forward|backward)(?:_pre)?_hook")
BY_PATH = ("get_submodule", "set_submodule", "named_modules", "named_children", "attrgetter")
PATCHES = ("setattr", "patch", "patch.object", "monkeypatch.setattr", "mocker.patch")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A place that relies on what a patch leaves out."""

    path: str
    line: int
    how: How
    name: str
    said: str
    """``hooks `attend`, which the patch no longer calls``"""

    @property
    def refuses(self) -> bool:
        """Return whether what is there may no longer work with the patch."""
        return self.how not in ("every", "unused")


@dataclass(frozen=True)
class Part:
    """A name that is left out of one file."""

    path: str
    what: Bypassed

    @property
    def lost(self) -> str:
        return {
            "call": "which the patch no longer calls",
            "method": "which the patch no longer calls",
            "function": "which the patch no longer calls",
            "store": "which the patch no longer sets",
            "removed": "which the patch removes",
            "compiled": "whose hooks a compiled forward leaves out",
        }[self.what.kind]


def reader(path: str, line: int, how: How, part: Part, verb: str) -> Reader:
    name = part.what.name
    return Reader(path=path, line=line, how=how, name=name, said=f"{verb} `{name}`, {part.lost}")


class FileReader:
    """Look through one file for what relies on one name."""

    def __init__(self, readers: Readers, path: str, part: Part):
        self.readers, self.path, self.part = readers, path, part
        self.name = part.what.name.rpartition(".")[2]
        self.family = readers.family(part)

    def within(self, body: list[ast.stmt], owner: str | None) -> Iterator[Reader]:
        """Yield what is found in the body of a class or of the module."""
        for statement in body:
            match statement:
                case ast.ClassDef(name=name, body=inner):
                    qualname = f"{owner}.{name}" if owner else name
                    yield from self.overrides(statement, qualname)
                    yield from self.within(inner, qualname)
                case _:
                    yield from self.in_code(statement, owner)

    def overrides(self, node: ast.ClassDef, qualname: str) -> Iterator[Reader]:
        """Yield where a subclass puts something else in the place of a part. One with its own
        version of all methods that were changed is not concerned."""
        what = self.part.what
        own = (self.part.path, what.owner)
        if (self.path, qualname) not in self.family or (self.path, qualname) == own:
            return
        if what.kind not in ("call", "method"):
            return
        uses = classes_of(ast.Module(body=[node], type_ignores=[]))[node.name]
        if what.methods and all(name in uses.methods for name in what.methods):
            return
        if self.name in uses.methods:
            line = uses.methods[self.name][0]
        elif self.name in uses.made:
            line = uses.made[self.name][0]
        else:
            return
        yield reader(self.path, line, "override", self.part, f"{qualname} overrides")

    def in_code(self, node: ast.stmt, owner: str | None) -> Iterator[Reader]:
        """Yield what a function, or another statement, does with the name."""
        kind = self.part.what.kind
        aliases = self.aliases(node)
        for one in walk(node):
            if isinstance(one, ast.Call):
                yield from self.of_call(one, owner, node, aliases)
            elif isinstance(one, ast.Assign) and kind not in ("compiled", "store"):
                for target in one.targets:
                    if self.is_part(target, owner) and self.is_late(target, node):
                        yield reader(self.path, one.lineno, "replaced", self.part, "replaces")
            elif isinstance(one, ast.Attribute) and kind in ("store", "removed"):
                is_load = isinstance(one.ctx, ast.Load)
                if is_load and self.part.what.owner and self.is_part(one, owner):
                    yield reader(self.path, one.lineno, "read", self.part, "reads")
            elif isinstance(one, ast.Constant) and kind == "removed" and self.is_state_key(one):
                yield reader(self.path, one.lineno, "state_dict", self.part, "names")

    def of_call(
        self, call: ast.Call, owner: str | None, function: ast.AST, aliases: set[str]
    ) -> Iterator[Reader]:
        """Yield what a call does with the name: a hook, a path, a replacement."""
        name, kind, line = dotted_name(call.func) or "", self.part.what.kind, call.lineno
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else name
        strings = [one for one in walk(call) if isinstance(one, ast.Constant) and self.is_key(one)]
        if isinstance(call.func, ast.Attribute) and HOOKS.fullmatch(attribute):
            if kind not in ("call", "compiled"):
                return
            hooked = call.func.value
            while isinstance(hooked, ast.Subscript):
                hooked = hooked.value
            local = hooked.id if isinstance(hooked, ast.Name) else None
            is_chosen = local is not None and (local in aliases or self.is_selected(function))
            if is_chosen or self.is_part(hooked, owner) or strings:
                yield reader(self.path, line, "hook", self.part, "hooks")
            elif local is not None and self.hooks_everything(function):
                yield reader(self.path, line, "every", self.part, "hooks all modules, so")
        elif name.endswith(PATCHES) and strings and kind not in ("compiled", "store"):
            yield reader(self.path, line, "replaced", self.part, "replaces")
        elif attribute in BY_PATH and strings and kind in ("call", "removed"):
            yield reader(self.path, line, "path", self.part, "takes")

    def aliases(self, function: ast.AST) -> set[str]:
        """Return local names of the part."""
        return {
            one.targets[0].id
            for one in walk(function)
            if isinstance(one, ast.Assign)
            and isinstance(one.targets[0], ast.Name)
            and any(
                isinstance(each, ast.Attribute) and each.attr == self.name
                for each in walk(one.value)
            )
        }

    def is_part(self, node: ast.AST, owner: str | None) -> bool:
        """Return whether an expression is the part: `x.name`, and `self.name` where self has it."""
        if not self.part.what.owner:
            dotted = dotted_name(node) if isinstance(node, ast.expr) else None
            if dotted is None or "." not in dotted:
                return False
            symbol = self.readers.modules.resolve(self.path, dotted)
            ours = self.readers.modules.resolve(self.part.path, self.part.what.name)
            return symbol == ours and symbol.path is not None
        if not isinstance(node, ast.Attribute) or node.attr != self.name:
            return False
        return attribute_of_self(node) is None or (self.path, owner or "") in self.family

    def is_late(self, target: ast.AST, function: ast.stmt) -> bool:
        """Return whether an assignment comes after construction, and is not the changed code's."""
        if attribute_of_self(target) is None:
            return True
        name = function.name if isinstance(function, Function) else CONSTRUCTOR
        return name != CONSTRUCTOR and name not in self.part.what.methods

    def is_key(self, node: ast.Constant) -> bool:
        """Return whether a text is the name, or a path with it: `layers.0.attend`."""
        return isinstance(node.value, str) and self.name in node.value.strip("_").split(".")

    def is_state_key(self, node: ast.Constant) -> bool:
        """Return whether a text may be a key of a state_dict."""
        return self.is_key(node) and b"state_dict" in self.readers.text(self.path)

    def is_selected(self, function: ast.AST) -> bool:
        """Return whether a function picks the part among modules, by its name or its class."""
        made = self.part.what.made_by.rpartition(".")[2]
        for one in walk(function):
            if isinstance(one, ast.Constant) and self.is_key(one):
                return True
            if isinstance(one, ast.Call) and dotted_name(one.func) == "isinstance" and made:
                classes = [
                    dotted_name(each) or ""
                    for each in walk(one.args[-1])
                    if isinstance(each, ast.Name | ast.Attribute)
                ]
                if any(name.rpartition(".")[2] == made for name in classes):
                    return True
        return False

    def hooks_everything(self, function: ast.AST) -> bool:
        """Return whether a function goes through all modules and picks none."""
        calls = [one for one in walk(function) if isinstance(one, ast.Call)]
        names = [(dotted_name(one.func) or "").rpartition(".")[2] for one in calls]
        goes = {"modules", "named_modules", "children", "apply"} & set(names)
        return bool(goes) and "isinstance" not in names
