"""Whether a patch is in a text, however much else has changed around it."""

from __future__ import annotations

import pytest

from cudal1_ci.trend.evidence import blocks_of, fate_of
from tests.unit.trend.samples import AFTER, BEFORE, PATCH


def fate(text: str | None, patch: str = PATCH) -> str | None:
    return fate_of(*blocks_of(patch), lambda path: text)


HEAD = '"""Pooling."""\n\nimport math\n'
TAIL = "\n\ndef other(x):\n    return math.sqrt(x)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BEFORE, "open"),
        (AFTER, "accepted"),
        (HEAD + BEFORE + TAIL, "open"),
        (HEAD + AFTER + TAIL, "accepted"),
        (AFTER.replace("\n\n\n", "\n"), "accepted"),
        (AFTER.replace(":\n", ":   \n"), "accepted"),
        (BEFORE.replace("torch.diag(weight) @ x", "x * weight[:, None]"), "outdated"),
        (AFTER.replace("x", "rows"), "outdated"),
        (BEFORE + AFTER, "outdated"),
        ("", "outdated"),
        (None, "outdated"),
    ],
)
def test_the_lines_of_a_patch_say_what_became_of_it(text, expected):
    assert fate(text) == expected


SECOND = PATCH + "@@ -20,2 +20,3 @@\n def other(x):\n+    x = x.contiguous()\n     return x\n"
OTHER = "\n\ndef other(x):\n    return x\n"


def test_all_hunks_have_to_be_there():
    assert fate(BEFORE + OTHER, SECOND) == "open"
    assert fate(AFTER + OTHER, SECOND) == "outdated"
    mended = OTHER.replace("    return", "    x = x.contiguous()\n    return")
    assert fate(AFTER + mended, SECOND) == "accepted"


def test_a_new_file_is_accepted_when_it_is_there():
    patch = "--- /dev/null\n+++ b/pkg/fast.py\n@@ -0,0 +1,2 @@\n+def fast(x):\n+    return x\n"
    assert fate(None, patch) == "open"
    assert fate("def fast(x):\n    return x\n", patch) == "accepted"


def test_a_patch_of_blank_lines_alone_cannot_be_recognized():
    assert fate(BEFORE, "--- a/x.py\n+++ b/x.py\n@@ -1,1 +1,2 @@\n a\n+\n") is None


def test_the_evidence_holds_no_code():
    before, after = blocks_of(PATCH)
    assert "torch" not in str((before, after))
    assert {block.path for block in (*before, *after)} == {"pkg/pooling.py"}
