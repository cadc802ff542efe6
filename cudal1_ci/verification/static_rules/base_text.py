"""Read the texts that a candidate is compared with: the reference, and the files that it replaces.

A file that cannot be read counts as empty. Then all that a candidate has is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cudal1_ci.records import OverlayFile, Program, TextProgram, TreeProgram


def base_text(program: TreeProgram, file: OverlayFile) -> str:
    """Return the checkout's text that an overlay's file replaces; empty for a new file."""
    return "" if file.base_digest is None else read(Path(program.root), file.path)


def read(root: Path, path: str) -> str:
    """Return the text of a file inside a folder; empty when there is none."""
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        return ""
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def reference_texts(program: Program) -> Iterator[tuple[str, str]]:
    """Yield paths and texts of a reference: all that is known to be the user's own."""
    if isinstance(program, TextProgram):
        yield "reference.py", program.source
        return
    for file in program.overlay:
        yield file.path, file.text
    module = program.import_path.partition(":")[0].replace(".", "/")
    for name in (f"{module}.py", f"{module}/__init__.py"):
        path = (Path(program.import_root) / name).as_posix()
        yield path, read(Path(program.root), path)
