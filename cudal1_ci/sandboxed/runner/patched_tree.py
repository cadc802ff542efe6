"""Copy a checkout with a candidate's files in it, for files that the import system cannot serve.

Python files are laid over the checkout in memory (programs.py). A `.cu` file is not imported: a
compiler reads it, from a path relative to the package's own files, and includes files next to it.
Where a candidate changes such a file, the program runs in a copy of the checkout. The copy is in
the program's own build folder (folders.py), which no other program shares. What is built there
under any name was built from this text.

The copy is at the same path for all runners of a program. Files keep their times, and unchanged
files are not written again, so that the second runner finds nothing to build. Files that an earlier
runner of the program changed are restored. Large files and environments without source are linked,
not copied.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..wire.programs import TreeProgram

MAX_COPIED_BYTES = 2**20
"""Size of one file. A larger one is data, which is read but not used as a base for other paths."""
MAX_FILES = 20_000
"""As many as a checkout may have whose builds are kept (build_keys.py)."""
SKIPPED = frozenset({"__pycache__", ".git"})
LINKED = frozenset({"node_modules"})
ENVIRONMENT = "pyvenv.cfg"
"""Files at the top of a virtual environment."""


class TooLarge(Exception):
    """A checkout that is too large to copy for each of its candidates."""


def needs_copy(program: TreeProgram) -> bool:
    """Return whether a program changes a file that is not imported."""
    return any(not file.path.endswith(".py") for file in program.overlay)


def copied(program: TreeProgram, folder: Path) -> TreeProgram:
    """Return the program in a copy of its checkout below `folder`, without an overlay.

    Raises:
        TooLarge: The checkout has too many files.
        OSError: The copy cannot be written.
    """
    texts = {os.path.normpath(file.path): file.text for file in program.overlay}
    root = Path(program.root)
    # Tests share a folder between programs; runners do not.
    key = hashlib.sha256(repr((str(root), sorted(texts.items()))).encode()).hexdigest()[:16]
    copy = folder / f"checkout-{key}"
    copy.mkdir(parents=True, exist_ok=True)
    for num_files, path in enumerate(entries_of(root), 1):
        relative = os.path.relpath(path, root)
        if num_files > MAX_FILES:
            raise TooLarge(
                f"{root} holds more than {MAX_FILES:,} files, too many to copy for a candidate "
                "that changes a file which is compiled"
            )
        if relative not in texts:
            with contextlib.suppress(PermissionError):  # what the sandbox lets no process read
                place(path, copy / relative)
    for relative, text in texts.items():
        write(copy / relative, text.encode(), times_of(root / relative))
    return replace(program, root=str(copy), overlay=())


def entries_of(root: Path) -> Iterator[Path]:
    """Yield files, links, and folders that are linked as a whole. Hidden files at the top, which
    a runner cannot read, are left out."""
    for top, folders, files in os.walk(root):
        is_top = top == str(root)
        kept = []
        for name in sorted(folders):
            path = Path(top, name)
            if name in SKIPPED or (is_top and name.startswith(".")):
                continue
            if name in LINKED or path.is_symlink() or (path / ENVIRONMENT).exists():
                yield path
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            if not (is_top and name.startswith(".")):
                yield Path(top, name)


def place(path: Path, copy: Path) -> None:
    """Put a file of the checkout in the copy: its bytes, or a link where it is large or no file."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        link(path.readlink(), copy)
    elif stat.S_ISREG(found.st_mode) and found.st_size <= MAX_COPIED_BYTES:
        write(copy, path.read_bytes(), (found.st_atime_ns, found.st_mtime_ns), found.st_mode)
    elif stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        link(path, copy)


def link(target: Path, copy: Path) -> None:
    if copy.is_symlink() and copy.readlink() == target:
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=copy.parent)) / "link"
    fresh.symlink_to(target)
    fresh.replace(copy)
    fresh.parent.rmdir()


def write(copy: Path, content: bytes, times: tuple[int, int], mode: int = 0o600) -> None:
    """Write a file in one step: another runner of the program may be reading it."""
    with contextlib.suppress(OSError):
        if not copy.is_symlink() and copy.read_bytes() == content:
            return
    copy.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=copy.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, (stat.S_IMODE(mode) & 0o777) | 0o600)
    os.utime(fresh, ns=times)
    Path(fresh).replace(copy)


def times_of(path: Path) -> tuple[int, int]:
    """Return the times of the replaced file. A new file gets a time before any build."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_atime_ns, found.st_mtime_ns
    return 0, 0
