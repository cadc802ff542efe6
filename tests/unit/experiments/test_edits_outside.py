"""What an edit changes beyond the functions that ran."""

from __future__ import annotations

import pytest

BEFORE = """import math

SCALE = 2


@marked
def used(x):
    def inner(y):
        return y
    return inner(x)


class Layer:
    size = 3

    def forward(self, x):
        return used(x)

    def other(self, x):
        return x
"""
RAN = {6, 8, 16}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("return inner(x)", "return inner(x + 1)", []),
        ("return used(x)", "return x", []),
        ("import math\n", "import math\nimport torch\n\n\ndef helper(x):\n    return x\n", []),
        ("SCALE = 2", "SCALE = 2  # as before", []),
        ("SCALE = 2", "SCALE = 3", ["SCALE = 2"]),
        ("    size = 3\n", "", ["Layer.size = 3"]),
        (
            "def other(self, x):\n        return x",
            "def other(self, x):\n        return 1",
            ["Layer.other"],
        ),
        ("class Layer", "class Layer(", ["not Python: "]),
    ],
)
def test_only_what_did_not_run_is_outside(experiment_module, old, new, found):
    seen = experiment_module("edits_outside").changed(BEFORE, BEFORE.replace(old, new), RAN)
    assert [one[: len(wanted)] for one, wanted in zip(seen, found, strict=True)] == found
