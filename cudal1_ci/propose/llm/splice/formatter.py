"""Run the repository's own formatter on the lines that a splice wrote and no others.

The checkout says which formatter to use and how (`ruff.toml`, `pyproject.toml`). The program is the
one installed with this tool, never one of the checkout or of the project's interpreter: the host
executes no user code. It gets the text on stdin and the configuration by its path, in its own
environment with a time limit. If it is missing, fails or is unknown (yapf, autopep8), the text
remains as libcst wrote it. libcst already follows the file's indentation and line ends.

The formatter sees the whole file. Only its changes inside written lines are used, and only if the
code still means the same.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

TIME_LIMIT_S = 10.0
LONGEST_FORMATTED = 20_000
"""The most lines to format. Comparing longer files takes longer than their formatting is worth."""
LARGEST_CONFIGURATION_BYTES = 1_000_000

COMMANDS = {
    "ruff": ("format", "--no-cache", "--quiet"),
    "black": ("--quiet",),
}
FILES = ("ruff.toml", ".ruff.toml", "pyproject.toml")


def formatted(before: str, after: str, root: Path, path: str) -> str:
    """Return a spliced file's text with the written lines formatted as the repository does."""
    found = configured(root, path)
    if found is None or after.count("\n") > LONGEST_FORMATTED:
        return after
    name, configuration = found
    whole = run(name, configuration, after, path)
    if whole is None:
        return after
    chosen = within(before.splitlines(True), after.splitlines(True), whole.splitlines(True))
    return chosen if is_same_code(chosen, after) else after


def configured(root: Path, path: str) -> tuple[str, Path] | None:
    """Return a file's formatter and the configuration that names it; the nearest configuration
    counts.
    """
    folders = [root / parent for parent in PurePosixPath(path).parents]
    for folder in folders:
        for name in FILES:
            file = folder / name
            tools = tools_in(file, root)
            if tools is None:
                continue
            if name != "pyproject.toml":
                return "ruff", file
            ruff = tools.get("ruff")
            if "black" in tools and not (isinstance(ruff, dict) and "format" in ruff):
                return "black", file
            if ruff is not None and "yapf" not in tools:
                return "ruff", file
    return None


def tools_in(file: Path, root: Path) -> dict[str, Any] | None:
    """Return the `tool` table of a checkout's configuration; None if it cannot be read."""
    try:
        # A link may lead out of the checkout.
        if not file.is_file() or not file.resolve().is_relative_to(root.resolve()):
            return None
        if file.stat().st_size > LARGEST_CONFIGURATION_BYTES:
            return None
        tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    return tools if isinstance(tools, dict) else {}


def run(name: str, configuration: Path, text: str, path: str) -> str | None:
    """Return a text as a formatter writes it; None if the formatter does not run or refuses."""
    if importlib.util.find_spec(name) is None:
        return None
    file_name = PurePosixPath(path).name
    # -I: neither the folder nor the environment decides what is imported.
    command = [sys.executable, "-I", "-m", name, *COMMANDS[name]]
    command += ["--config", str(configuration.resolve()), "--stdin-filename", file_name, "-"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = subprocess.run(
                command,
                input=text.encode(),
                capture_output=True,
                cwd=folder,
                env={"PATH": os.defpath, "HOME": folder, "XDG_CONFIG_HOME": folder},
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    if ended.returncode != 0:
        return None
    try:
        return ended.stdout.decode()
    except UnicodeDecodeError:
        return None


def within(before: Sequence[str], after: Sequence[str], whole: Sequence[str]) -> str:
    """Return `before` with only those changes of `whole` in lines that `before` does not have."""
    written = [False] * len(after)
    for tag, _, _, start, end in matcher(before, after).get_opcodes():
        if tag in {"insert", "replace"}:
            written[start:end] = [True] * (end - start)
    lines: list[str] = []
    for tag, start, end, new_start, new_end in matcher(after, whole).get_opcodes():
        touched = written[start:end] if end > start else written[max(0, start - 1) : start + 1]
        is_ours = bool(touched) and all(touched)
        lines += whole[new_start:new_end] if tag != "equal" and is_ours else after[start:end]
    return "".join(lines)


def matcher(one: Sequence[str], other: Sequence[str]) -> difflib.SequenceMatcher[str]:
    return difflib.SequenceMatcher(None, one, other, autojunk=False)


def is_same_code(one: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
