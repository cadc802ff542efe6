"""From an empty folder to an adapter in the package, by the commands that the README names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from peft import PeftModel
from transformers import AutoModelForCausalLM

from cudal1_ci.propose.llm.servers import adapters
from cudal1_ci.propose.llm.servers.adapters import chosen
from cudal1_ci.propose.llm.servers.config import ModelConfig
from model_training import machine
from model_training.__main__ import OTHERS, main
from model_training.export.merge import merge

ID = "owner/tiny"
IDS = torch.arange(3, 20)[None]
README = Path(__file__).parents[2] / "model_training" / "README.md"


def command(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def loaded(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture
def brief(tiny_config, tmp_path) -> Path:
    """The tiny configuration with an adapter, and as little training as there can be."""
    text = tiny_config.read_text()
    for long, short in (
        ('tuning = "full"', "lora-rank = 8"),
        ("epochs = 10", "epochs = 1"),
        ("num-rounds = 2", "num-rounds = 1"),
        ("num-steps = 10", "num-steps = 2"),
        ("\nk = 8", "\nk = 2"),
    ):
        assert long in text
        text = text.replace(long, short)
    path = tmp_path / "brief.toml"
    path.write_text(text)
    return path


@pytest.mark.timeout(60)
def test_from_an_empty_folder_to_an_adapter_that_the_product_takes(
    tiny_config, brief, tmp_path, monkeypatch
):
    monkeypatch.setattr(machine, "commit", lambda: "f" * 40)  # a source distribution has none
    weights, run = tiny_config.parent / "weights", tmp_path / "run"
    command("pipeline", "--config", brief, "--folder", run)
    checkpoint = run / "checkpoints" / "contrastive-2"

    exported = tmp_path / "exported"
    told = command("export", "adapter", checkpoint, "--output", exported, "--id", ID)
    assert "rank 8" in told

    merged = merge(weights, checkpoint, tmp_path / "merged", "float32")
    expected = logits(PeftModel.from_pretrained(loaded(weights), str(checkpoint)))
    assert torch.allclose(logits(loaded(merged)), expected, atol=1e-4)
    assert not torch.allclose(logits(loaded(weights)), expected, atol=1e-3)

    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setattr(adapters, "FOLDER", shelf)
    words = ("--adapter", checkpoint, "--id", ID, "--evaluation", "contrastive")
    more = ("--name", "tiny", "--base", weights, "--results", "assets/results/tiny")
    command("bundle", run, *words, *more)
    taken = chosen(ModelConfig(model=str(weights)))
    assert (taken.folder, taken.rank, taken.made_for) == (shelf / "tiny", 8, ID)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (shelf / "tiny" / name).read_bytes() == (exported / name).read_bytes()


def test_every_command_says_what_it_does_and_the_readme_names_it():
    listed = CliRunner().invoke(main, ["--help"]).stdout
    names = [*main.commands, *OTHERS]
    assert names == [
        *("pipeline", "collect", "supervised", "self-supervised", "contrastive", "evaluate"),
        *("export", "bundle"),
    ]
    readme = README.read_text()
    for name in names:
        assert f"\n  {name} " in listed
        said = CliRunner().invoke(main, [name, "--help"])
        assert said.exit_code == 0
        assert f"`{name}" in readme
        options = [one for one in main.get_command(None, name).params if one.opts[0][:2] == "--"]
        assert all(one.help for one in options), name
    assert "..." not in listed.partition("Commands:")[2]


def test_a_failure_of_a_command_is_an_exit_code_and_a_line(tmp_path):
    for words in (
        ("export", "adapter", tmp_path, "--output", tmp_path / "out"),
        ("pipeline", "--config", tmp_path / "none.toml"),
    ):
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 2, done.exception
        assert done.stderr.startswith(f"error: {tmp_path}")
