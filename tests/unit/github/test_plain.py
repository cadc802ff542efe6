"""Text of a report outside of Markdown."""

from __future__ import annotations

import pytest

from cudal1_ci.github.sanitize import log_line, one_line, ordinary_path, plain


def test_what_is_not_seen_is_removed_and_mentions_are_broken():
    text = plain("hi @org/team\x1b[31m\u202e\u2028\x00there", 100)
    assert text == "hi @\u200borg/team [31m   there"


def test_lengths_are_capped():
    assert plain("a" * 1_000_000, 10) == "a" * 9 + "…"
    assert len(one_line("a\n" * 1_000_000, 20)) <= 20
    assert one_line("a\n b\t c", 20) == "a b c"


def test_a_line_of_the_log_is_one_line_and_no_command():
    line = log_line("fine\n::error::not fine\r\n##[group]x")
    assert "\n" not in line
    assert "\r" not in line
    assert "::" not in line


ODD = ["a b.py", "packages/@acme/x/[slug].py", "a (copy)/c++,d;e&f#g.py"]
"""What people name files and folders."""


@pytest.mark.parametrize("path", ["a.py", "src/pkg/x-y_z.cu", "modèle.py", "a/.github/x.py", *ODD])
def test_ordinary_paths_stay_as_they_are(path):
    assert ordinary_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x.py",
        "a/../../x.py",
        "./a.py",
        ".git/config",
        "a//b.py",
        "a\\b.py",
        " a.py",
        "a /b.py",
        "a\u00a0b.py",
        "a<b.py",
        "a\n.py",
        "C:/x.py",
        "a\u202eyp.py",
        "x" * 5000,
    ],
)
def test_other_paths_are_not_used(path):
    assert ordinary_path(path) is None
