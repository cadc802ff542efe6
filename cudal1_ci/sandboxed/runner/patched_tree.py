"""A copy of a checkout with a candidate's files in it, for what the import system cannot serve.

Python is laid over the checkout in memory (programs.py). A `.cu` file is not imported: a compiler
reads it, from a path that the package puts together from its own files' places, and includes others
beside it. So where a candidate changes such a file the program runs in a copy of the checkout. It
is in the program's own folder of builds (builds.py), which no other program shares: what is built
there under any name was built from this text.

The copy is at the same path for all runners of a program, files keep their times, and what is the
same already is not written again, so that the second runner finds nothing to build anew. What an
earlier runner of the program changed there is put right. Large files and environments that are no
source are linked to and not copied.
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
"""Of one file; a larger one is data, which is read and not looked for from its own place."""
MAX_FILES = 20_000
"""As many as a checkout may have whose builds are kept (build_keys.py)."""
SKIPPED = frozenset({"__pycache__", ".git"})
LINKED = frozenset({"node_modules"})
ENVIRONMENT = "pyvenv.cfg"
"""What a virtual environment has at its top."""


class TooLarge(Exception):
    """A checkout that is not copied for each of its candidates."""


def needs_copy(program: TreeProgram) -> bool:
    """Whether a program changes a file that is not imported."""
    return any(not file.path.endswith(".py") for file in program.overlay)


def copied(program: TreeProgram, folder: Path) -> TreeProgram:
    """The program in a copy of its checkout below `folder`, with nothing left to lay over it.

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
            with contextlib.suppress(PermissionError):  # what the sandbox lets nobody read
                place(path, copy / relative)
    for relative, text in texts.items():
        write(copy / relative, text.encode(), times_of(root / relative))
    return replace(program, root=str(copy), overlay=())


def entries_of(root: Path) -> Iterator[Path]:
    """Files, links, and folders that are linked to as a whole; without what is hidden at the top,
    which a runner cannot read."""
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
    """A file of the checkout in the copy: its bytes, or a link where it is large or no file."""
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
    """A file with these bytes, in one step: another runner of the program may be reading it."""
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
    """Those of the file that is replaced; of a new file some time ago, before anything is built."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_atime_ns, found.st_mtime_ns
    return 0, 0
