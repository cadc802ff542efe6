"""How the front door starts: what it imports, what that costs, and what it says of its verbs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cudal1_ci.cli import VERBS, main

FRONT_DOOR = {
    "cudal1_ci",
    "cudal1_ci.cli",
    "cudal1_ci.cli.group",
    "cudal1_ci.declare",
    "cudal1_ci.errors",
}
COMPLETE = {"_CUDAL1_CI_COMPLETE": "bash_complete", "COMP_WORDS": "cudal1-ci s", "COMP_CWORD": "1"}
LINES = pytest.mark.parametrize(
    ("words", "variables", "answer"),
    [
        (["--version"], {}, "cudal1-ci, version"),
        (["--help"], {}, "Commands:"),
        ([], COMPLETE, "plain,scan\nplain,sweep\n"),
    ],
    ids=["version", "help", "completion"],
)
MAX_CPU_S = 0.2
PROGRAM = """
import atexit, sys
before = set(sys.modules)
atexit.register(lambda: print(*set(sys.modules) - before, file=sys.stderr))
from cudal1_ci.cli import main
main(prog_name="cudal1-ci")
"""


def imported_by(*words: str, **variables: str) -> set[str]:
    """Return the modules that the tool has imported when it ends, site's own left out."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stderr.split())


def cpu_s_of(words: list[str], variables: dict[str, str]) -> tuple[float, str]:
    """Return the processor time that the tool took, user and system, and what it printed."""
    read, write = os.pipe()
    words = [sys.executable, "-m", "cudal1_ci", *words]
    actions = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)]
    child = os.posix_spawn(words[0], words, {**os.environ, **variables}, file_actions=actions)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as file:
        said = file.read()
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime, said


@LINES
def test_the_front_door_imports_click_and_no_verb(words, variables, answer):
    imported = imported_by(*words, **variables)
    others = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in others if name.split(".")[0] != "click"} == FRONT_DOOR
    assert "click" in others


def test_a_verb_that_is_called_is_imported():
    """So that the test above can see what it looks for."""
    imported = imported_by("scan", "--help")
    assert {"cudal1_ci.cli.scan", "msgspec"} <= imported
    assert "cudal1_ci.cli.bench" not in imported


@LINES
def test_the_front_door_starts_in_a_fifth_of_a_second_of_processor_time(words, variables, answer):
    """The least of several runs: a busy machine adds to some of them."""
    runs = [cpu_s_of(words, variables) for _ in range(7)]
    assert all(answer in said for _, said in runs)
    assert min(cpu_s for cpu_s, _ in runs) < MAX_CPU_S


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_is_listed_under_the_name_and_with_the_help_of_its_command(verb):
    command = main.get_command(None, verb.name)
    assert command.name == verb.name
    assert command.get_short_help_str(limit=200) == verb.short_help


def test_verbs_are_listed_in_the_order_of_the_alphabet():
    assert main.list_commands(None) == sorted(verb.name for verb in VERBS)
