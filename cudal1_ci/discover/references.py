"""Find who uses a changed unit, directly or through others, in its file and across imports.

Follows names backwards, round by round. A file is read when its text holds a changed name. A unit
uses the changed unit when one of its names leads there, through imports, aliases and re-exports.
Use without the name is not seen (`getattr`, a registry filled by decorators, an instance passed
in). CUDA is followed by name alone. CUDA leads into Python where a file is built with
`load(sources=...)` or an operator is called as `torch.ops.namespace.name`.

    References(discovery, change).users_of({("src/ops.py", "rotate")})
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cudal1_ci.discover.cuda_source import KEYWORDS
from cudal1_ci.discover.cuda_targets import builders_by_file_name, built_by, last_name
from cudal1_ci.discover.discovery import Discovery
from cudal1_ci.discover.facts import FileFacts
from cudal1_ci.discover.imports import defined_in
from cudal1_ci.discover.reading import facts_of
from cudal1_ci.discover.syntax import MODULE_LEVEL, PARSE_ERRORS
from cudal1_ci.discover.units import Unit, cuda_units, python_units
from cudal1_ci.records import Change

Key = tuple[str, str]
"""Path and qualname of a unit."""

OPERATORS = "<torch.ops>"
"""Path of operators that C++ registers, as Python calls them."""
_OPERATOR = re.compile(r"(?:torch\.)?ops\.(\w+)\.(\w+)(?:\.\w+)?")
_WORD = re.compile(r"[A-Za-z_]\w*")


class References:
    """Read the units of a tree after a change, on demand."""

    def __init__(self, discovery: Discovery, change: Change) -> None:
        self._root = discovery.root
        self._texts: dict[str, bytes] = {}
        self._units: dict[str, dict[str, Unit]] = {}
        self._uses: dict[Key, set[Key]] = {}
        self._facts: dict[str, FileFacts] = dict(discovery.facts)
        for file in change.files:
            if file.after is not None and file.path in self._facts:
                self._texts[file.path] = file.after.encode()
        self.modules = dataclasses.replace(
            discovery.modules,
            facts=self._facts,
            definitions=dict(discovery.modules.definitions),
        )

    @property
    def paths(self) -> Collection[str]:
        """Return all files that discovery read."""
        return self._facts.keys()

    def text(self, path: str) -> bytes:
        """Return a file's text after the change; empty when the file cannot be read."""
        known = self._texts.get(path)
        if known is None:
            try:
                known = (self._root / path).read_bytes()
            except OSError:
                known = b""
            self._texts[path] = known
        return known

    def units(self, path: str) -> dict[str, Unit]:
        """Return the units of a file by qualname; empty when the file does not parse."""
        known = self._units.get(path)
        if known is None:
            known = self._units[path] = self._read(path)
        return known

    def _read(self, path: str) -> dict[str, Unit]:
        source = self.text(path)
        if not path.endswith(".py"):
            return cuda_units(source)
        if not self._facts[path].is_parsed:
            # Discovery skipped the file; now its imports are needed.
            self._facts[path] = facts_of(path, source)
            self.modules.definitions[path] = defined_in(self._facts[path])
        try:
            return python_units(source)
        except PARSE_ERRORS:
            return {}

    def users_of(self, changed: Iterable[Key]) -> dict[Key, Key]:
        """Map the changed units and all their users to the changed unit that each comes from."""
        origins: dict[Key, Key] = {key: key for key in changed}
        frontier = set(origins)
        while frontier:
            found: dict[Key, Key] = {}
            for user, used in self._users(frontier):
                if user not in origins:
                    found.setdefault(user, origins[used])
            origins.update(found)
            frontier = set(found)
        return origins

    def edges_to(self, roots: Iterable[Key], num_rounds: int) -> dict[Key, set[Key]]:
        """Map each user of the roots, at most `num_rounds` away, to the units that it uses
        directly.

        In C++ and in modules only named units count: any other line that mentions a word calls
        nothing.
        """
        known = set(roots)
        found: dict[Key, set[Key]] = {}
        frontier = set(known)
        for _ in range(num_rounds):
            for user, used in self._users(frontier):
                if not user[1].startswith(MODULE_LEVEL):
                    found.setdefault(user, set()).add(used)
            frontier = found.keys() - known
            known |= frontier
        return found

    def _users(self, frontier: set[Key]) -> Iterator[tuple[Key, Key]]:
        """Yield each unit that uses one of the frontier directly, with each unit that it uses."""
        by_name: dict[str, list[Key]] = defaultdict(list)
        for key in sorted(frontier):
            for name in names_of(key):
                by_name[name].append(key)
        # C++ does not call Python nor its bindings, though it has the same words.
        native = {
            name: found
            for name, keys in by_name.items()
            if (found := [key for key in keys if is_cuda(key[0])])
        }
        in_python, in_native = words_among(by_name), words_among(native)
        of_module = {path for path, qualname in frontier if qualname == MODULE_LEVEL}
        for path in sorted(self._facts):
            if path in of_module:
                for qualname in self.units(path):
                    yield (path, qualname), (path, MODULE_LEVEL)
            pattern = in_python if path.endswith(".py") else in_native
            if pattern is None or pattern.search(self.text(path)) is None:
                continue
            for unit in self.units(path).values():
                if path.endswith(".py"):
                    used = self._used_by(path, unit) & frontier
                else:
                    # A definition says its own name, which uses no unit of another file.
                    names = unit.mentions & native.keys() - {last_name(unit.qualname)}
                    used = {key for name in names for key in meant(native[name], path)}
                for key in sorted(used):
                    yield (path, unit.qualname), key
        yield from self._bridges(frontier, native)

    def _used_by(self, path: str, unit: Unit) -> set[Key]:
        """Return all units that the names of a Python unit lead to or through."""
        key = (path, unit.qualname)
        known = self._uses.get(key)
        if known is None:
            known = set()
            for mention in unit.mentions:
                root = mention.partition(".")[0]
                trail = self.modules.trail(path, mention, unit.imports.get(root))
                for at, dotted in trail:
                    # `Attention.split_heads` uses Attention.
                    parts = dotted.split(".")
                    known.update((at, ".".join(parts[:n])) for n in range(1, len(parts) + 1))
                operator = _OPERATOR.fullmatch(mention)
                if operator is not None:
                    known.add((OPERATORS, f"{operator[1]}::{operator[2]}"))
            known.discard(key)
            self._uses[key] = known
        return known

    def _bridges(
        self, frontier: set[Key], by_name: Mapping[str, list[Key]]
    ) -> Iterator[tuple[Key, Key]]:
        """Yield the links from C++ to Python: registered operators, and units that build a file."""
        for path, file in self._facts.items():
            for binding in file.cuda_bindings:
                for used in meant(by_name.get(binding.function, []), path):
                    yield (OPERATORS, binding.name), used
        sources = {path: (path, name) for path, name in sorted(frontier) if is_cuda(path)}
        builders = builders_by_file_name(self._facts) if sources else {}
        for path, used in sources.items():
            for where in sorted(built_by(path, builders)):
                builder_path, _, qualname = where.rpartition(":")
                yield (builder_path, qualname.partition(".")[0]), used


def words_among(names: Iterable[str]) -> re.Pattern[bytes] | None:
    """Return a pattern that finds any of these words; None without words."""
    words = [re.escape(name).encode() for name in names]
    return re.compile(rb"\b(?:" + b"|".join(words) + rb")\b") if words else None


def meant(keys: Sequence[Key], path: str) -> Sequence[Key]:
    """Return which units of one name a C++ file means: its own, where it has one."""
    return [key for key in keys if key[0] == path] or keys


def is_cuda(path: str) -> bool:
    return path != OPERATORS and not path.endswith(".py")


def names_of(key: Key) -> list[str]:
    """Return the words by which a unit is mentioned."""
    path, qualname = key
    if path.endswith(".py"):
        return [] if qualname == MODULE_LEVEL else [qualname.rpartition(".")[2]]
    if qualname.startswith(MODULE_LEVEL):
        keywords = {word.decode() for word in KEYWORDS}
        return [word for word in _WORD.findall(qualname.partition(":")[2]) if word not in keywords]
    return [last_name(qualname)]
