"""Find the files that a file needs when it is imported, and hash all of them.

Every import counts, also imports inside functions. `from pkg import name` needs `pkg/__init__.py`.
Where that file only re-exports the name, the import also needs the name's own file, but not the
rest of the package. The hash misses only the side effects of that rest. Statements are read from
the text, which is a hundred times faster than from a tree. A statement inside a string adds an
unneeded file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cudal1_ci.discover.imports import ModuleIndex
from cudal1_ci.errors import DiscoveryError

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<module>\.*[ \t]*[\w.]*)[ \t]+import[ \t]*"
    rb"(?P<names>\((?:[^)#]|#[^\n]*)*\)|(?:[^\n\\#;]|\\\n)*)"
    rb"|import[ \t]+(?P<modules>(?:[^\n\\#;]|\\\n)*))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True)
class ImportStatement:
    """Describe `from module import names`, or `import module` with names None."""

    module: str
    names: tuple[tuple[str, str], ...] | None
    """Each name with its local name; `*` for all."""


@dataclass(frozen=True)
class ImportedFile:
    """Hold a file's hash and imports as they are now."""

    digest: str
    statements: tuple[ImportStatement, ...]

    def binding(self, name: str) -> list[ImportStatement]:
        """Return the statements that bind a name, each with that name alone."""
        return [
            ImportStatement(each.module, (pair,))
            for each in self.statements
            for pair in each.names or ()
            if pair[1] == name
        ]

    def stars(self) -> list[ImportStatement]:
        return [each for each in self.statements if each.names == (("*", "*"),)]


@dataclass
class ImportGraph:
    """Read which files of a tree import which, on demand, and cache the result."""

    root: Path
    modules: ModuleIndex
    _files: dict[str, ImportedFile] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _steps: dict[tuple[str, str | None], tuple[tuple[str, str | None], ...]] = field(
        default_factory=dict
    )
    _paths: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _packages: dict[PurePosixPath, tuple[str, ...]] = field(default_factory=dict)

    def digest(self, path: str) -> str:
        """Return a hash over a file and all files of the tree that the file needs."""
        known = self._digests.get(path)
        if known is None:
            total = hashlib.sha256()
            for needed in sorted(self.closure(path)):
                total.update(f"{needed}\0{self.file(needed).digest}\n".encode())
            known = self._digests[path] = total.hexdigest()[:32]
        return known

    def closure(self, path: str) -> set[str]:
        """Return the file and all files of the tree that importing it needs."""
        return self.closure_of([(path, None)])

    def closure_of(self, steps: Iterable[tuple[str, str | None]]) -> set[str]:
        """Return all files that some steps lead to, with their own."""
        pending = list(steps)
        needed = {package for path, _ in pending for package in self.packages_of(path)}
        seen = set(pending)
        while pending:
            at, name = pending.pop()
            needed.add(at)
            for step in self.known_steps(at, name):
                if step not in seen:
                    needed.update(self.packages_of(step[0]))
                    seen.add(step)
                    pending.append(step)
        return needed

    def known_steps(self, path: str, name: str | None) -> tuple[tuple[str, str | None], ...]:
        """Return `steps`, computed once for all files that lead here."""
        key = (path, name)
        if key not in self._steps:
            self._steps[key] = tuple(dict.fromkeys(self.steps(path, self.file(path), name)))
        return self._steps[key]

    def steps(
        self, path: str, file: ImportedFile, name: str | None
    ) -> Iterator[tuple[str, str | None]]:
        """Yield what a file needs: files, each with one wanted name; None is the whole file."""
        if name is None:
            statements = list(file.statements)
        else:
            statements = file.binding(name) or file.stars()
            if not statements:
                yield path, None  # defined here: everything here may be needed
                return
        for statement in statements:
            yield from self.targets_of(path, statement)

    def targets_of(
        self, importer: str, statement: ImportStatement
    ) -> Iterator[tuple[str, str | None]]:
        module = self.modules.absolute(importer, statement.module)
        if not module:
            return
        here = self.path_of(importer, module)
        if statement.names is None:
            if here is not None:
                yield here, None
            return
        for name, _ in statement.names:
            below = self.path_of(importer, f"{module}.{name}") if name != "*" else None
            if here is not None and below is None:
                is_package = here.endswith("__init__.py")
                yield here, name if is_package and name != "*" else None
            elif below is not None:
                yield below, None

    def path_of(self, importer: str, module: str) -> str | None:
        """Return the file of a module: a listed file, or one that discovery left out."""
        path = self.modules.module_path(importer, module)
        if path is not None:
            return path
        place = self.modules.places.get(importer)
        key = (place.import_root if place is not None else ".", module)
        if key not in self._paths:
            self._paths[key] = self.left_out_file(*key)
        return self._paths[key]

    def left_out_file(self, import_root: str, module: str) -> str | None:
        """Return the file of a module that is in the tree and was not listed."""
        for suffix in (".py", "/__init__.py"):
            candidate = self.root / import_root / (module.replace(".", "/") + suffix)
            if candidate.is_file() and candidate.resolve().is_relative_to(self.root):
                return candidate.resolve().relative_to(self.root).as_posix()
        return None

    def packages_of(self, path: str) -> tuple[str, ...]:
        """Return the `__init__.py` files that run before a file."""
        folder = PurePosixPath(path).parent
        if folder not in self._packages:
            self._packages[folder] = tuple(self.packages_above(folder))
        return self._packages[folder]

    def packages_above(self, folder: PurePosixPath) -> Iterator[str]:
        while True:
            init = (folder / "__init__.py").as_posix()
            if not (self.root / init).is_file():
                return
            yield init
            if folder == folder.parent:
                return
            folder = folder.parent

    def file(self, path: str) -> ImportedFile:
        """Return a file's hash and imports. Raises: DiscoveryError when it is unreadable."""
        known = self._files.get(path)
        if known is None:
            try:
                source = (self.root / path).read_bytes()
            except OSError as error:
                raise DiscoveryError(
                    f"{path}: was found and can no longer be read ({error.strerror})"
                ) from error
            digest = hashlib.blake2b(source, digest_size=16).hexdigest()
            known = self._files[path] = ImportedFile(digest, tuple(import_statements(source)))
        return known


def import_statements(source: bytes) -> Iterator[ImportStatement]:
    """Yield the imports in a text, at any depth."""
    for match in _IMPORT.finditer(source):
        if match["modules"] is not None:
            for part in clean(match["modules"]).split(","):
                module = part.split(" as ")[0].strip()
                if module:
                    yield ImportStatement(module, None)
            continue
        names = []
        for part in clean(match["names"]).strip("() ").split(","):
            words = part.split()
            if len(words) in {1, 3}:
                names.append((words[0], words[-1]))
        if names:
            yield ImportStatement(match["module"].decode().replace(" ", ""), tuple(names))


def clean(text: bytes) -> str:
    """Return one line without comments and continuations."""
    return _COMMENT.sub("", text.decode("utf-8", "replace")).replace("\\\n", " ").replace("\n", " ")
