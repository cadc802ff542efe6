"""What a sweep takes for known: not what was tried with another adapter."""

from __future__ import annotations

import pytest

from cudal1_ci.cli.sweep import means_of
from cudal1_ci.config import load_settings
from cudal1_ci.propose.llm.servers import adapters
from tests.bundling import CODER, a_bundled_adapter


@pytest.mark.parametrize(
    ("given", "with_model", "is_other"),
    [
        ({"model.model": CODER}, True, True),
        ({"model.model": CODER}, False, False),
        ({"model.model": CODER, "model.adapter": "none"}, True, False),
        ({"model.model": "another/model"}, True, False),
        ({}, True, False),
    ],
)
def test_a_new_bundled_adapter_is_another_way_to_try(
    tmp_path, monkeypatch, given, with_model, is_other
):
    monkeypatch.setattr(adapters, "FOLDER", tmp_path / "adapters")
    settings = load_settings(tmp_path, overrides=given, environ={})
    before = means_of(settings, with_model=with_model)
    a_bundled_adapter(tmp_path / "adapters" / "small")
    after = means_of(settings, with_model=with_model)
    assert (after != before) == is_other
