"""What a script reads from its command line, for modules that take it."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.sandboxed.harvester.command_lines import command_lines
from cudal1_ci.sandboxed.harvester.configured import configured

SCRIPT = """\
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder")
parser.add_argument("-w", "--hidden-dim", type=int, default=24)
parser.add_argument("--num_layers", type=int, default=12)
parser.add_argument("--lr", type=float, default="1e-3")
parser.add_argument("--bias", action="store_true")
parser.add_argument("--no-norm", dest="norm", action="store_false")
parser.add_argument("--workers", type=int, default=os.cpu_count())
parser.add_argument("--num_heads", type=int)
parser.add_argument("--name", choices=["a", "b"])
parser.add_argument("--target", default="price", help="no path of a class")
parser.parse_args(["--other"])
"""
DEFAULTS = {
    "data": None,
    "hidden_dim": 24,
    "num_layers": 12,
    "lr": 1e-3,
    "bias": False,
    "norm": True,
    "workers": None,
    "num_heads": 4,
    "name": None,
    "target": "price",
}


class Model(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        width = args.hidden_dim
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(width, width, bias=args.bias) for _ in range(args.num_layers)
        )


class Plain(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim.hidden_dim


class Other(torch.nn.Module):
    def __init__(self, args):
        super().__init__()
        self.fc = torch.nn.Linear(args.hidden_dim, args.absent)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "other.py").write_text(SCRIPT.replace("hidden-dim", "width"))
    (tmp_path / "broken.py").write_text("add_argument(")
    (tmp_path / ".tool").mkdir()
    (tmp_path / ".tool" / "train.py").write_text(SCRIPT)
    return tmp_path


def test_defaults_are_read_without_running_the_script(root):
    found = dict(command_lines(root))
    assert found["train.py"] == DEFAULTS
    assert found.keys() == {"train.py", "other.py"}


def test_a_module_that_takes_them_is_made_of_a_script_that_has_all_that_it_reads(root):
    less, whole = configured(Model, root, [], "model.py")
    assert (less.source, whole.source) == ("train.py (smaller: num_layers 12 -> 4)", "train.py")
    assert (len(whole.make().layers), whole.make().layers[0].in_features) == (12, 24)
    assert len(less.make().layers) == 4


@pytest.mark.parametrize("cls", [Plain, Other])
def test_other_modules_are_made_of_none(root, cls):
    assert not list(configured(cls, root, [], "model.py"))
