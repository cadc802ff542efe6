"""The rolling issue and the text of a draft pull request, as people read them."""

from __future__ import annotations

import pytest

from cudal1_ci.errors import ReportError
from cudal1_ci.render.gains import gains_of
from cudal1_ci.render.issue import About, issue, pull_request
from tests.reports import PATCH, a_report, a_target, proposed
from tests.unit.render.test_rendering import check_golden

RUN = About(run_url="https://github.com/o/r/actions/runs/1", sha="5f3c2a9d41" + 30 * "0")


def test_the_issue_reads_as_agreed(golden_report):
    gains = gains_of(golden_report)
    about = About(
        run_url=RUN.run_url,
        sha=RUN.sha,
        num_dismissed=2,
        drafts={gains[0].id: "https://github.com/o/r/pulls?q=is%3Apr+head%3Ax"},
    )
    check_golden("issue.md", issue(golden_report, gains, about))


def test_the_pull_request_reads_as_agreed(golden_report):
    check_golden("pull-request.md", pull_request(golden_report, gains_of(golden_report)[0], RUN))


def test_an_issue_without_proposals_says_so():
    text = issue(a_report(), [], RUN)
    assert text.startswith("There are no proposals at present.")
    assert "dismiss" not in text


def test_what_is_too_long_loses_diffs_then_details_then_items():
    entries = [
        proposed(PATCH, a_target(f"f{i}"), analysis="Because it is so. " * 60) for i in range(30)
    ]
    report = a_report(*entries)
    gains = gains_of(report)
    left = []
    for max_bytes in (200_000, 60_000, 10_000, 4_500, 2_500):
        text = issue(report, gains, RUN, max_items=30, max_bytes=max_bytes)
        assert len(text.encode()) <= max_bytes
        left.append((text.count("```diff"), text.count("<details>"), text.count("\n- [ ] ")))
    assert left == [(30, 30, 30), (0, 15, 30), (0, 3, 30), (0, 0, 30), (0, 0, 15)]
    with pytest.raises(ReportError, match="first line"):
        issue(report, gains, RUN, max_bytes=100)
