"""What a program is loaded from, and what a text without its class is told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cudal1_ci.processes.local import BOOTSTRAP, SANDBOXED
from cudal1_ci.sandboxed.runner.programs import load
from tests.unit.sandboxed.messages import text


def test_a_text_that_lacks_its_class_is_told_which(tmp_path):
    program = text("class Model: pass\n", "ModelNew")
    with pytest.raises(AttributeError, match="the text defines no `ModelNew`; expected a class"):
        load(program, tmp_path)
    assert load(replace(program, entry="Model"), tmp_path).__name__ == "Model"


EDITABLE = """
import importlib.util, sys

class RedirectingFinder:
    def find_spec(self, fullname, path=None, target=None):
        files = {
            "pkg": "%s/pkg/__init__.py", "pkg.late": "%s/pkg/late.py", "helper": "%s/helper.py"
        }
        if fullname in files:
            return importlib.util.spec_from_file_location(fullname, files[fullname])

sys.meta_path.insert(0, RedirectingFinder())
"""
"""As scikit-build-core, meson-python and setuptools install a project to be edited."""
LOOK = """
import json
from cudal1_sandboxed.runner.programs import load
from cudal1_sandboxed.wire.programs import TreeProgram
from pathlib import Path
made = TreeProgram(root=%r, import_root=%r, import_path="pkg:where", digest="", overlay=())
said = [load(made, Path("."))()]
import helper
said.append(helper.__file__)
try:
    import pkg.late
    said.append(pkg.late.__file__)
except ImportError:
    said.append("not there")
print(json.dumps(said))
"""


@pytest.mark.parametrize("layout", [".", "src"])
def test_an_editable_install_does_not_answer_for_the_tree_of_a_commit(tmp_path, layout):
    checkout, tree = tmp_path / "checkout", tmp_path / "trees" / "0123456789abcdef"
    for root in (checkout, tree):
        package = root / layout / "pkg"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("def where():\n    return __file__\n")
    (checkout / layout / "pkg" / "late.py").touch()
    (checkout / layout / "helper.py").touch()
    boot = BOOTSTRAP.partition("from cudal1_sandboxed.start")[0]

    def said(root: Path) -> list[str]:
        place = str(checkout / layout)
        words = [boot + EDITABLE % (place, place, place) + LOOK % (str(root), layout)]
        done = subprocess.run(
            [sys.executable, "-c", *words, str(SANDBOXED)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    of_checkout = [str(checkout / layout / name) for name in ("pkg/__init__.py", "helper.py")]
    assert said(checkout) == [*of_checkout, str(checkout / layout / "pkg/late.py")]
    assert said(tree) == [str(tree / layout / "pkg/__init__.py"), of_checkout[1], "not there"]
