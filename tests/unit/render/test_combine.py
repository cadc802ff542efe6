"""One patch of several: what fits together, what does not, and that git takes it."""

from __future__ import annotations

import subprocess

import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.records import OverlayFile, TreeProgram, content_hash
from cudal1_ci.render.combine import applied, combine
from cudal1_ci.render.patch import patch

LINES = [f"line {number}\n" for number in range(1, 31)]
TEXT = "".join(LINES)


def changed(**replaced):
    """Return the text with lines replaced by their number: `line_3="x\\n"`."""
    lines = list(LINES)
    for name, text in replaced.items():
        lines[int(name.removeprefix("line_")) - 1] = text
    return "".join(lines)


@pytest.fixture
def patched(tmp_path):
    (tmp_path / "a.py").write_text(TEXT)

    def make(text, path="a.py", base=TEXT):
        digest = None if base is None else content_hash(base)
        file = OverlayFile(path=path, text=text, base_digest=digest)
        program = TreeProgram(
            root=str(tmp_path), import_root=".", import_path="a:f", digest="d", overlay=(file,)
        )
        return patch(program)

    return make


def texts(combined, path):
    def read(name):
        file = path / name
        return file.read_text() if file.exists() else None

    return applied(combined, read)


@pytest.mark.parametrize(("first", "second"), [(3, 25), (10, 14), (10, 11), (1, 30)])
def test_changes_of_other_lines_are_both_made_and_git_applies_them(
    patched, tmp_path, first, second
):
    one = patched(changed(**{f"line_{first}": "one\nmore\n"}))
    other = patched(changed(**{f"line_{second}": ""}))
    combined = combine([one, other])
    expected = changed(**{f"line_{first}": "one\nmore\n", f"line_{second}": ""})
    assert combined.taken == (0, 1) and not combined.conflicts
    assert texts(combined, tmp_path) == {"a.py": expected}
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=combined.patch.encode(), check=True)
    assert (tmp_path / "a.py").read_text() == expected


def test_of_two_that_change_one_line_the_first_is_taken_as_a_whole(patched, tmp_path):
    best = patched(changed(line_10="best\n"))
    other = patched(changed(line_10="other\n", line_20="lost\n"))
    third = patched(changed(line_20="third\n"))
    combined = combine([best, other, third])
    assert combined.taken == (0, 2)
    assert combined.conflicts == {1: 0}
    assert texts(combined, tmp_path) == {"a.py": changed(line_10="best\n", line_20="third\n")}


def test_equal_changes_are_made_once_and_insertions_at_one_place_follow_each_other(
    patched, tmp_path
):
    both = "import x\n"
    one = patched(both + changed(line_9="one\n"))
    other = patched(both + changed(line_19="other\n"))
    third = patched("import y\n" + TEXT)
    combined = combine([one, other, third])
    expected = "import x\nimport y\n" + changed(line_9="one\n", line_19="other\n")
    assert texts(combined, tmp_path) == {"a.py": expected}


def test_an_import_is_kept_that_another_patch_uses(tmp_path, patched):
    text = "import math\nimport torch\n\n\n" + TEXT
    (tmp_path / "a.py").write_text(text)
    without = patched(text.replace("import math\n", "").replace("line 20\n", "fast\n"), base=text)
    uses = patched(text.replace("line 3\n", "math.sqrt(2)\n"), base=text)
    (new,) = texts(combine([without, uses]), tmp_path).values()
    assert new == text.replace("line 20\n", "fast\n").replace("line 3\n", "math.sqrt(2)\n")
    (alone,) = texts(combine([without]), tmp_path).values()
    assert "import math" not in alone


def test_a_new_file_may_be_added_by_both_only_with_one_text(patched, tmp_path):
    one = patched("a = 1\n", path="new.py", base=None)
    other = patched("a = 2\n", path="new.py", base=None)
    assert combine([one, one]).taken == (0, 1)
    combined = combine([one, other])
    assert combined.conflicts == {1: 0}
    assert texts(combined, tmp_path) == {"new.py": "a = 1\n"}
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=combined.patch.encode(), check=True)


def test_a_last_line_without_an_end_stays_so(patched, tmp_path):
    text = TEXT + "the end"
    (tmp_path / "a.py").write_text(text)
    one = patched(text.replace("line 29\n", "near\n"), base=text)
    other = patched(text.replace("line 2\n", "far\n"), base=text)
    combined = combine([one, other])
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=combined.patch.encode(), check=True)
    assert (tmp_path / "a.py").read_text() == text.replace("line 29", "near").replace(
        "line 2\n", "far\n"
    )


def test_a_changed_checkout_is_refused(patched, tmp_path):
    combined = combine([patched(changed(line_10="best\n"))])
    (tmp_path / "a.py").write_text(changed(line_9="moved\n"))
    with pytest.raises(ReportError, match="changed since"):
        texts(combined, tmp_path)
