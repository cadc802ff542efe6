"""What of a change can be compared, from two commits of a repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudal1_ci.compare.pairs import PROPOSER, pairs_of
from cudal1_ci.discover import DiscoveryConfig, discover
from cudal1_ci.discover.ladder import Evidence
from cudal1_ci.discover.plan import survey
from cudal1_ci.git import committed_change
from cudal1_ci.github.trees import Trees

BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def forward(self, x):
        return torch.tanh(x){more}

def get_inputs():
    return [torch.randn(4, 4)]
"""
USER = """
import torch
from pkg.block import Block

class User(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x) + 1
"""


@pytest.fixture
def compared(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)

    def commit(files: dict[str, str | None]) -> None:
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text) if text is not None else path.unlink()
        git("add", "-A")
        git("commit", "-qm", "a commit")

    def pairs(base: dict[str, str | None], head: dict[str, str | None]):
        git("init", "-q")
        commit({"pkg/__init__.py": "", **base})
        git("tag", "base")
        commit(head)
        change = committed_change(root, "base", "HEAD")
        trees = Trees(root, tmp_path / "state" / "trees")
        before, after = trees.of(change.base_sha), trees.of(change.head_sha)
        config = DiscoveryConfig()
        plan = survey(after, config, evidence=Evidence(), repository="r", change=change)
        return pairs_of(plan, discover(before, config), change), before, after

    return pairs


def verdicts(pairs):
    return {one.target.qualname: one.comparison.verdict for one in pairs.others}


def causes(pairs):
    return {one.target.qualname: one.comparison.cause for one in pairs.others}


def test_the_base_is_the_reference_and_the_head_is_judged(compared):
    found, before, after = compared(
        {"pkg/block.py": BLOCK.format(more="")}, {"pkg/block.py": BLOCK.format(more=" + 1")}
    )
    (pair,) = found.pairs
    assert pair.head.proposer == PROPOSER
    assert Path(pair.problem.reference.root) == before.resolve()
    assert Path(pair.head.program.root) == after.resolve()
    assert pair.problem.reference.import_path == pair.head.program.import_path == "pkg.block:Block"
    assert pair.problem.reference.digest != pair.head.program.digest
    assert pair.head.problem_id == pair.problem.id
    assert pair.problem.target is None, "of a kernel's candidate the judge asks for a new kernel"


def test_a_target_whose_file_was_renamed_is_the_same(compared):
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more="")},
        {"pkg/block.py": None, "pkg/moved.py": BLOCK.format(more="  + 0")},
    )
    (pair,) = found.pairs
    assert pair.problem.reference.import_path == "pkg.block:Block"
    assert pair.head.program.import_path == "pkg.moved:Block"
    assert verdicts(found) == {}


def test_a_class_of_another_name_is_paired_by_its_body(compared):
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more="")},
        {"pkg/block.py": BLOCK.format(more="").replace("class Block", "class Fresh")},
    )
    (pair,) = found.pairs
    assert pair.target.qualname == "Fresh"
    assert pair.problem.reference.import_path == "pkg.block:Block"
    assert pair.head.program.import_path == "pkg.block:Fresh"
    assert verdicts(found) == {}


NORM = """
import torch
from torch import nn

class Norm(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        centered = x - mean
        return centered / centered.std(-1, keepdim=True)
"""


def test_a_class_that_moved_and_changed_a_little_is_paired(compared):
    inputs = "\ndef get_inputs():\n    return [torch.randn(4, 4)]\n"
    moved = NORM.replace("x - mean", "(x - mean).contiguous()") + inputs
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more="") + NORM},
        {"pkg/block.py": BLOCK.format(more=""), "pkg/norm.py": moved},
    )
    (pair,) = found.pairs
    assert pair.problem.reference.import_path == "pkg.block:Norm"
    assert pair.head.program.import_path == "pkg.norm:Norm"


def test_what_calls_what_changed_is_compared_too(compared):
    user = USER + "\ndef get_inputs():\n    return [torch.randn(4, 4)]\n"
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more=""), "pkg/user.py": user},
        {"pkg/block.py": BLOCK.format(more=" + 1")},
    )
    assert {pair.target.qualname for pair in found.pairs} == {"Block", "User"}


OTHER = """
import torch

class Other(torch.nn.Module):
    def forward(self, x, scale, shift):
        y = x * scale
        z = y + shift
        return torch.relu(z).sum()
"""


def test_what_is_in_one_tree_alone_or_cannot_be_called_has_its_verdict(compared):
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more=""), "pkg/user.py": USER},
        {"pkg/block.py": OTHER, "pkg/user.py": USER.replace("+ 1", "+ 2")},
    )
    assert found.pairs == ()
    assert verdicts(found) == {"Other": "new", "Block": "removed", "User": "skipped"}
    assert causes(found) == {"Other": None, "Block": "lost", "User": "skipped"}
    assert all(one.skipped for one in found.others)


@pytest.mark.parametrize(
    "head",
    [
        {"pkg/block.py": BLOCK.format(more="").replace("class Block", "class Fresh")},
        {"pkg/block.py": "x = 1\n", "pkg/new.py": BLOCK.format(more="")},
    ],
    ids=["renamed", "moved"],
)
def test_another_name_or_file_hides_nothing_since_it_is_compared_with_what_it_was(compared, head):
    found, *_ = compared({"pkg/block.py": BLOCK.format(more="")}, head)
    (one,) = found.pairs
    assert one.previous == "pkg/block.py:Block"
    assert one.problem.reference.import_path == "pkg.block:Block"
    assert found.others == ()


def test_a_new_name_that_cannot_be_called_leaves_the_old_one_missing(compared):
    lines = [line for line in BLOCK.format(more="").splitlines() if "input" not in line]
    text = "\n".join(line for line in lines if "return [" not in line)
    found, *_ = compared(
        {"pkg/block.py": text}, {"pkg/block.py": text.replace("class Block", "class Fresh")}
    )
    assert found.pairs == ()
    assert causes(found) == {"Fresh": "skipped", "Block": "renamed"}


def test_comments_and_layout_are_no_change(compared):
    found, *_ = compared(
        {"pkg/block.py": BLOCK.format(more="")},
        {"pkg/block.py": BLOCK.format(more="  # as before") + "\n\n"},
    )
    assert (found.pairs, found.others) == ((), ())
