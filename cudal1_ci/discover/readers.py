"""Find the code of a tree that relies on what a patch leaves out: hooks, overrides, replacements.

    readers = Readers(discover(root, config_with_tests))
    readers.of(path, before, after)
    # (Reader(path="vit_pytorch/recorder.py", line=28, how="hook", ...), ...)

A file is read where its text has one of the names. `attend` of one class is not `attend` of
another: what a file says of a name counts where it names the class, something that leads to its
file, or no class with such an attribute at all. Not seen: names that are computed, and code outside
of the tree.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from cudal1_ci.discover.bypassed import (
    CONSTRUCTOR,
    Bypassed,
    attribute_of_self,
    bypassed,
    classes_of,
    unused,
)
from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.discover.imports import ModuleIndex, defined_in
from cudal1_ci.discover.python_targets import ClassTable, Key
from cudal1_ci.discover.reading import facts_of
from cudal1_ci.discover.syntax import PARSE_ERRORS, Function, dotted_name, parse, walk

How = Literal["hook", "path", "override", "replaced", "state_dict", "read", "every", "unused"]
HOOKS = re.compile(r"register_(?:module_)?(?:full_)?(?:forward|backward)(?:_pre)?_hook")
BY_PATH = ("get_submodule", "set_submodule", "named_modules", "named_children", "attrgetter")
PATCHES = ("setattr", "patch", "patch.object", "monkeypatch.setattr", "mocker.patch")
DOCUMENTS = (".md", ".rst", ".ipynb", ".txt")
MAX_DOCUMENT_BYTES = 2_000_000


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


class Readers:
    """Read the files of a tree for what relies on a name. Files are parsed once."""

    def __init__(self, discovery: Discovery):
        self.discovery = discovery
        self.facts = dict(discovery.facts)
        self.modules: ModuleIndex = ModuleIndex(
            self.facts,
            discovery.modules.places,
            discovery.modules.paths,
            dict(discovery.modules.definitions),
        )
        self.texts: dict[str, bytes] = {}
        self.trees: dict[str, ast.Module | None] = {}
        self.mentions: dict[str, set[Key]] = {}
        self.known: dict[tuple[str, str, str], tuple[Reader, ...]] = {}

    @property
    def num_files(self) -> int:
        return len(self.facts)

    def of(self, path: str, before: str, after: str) -> tuple[Reader, ...]:
        """Return what relies on what a changed file leaves out, refusals first."""
        key = (path, before, after)
        if key not in self.known:
            self.known[key] = self.found(path, before, after)
        return self.known[key]

    def found(self, path: str, before: str, after: str) -> tuple[Reader, ...]:
        """Search for `of`."""
        if not path.endswith(".py"):
            return ()
        try:
            old, new = parse(before), parse(after)
        except PARSE_ERRORS:
            return ()
        parts = [Part(path, one) for one in bypassed(old, new) if self.is_of_tree(path, one)]
        parts += self.inside(parts)
        found: dict[tuple[str, int, str], Reader] = {}
        names = {part.what.name.rpartition(".")[2] for part in parts}
        word = re.compile(rb"\b(?:" + b"|".join(map(re.escape, map(str.encode, names))) + rb")\b")
        for other in sorted(self.facts) if parts else ():
            text = self.text(other)
            is_asked = word.search(text) or HOOKS.search(text.decode("utf-8", "replace"))
            if other.endswith(".py") and is_asked:
                for part in parts:
                    for one in self.in_file(other, part, after if other == path else None):
                        found.setdefault((one.path, one.line, one.name), one)
        for one in self.in_documents(parts):
            found.setdefault((one.path, one.line, one.name), one)
        for left in unused(old, new):
            if not any(self.is_read(other, Part(path, left)) for other in self.facts):
                said = f"`self.{left.name}` is still made in the constructor, and nothing reads it"
                one = Reader(path=path, line=left.line, how="unused", name=left.name, said=said)
                found.setdefault((path, left.line, left.name), one)
        return tuple(sorted(found.values(), key=lambda one: (not one.refuses, one.path, one.line)))

    def is_of_tree(self, path: str, what: Bypassed) -> bool:
        """Return whether something is of the tree: functions of torch are not."""
        return what.kind != "function" or self.modules.resolve(path, what.name).path is not None

    def inside(self, parts: list[Part]) -> Iterator[Part]:
        """Yield what is called inside of the parts of a class that is compiled."""
        compiled = {(one.path, one.what.owner) for one in parts if one.what.kind == "compiled"}
        pending, seen = list(compiled), set(compiled)
        while pending:
            path, owner = pending.pop()
            tree = self.tree(path)
            uses = classes_of(tree).get(owner) if tree else None
            for name in uses.made if uses else ():
                made = self.modules.resolve(path, uses.made[name][1]) if uses else None
                key = (made.path, made.name) if made and made.path else None
                if key and key in self.table.classes and key not in seen:
                    seen.add(key)
                    pending.append(key)
            if (path, owner) not in compiled and uses:
                for name, calls in uses.calls.items():
                    by = uses.made.get(name, (0, ""))[1]
                    what = Bypassed(
                        owner=owner,
                        name=name,
                        kind="compiled",
                        line=min(calls.values()),
                        made_by=by,
                    )
                    yield Part(path, what)

    def text(self, path: str) -> bytes:
        """Return the text of a file; empty where it cannot be read."""
        if path not in self.texts:
            try:
                self.texts[path] = (self.discovery.root / path).read_bytes()
            except OSError:
                self.texts[path] = b""
        return self.texts[path]

    def tree(self, path: str) -> ast.Module | None:
        """Return the syntax of a file; None where it does not parse."""
        if path not in self.trees:
            try:
                self.trees[path] = parse(self.text(path))
            except PARSE_ERRORS:
                self.trees[path] = None
            if not self.facts[path].is_parsed:
                self.facts[path] = facts_of(path, self.text(path))
                self.modules.definitions[path] = defined_in(self.facts[path])
        return self.trees[path]

    @cached_property
    def table(self) -> ClassTable:
        """Return all classes of the tree."""
        return ClassTable.of(self.facts, self.modules)

    @cached_property
    def owners(self) -> Callable[[str], set[Key]]:
        """Return the classes that make an attribute, by its name."""
        found: dict[str, set[Key]] = defaultdict(set)
        for path in self.facts:
            tree = self.tree(path) if path.endswith(".py") and self.facts[path].classes else None
            for qualname, uses in classes_of(tree).items() if tree else ():
                for name in (*uses.made, *uses.methods):
                    found[name].add((path, qualname))
        return lambda name: found.get(name, set())

    def family(self, part: Part) -> set[Key]:
        """Return the class of a part, and those that derive from it."""
        own = (part.path, part.what.owner)
        return {own} | {key for key in self.table.classes if own in self.table.ancestors(key)}

    def named_in(self, path: str) -> set[Key]:
        """Return the definitions of the tree that a file names."""
        if path not in self.mentions:
            tree, found = self.tree(path), set()
            for node in walk(tree) if tree else ():
                name = dotted_name(node) if isinstance(node, ast.Name | ast.Attribute) else None
                symbol = self.modules.resolve(path, name) if name else None
                if symbol is not None and symbol.path is not None and symbol.name:
                    parts = symbol.name.split(".")
                    found |= {(symbol.path, ".".join(parts[: n + 1])) for n in range(len(parts))}
            self.mentions[path] = found
        return self.mentions[path]

    def concerns(self, path: str, part: Part) -> bool:
        """Return whether what a file says of a name may be of this class."""
        if path == part.path or not part.what.owner:
            return True
        named, family = self.named_in(path), self.family(part)
        if named & family:
            return True
        if named & self.owners(part.what.name):
            return False
        if part.path in self.discovery.imports.closure(path):
            return True
        return not any(at != path for at, _ in named)

    def in_file(self, path: str, part: Part, after: str | None) -> Iterator[Reader]:
        """Yield what one file does with a part. Of the patched file, its patched text is read."""
        tree = self.tree(path)
        if tree is None or not self.concerns(path, part):
            return
        if after is not None:
            tree = parse(after)
        elif part.what.kind == "removed" and (part.path, part.what.name) in self.named_in(path):
            word = re.search(rb"\b" + part.what.name.encode() + rb"\b", self.text(path))
            line = self.text(path).count(b"\n", 0, word.start() if word else 0) + 1
            yield reader(path, line, "read", part, "uses")
        yield from FileReader(self, path, part).within(tree.body, None)

    def in_documents(self, parts: list[Part]) -> Iterator[Reader]:
        """Yield hooks that documents show: lines of code in a README."""
        shown = {part.what.name: part for part in parts if part.what.kind in ("call", "compiled")}
        if not shown:
            return
        names = "|".join(map(re.escape, shown))
        pattern = re.compile(rf"\.({names})(?:\[[^\]]*\])?\.{HOOKS.pattern}")
        for document in self.documents:
            for number, line in enumerate(self.text(document).decode(errors="replace").split("\n")):
                if match := pattern.search(line):
                    part = shown[match[1]]
                    yield reader(document, number + 1, "hook", part, "hooks")

    @cached_property
    def documents(self) -> list[str]:
        """Return the documents at the top of the tree and in its folders of examples and docs."""
        root = self.discovery.root
        folders = [root, *(root / name for name in ("docs", "doc", "examples"))]
        files = [one for folder in folders if folder.is_dir() for one in sorted(folder.iterdir())]
        return [
            one.relative_to(root).as_posix()
            for one in files
            if one.suffix in DOCUMENTS
            and one.is_file()
            and one.stat().st_size <= MAX_DOCUMENT_BYTES
        ]

    def is_read(self, path: str, part: Part) -> bool:
        """Return whether another file than the part's, or a subclass, reads an attribute."""
        name = part.what.name.encode()
        if not path.endswith(".py") or re.search(rb"\b" + name + rb"\b", self.text(path)) is None:
            return False
        tree = self.tree(path)
        if tree is None or not self.concerns(path, part):
            return False
        family = self.family(part) - {(part.path, part.what.owner)}
        for qualname, uses in classes_of(tree).items():
            if (path, qualname) in family and part.what.name in uses.loads:
                return True
        return path != part.path and any(
            isinstance(node, ast.Attribute)
            and node.attr == part.what.name
            and attribute_of_self(node) is None
            for node in walk(tree)
        )


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
