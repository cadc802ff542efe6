"""Test that the list of rules holds the names in the code and no others, and the pages."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from cudal1_ci.verification import rules

ROOT = Path(__file__).parents[3]
PLACES = ("sandboxed", "verification", "stats", "optimize")
FAMILIES = "|".join(sorted({name.partition(".")[0] for name in rules.MEANING}))
NAME = re.compile(rf"(?:{FAMILIES})\.(?!py$)[a-z_]+")


def named_in_code() -> set[str]:
    """Return all strings of the code that have the form of a rule's name."""
    files = [file for place in PLACES for file in (ROOT / "cudal1_ci" / place).rglob("*.py")]
    texts = (
        node.value
        for file in files
        if file.name != "rules.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {text for text in texts if NAME.fullmatch(text)}


def test_every_rule_in_the_code_is_listed_and_every_listed_rule_is_in_the_code():
    assert named_in_code() == set(rules.MEANING)


def test_the_page_is_current():
    command = [sys.executable, ROOT / ".ci" / "rules", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_the_page_for_readers_stays_short():
    assert len((ROOT / "docs" / "verifier.md").read_text(encoding="utf-8").split()) <= 1500
