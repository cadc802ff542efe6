"""Fixtures of the training programs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from model_training.__main__ import main

CONFIGS = Path(__file__).parents[2] / "model_training" / "configs"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models lose more to threads that wait for one another than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def what_is_there_stays() -> None:
    """Trainers collect garbage again and again, and would look through all that was imported."""
    import trl.trainer.sft_trainer  # noqa: F401

    gc.freeze()


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the toy language after stage 1."""
    from tests.training.contrastive_rig import make_taught_folder

    torch.set_num_threads(1)
    return make_taught_folder(tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """configs/tiny.toml, with weights beside it."""
    from model_training.toy import make_model_folder

    folder = tmp_path_factory.mktemp("tiny")
    weights = make_model_folder(folder / "weights")
    path = folder / "tiny.toml"
    text = (CONFIGS / "tiny.toml").read_text()
    path.write_text(text.replace("runs/tiny-weights", str(weights)))
    return path


@pytest.fixture(scope="session")
def tiny_run(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of it from beginning to end: no test changes what it has found."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    torch.set_num_threads(1)
    words = ["pipeline", "--config", str(tiny_config), "--folder", str(folder)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, (done.output, done.exception)
    return folder
