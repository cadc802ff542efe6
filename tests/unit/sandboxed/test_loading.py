"""What a text without the class that is asked for is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudal1_ci.sandboxed.runner.programs import load
from tests.unit.sandboxed.messages import text


def test_a_text_that_lacks_its_class_is_told_which(tmp_path):
    program = text("class Model: pass\n", "ModelNew")
    with pytest.raises(AttributeError, match="the text defines no `ModelNew`; expected a class"):
        load(program, tmp_path)
    assert load(replace(program, entry="Model"), tmp_path).__name__ == "Model"
