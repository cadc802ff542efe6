"""A candidate that is its reference in another layout."""

from __future__ import annotations

import pytest

from cudal1_ci.records import TextProgram
from cudal1_ci.verification.same_program import is_same_program

REFERENCE = '''
import torch


class Model(torch.nn.Module):
    """Doubles."""

    def forward(self, x):
        return x * 2
'''


def program(text: str, entry: str = "Model") -> TextProgram:
    return TextProgram(source=text, entry=entry)


@pytest.mark.parametrize(
    ("text", "entry", "expected"),
    [
        (REFERENCE + "# faster\n", "Model", True),
        (REFERENCE.replace('    """Doubles."""\n\n', ""), "Model", True),
        (REFERENCE.replace("Model", "ModelNew"), "ModelNew", True),
        (REFERENCE.replace("x * 2", "(x   *   2)"), "Model", True),
        (REFERENCE.replace("x * 2", "x + x"), "Model", False),
        (REFERENCE.replace("x * 2", "x * 2.0"), "Model", False),
        (REFERENCE, "Model", False),  # a baseline is timed
        ("def", "Model", False),
    ],
)
def test_only_statements_count(text, entry, expected):
    assert is_same_program(program(text, entry), program(REFERENCE)) is expected
