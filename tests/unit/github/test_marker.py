"""Markers: found again, never by accident, never broken out of."""

from __future__ import annotations

import pytest

from cudal1_ci.github.marker import Marker, key_of, marked, marker_of, unmarked

SHA = "a" * 40


def a_marker(workflow: str = "Speed") -> Marker:
    return Marker(key=key_of(workflow), run=12, attempt=3, sha=SHA, verdict="regression")


@pytest.mark.parametrize(
    "workflow", ["Speed", "a --> b", "x\ny", "@everyone", "ü" * 300, "-" * 300]
)
def test_what_was_marked_is_found_whatever_the_workflow_is_called(workflow):
    marker = a_marker(workflow)
    body = marked(marker, "text\n<!-- more -->")
    assert marker_of(body) == marker
    assert unmarked(body) == "text\n<!-- more -->"
    line = body.partition("\n")[0]
    assert line.count("-->") == 1
    assert "@" not in line


def test_github_may_have_changed_the_line_ends():
    body = marked(a_marker(), "text").replace("\n", "\r\n")
    assert marker_of(body) == a_marker()
    assert unmarked(body) == "text"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "text",
        " " + marked(a_marker(), ""),
        "> " + marked(a_marker(), ""),
        marked(a_marker(), "").replace("run=12", "run=-1"),
        marked(a_marker(), "").replace("run=12", "run=" + "9" * 40),
        marked(a_marker(), "").replace(SHA, "../"),
        marked(a_marker(), "").replace(":v1", ":v2"),
    ],
)
def test_anything_else_is_no_marker(body):
    assert marker_of(body) is None


def test_a_later_run_or_attempt_is_greater():
    first = Marker(key="k", run=9, attempt=9, sha=SHA, verdict="same")
    second = Marker(key="k", run=10, attempt=1, sha=SHA, verdict="same")
    assert first.order < second.order < (10, 2)
