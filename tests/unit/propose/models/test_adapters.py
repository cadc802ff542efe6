"""Which adapter goes on which weights, and what is wrong with one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cudal1_ci import assets
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.propose.llm.servers import adapters
from cudal1_ci.propose.llm.servers.adapter_record import SCHEMA_VERSION, read_record
from cudal1_ci.propose.llm.servers.adapters import bundled, bundled_for, chosen
from cudal1_ci.propose.llm.servers.config import ModelConfig
from cudal1_ci.propose.llm.servers.weights import adapter
from tests.bundling import CODER, CONFIG, a_bundled_adapter, a_record, an_adapter

ROOT = Path(__file__).parents[4]


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """The folder of bundled adapters: an empty one of the test's own."""
    folder = tmp_path / "adapters"
    folder.mkdir()
    (folder / "README.md").write_text("What lies here.")
    monkeypatch.setattr(adapters, "FOLDER", folder)
    return folder


def weights(folder: Path, config: dict | str) -> str:
    folder.mkdir()
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    return str(folder)


def name_for(model: str, **given) -> str | None:
    found = bundled_for(ModelConfig(model=model, **given))
    return None if found is None else found.folder.name


# --- which one ---------------------------------------------------------------------------------


def test_the_id_that_a_record_names_gets_its_adapter(shelf):
    a_bundled_adapter(shelf / "small", ids=(CODER, "mirror/coder"))
    assert name_for(CODER) == name_for("mirror/coder") == "small"
    found = chosen(ModelConfig(model=CODER))
    assert (found.name, found.made_for, found.rank) == ("small", CODER, 4)
    assert found.hash == adapter(str(shelf / "small")).hash


@pytest.mark.parametrize(
    "model",
    ["Qwen/Qwen2.5-0.5B-Instruct", CODER.lower(), "http://127.0.0.1:8000/v1"],
    ids=["same sizes, other weights", "another name", "a server"],
)
def test_another_model_gets_none(shelf, model):
    a_bundled_adapter(shelf / "small")
    assert chosen(ModelConfig(model=model)) is None


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        ({**CONFIG, "rope_theta": 1e6, "torch_dtype": "bfloat16"}, True),
        ({**CONFIG, "hidden_size": 1536}, False),
        ({**CONFIG, "num_hidden_layers": 28}, False),
        ({**CONFIG, "model_type": "llama"}, False),
        ({**CONFIG, "quantization_config": {"quant_method": "awq"}}, False),
        ({key: value for key, value in CONFIG.items() if key != "vocab_size"}, False),
        ("no JSON", False),
        ("[]", False),
    ],
)
def test_a_folder_gets_the_adapter_that_its_sizes_fit(shelf, tmp_path, config, fits):
    a_bundled_adapter(shelf / "small")
    found = chosen(ModelConfig(model=weights(tmp_path / "weights", config)))
    assert (found is not None) == fits


def test_a_folder_without_a_configuration_gets_none(shelf, tmp_path):
    a_bundled_adapter(shelf / "small")
    assert chosen(ModelConfig(model=str(tmp_path))) is None


def test_of_two_that_fit_the_one_that_was_trained_later_is_taken(shelf):
    a_bundled_adapter(shelf / "b", day=2)
    a_bundled_adapter(shelf / "a", day=3)
    a_bundled_adapter(shelf / "c", day=1)
    a_bundled_adapter(shelf / "newest", day=4, ids=("another/model",))
    assert name_for(CODER) == "a"


def test_none_is_none_and_a_folder_of_ones_own_comes_first(shelf, tmp_path):
    a_bundled_adapter(shelf / "small")
    own = an_adapter(tmp_path / "own", rank=8)
    assert chosen(ModelConfig(model=CODER, adapter="none")) is None
    assert bundled_for(ModelConfig(model=CODER, adapter="none")) is None
    found = chosen(ModelConfig(model=CODER, adapter=str(own)))
    assert (found.name, found.rank, found.is_bundled) == ("own", 8, False)
    assert bundled_for(ModelConfig(model=CODER, adapter=str(own))) is None


def test_a_package_without_adapters_has_none(shelf):
    assert chosen(ModelConfig(model=CODER)) is None


