"""What is imported of a file that trains at its top level."""

from __future__ import annotations

import pytest

from cudal1_ci.sandboxed.runner.definitions import added_work, definitions_of, text_in
from cudal1_ci.sandboxed.runner.programs import OverlayFinder

SCRIPT = '''\
"""Train a model."""
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.benchmark = True
WIDTH, rank = 8, int(os.environ.get("RANK", -1))
half: int = WIDTH // 2
try:
    import faster
except ImportError:
    faster = None


@torch.no_grad()
def double(x):
    return 2 * x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, half)

    def forward(self, x):
        return self.fc(x)


data = torch.load("absent.pt")
num_rows = len(data) * WIDTH
model = Model()
if rank > 0:
    torch.distributed.init_process_group()
for row in data:
    model(row).sum().backward()


class Late(Model):
    pass
'''
LEFT_OUT = ("data = ", "num_rows", "model = ", "if rank", "init_process", "for row", "backward")


def test_what_trains_is_left_out_and_lines_keep_their_numbers():
    found = definitions_of(SCRIPT)
    assert found is not None
    lines, before = found.splitlines(), SCRIPT.splitlines()
    assert len(lines) == len(before)
    for line, was in zip(lines, before, strict=True):
        assert line == ("" if any(one in was for one in LEFT_OUT) else was)


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("    model(row).sum().backward()", "    model(row)"),
        SCRIPT.replace("for row in data:", 'if __name__ == "__main__":'),
        "def train(data):\n    for row in data:\n        row.backward()\n",
        "for one in loss:\n    one.backward()\nbroken(",
        "x = 1; y = data()\nfor one in y:\n    one.backward()\n",
    ],
    ids=["no training", "run as a program", "in a function", "no Python", "both in a line"],
)
def test_other_files_are_imported_as_they_are(text):
    assert definitions_of(text) is None


def test_a_call_of_a_function_that_trains_is_left_out_too():
    step = "def step(x):\n    x.backward()\n"
    epoch = "def epoch(rows):\n    [step(row) for row in rows]\n"
    assert definitions_of(f"{step}{epoch}loss = epoch(data())\n") == f"{step}{epoch}\n"
    assert definitions_of(f"{step}def shown(x):\n    print(x)\nshown(1)\n") is None


def test_a_name_that_is_left_out_is_known_again_where_it_is_bound_plainly():
    text = "a = data()\nb = a\na += 1\na = 1\nc = a\nc += 1\nwhile True:\n    c.backward()\n"
    assert definitions_of(text) == "\n\n\na = 1\nc = a\nc += 1\n\n\n"


def test_files_of_the_checkout_and_their_patches_are_imported_so(tmp_path):
    for folder in ("own", "own/lib/site-packages", "other"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train.py").write_text(SCRIPT)
    (tmp_path / "own" / "plain.py").write_text("VALUE = 1\n")

    def imported(name, folder, texts=None):
        finder = OverlayFinder(texts or {}, tmp_path / "own")
        spec = finder.find_spec(name, [str(tmp_path / folder)])
        return spec and spec.loader.get_data(spec.origin).decode()

    assert imported("train", "own") == definitions_of(SCRIPT)
    patch = SCRIPT.replace("WIDTH, rank = 8", "WIDTH, rank = 6")
    patched = imported("train", "own", {str(tmp_path / "own" / "train.py"): patch})
    assert patched == definitions_of(patch) != definitions_of(SCRIPT)
    assert imported("plain", "own") is None
    assert imported("train", "own/lib/site-packages") is None
    assert imported("train", "other") is None


def test_work_that_a_patch_adds_is_named():
    assert added_work(SCRIPT, SCRIPT) is None
    assert added_work(SCRIPT, SCRIPT.replace("class Late", "class Last")) is None
    assert added_work(SCRIPT, f"{SCRIPT}\nrun( )\nrun()\n") == "run()"
    assert added_work(f"{SCRIPT}\nrun()\n", f"{SCRIPT}\nrun()\nrun()\n") == "run()", "once more"
    assert added_work("import torch\n", "import torch\nrun()\n") is None, "an import runs it"


def test_a_file_that_is_not_there_has_no_text(tmp_path):
    assert text_in(tmp_path / "absent.py") == ""
