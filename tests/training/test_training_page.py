"""The tables of docs/training.md and of the README are what the raw evaluations hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from model_training.table import Sample, Share, Table, table

ROOT = Path(__file__).parents[2]
RAW = ROOT / "assets" / "results"
PAGE = ROOT / "docs" / "training.md"
KERNELBENCH = {
    "base, 0.5B": "training-h100-eighth/kernelbench-base/evaluations/base",
    "bundled adapter": "training-h100-eighth/kernelbench-adapter/evaluations/base",
}
FOURTH = {
    "base": "training-h200-fourth/evaluations/base",
    "after stage 1": "training-h200-fourth/evaluations/supervised",
    "after stage 2": "training-h200-fourth/evaluations/self_supervised",
    "after stage 3, six steps": "training-h200-fourth/evaluations/contrastive",
}
"""Rows, each with the evaluation of its first seed; the second has `-1` at its end."""
pytestmark = pytest.mark.skipif(not RAW.exists(), reason="archives hold no raw results")


def evaluated(*names: str) -> Table:
    """Return the table over the samples of some evaluations."""
    samples = [
        msgspec.convert(sample, Sample)
        for name in names
        for sample in json.loads((RAW / f"{name}.json").read_text("utf-8"))["samples"]
    ]
    return table(samples)


def row(name: str) -> list[str]:
    """Return the cells of a row of the page, after its name."""
    (line,) = re.findall(rf"^\| {re.escape(name)} \|.*$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def check(found: Table, cells: list[str]) -> None:
    """Compare a table with the cells of a row."""
    shares = ("format", "executable", "correct", "pass_at_k", "faster_at_k")
    factors = ("mean", "geometric_mean")
    for name, cell in zip((*shares, *factors), cells, strict=False):
        share: Share = getattr(found, name)
        scale = 1 if name in factors else 100
        places = 0.0051 if name in factors else 0.051
        stated = [float(one) for one in re.findall(r"\d+(?:\.\d+)?", cell)]
        expected = [share.value, share.low, share.high][: len(stated)]
        assert stated == pytest.approx([scale * one for one in expected], abs=places), name
    assert [float(one.rstrip("x")) for one in cells[7:9]] == pytest.approx(
        [found.median, found.max], abs=0.0051
    )
    assert cells[9] == f"{found.success}/{found.num_tasks}"


@pytest.mark.parametrize("name", FOURTH)
def test_a_row_of_two_seeds_is_that_of_their_samples(name):
    check(evaluated(FOURTH[name], f"{FOURTH[name]}-1"), row(name))


@pytest.mark.parametrize("name", KERNELBENCH)
def test_a_row_of_kernelbench_is_that_of_its_samples(name):
    found = evaluated(KERNELBENCH[name])
    cells = row(name)
    check(found, cells)
    assert cells[10] == f"{found.statuses.get('copy', 0)}/{found.num_samples}"


def test_sentences_about_the_adapter_follow_from_the_tables():
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    stage = FOURTH["after stage 2"]
    generated, kernelbench = (
        evaluated(stage, f"{stage}-1"),
        evaluated(KERNELBENCH["bundled adapter"]),
    )
    assert "A third of its answers are right there" in readme
    assert "best of eight makes a third of the tasks faster" in readme
    assert 0.28 < generated.correct.value < 0.38
    assert 0.28 < generated.faster_at_k.value < 0.38
    assert (kernelbench.above, kernelbench.num_tasks) == (1, 19)
    assert "On KernelBench it makes one of nineteen tasks faster" in readme
