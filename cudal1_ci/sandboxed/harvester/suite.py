"""Run a file of tests with pytest, and report what becomes of each test."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ..wire.harvest import CellRan, OpenHarvest, Outcome, RunScript
from . import needs
from .limits import MAX_REASON_CHARS, failure, limited

PYTEST_FILES = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def run_tests(opened: OpenHarvest, request: RunScript, report: Any, began_s: float) -> None:
    """Run a file of tests, without the options that its configuration adds."""
    try:
        import pytest
    except ImportError:
        report.cell(CellRan(outcome="needs", reason="needs the package `pytest`"))
        return
    plugin = Plugin(report)
    limit_s = request.script_s - (time.monotonic() - began_s)
    # Without a file of its own, pytest would read one of a folder above.
    found = next((one for one in PYTEST_FILES if Path(opened.root, one).is_file()), None)
    settings = str(Path(opened.root, found)) if found else os.devnull
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--rootdir={opened.root}"]
    arguments += ["-c", settings, f"--confcutdir={opened.root}"]
    try:
        with limited(limit_s):
            code = pytest.main([*arguments, str(Path(opened.root, request.path))], plugins=[plugin])
        if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            report.cell(
                CellRan(outcome="failed", reason=f"pytest ended with exit code {int(code)}")
            )
    except BaseException as error:  # noqa: BLE001 - whatever a script raises is its reason
        outcome, reason = failure(error)
        report.cell(CellRan(outcome=outcome, reason=reason))
    if plugin.is_interrupted:
        report.cell(CellRan(outcome="out_of_time", reason="its time was over"))


class Plugin:
    """Report what becomes of each test."""

    def __init__(self, report: Any):
        self.report = report
        self.is_interrupted = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        text = "" if report.passed else " ".join(str(report.longrepr).split())[-MAX_REASON_CHARS:]
        outcome: Outcome = "ran" if report.passed else "needs" if report.skipped else "failed"
        self.report.cell(
            CellRan(
                name=str(report.nodeid)[:300],
                outcome=outcome,
                reason=text,
                duration_s=float(report.duration),
            )
        )

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = " ".join(str(report.longrepr).split())[-MAX_REASON_CHARS:]
            lacks = needs.missing(text)
            self.report.cell(CellRan(outcome="needs" if lacks else "failed", reason=lacks or text))

    def pytest_keyboard_interrupt(self) -> None:
        self.is_interrupted = True
