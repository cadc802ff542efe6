"""Resolve imports inside one tree: where a module is and what its names refer to.

Every Python file has a module name below an import root: the folder above its outermost package
(`.`, `src`), or the folder of a script. Folders without `__init__.py` are namespace packages when
the tree imports them as such. An imported name is a definition of the tree, or else a dotted name
from outside. Nothing is imported; `sys.path` edits are not seen.

    modules = ModuleIndex.of(root, facts)
    modules.resolve("src/pkg/model.py", "nn.Linear") == Symbol(None, "torch.nn.Linear")
    modules.resolve("src/pkg/model.py", "Block") == Symbol("src/pkg/blocks.py", "Block")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cudal1_ci.discover.facts import Binding, FileFacts

TOP_FILES = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""What lies at the top of a checkout or a project."""
MAX_HOPS = 32
"""Aliases and re-exports that are followed before a chain counts as a cycle."""


@dataclass(frozen=True)
class Symbol:
    """Name a definition of the tree, a module of the tree, or a dotted name from outside.

    A definition has a `path` and a qualname, a module an empty `name`, an outside name `path` None.
    """

    path: str | None
    name: str


@dataclass(frozen=True)
class Place:
    """Describe how a file is imported."""

    import_root: str
    """Relative to the tree's root: `.`, `src`, and `..` where the root is itself a package."""
    module: str


@dataclass
class ModuleIndex:
    """Hold the modules of a tree and their bindings."""

    facts: Mapping[str, FileFacts]
    places: dict[str, Place]
    paths: dict[str, list[str]]
    """Module name to the files that have it; several scripts may share one."""
    definitions: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, facts: Mapping[str, FileFacts]) -> ModuleIndex:
        places = places_of(root, facts)
        paths: dict[str, list[str]] = defaultdict(list)
        for path, place in places.items():
            paths[place.module].append(path)
        definitions = {path: defined_in(file) for path, file in facts.items() if file.is_parsed}
        return cls(facts, places, dict(paths), definitions)

    def module_path(self, importer: str, module: str) -> str | None:
        """Return the file of an absolute module name as `importer` would import it.

        Of several files, the one whose import root is the importer's is used, or else the one whose
        import root is the closest above it: each of two example folders may have its own
        `models.py`.
        """
        place = self.places.get(importer)
        best: tuple[int, str] | None = None
        for path in self.paths.get(module, ()):
            root = self.places[path].import_root
            if place is not None and root == place.import_root:
                return path
            depth = 0 if root in {".", "src"} else len(root)
            holds = depth == 0 or root.startswith("..") or importer.startswith(f"{root}/")
            # A lone `utils.py` elsewhere is not what `import utils` means here; a package may be.
            if not holds and "." not in module and not path.endswith("__init__.py"):
                continue
            rank = depth + 1 if holds else 0
            if best is None or rank > best[0]:
                best = (rank, path)
        return best[1] if best else None

    def absolute(self, importer: str, module: str) -> str | None:
        """Return a module name without its leading dots; None when they lead out of the package."""
        level = len(module) - len(module.lstrip("."))
        if level == 0:
            return module
        place = self.places.get(importer)
        if place is None:
            return None
        package = place.module.split(".")
        up = level if not importer.endswith("__init__.py") else level - 1
        if up > len(package):
            return None
        parts = [*package[: len(package) - up], *filter(None, [module.lstrip(".")])]
        return ".".join(parts)

    def resolve(self, path: str, dotted: str) -> Symbol:
        """Return what a dotted name refers to at the module level of a file."""
        symbols = self.resolve_all(path, dotted)
        return next((each for each in symbols if each.path is not None), symbols[0])

    def resolve_all(self, path: str, dotted: str) -> tuple[Symbol, ...]:
        """Return all symbols that a dotted name may mean, as `try` and `except` may define it
        twice.
        """
        found = dict.fromkeys(self._resolve(path, dotted, MAX_HOPS, set()))
        return tuple(found) or (Symbol(None, dotted),)

    def trail(self, path: str, dotted: str, local: Binding | None = None) -> set[tuple[str, str]]:
        """Return every file and name that a dotted name leads through, with aliases and re-exports.

        `local`: what the first part is bound to in the function that uses the name.
        """
        seen: set[tuple[str, str]] = set()
        if local is None:
            found = self._resolve(path, dotted, MAX_HOPS, seen)
        else:
            found = self._follow(path, local, dotted.partition(".")[2], MAX_HOPS, seen)
        for _ in found:
            pass
        return seen

    def imported_from(self, path: str, name: str) -> set[Symbol]:
        """Return what a module-level name of a file is imported from; empty if not imported."""
        file = self.facts.get(path)
        if file is None or name in self.definitions.get(path, ()):
            return set()
        return {
            symbol
            for binding in file.bindings.get(name, ())
            for symbol in self._follow(path, binding, "", MAX_HOPS, set())
        }

    def _resolve(
        self, path: str, dotted: str, hops: int, seen: set[tuple[str, str]]
    ) -> Iterator[Symbol]:
        if hops == 0 or (path, dotted) in seen:
            return
        seen.add((path, dotted))
        file = self.facts[path]
        root, _, rest = dotted.partition(".")
        defined = self.definitions.get(path, set())
        if root in defined:
            yield Symbol(path, dotted)
        for binding in file.bindings.get(root, ()):
            yield from self._follow(path, binding, rest, hops - 1, seen)
        if root not in file.bindings and root not in defined:
            for module in file.star_imports:
                absolute = self.absolute(path, module)
                below = self.module_path(path, absolute) if absolute else None
                if below is not None:
                    yield from self._resolve(below, dotted, hops - 1, seen)

    def _follow(
        self, path: str, binding: Binding, rest: str, hops: int, seen: set[tuple[str, str]]
    ) -> Iterator[Symbol]:
        if not binding.module:
            alias = f"{binding.name}.{rest}" if rest else str(binding.name)
            yield from self._resolve(path, alias, hops, seen)
            if "." in alias and alias.partition(".")[0] not in self.facts[path].bindings:
                yield Symbol(None, alias)
            return
        module = self.absolute(path, binding.module)
        if module is None:
            return
        parts = [*filter(None, [binding.name]), *filter(None, rest.split("."))]
        yield from self._lookup(path, module, parts, hops, seen)

    def _lookup(
        self, path: str, module: str, parts: list[str], hops: int, seen: set[tuple[str, str]]
    ) -> Iterator[Symbol]:
        """Look up `parts` from a module: submodules first, then names in the deepest one."""
        here = self.module_path(path, module)
        while parts:
            below = self.module_path(path, f"{module}.{parts[0]}")
            bound = here is not None and parts[0] in self.facts[here].bindings
            if below is None or (bound and len(parts) == 1):
                break
            module, here, parts = f"{module}.{parts[0]}", below, parts[1:]
        if here is None:
            yield Symbol(None, ".".join([module, *parts]))
        elif not parts:
            yield Symbol(here, "")
        else:
            found = list(self._resolve(here, ".".join(parts), hops, seen))
            if not found and here is not None and not self.facts[here].is_parsed:
                found = [Symbol(here, ".".join(parts))]
            yield from found


