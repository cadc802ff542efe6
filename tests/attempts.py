"""Tests that ask a clock are run again where they fail: a machine may be busy for a moment."""

from __future__ import annotations

import time
from typing import Any

import pytest
from _pytest.runner import call_and_report

ATTEMPTS = 3
PAUSE_S = 10.0
"""Before the second one, and twice as long before the last: a machine is busy for minutes."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of `times` again where it fails, with whatever its fixtures measured."""
    if not item.get_closest_marker("times"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, ATTEMPTS + 1):
        reports = one_attempt(item, nextitem, is_last=attempt == ATTEMPTS)
        if not any(report.failed for report in reports):
            break
        time.sleep(PAUSE_S * attempt if attempt < ATTEMPTS else 0.0)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def one_attempt(
    item: Any, nextitem: pytest.Item | None, *, is_last: bool
) -> list[pytest.TestReport]:
    """Set a test up, call it and tear it down; all fixtures of it where it is to be run again."""
    item._initrequest()
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        reports.append(call_and_report(item, "call", log=False))
    again = not is_last and any(report.failed for report in reports)
    following = None if again else nextitem
    reports.append(call_and_report(item, "teardown", log=False, nextitem=following))
    item._request = False
    item.funcargs = None
    return reports
