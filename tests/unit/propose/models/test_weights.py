"""Weights: where they are, and what tells one set of them from another."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.servers.weights import adapter, found, revision


def a_model(folder: Path, numbers: bytes = bytes(1_000_000), config: str = "{}") -> Path:
    folder.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [len(numbers) // 4]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + numbers
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(config)
    return folder


def revision_of(folder: Path) -> str | None:
    return revision(found(str(folder), offline=True))


def test_the_same_weights_are_the_same_wherever_they_are(tmp_path):
    first = revision_of(a_model(tmp_path / "a"))
    assert first == revision_of(a_model(tmp_path / "b"))
    assert len(first) == 16


@pytest.mark.parametrize(
    "changes",
    [
        {"config": '{"rope": 1}'},
        {"numbers": b"\1" * 1_000_000},
        {"numbers": bytes(1_000_000 - 4)},
    ],
    ids=["configuration", "numbers", "size"],
)
def test_other_weights_are_told_apart(tmp_path, changes):
    assert revision_of(a_model(tmp_path / "a")) != revision_of(a_model(tmp_path / "b", **changes))


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 8, b"\xff" * 100])
def test_a_file_that_is_no_safetensors_is_hashed_all_the_same(tmp_path, data):
    folder = a_model(tmp_path / "a")
    (folder / "model.safetensors").write_bytes(data)
    assert len(revision_of(folder)) == 16


def test_a_snapshot_of_the_hub_is_known_by_its_commit(tmp_path):
    repository = tmp_path / "models--owner--name"
    snapshot = a_model(repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    weights = found("owner/name", offline=True, environ=environ)
    assert (weights.folder, weights.name) == (snapshot, "owner/name")
    assert revision(weights, environ) == "abc123"


def test_what_is_not_downloaded_is_found_only_with_a_network(tmp_path):
    environ = {"HF_HOME": str(tmp_path)}
    weights = found("owner/name", offline=False, environ=environ)
    assert (weights.folder, weights.name, revision(weights, environ)) == (None, "owner/name", None)
    with pytest.raises(ConfigError, match=rf"{tmp_path}/hub.*hf download owner/name"):
        found("owner/name", offline=True, environ=environ)


@pytest.mark.parametrize("model", ["/no/such/folder", "./models", "a/b/c", "--trust-remote-code x"])
def test_a_folder_that_is_not_there_is_not_looked_for_in_the_hub(model):
    with pytest.raises(ConfigError, match="is no folder"):
        found(model, offline=False)


def test_an_adapter_is_known_by_its_weights_and_its_configuration(tmp_path):
    def an_adapter(name: str, rank: int, weights: bytes) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 8}))
        (folder / "adapter_model.safetensors").write_bytes(weights)
        read = adapter(str(folder))
        assert read.rank == rank
        return read.hash

    first = an_adapter("a", 4, b"one")
    assert first == an_adapter("b", 4, b"one")
    assert len({first, an_adapter("c", 8, b"one"), an_adapter("d", 4, b"two")}) == 3


@pytest.mark.parametrize("settings", [None, "{}", "no JSON"])
def test_a_folder_without_an_adapter_is_an_error_of_the_configuration(tmp_path, settings):
    if settings is not None:
        (tmp_path / "adapter_config.json").write_text(settings)
        (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"model\.adapter"):
        adapter(str(tmp_path))