def defined_in(file: FileFacts) -> set[str]:
    """Return the qualnames that the facts of a file hold."""
    return {*file.names, *(each.qualname for each in file.classes)}


def places_of(root: Path, facts: Mapping[str, FileFacts]) -> dict[str, Place]:
    """Return how every Python file of a tree is imported."""
    python = [path for path in facts if path.endswith(".py")]
    packages = {folder_of(path) for path in python if path.endswith("__init__.py")}
    above = packages_above(root)
    namespaces = Namespaces(python, facts)
    places = {}
    for path in python:
        import_root = folder_of(path)
        while import_root in packages and import_root != ".":
            import_root = folder_of(import_root)
        if import_root not in packages:
            import_root = namespaces.root_of(path, import_root)
        parts = path.removesuffix(".py").split("/")
        if parts[-1] == "__init__":
            parts.pop()
        if import_root == "." and above:
            # The root is itself a package: its import root is above it.
            place = Place("/".join([".."] * len(above)), ".".join([*above, *parts]))
        else:
            depth = 0 if import_root == "." else import_root.count("/") + 1
            place = Place(import_root, ".".join(parts[depth:]))
        places[path] = place
    return places


def folder_of(path: str) -> str:
    """Return the folder of a relative POSIX path; `.` for the root."""
    return path.rpartition("/")[0] or "."


def packages_above(root: Path) -> list[str]:
    """Return the names of the packages around the root folder, its own last; empty if none. The
    top of a project is no package, whatever lies in it: what is above it is not the project's."""
    names: list[str] = []
    at = root
    while (at / "__init__.py").is_file() and at.parent != at and not is_top(at):
        names.insert(0, at.name)
        at = at.parent
    return names


def is_top(folder: Path) -> bool:
    """Return whether a folder is the top of a checkout, or of a project."""
    return any((folder / name).exists() for name in TOP_FILES)


class Namespaces:
    """Hold the folders without `__init__.py` that the tree imports as packages."""

    def __init__(self, python: list[str], facts: Mapping[str, FileFacts]) -> None:
        self._imported: set[str] = set()
        self._relative: set[str] = set()
        for path in python:
            file = facts[path]
            modules = {binding.module for each in file.bindings.values() for binding in each}
            modules.update(file.star_imports, file.dotted_imports)
            self._imported |= modules
            if any(module.startswith(".") for module in modules):
                self._relative.add(folder_of(path))
        for module in list(self._imported):
            while "." in module and not module.startswith("."):
                module = module.rpartition(".")[0]
                self._imported.add(module)

    def root_of(self, path: str, top: str) -> str:
        """Return the import root of a file whose packages end below the folder `top`.

        The result is the outermost folder from which the tree imports the file, or `top` itself.
        """
        if top in {".", "src"}:
            return top
        parts = top.split("/")
        own = path.removeprefix(f"{top}/").removesuffix(".py").partition("/")[0]
        for depth in range(len(parts)):
            below = parts[depth:]
            dotted = ".".join(below)
            if all(part.isidentifier() for part in below) and (
                f"{dotted}.{own}" in self._imported or dotted in self._imported
            ):
                return "/".join(parts[:depth]) or "."
        if top in self._relative and folder_of(path) == top:
            # Relative imports need a package around them.
            return "src" if parts[0] == "src" else "."
        return top
