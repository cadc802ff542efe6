"""What the security pages say is tested: rows and lines name tests or attacks that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.hostile import test_reports, test_settings, test_trees
from tests.hostile.commands import ATTACKS, DANGEROUS

ROOT = Path(__file__).parents[2]
PAGE, POLICY = ROOT / "docs" / "security.md", ROOT / "SECURITY.md"


def there() -> set[str]:
    """The names of all tests and of all hostile commands."""
    texts = [file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    tests = {name for text in texts for name in re.findall(r"(?m)^def (test_\w+)", text)}
    return tests | ATTACKS.keys() | DANGEROUS.keys()


def named(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def test_every_row_of_the_page_names_its_test():
    lines = PAGE.read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not re.match(r"\|[- |]+$", line)]
    rows = [row for row in rows if not row.endswith(("| test |", "| attacks that fail |"))]
    assert len(rows) >= 30
    for row in rows:
        tests = named(row.rsplit("|", 2)[1])
        assert tests, row
        assert tests <= there(), (row, tests - there())


def test_every_promise_of_the_policy_names_its_test():
    section = POLICY.read_text("utf-8").partition("## What is defended")[2].partition("\n## ")[0]
    lines = re.split(r"\n- ", section)[1:]
    assert len(lines) >= 6
    for line in lines:
        tests = {name for name in named(line) if name.startswith("test_")}
        assert tests, line
        assert tests <= there(), (line, tests - there())


def test_the_page_counts_the_hostile_inputs_that_there_are():
    reports, trees = test_reports, test_trees
    corpus = {
        "commands and tests of a project": (ATTACKS, DANGEROUS),
        "reports": (reports.WORDS, reports.RAW),
        "artifacts and traces": (reports.ARTIFACTS, trees.LEFT),
        "settings, of the tool and of a fork's job": (test_settings.SETTINGS, reports.OTHERS),
        "settings of git": (trees.CONFIGURED,),
        "trees": (trees.REWRITES,),
    }
    counts = {what: sum(map(len, kinds)) for what, kinds in corpus.items()}
    text = PAGE.read_text("utf-8")
    for what, count in counts.items():
        assert f"| {what} | {count} |" in text, (what, count)
    assert f"Hostile inputs of {sum(counts.values())} kinds" in text
