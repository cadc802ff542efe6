"""List the scripts of a tree: which file is of which kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from cudal1_ci.discover.files import (
    TEST_FILE,
    TEST_FOLDERS,
    DiscoveryConfig,
    Globs,
    Listing,
    walk,
)
from cudal1_ci.discover.ignored import IgnoreRules
from cudal1_ci.discover.scripts import pages
from cudal1_ci.discover.scripts.continued import Names, continued, names_of
from cudal1_ci.discover.scripts.script import KINDS, Cell, Kind, Script

SUFFIXES = frozenset({".py", ".md", ".mdx", ".markdown", ".rst", ".ipynb"})
CONFIGURATIONS = frozenset({".yaml", ".yml", ".json"})
MAX_CONFIGURATION_BYTES = 2**16
MAX_CONFIGURATIONS = 500
MAX_FILE_BYTES = 256 * 2**20
"""Of a notebook: its outputs are read over."""
MAX_PAGE_BYTES = 2_000_000
EXAMPLE = re.compile(r"examples?|demos?|tutorials?|samples?|recipes?", re.IGNORECASE)
EXAMPLE_FILE = re.compile(r"(?:example|demo|tutorial|usage|quickstart)", re.IGNORECASE)
BENCHMARK = re.compile(r"bench(?:mark(?:s|ing)?)?|perf(?:ormance)?|profiling", re.IGNORECASE)
BENCHMARK_FILE = re.compile(r"(?:^|_)(?:bench|benchmark|benchmarks|profile|speed)(?:_|$)")
HAS_MAIN = re.compile(r"^if __name__ == ['\"]__main__['\"]", re.MULTILINE)
NOT_RUN = frozenset({"setup.py", "conftest.py", "conf.py", "noxfile.py", "versioneer.py"})
EXAMPLES_IN_TEXT = re.compile(r">>> |```|::\s*$", re.MULTILINE)


def scripts_of(root: Path, config: DiscoveryConfig | None = None) -> tuple[Script, ...]:
    """Return the scripts of a tree that use its own modules, in order of kind and place."""
    root = root.resolve()
    own = names_of_modules(files := files_of(root, config or DiscoveryConfig()))
    found = [one for path, size in files for one in scripts_in(root, path, size) if uses(one, own)]
    return tuple(sorted(found, key=lambda one: (KINDS.index(one.kind), one.path, one.place)))


def configurations_of(root: Path, config: DiscoveryConfig) -> tuple[str, ...]:
    """Return the files of a tree that may hold arguments of its classes."""
    files = files_of(root.resolve(), config, CONFIGURATIONS)
    small = [path for path, size_bytes in files if size_bytes <= MAX_CONFIGURATION_BYTES]
    return tuple(small[:MAX_CONFIGURATIONS])


def files_of(
    root: Path, config: DiscoveryConfig, suffixes: frozenset[str] = SUFFIXES
) -> list[tuple[str, int]]:
    """Return the texts of a tree that may hold scripts, with their sizes."""
    config = msgspec.structs.replace(config, include=(), tests=True, max_file_bytes=MAX_FILE_BYTES)
    listing = Listing(root=root, suffixes=suffixes)
    walk(listing, "", IgnoreRules.of(root), Globs.of(config), config)
    return sorted((file.path, file.size_bytes) for file in listing.files)


def names_of_modules(files: list[tuple[str, int]]) -> frozenset[str]:
    """Return the names by which a tree's modules may be imported: those of its Python files and of
    the folders that hold some."""
    names: set[str] = set()
    for path, _ in files:
        if path.endswith(".py"):
            pure = PurePosixPath(path)
            names.update((pure.stem, *pure.parts[:-1]))
    return frozenset(names - {"__init__", "setup", "src"})


def uses(script: Script, own: frozenset[str]) -> bool:
    """Return whether a script can call code of the tree: it imports a module of it, or is itself
    such a module."""
    is_module = script.kind in ("docstring", "main", "example", "benchmark")
    return is_module or any(name.lstrip(".").partition(".")[0] in own for name in script.imports)


def scripts_in(root: Path, path: str, size_bytes: int) -> Iterator[Script]:
    """Yield the scripts of one file."""
    if path.endswith(".ipynb"):
        cells = tuple(pages.cells_of_notebook(pages.read_text(root / path)))
        if cells:
            modules = frozenset().union(*(imports_of(cell.text) for cell in cells))
            yield Script(kind="notebook", path=path, cells=cells, imports=modules)
    elif size_bytes > MAX_PAGE_BYTES:
        return
    elif path.endswith(".py"):
        yield from scripts_of_python(path, pages.read_text(root / path))
    else:
        is_readme = PurePosixPath(path).name.lower().startswith("readme")
        read = pages.blocks_of_rst if path.endswith(".rst") else pages.blocks_of_markdown
        cells_found: Iterator[Cell] = read(pages.read_text(root / path))
        for group, modules in continued(cells_found):
            kind: Kind = "readme" if is_readme else "docs"
            yield Script(kind=kind, path=path, cells=group, imports=modules)


def scripts_of_python(path: str, text: str) -> Iterator[Script]:
    """Yield a Python file that is run as a whole, and the examples of its docstrings."""
    kind = kind_of(path, text)
    if kind is not None:
        yield Script(kind=kind, path=path, imports=imports_of(text))
    if kind != "test" and EXAMPLES_IN_TEXT.search(text):
        for cells in pages.docstring_cells(text):
            modules = frozenset().union(*(imports_of(cell.text) for cell in cells))
            yield Script(kind="docstring", path=path, cells=cells, imports=modules)


def imports_of(text: str) -> frozenset[str]:
    return frozenset((names_of(text) or Names()).imports)


def kind_of(path: str, text: str) -> Kind | None:
    """Return the kind of a Python file as a program; None where it is a module alone."""
    pure = PurePosixPath(path)
    folders = pure.parts[:-1]
    if pure.name in NOT_RUN or "torch" not in text:
        return None
    if TEST_FILE.fullmatch(pure.name) or not TEST_FOLDERS.isdisjoint(folders):
        is_test = TEST_FILE.fullmatch(pure.name) and ("def test" in text or "unittest" in text)
        return "test" if is_test else None
    runs = HAS_MAIN.search(text) is not None
    if any(map(BENCHMARK.fullmatch, folders)) or BENCHMARK_FILE.search(pure.stem):
        return "benchmark" if runs or "__init__" not in pure.stem else None
    if any(map(EXAMPLE.fullmatch, folders)) or EXAMPLE_FILE.match(pure.stem):
        return "example" if pure.stem != "__init__" else None
    return "main" if runs else None
