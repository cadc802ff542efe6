"""The manifest of assets is what its script writes, and says where results are from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cudal1_ci import assets

ROOT = Path(__file__).parents[3]


@pytest.fixture
def manifest(experiment_module):
    return experiment_module("manifest")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="archives hold no assets")
def test_the_manifest_is_what_its_script_writes(manifest):
    text = assets.MANIFEST.read_text("utf-8")
    known = {one["path"]: one for one in json.loads(text)}
    assert manifest.written(manifest.entries(assets.CHECKOUT, known)) == text


def test_every_result_of_a_figure_says_on_what_it_was_measured_and_by_which_command():
    entries = json.loads(assets.MANIFEST.read_text("utf-8"))
    results = [one for one in entries if one["path"].count("/") == 1]
    assert len(results) >= 8
    for one in results:
        assert one["device"] and one["command"], one["path"]


def test_what_is_known_of_a_file_is_kept_until_it_states_it_itself(manifest, tmp_path):
    place = tmp_path / "results"
    place.mkdir()
    (place / "card.json.gz").write_bytes(gzip.compress(b"{}"))
    document = {"device": {"name": "H100"}, "commit": "abc", "command": "python benchmarks/x.py"}
    (place / "x.json").write_text(json.dumps(document))
    known = {
        "results/card.json.gz": {"commit": "def", "unheard": "of"},
        "results/gone.json": {"commit": "def"},
    }
    card, stated = manifest.entries(tmp_path, known)
    assert (card["path"], card["commit"]) == ("results/card.json.gz", "def")
    assert "unheard" not in card
    assert {key: stated[key] for key in ("device", "commit", "command")} == {
        "device": "H100",
        "commit": "abc",
        "command": "python experiments/x.py",
    }
