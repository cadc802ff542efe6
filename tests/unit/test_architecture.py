"""The page of the rooms is written from the rooms."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("architecture", str(ROOT / ".ci/architecture"))
    spec = importlib.util.spec_from_loader("architecture", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_page_is_current(script):
    assert script.PAGE.read_text("utf-8") == script.page(), "run .ci/architecture"


def test_every_folder_of_the_product_is_a_room(script):
    folders = {one.parent.name for one in (ROOT / "cudal1_ci").glob("*/__init__.py")}
    assert folders <= set(script.layers())


def test_a_caption_is_one_sentence(script):
    for room in script.layers():
        words = script.caption(script.docstring(room))
        assert len(words) <= 110, room
        assert re.match(r"[A-Z][a-z]+[ ,]", words), f"{room}: begin with a verb"
