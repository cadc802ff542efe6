"""Read and write histories: `cudal1-ci report --history` and `--history-append`.

Here git is asked which commits a checkout has, in which order. The room `trend` knows none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from cudal1_ci.cli.web_address import web_address
from cudal1_ci.errors import ConfigError, ReportError
from cudal1_ci.git import repository_top, run_git
from cudal1_ci.records import Report
from cudal1_ci.trend.export import render_benchmarks
from cudal1_ci.trend.lines import append_lines, missing_from, read_lines
from cudal1_ci.trend.page import render_page, render_summary
from cudal1_ci.trend.record import History, Run
from cudal1_ci.trend.report_lines import lines_of
from cudal1_ci.trend.series import Commit, commits_of
from cudal1_ci.trend.view import View, view

FORMATS = ("text", "html", "json")


def append(documents: Sequence[Report], file: Path, folder: Path | None) -> None:
    """Write what reports say at the end of a history."""
    dates = {commit.sha: commit.date for commit in commits_in(folder)}
    history = read_lines(file) if file.exists() else History()
    lines = [line for one in documents for line in lines_of(one, dates.get(one.head_sha or ""))]
    new = missing_from(history, lines)
    append_lines(file, new)
    click.echo(f"{file}: {len(new)} lines added", err=True)


def show(source: Path, folder: Path | None, flags: dict[str, str | None]) -> None:
    """Render a history: its page, a summary, and the last commit's times as benchmarks."""
    stdout_format = flags["stdout_format"]
    if stdout_format not in FORMATS or any(flags[f"{name}_path"] for name in ("md", "sarif")):
        raise ConfigError(f"--history is written as {', '.join(FORMATS)}: add --html FILE")
    shown = view_of(source, folder)
    texts = {
        "html": render_page(shown, web_address(shown.repository)),
        "json": render_benchmarks(shown),
    }
    for name, text in texts.items():
        path = flags[f"{name}_path"]
        if path == "-":
            stdout_format = name
        elif path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
    click.echo({"text": render_summary(shown), **texts}[stdout_format], nl=False)


def view_of(source: Path, folder: Path | None) -> View:
    """Return what a history says.

    Raises:
        ReportError: There is nothing in it, or nothing of the checkout's line of commits.
    """
    history = read_lines(source)
    if not history.of(Run):
        raise ReportError(f"{source}: expected a history, got no report of any commit in it")
    commits = commits_of(history, commits_in(folder))
    if not commits.all:
        raise ReportError(
            f"{source}: none of its {len(commits.left_out)} commits is on the line that leads to "
            "the HEAD of --checkout; fetch it (in Actions: fetch-depth: 0), or leave --checkout out"
        )
    return view(history, commits)


def commits_in(folder: Path | None) -> tuple[Commit, ...]:
    """Return the commits that lead to a checkout's HEAD, the oldest first. Of merges the first
    parent: the branch was merged into it."""
    if folder is None:
        return ()
    listed = run_git(
        repository_top(folder), "log", "--first-parent", "--reverse", "--format=%H %cI", "HEAD"
    )
    pairs = (line.split(" ", 1) for line in listed.splitlines())
    return tuple(Commit(sha=sha, date=datetime.fromisoformat(date)) for sha, date in pairs)