# --- what is wrong with it -----------------------------------------------------------------------


def damage_weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1"
    )


def damage_settings(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 1000}')


def lose_weights(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


DAMAGES = [
    (damage_weights, r"adapter_model\.safetensors: expected SHA-256 [0-9a-f]{64}.*damaged"),
    (damage_settings, r"adapter_config\.json: expected SHA-256"),
    (lose_weights, r"adapter_model\.safetensors: cannot be read: No such file"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_a_damaged_file_of_the_package_is_named_with_the_mend(shelf, damage, said):
    damage(a_bundled_adapter(shelf / "small"))
    with pytest.raises(UnsupportedError, match=f"{said}.*install it again.*--adapter none"):
        chosen(ModelConfig(model=CODER))
    assert chosen(ModelConfig(model=CODER, adapter="none")) is None
    assert chosen(ModelConfig(model="another/model")) is None, "whom it does not concern"


@pytest.mark.parametrize(("damage", "said"), DAMAGES[:2])
def test_a_damaged_file_of_ones_own_is_an_error_of_the_configuration(tmp_path, damage, said):
    own = a_bundled_adapter(tmp_path / "own")
    damage(own)
    with pytest.raises(ConfigError, match=rf"model\.adapter: .*{said}.*remove record\.json"):
        chosen(ModelConfig(model=CODER, adapter=str(own)))
    (own / "record.json").unlink()
    assert chosen(ModelConfig(model=CODER, adapter=str(own))).name == "own"


def with_changes(folder: Path, **changes) -> None:
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, **changes}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"schema_version": SCHEMA_VERSION + 1, "unheard": "of"},
            r"record\.json: expected schema_version 1, got 2; use the version of cudal1-ci",
        ),
        ({"unheard": "of"}, r"record\.json: expected the record of an adapter: .*unheard"),
        ({"schema_version": None}, r"record\.json: expected the record of an adapter"),
        ({"files": {"adapter_config.json": "0" * 64}}, r"record\.json: .*expected a hash of"),
        ({"files": {"../../x": "0" * 64}}, r"record\.json: .*expected a hash of"),
    ],
)
def test_a_record_that_is_not_understood_is_named_with_the_mend(shelf, tmp_path, changes, said):
    for folder in (shelf / "small", tmp_path / "own"):
        with_changes(a_bundled_adapter(folder), **changes)
    with pytest.raises(UnsupportedError, match=f"{said}.*--adapter none"):
        chosen(ModelConfig(model=CODER))
    with pytest.raises(ConfigError, match=said):
        chosen(ModelConfig(model=CODER, adapter=str(tmp_path / "own")))
    assert chosen(ModelConfig(model=CODER, adapter="none")) is None


def test_a_record_is_read_as_it_was_written(tmp_path):
    folder = a_bundled_adapter(tmp_path / "small")
    assert read_record(folder) == a_record(folder)
    assert read_record(tmp_path) is None


# --- those that are committed --------------------------------------------------------------------


def test_an_adapter_of_the_package_is_whole_small_and_has_its_card():
    found = list(bundled())
    assert found
    for one in found:
        whole = one.whole()
        assert whole.name == one.folder.name
        assert whole.made_for == one.record.base.ids[0]
        assert (whole.folder / "README.md").is_file()
        assert (whole.folder / "adapter_model.safetensors").stat().st_size < 16_000_000
        results = one.record.training.results.removeprefix("assets/")
        assert assets.folder(results) is not None


def test_an_adapter_that_is_not_to_be_had_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(assets, "CHECKOUT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(assets.URL_VARIABLE, raising=False)
    said = r"adapters/qwen2\.5-coder-0\.5b-rewrites/.*is not here.*--adapter none"
    with pytest.raises(UnsupportedError, match=said):
        chosen(ModelConfig(model=CODER))
    assert chosen(ModelConfig(model="another/model")) is None, "whom it does not concern"


def test_adapters_are_packed_with_the_package():
    """That the wheel holds their records is a test of tests/unit/test_packaging.py; here that
    nothing keeps files of that kind out of it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["cudal1_ci"]
    assert ROOT / "cudal1_ci" / "adapters" == adapters.FOLDER
    assert "exclude" not in build | build["targets"]["wheel"]
