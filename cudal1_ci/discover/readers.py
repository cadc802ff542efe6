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
from functools import cached_property

from cudal1_ci.discover.bypassed import (
    Bypassed,
    attribute_of_self,
    bypassed,
    classes_of,
    unused,
)
from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.discover.file_reader import HOOKS, FileReader, Part, Reader, reader
from cudal1_ci.discover.imports import ModuleIndex, defined_in
from cudal1_ci.discover.python_targets import ClassTable, Key
from cudal1_ci.discover.reading import facts_of
from cudal1_ci.discover.syntax import PARSE_ERRORS, dotted_name, parse, walk

DOCUMENTS = (".md", ".rst", ".ipynb", ".txt")
MAX_DOCUMENT_BYTES = 2_000_000


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
