"""Which line of a comment is a command, and what it says."""

from __future__ import annotations

import pytest

from cudal1_ci.github.command import Command, command_in

SHA = "a1" * 20
ID = "0123456789abcdef"


def said(body: str) -> dict[str, str] | None:
    found = command_in(body)
    if found is None:
        return None
    fields = {name: getattr(found, name) for name in Command.__struct_fields__ if name != "text"}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/cudal1 run", {"verb": "run"}),
        ("/cudal1  run \t", {"verb": "run"}),
        (f"/cudal1 run {SHA}", {"verb": "run", "sha": SHA}),
        (f"/cudal1 run {SHA}{'0' * 24}", {"verb": "run", "sha": SHA + "0" * 24}),
        ("/cudal1 optimize", {"verb": "optimize"}),
        ("/cudal1 optimize src/**/a*.py", {"verb": "optimize", "glob": "src/**/a*.py"}),
        (f"/cudal1 optimize src {SHA}", {"verb": "optimize", "glob": "src", "sha": SHA}),
        (f"/cudal1 optimize {SHA}", {"verb": "optimize", "sha": SHA}),
        (f"/cudal1 apply {ID}", {"verb": "apply", "id": ID}),
        (f"/cudal1 apply {ID} {SHA}", {"verb": "apply", "id": ID, "sha": SHA}),
        (
            "/cudal1 ack a.py:F the mask was wrong",
            {"verb": "ack", "target": "a.py:F", "reason": "the mask was wrong"},
        ),
        (
            f"/cudal1 ack `a.py:F` {SHA} it is @me, --> `x`",
            {"verb": "ack", "target": "a.py:F", "sha": SHA, "reason": "it is @\u200bme, --> `x`"},
        ),
        ("/cudal1 skip", {"verb": "skip"}),
        ("/cudal1 help", {"verb": "help"}),
    ],
)
def test_a_command_is_understood(line, expected):
    assert said(line) == expected
    assert said(f"Thanks!\r\n\r\n{line}\r\nAnd more.") == expected


@pytest.mark.parametrize(
    "line",
    [
        "/cudal1",
        "/cudal1 RUN",
        "/cudal1 rm -rf /",
        "/cudal1 run now",
        f"/cudal1 run {SHA[:12]}",
        f"/cudal1 run {SHA.upper()}",
        f"/cudal1 run {SHA} {SHA}",
        "/cudal1 optimize a.py b.py",
        "/cudal1 optimize --no-check",
        "/cudal1 optimize $(id)",
        "/cudal1 optimize a.py;id",
        "/cudal1 apply",
        "/cudal1 apply 01234",
        f"/cudal1 apply {ID}0",
        "/cudal1 ack",
        "/cudal1 ack a.py:F",
        f"/cudal1 ack a.py:F {SHA}",
        "/cudal1 ack a.py:F \u200b",
        "/cudal1 skip it",
    ],
)
def test_what_is_almost_a_command_is_one_that_nobody_knows(line):
    assert said(line) == {}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Try /cudal1 run",
        " /cudal1 run",
        "\t/cudal1 run",
        "    /cudal1 run",
        "> /cudal1 run",
        "- /cudal1 run",
        "`/cudal1 run`",
        "/cudal1run",
        "/cudal1-ci run",
        "/CUDAL1 run",
        "/cudal1\u00a0run",
        "x\u2028/cudal1 run",
        "x\r/cudal1 run",
        "x\x0b/cudal1 run",
        "```\n/cudal1 run\n```",
        "```sh\n/cudal1 run",
        "````\n```\n/cudal1 run\n````",
        "~~~\n```\n/cudal1 run\n~~~",
        "```\n``` x\n/cudal1 run\n```",
        "<!--\n/cudal1 run\n-->",
        "text <!-- a --> <!-- b\n/cudal1 run",
        "x" * 70_000 + "\n/cudal1 run",
    ],
)
def test_what_only_contains_a_command_is_none(body):
    assert said(body) is None


def test_the_first_command_counts_and_the_others_do_not():
    assert said("/cudal1 skip\n/cudal1 run") == {"verb": "skip"}
    assert said("/cudal1 nonsense\n/cudal1 run") == {}
    assert said("```\n/cudal1 skip\n```\n/cudal1 run") == {"verb": "run"}
    assert said("<!-- x -->\n/cudal1 run") == {"verb": "run"}


def test_a_line_that_is_shown_again_calls_nobody_and_is_short():
    found = command_in("/cudal1 @everyone " + "x" * 9000)
    assert "@everyone" not in found.text
    assert len(found.text) <= 120
