"""The sample report, and one whose numbers never change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudal1_ci.records import Report
from cudal1_ci.render.published import published
from cudal1_ci.render.reading import read_report
from tests.unit.render.samples import sample_report, write_checkout

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "checkout")


@pytest.fixture
def report(checkout: Path) -> Report:
    return sample_report(checkout)


@pytest.fixture
def sample(report: Report) -> Report:
    return published(report)


@pytest.fixture(scope="session")
def golden_report() -> Report:
    """A report as it was written once, so that golden text does not hang on how intervals are
    estimated."""
    return read_report(GOLDEN / "report.json")


@pytest.fixture
def replaced():
    """A document with some fields of its first entry's best candidate or target replaced."""

    def replace(shown: Report, *, target=None, candidate=None, **fields) -> Report:
        first = shown.entries[0]
        evaluations = list(first.evaluations)
        if candidate:
            best = evaluations[first.best]
            changed = msgspec.structs.replace(best.candidate, **candidate)
            evaluations[first.best] = msgspec.structs.replace(best, candidate=changed)
        entry = msgspec.structs.replace(
            first,
            target=msgspec.structs.replace(first.target, **(target or {})),
            evaluations=tuple(evaluations),
        )
        return msgspec.structs.replace(shown, entries=(entry, *shown.entries[1:]), **fields)

    return replace
