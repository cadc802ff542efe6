"""Load a callable: from a text, or from a checkout with changed files laid over it.

The import system serves the overlay; it is never written to the checkout. Byte code of the
checkout's original files is not used for the changed ones. An overlay with files other than
Python's comes here as a copy of the checkout (patched_tree.py).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import linecache
import os
import re
import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..wire.arguments import Made
from ..wire.programs import Program, TextProgram, TreeProgram
from .definitions import added_work, definitions_of, text_in

STANDARD = (
    importlib.machinery.BuiltinImporter,
    importlib.machinery.FrozenImporter,
    importlib.machinery.PathFinder,
)
TREE_OF_A_COMMIT = re.compile(r"/trees/[0-9a-f]{16}(-[0-9a-f]{8})?(/|$)")
"""A folder that `compare` has made of a commit (github/trees.py)."""
MODULE_NAME = "program"
"""Name of the module of a text program, the same for the reference and a candidate."""


class OverlayLoader(importlib.machinery.SourceFileLoader):
    """Load a file of the checkout with another text."""

    def __init__(self, fullname: str, path: str, text: str):
        super().__init__(fullname, path)
        self.text = text

    def get_data(self, path: str) -> bytes:
        return self.text.encode() if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:  # noqa: ARG002
        # Without a modification time importlib neither reads nor writes byte code.
        raise OSError("overlaid")


class OverlayFinder(importlib.abc.MetaPathFinder):
    """Find modules as usual, but with the overlay's text where there is one, and without the work
    of files below `root` that train when they are imported (definitions.py)."""

    def __init__(self, texts: dict[str, str], root: Path):
        self.texts = texts
        self.root = f"{os.path.realpath(root)}/"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        origin = spec.origin if spec is not None else self.new_file(fullname, path)
        text = self.text_of(origin) if origin is not None else None
        if origin is None or text is None:
            return None
        overlaid = importlib.util.spec_from_file_location(
            fullname,
            origin,
            loader=OverlayLoader(fullname, origin, text),
            submodule_search_locations=spec.submodule_search_locations if spec else None,
        )
        # inspect.getsource and tracebacks read the text that runs, not the file.
        lines = text.splitlines(keepends=True)
        linecache.cache[origin] = (len(text), None, lines, origin)
        return overlaid

    def text_of(self, origin: str) -> str | None:
        """Return the text that is imported in place of a file; None for the file itself."""
        path = os.path.realpath(origin)
        text = self.texts.get(path)
        if text is not None:
            return definitions_of(text) or text
        is_own = path.startswith(self.root) and "site-packages" not in path
        return definitions_of(text_in(Path(path))) if is_own and path.endswith(".py") else None

    def new_file(self, fullname: str, path: Sequence[str] | None) -> str | None:
        """Return the path of a module that the overlay adds to the checkout."""
        name = fullname.rpartition(".")[2] + ".py"
        places = (f"{folder}/{name}" for folder in (sys.path if path is None else path))
        return next((one for one in places if os.path.realpath(one) in self.texts), None)


def load(program: Program, scratch: Path) -> Any:
    """Return the class or function that a program names.

    Raises:
        Anything that the user's module raises when it is imported; AttributeError when the name is
        not in it.
    """
    sys.dont_write_bytecode = True
    if isinstance(program, TextProgram):
        module, entry = load_text(program.source, scratch), program.entry
        if not hasattr(module, entry):
            raise AttributeError(f"the text defines no `{entry}`; expected a class of that name")
        return getattr(module, entry)
    return load_tree(program)


def load_text(source: str, scratch: Path) -> types.ModuleType:
    """Load a module from its source, with a real file behind it for extensions and inspection."""
    path = scratch / f"{MODULE_NAME}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def load_tree(program: TreeProgram) -> Any:
    """Import `pkg.mod:Qual.Name` from a checkout."""
    enter_tree(program)
    module_name, _, qualname = program.import_path.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def refuse_added_work(program: TreeProgram) -> None:
    """Refuse a patch of a file that is imported without its training, or would be with the patch,
    if more is left out of it than before.

    Raises:
        ImportError: It is such a patch.
    """
    for file in program.overlay:
        before = text_in(Path(program.root) / file.path) if file.path.endswith(".py") else None
        work = None if before is None else added_work(before, file.text)
        if work is not None:
            first = work.partition("\n")[0][:100]
            raise ImportError(
                f"{file.path}: a patch may not add work to a file that trains where it is "
                f"imported: `{first}`"
            )


def enter_tree(program: TreeProgram) -> None:
    """Make a checkout importable as its own tests would find it."""
    root = Path(program.root)
    texts = {os.path.realpath(root / file.path): file.text for file in program.overlay}
    sys.meta_path.insert(0, OverlayFinder(texts, root))  # in the reference's process too
    folders = list(dict.fromkeys((str(root), str(root / program.import_root))))
    for folder in folders:
        sys.path.insert(0, folder)
    if TREE_OF_A_COMMIT.search(str(root)):
        keep_to_tree(packages_in(folders))
    os.chdir(root)


class OthersAlone(importlib.abc.MetaPathFinder):
    """Ask another finder for modules, but not for those of some packages."""

    def __init__(self, inner: Any, own: frozenset[str]):
        self.inner = inner
        self.own = own

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in self.own:
            return None
        found: importlib.machinery.ModuleSpec | None = self.inner.find_spec(fullname, path, target)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def keep_to_tree(own: frozenset[str]) -> None:
    """Let the finders of editable installs no longer answer for a tree's own packages: theirs are
    the checkout's, so the base would be measured with the head's code."""
    ours = (OverlayFinder, OthersAlone)
    sys.meta_path[:] = [
        one
        if isinstance(one, ours) or one in STANDARD or not hasattr(one, "find_spec")
        else OthersAlone(one, own)
        for one in sys.meta_path
    ]


def packages_in(folders: Sequence[str]) -> frozenset[str]:
    """Return the top-level names that can be imported from folders."""
    names = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            names |= {entry.name.partition(".")[0] for entry in os.scandir(folder)}
    return frozenset(name for name in names if name.isidentifier())


def load_function(program: Program, made: Made, scratch: Path) -> Any:
    """Return the user's function that makes arguments: in the program itself, or in another file.

    Raises:
        AttributeError: There is no such function.
    """
    if isinstance(program, TextProgram):
        module: Any = load_text(program.source, scratch)
    else:
        enter_tree(replace(program, overlay=()))
        if made.path is None:
            module = importlib.import_module(program.import_path.partition(":")[0])
        else:
            module = import_file(program, made.path)
    return getattr(module, made.function)


def signature_beside(program: Program, function: Any) -> inspect.Signature | None:
    """Return the signature of a call of what is loaded with a function; None of others."""
    if isinstance(program, TextProgram):
        found = getattr(function, "__globals__", {}).get(program.entry)
    else:
        name, _, qualname = program.import_path.partition(":")
        found = sys.modules.get(name)
        for part in qualname.split("."):
            found = getattr(found, part, None)
    is_class = isinstance(found, type)
    called = vars(found).get("__call__", getattr(found, "forward", None)) if is_class else found
    if not callable(called):
        return None
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return None
    skipped = int(is_class)  # self
    return signature.replace(parameters=[*signature.parameters.values()][skipped:])


def import_file(program: TreeProgram, path: str) -> types.ModuleType:
    """Import a file of the checkout. It gets its own module name where it has one, so that its
    relative imports work."""
    import_root = Path(os.path.normpath(Path(program.root) / program.import_root))
    file = Path(os.path.normpath(Path(program.root) / path))
    if file.is_relative_to(import_root) and "." not in file.stem:
        parts = file.relative_to(import_root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"{MODULE_NAME}_workloads", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
