"""A report of a folder, moved to the top of its repository."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ci.errors import ForgeError
from cudal1_ci.github.rebase_paths import from_top, moved_patch
from cudal1_ci.render.hunks import files_of
from tests.reports import PATCH, a_report, proposed


def test_paths_of_targets_and_patches_begin_at_the_top():
    report = msgspec.structs.replace(a_report(proposed(PATCH)), folder="libs/core")
    moved = from_top(report)
    (before,), (entry,) = report.entries, moved.entries
    assert entry.target.path == f"libs/core/{before.target.path}"
    patch = entry.evaluations[0].candidate.patch
    assert [file.path for file in files_of(patch)] == ["libs/core/pkg/model.py"]
    assert files_of(patch)[0].hunks == files_of(PATCH)[0].hunks
    assert from_top(moved) == moved


def test_lines_of_a_hunk_that_look_like_names_of_files_stay():
    patch = (
        "--- a/m.sql\n+++ b/m.sql\n@@ -1,2 +1,2 @@\n--- a/old\n+++ b/new\n ok\n"
        "--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n"
    )
    moved = moved_patch(patch, "lib").splitlines()
    assert moved[:2] == ["--- a/lib/m.sql", "+++ b/lib/m.sql"]
    assert moved[3:5] == ["--- a/old", "+++ b/new"]
    assert moved[6:8] == ["--- /dev/null", "+++ b/lib/n.py"]


@pytest.mark.parametrize("folder", ["..", "../x", "/x", "a\nb", "x/../../y", ""])
def test_a_folder_that_none_can_be_is_refused(folder):
    with pytest.raises(ForgeError, match="the report's folder"):
        from_top(msgspec.structs.replace(a_report(), folder=folder))
