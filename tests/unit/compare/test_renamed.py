"""Targets of another name or place are paired by signature and body."""

from __future__ import annotations

from pathlib import Path

from cudal1_ci.compare.renamed import renamed
from cudal1_ci.records import Target
from tests.fakes import a_target

NORM = """\
class {name}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        centered = x - mean
        scale = centered.square().mean(-1, keepdim=True)
        return centered * scale.rsqrt() * self.weight
"""
OTHER = """\
class {name}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.layer(x)
        for _ in range(3):
            y = torch.relu(y)
        return y
"""


def targets(root: Path, **texts: str) -> list[Target]:
    """Write a class for each name, in a file of its own, and return them as targets."""
    root.mkdir(exist_ok=True)
    found = []
    for name, text in texts.items():
        path = f"{name.lower()}.py"
        (root / path).write_text(text.format(name=name), encoding="utf-8")
        found.append(a_target(path=path, qualname=name))
    return found


def pairs(tmp_path: Path, new: dict[str, str], old: dict[str, str]) -> dict[str, str]:
    head, base = tmp_path / "head", tmp_path / "base"
    found = renamed(targets(head, **new), head, targets(base, **old), base)
    return {qualname: one.qualname for (_, qualname), one in found.items()}


def test_each_is_paired_with_the_most_similar_one(tmp_path: Path) -> None:
    changed = NORM.replace("x - mean", "(x - mean).contiguous()")
    old = {"First": OTHER, "Second": NORM}
    assert pairs(tmp_path, {"New": changed, "Newer": OTHER}, old) == {
        "New": "Second",
        "Newer": "First",
    }


def test_other_parameters_are_another_target(tmp_path: Path) -> None:
    more = NORM.replace("self, dim", "self, dim, eps=1e-6")
    assert pairs(tmp_path, {"New": more}, {"Old": NORM}) == {}
    call = NORM.replace("self, x", "self, x, mask")
    assert pairs(tmp_path, {"New": call}, {"Old": NORM}) == {}


def test_a_body_that_is_another_is_another_target(tmp_path: Path) -> None:
    assert pairs(tmp_path, {"New": OTHER}, {"Old": NORM}) == {}


def test_one_that_was_removed_is_paired_once(tmp_path: Path) -> None:
    assert pairs(tmp_path, {"New": NORM, "Newer": NORM}, {"Old": NORM}) == {"New": "Old"}


def test_a_file_that_does_not_parse_pairs_nothing(tmp_path: Path) -> None:
    assert pairs(tmp_path, {"New": NORM}, {"Old": "class {name}(:"}) == {}
