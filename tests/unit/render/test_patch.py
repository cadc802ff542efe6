"""Patches, judged by git itself, and the writing of an overlay."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import OverlayFile, TextProgram, TreeProgram, content_hash
from cudal1_ci.render.patch import patch


def program(root: Path, **files: tuple[str | None, str]) -> TreeProgram:
    """A program that changes files from one text to another; `__` in a name stands for `/`."""
    overlay = tuple(
        OverlayFile(
            path=name.replace("__", "/") + ".py",
            text=after,
            base_digest=None if before is None else content_hash(before),
        )
        for name, (before, after) in files.items()
    )
    return TreeProgram(
        root=str(root), import_root=".", import_path="a:A", digest="0" * 16, overlay=overlay
    )


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def git(folder: Path, *arguments: str, text: str | None = None) -> None:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=text and text.encode(), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


EDITS = {
    "a line in the middle": ("a\nb\nc\nd\ne\n", "a\nb\nX\nd\ne\n"),
    "no newline at the end of either": ("a\nb", "a\nc"),
    "a newline added at the end": ("a\nb", "a\nb\n"),
    "a newline removed at the end": ("a\nb\n", "a\nb"),
    "CRLF line ends": ("a\r\nb\r\nc\r\n", "a\r\nX\r\nc\r\n"),
    "CRLF becomes LF": ("a\r\nb\r\n", "a\nb\n"),
    "form feeds and lone CRs in lines": ("a\x0cb\rc\nd\u2028e\nf\n", "a\x0cb\rc\nX\u2028e\nf\n"),
    "an emptied file": ("a\n", ""),
    "a filled file": ("", "a\nb\n"),
    "lines that look like headers": ("-- a\n++ b\n@@ c\n", "-- a\n++ X\n@@ c\n--- d\n"),
    "two hunks": (
        "".join(f"{i}\n" for i in range(40)),
        "".join(f"{i if i not in (3, 30) else 'X'}\n" for i in range(40)),
    ),
    "insertion at the top": ("b\n", "a\nb\n"),
    "byte order mark": ("\ufeffa\nb\n", "\ufeffa\nc\n"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_git_applies_what_the_overlay_says(tmp_path, edit):
    before, after = edit
    path = write(tmp_path, "pkg/a.py", before)
    text = patch(program(tmp_path, pkg__a=(before, after)))
    git(tmp_path, "apply", "--whitespace=nowarn", "-", text=text)
    assert path.read_bytes().decode() == after


def test_git_applies_random_edits(tmp_path):
    generator = random.Random(0)
    for _ in range(30):
        before = [f"line {generator.randrange(6)}\n" for _ in range(generator.randrange(1, 40))]
        after = list(before)
        for _ in range(generator.randrange(1, 6)):
            place = generator.randrange(len(after) + 1)
            after[place : place + generator.randrange(3)] = ["new\n"] * generator.randrange(3)
        old, new = "".join(before), "".join(after)[: -1 if generator.random() < 0.3 else None]
        if old == new:
            continue
        path = write(tmp_path, "a.py", old)
        text = patch(program(tmp_path, a=(old, new)))
        git(tmp_path, "apply", "--whitespace=nowarn", "-", text=text)
        assert path.read_bytes().decode() == new


@pytest.mark.parametrize("name", ["with space", "ünïcode", 'quo"te', "tab\there", "back\\slash"])
def test_git_finds_files_with_unusual_names(tmp_path, name):
    path = write(tmp_path, f"{name}.py", "a\n")
    git(tmp_path, "apply", "-", text=patch(program(tmp_path, **{name: ("a\n", "b\n")})))
    assert path.read_text() == "b\n"


def test_a_patch_applies_in_a_package_inside_of_a_larger_repository(tmp_path):
    git(tmp_path, "init", "-q")
    inner = tmp_path / "examples" / "inner"
    path = write(inner, "pkg/a.py", "a\n")
    text = patch(program(inner, pkg__a=("a\n", "b\n"), pkg__new=(None, "n\n")))
    git(inner, "apply", "-", text=text)
    assert path.read_text() == "b\n"
    assert (inner / "pkg/new.py").read_text() == "n\n"
    git(inner, "apply", "-R", "-", text=text)
    assert path.read_text() == "a\n"
    assert not (inner / "pkg/new.py").exists()


def test_a_patch_names_both_sides(tmp_path):
    write(tmp_path, "a.py", "a\n")
    text = patch(program(tmp_path, a=("a\n", "b")))
    assert text == (
        "--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-a\n+b\n\\ No newline at end of file\n"
    )


def test_a_text_program_has_no_patch():
    assert patch(TextProgram(source="class Model: ...", entry="Model")) is None


def test_a_file_changed_since_it_was_judged_has_no_patch(tmp_path):
    write(tmp_path, "a.py", "edited\n")
    with pytest.raises(ReportError, match=r"a\.py: changed since the scan; scan again"):
        patch(program(tmp_path, a=("a\n", "b\n")))


@pytest.mark.parametrize("path", ["../a.py", "/etc/a.py", "link/a.py", ".git/hooks/a.py", ""])
def test_paths_that_leave_the_checkout_are_refused(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    overlay = (OverlayFile(path=path, text="x"),)
    hostile = TreeProgram(
        root=str(root), import_root=".", import_path="a:A", digest="", overlay=overlay
    )
    with pytest.raises(ReportError, match="inside of the checkout"):
        patch(hostile)


def test_bytes_that_are_not_utf8_are_an_error_that_names_the_file(tmp_path):
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    with pytest.raises(ReportError, match=r"a\.py: expected UTF-8"):
        patch(program(tmp_path, a=("a\n", "b\n")))
