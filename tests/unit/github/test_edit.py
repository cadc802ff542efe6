"""A patch that is committed: applied to the very lines that it names, or not at all."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.edit import MAX_FILES, edited, files_to_edit
from tests.reports import MODEL, PATCH

BEFORE = "\n".join(MODEL)
ADDED = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1,2 @@\n+import torch\n+x = 1\n"
NO_END = "--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n"


def apply(patch: str, before: str | None) -> str:
    (file,) = files_to_edit(patch)
    return edited(file, before)


def one_file(path: str, old: str = "a", new: str = "b") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1,1 +1,1 @@\n-{old}\n+{new}\n"


@pytest.mark.parametrize(
    ("patch", "before", "after"),
    [
        (
            PATCH,
            BEFORE + "\n",
            BEFORE.replace(
                "    scale = torch.diag(weight)\n    return scale @ x",
                "    return weight.unsqueeze(1) * x",
            )
            + "\n",
        ),
        (ADDED, None, "import torch\nx = 1\n"),
        (NO_END, "a", "b\n"),
        (one_file("m.py"), "a\n", "b\n"),
        (one_file("m.py", "a\r", "b\r"), "a\r\nc\r\n", "b\r\nc\r\n"),
        ("--- a/m.py\n+++ b/m.py\n@@ -1,0 +2,1 @@\n+b\n", "a\nc\n", "a\nb\nc\n"),
        (
            "--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,0 @@\n-a\n@@ -3,1 +2,1 @@\n-c\n+d\n",
            "a\nb\nc\ne\n",
            "b\nd\ne\n",
        ),
    ],
    ids=["proposal", "new file", "no last newline", "a line", "crlf", "put in", "two hunks"],
)
def test_a_patch_is_applied_where_it_says(patch, before, after):
    assert apply(patch, before) == after


@pytest.mark.parametrize(
    ("patch", "before"),
    [
        (PATCH, BEFORE.replace("scale @ x", "scale @ y")),
        (PATCH, "\n" + BEFORE),
        (PATCH, None),
        (PATCH, "import torch\n"),
        (ADDED, "something\n"),
        (NO_END, "a\n"),
        (one_file("m.py"), "a\r\n"),
        ("--- a/m.py\n+++ b/m.py\n@@ -3,1 +3,1 @@\n-c\n+d\n@@ -1,1 +1,0 @@\n-a\n", "a\nb\nc\n"),
    ],
    ids=["another line", "moved", "gone", "short", "there", "newline", "crlf", "order"],
)
def test_a_patch_for_another_text_is_refused(patch, before):
    with pytest.raises(ForgeError):
        apply(patch, before)


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        "pkg/.github/x.py",
        ".GitHub/x",
        ".gitattributes",
        ".gitmodules",
        ".git/config",
        "../outside.py",
        "a\\b.py",
        "/etc/passwd",
        "pkg//m.py",
        "./m.py",
    ],
)
def test_what_is_not_the_projects_own_code_is_not_touched(path):
    with pytest.raises(ForgeError):
        files_to_edit(one_file(path))


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/m.py b/m.py\nold mode 100644\nnew mode 100755\n" + one_file("m.py"),
        "diff --git a/x b/m.py\nrename from x\nrename to m.py\n" + one_file("m.py"),
        one_file("m.py") + one_file("m.py"),
        one_file("m.py") + "not read\n",
        one_file("m.py").rstrip("\n"),
        one_file("m.py", new="b\u202e"),
        one_file("m.py", new="b\x1b[2J"),
        "".join(one_file(f"m{i}.py") for i in range(MAX_FILES + 1)),
        "",
        "hello",
        "+" * (2**20 + 1),
    ],
    ids=[
        "mode",
        "rename",
        "twice",
        "more",
        "cut",
        "turned",
        "escape",
        "many",
        "none",
        "text",
        "long",
    ],
)
def test_what_is_more_than_lines_of_files_is_refused(patch):
    with pytest.raises(ForgeError):
        files_to_edit(patch)
