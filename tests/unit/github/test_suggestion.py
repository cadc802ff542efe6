"""Where a patch becomes a suggestion: one hunk of the diff, and the lines that it was made for."""

from __future__ import annotations

import random

import pytest

from cudal1_ci.github.suggestion import fenced, right_sides, suggestion, whole
from cudal1_ci.render.patch import _file_diff
from tests.reports import DIFF, MODEL, PATCH


def diff_of(old: list[str], new: list[str], path: str = "m.py") -> str:
    return _file_diff(path, "".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new))


def added(lines: list[str]) -> str:
    """A file that the pull request adds: one hunk, all of it."""
    return "\n".join([f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)])


def applied(lines: list[str], found) -> list[str]:
    new = found.new.removesuffix("\n").split("\n") if found.new else []
    return [*lines[: found.first_line - 1], *new, *lines[found.last_line :]]


def test_the_changed_lines_alone_are_replaced():
    found = suggestion(PATCH, {"pkg/model.py": DIFF})
    assert (found.first_line, found.last_line) == (5, 6)
    assert found.old == "    scale = torch.diag(weight)\n    return scale @ x\n"
    assert found.new == "    return weight.unsqueeze(1) * x\n"


def test_the_right_side_of_a_diff_has_no_removed_lines():
    (side,) = right_sides(DIFF)
    assert side == {number: MODEL[number - 1] for number in range(2, 7)}


def test_any_change_of_an_added_file_is_one_suggestion_that_makes_the_same_of_it():
    generator = random.Random(0)
    lines = [f"line {i}" for i in range(40)]
    for _ in range(200):
        new = list(lines)
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(len(new))
            new[at : at + generator.randint(0, 3)] = ["put in"] * generator.randint(0, 2)
        if new == lines:
            continue
        found = suggestion(diff_of(lines, new), {"m.py": added(lines)})
        assert found is not None
        assert applied(lines, found) == new


@pytest.mark.parametrize("at", [0, 3, 6])
def test_lines_that_are_put_in_replace_a_neighbor_by_itself_and_them(at):
    lines = list("abcdef")
    new = [*lines[:at], "new", *lines[at:]]
    found = suggestion(diff_of(lines, new), {"m.py": added(lines)})
    assert found.first_line == found.last_line == max(1, at)
    assert applied(lines, found) == new


def test_a_patch_over_two_hunks_of_the_diff_is_none():
    lines = [f"line {i}" for i in range(30)]
    hunks = "@@ -1,3 +1,3 @@\n line 0\n-old\n+line 1\n line 2\n"
    hunks += "@@ -20,3 +20,3 @@\n line 19\n-old\n+line 20\n line 21\n"
    one = [*lines[:1], "new", *lines[2:]]
    both = [*one[:20], "new", *one[21:]]
    assert suggestion(diff_of(lines, one), {"m.py": hunks}) is not None
    assert suggestion(diff_of(lines, both), {"m.py": hunks}) is None


@pytest.mark.parametrize(
    "patch",
    [
        PATCH + PATCH.replace("model.py", "other.py"),
        PATCH.replace("--- a/pkg/model.py", "--- /dev/null"),
        PATCH.replace("@@ -2,8 +2,7 @@", "@@ -3,8 +3,7 @@"),
        PATCH.replace("-    scale = torch.diag(weight)", "-    scale = torch.diag(weighed)"),
        PATCH.replace("weight.unsqueeze", "weight\u200b.unsqueeze"),
        PATCH.replace("* x", "* x\r"),
        PATCH.replace("* x", "* x" + " # long" * 5000),
        "no patch at all",
        "",
    ],
)
def test_what_is_not_what_the_lines_are_or_what_it_seems_is_none(patch):
    diff = {"pkg/model.py": DIFF, "pkg/other.py": DIFF}
    assert suggestion(patch, diff) is None


@pytest.mark.parametrize("diff", ["", "@@ broken", "@@ -1,9 +1,9 @@\n+a", "Binary files differ"])
def test_a_diff_that_cannot_be_read_has_no_place_for_it(diff):
    assert suggestion(PATCH, {"pkg/model.py": diff}) is None


def test_code_cannot_end_its_block():
    code = 's = """\n```\n````\n"""\n'
    assert fenced(code) == f"`````suggestion\n{code}`````"


def test_the_same_code_is_the_same_suggestion_wherever_it_stands():
    lines = list("abcdef")
    new = [*lines[:3], "new", *lines[4:]]
    first = suggestion(diff_of(lines, new), {"m.py": added(lines)})
    moved = suggestion(diff_of(["0", *lines], ["0", *new]), {"m.py": added(["0", *lines])})
    assert first.first_line != moved.first_line
    assert first.digest == moved.digest


# --- what is no suggestion, but of a file of the diff -----------------------------------------


def test_changes_in_several_places_are_one_change_of_the_file():
    lines = [f"line {i}" for i in range(40)]
    new = ["first", *lines[1:-1], "last"]
    diff = {"m.py": "@@ -0,0 +1,1 @@\n+line 0"}
    patch = diff_of(lines, new)
    assert suggestion(patch, diff) is None
    found = whole(patch, diff)
    assert (found.path, found.old, found.new) == ("m.py", "line 0\nline 39\n", "first\nlast\n")
    moved = whole(diff_of(["put", "before", *lines], ["put", "before", *new]), {"m.py": ""})
    assert moved.digest == found.digest, "wherever it stands in the file"


def test_a_suggestion_that_has_left_the_diff_is_the_same_change():
    assert whole(PATCH, {"pkg/model.py": DIFF}).digest == (
        suggestion(PATCH, {"pkg/model.py": DIFF}).digest
    )


@pytest.mark.parametrize(
    "patch",
    [
        PATCH.replace("scale @ x", "scale @ y"),
        PATCH.replace("pkg/model.py", "pkg/other.py"),
        PATCH.replace("unsqueeze(1)", "unsqueeze(1)\u202e"),
        PATCH + "\n--- a/other.py\n+++ b/other.py\n@@ -1,1 +1,1 @@\n-a\n+b\n",
        "no patch",
        "",
    ],
    ids=["other lines", "other file", "text turned around", "two files", "text", "nothing"],
)
def test_what_is_of_no_file_of_the_diff_is_no_change_of_one(patch):
    assert whole(patch, {"pkg/model.py": DIFF}) is None
