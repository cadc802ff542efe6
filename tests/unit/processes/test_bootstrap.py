"""The first lines that a worker's interpreter runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from cudal1_ci.processes.local import BOOTSTRAP

START = """\
import json, sys
def main(words):
    print(json.dumps([sys.path, words]))
"""


def test_a_worker_imports_nothing_from_the_working_folder(tmp_path):
    folder, here = tmp_path / "worker", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    (folder / "__init__.py").touch()
    (folder / "start.py").write_text(START)
    (here / "importlib.py").write_text("raise SystemExit('imported from the working folder')")
    words = ["verifier", "3", "1", "cpu"]
    started = [sys.executable, "-c", BOOTSTRAP, str(folder), *words]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        started, cwd=here, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    path, arguments = json.loads(done.stdout)
    assert "" not in path
    assert str(here) not in path
    assert arguments == words


def test_a_python_that_is_too_old_is_named_with_the_fix(tmp_path):
    older = f"import sys\nsys.version_info = (3, 8, 18)\n{BOOTSTRAP}"
    done = subprocess.run(
        [sys.executable, "-c", older, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.8 is too old for the project's environment: 3.10 or")
    assert "--python PATH" in done.stderr
