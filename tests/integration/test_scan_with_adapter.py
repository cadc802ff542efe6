"""A scan of weights that a bundled adapter fits, from the command line to the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundling import CODER, CONFIG, a_bundled_adapter
from tests.integration.conftest import UNREVIEWED, Ran, environment
from tests.integration.test_scan_with_model import CONFIG as PROJECT
from tests.integration.test_scan_with_model import SLOW

pytestmark = pytest.mark.starts_verifier

ROOT = Path(__file__).parents[2]
FAKE_PYTHON = ROOT / "tests/unit/propose/models/fake_python.py"
PROGRAM = """\
import sys
from pathlib import Path
from cudal1_ci.propose.llm.servers import adapters
adapters.FOLDER = Path(sys.argv.pop(1))
from cudal1_ci.cli import main
main(prog_name="cudal1-ci")
"""
"""The command line with another folder of bundled adapters than the package's."""


@pytest.fixture
def root(checkout):
    return checkout({"pkg/__init__.py": "", "pkg/slow.py": SLOW, "pyproject.toml": PROJECT})


@pytest.fixture
def python(tmp_path) -> Path:
    """An interpreter with a server of models, which answers in prose."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\n{FAKE_PYTHON.read_text('utf-8')}")
    path.chmod(0o755)
    (tmp_path / "root").write_text(str(ROOT))
    (tmp_path / "behavior").write_text("good")
    return path


def scan(shelf: Path, root: Path, python: Path, weights: Path) -> Ran:
    command = ["scan", str(root), "--model", str(weights), "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(shelf), *command],
        env=environment(
            CUDAL1_CI_MODEL_PYTHON=str(python),
            CUDAL1_CI_OPTIMIZER_NUM_ROUNDS="1",
            CUDAL1_CI_OPTIMIZER_NUM_SAMPLES="1",
            **UNREVIEWED,
        ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_scan_takes_the_adapter_that_fits_and_says_so(tmp_path, root, python):
    weights, shelf = tmp_path / "weights", tmp_path / "adapters"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(CONFIG))
    a_bundled_adapter(shelf / "small")

    ran = scan(shelf, root, python, weights)
    assert ran.code == 0, ran.stderr
    use = ran.json["entries"][0]["model_use"]
    assert (use["model"], use["adapter_name"], use["num_answers"]) == ("weights", "small", 1)
    assert f"adapter: small ({use['adapter']}), bundled for {CODER}" in ran.stderr

    (shelf / "small" / "adapter_model.safetensors").write_bytes(b"cut")
    ran = scan(shelf, root, python, weights)
    assert ran.code == 4
    assert "adapter_model.safetensors: expected SHA-256" in ran.stderr
    assert "install it again, or go without it: --adapter none" in ran.stderr
