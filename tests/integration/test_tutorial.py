"""The tutorial, followed word for word: its files, its commands, what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
FILES = re.findall(r'^```python title="([^"]+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
STEPS = re.findall(r"^```console\n(.*?)^```(.*?)(?=^```console|\Z)", PAGE, re.MULTILINE | re.DOTALL)


def test_every_step_has_a_command_and_every_file_a_name():
    assert [name for name, _ in FILES] == ["model.py", "test_model.py"]
    assert len(STEPS) == PAGE.count("```console") == 5
    assert all(line.startswith("$ ") for block, _ in STEPS for line in block.splitlines())


@pytest.mark.slow
@pytest.mark.times
@pytest.mark.starts_verifier
def test_the_tutorial_does_what_it_says(tmp_path):
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env["COLUMNS"] = "160"
    for block, below in STEPS:
        printed = ""
        for line in block.splitlines():
            done = subprocess.run(
                ["bash", "-c", line.removeprefix("$ ")],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            printed += done.stdout + done.stderr
            assert done.returncode == 0, f"{line}\n{printed}"
        for expected in re.findall(r"^```text\n(.*?)\n```", below, re.MULTILINE | re.DOTALL):
            assert expected in printed
        if "explain" in block:
            assert "playbook:diagonal_product" in printed
    (after,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert after in (tmp_path / "model.py").read_text() + "\n"
    assert "Scale" in (tmp_path / "report.html").read_text("utf-8")
