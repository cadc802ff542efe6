"""`cudal1-ci report --history` and `--history-append`: where histories come from and go to.

Here git is asked: which commits a checkout has, in which order, and what their files say. The room
`history` knows none of it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path

import click

from cudal1_ci.errors import ConfigError, DiscoveryError, ReportError
from cudal1_ci.git import committed_text, repository_name, repository_top, run_git
from cudal1_ci.records import Report
from cudal1_ci.records.archive import Archive
from cudal1_ci.render.reading import read_report
from cudal1_ci.trend.archived import archived_reports
from cudal1_ci.trend.commits import Commit, commits_of
from cudal1_ci.trend.lines import append_lines, encoded, missing_from, read_lines
from cudal1_ci.trend.page import render_page
from cudal1_ci.trend.proposals import events_of, settled
from cudal1_ci.trend.record import AnyEntry, Fate, History, Proposal, Run
from cudal1_ci.trend.report_lines import lines_of
from cudal1_ci.trend.text import render_summary
from cudal1_ci.trend.view import View, view

FORMATS = ("text", "html")
MAX_REPORTS = 20_000
SQLITE = b"SQLite format 3\0"
ADDRESS = re.compile(r"https?://[\w.-]+(?::\d+)?(?:/[\w.~-]+)+/?")


class Checkout:
    """The line of commits that leads to the HEAD of a checkout, and their files, by their paths
    below the folder that was scanned. Of merges the first parent: the branch was merged into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = repository_top(folder)
        self._below = folder.resolve().relative_to(self.top.resolve())
        self._touched = cache(self._find_touched)
        self._text_at = cache(self._find_text)

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """The oldest first."""
        listed = run_git(
            self.top, "log", "--first-parent", "--reverse", "--format=%H %cI", "HEAD"
        ).splitlines()
        pairs = (line.split(" ", 1) for line in listed)
        return tuple(Commit(sha=sha, date=datetime.fromisoformat(date)) for sha, date in pairs)

    @cached_property
    def places(self) -> dict[str, int]:
        return {commit.sha: place for place, commit in enumerate(self.commits)}

    def date(self, sha: str | None) -> datetime | None:
        place = self.places.get(sha or "")
        return None if place is None else self.commits[place].date

    def text(self, sha: str, path: str) -> str | None:
        """A file at a commit, read once for all commits that left it alone."""
        touched = self._touched(path)
        number = bisect_right(touched, self.places[sha])
        return self._text_at(touched[number - 1], path) if number else None

    def newest_at(self, moment_s: float) -> str | None:
        """The commit that was the newest at a moment, in seconds since the epoch."""
        before = [c for c in self.commits if c.date and c.date.timestamp() <= moment_s]
        return before[-1].sha if before else None

    def _full(self, path: str) -> str:
        return (self._below / path).as_posix()

    def _find_touched(self, path: str) -> list[int]:
        listed = run_git(
            self.top, "log", "--first-parent", "--format=%H", "HEAD", "--", self._full(path)
        )
        return sorted(self.places[sha] for sha in listed.split())

    def _find_text(self, place: int, path: str) -> str | None:
        try:
            return committed_text(self.top, self.commits[place].sha, self._full(path))
        except DiscoveryError:
            return None  # that commit removed it


def append(documents: Sequence[Report], file: Path, folder: Path | None) -> None:
    """Write what reports say at the end of a history, and what the code of their commits says of
    earlier proposals."""
    checkout = Checkout(folder) if folder else None
    history = read_lines(file) if file.exists() else History()
    lines = [line for one in documents for line in lines_of(one, _date(one, checkout))]
    new = missing_from(history, lines)
    history = History(entries=(*history.entries, *new))
    if checkout is not None:
        events = events_of(history)
        for sha in in_order([one.head_sha or "" for one in documents], checkout):
            events += fates_at(sha, events, checkout)
        new += events[len(events_of(history)) :]
    append_lines(file, new)
    click.echo(f"{file}: {len(new)} lines added", err=True)


def show(source: Path, folder: Path | None, url: str | None, flags: dict[str, str | None]) -> None:
    """Render the history that a source holds."""
    address = address_of(url)
    stdout_format = flags["stdout_format"]
    if stdout_format not in FORMATS or any(flags[f"{n}_path"] for n in ("json", "md", "sarif")):
        raise ConfigError(f"--history is written as {', '.join(FORMATS)}: add --html FILE")
    shown, notices = history_of(source, Checkout(folder) if folder else None)
    for notice in notices:
        click.echo(notice, err=True)
    path = flags["html_path"]
    if path not in (None, "-"):
        page = Path(str(path))
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render_page(shown, address), encoding="utf-8")
    if stdout_format == "html" or path == "-":
        click.echo(render_page(shown, address), nl=False)
    else:
        click.echo(render_summary(shown), nl=False)


def history_of(source: Path, checkout: Checkout | None) -> tuple[View, list[str]]:
    """What a source holds, and what could not be read of it.

    Raises:
        ReportError: There is nothing, or nothing that can be read.
    """
    notices: list[str] = []
    if source.is_dir():
        history = of_reports(source, checkout, notices)
    elif is_archive(source):
        history = of_archive(source, checkout, notices)
    else:
        history = read_lines(source)
    if not history.of(Run):
        raise ReportError(f"{source}: expected a history, got no report of any commit in it")
    commits = commits_of(history, checkout.commits if checkout else ())
    if not commits.all:
        raise ReportError(
            f"{source}: none of its {len(commits.left_out)} commits is on the line that leads to "
            "the HEAD of --checkout; fetch it (in Actions: fetch-depth: 0), or leave --checkout out"
        )
    return view(history, commits), notices


def of_reports(folder: Path, checkout: Checkout | None, notices: list[str]) -> History:
    """The history that a folder of reports makes: by commit where a checkout knows the order, by
    the time of the report otherwise, and then by name."""
    files = sorted(path for path in folder.rglob("*.json") if path.is_file())
    if len(files) > MAX_REPORTS:
        raise ReportError(f"{folder}: expected at most {MAX_REPORTS} reports, got {len(files)}")
    batches: list[tuple[tuple[float, float], list[AnyEntry]]] = []
    for file in files:
        try:
            document = read_report(file)
            lines = lines_of(document, _date(document, checkout))
        except ReportError as error:
            notices.append(f"left out: {error}")
            continue
        place = checkout.places.get(document.head_sha or "", -1) if checkout else -1
        moment = document.generated_at.timestamp() if document.generated_at else 0.0
        batches.append(((place, moment), lines))
    batches.sort(key=lambda batch: batch[0])
    return joined([lines for _, lines in batches], checkout)


def is_archive(source: Path) -> bool:
    """Whether a file is a database and no lines."""
    with source.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def of_archive(source: Path, checkout: Checkout | None, notices: list[str]) -> History:
    """The history that scans of a checkout have left.

    Raises:
        ConfigError: No checkout says which commits they were of.
    """
    if checkout is None:
        raise ConfigError(
            f"{source}: an archive knows no commits: name the clone that was scanned, --checkout ."
        )
    with Archive.open(source) as archive:
        documents, num_placeless = archived_reports(
            archive.recorded(),
            repository_name(checkout.folder),
            checkout.newest_at,
            checkout.text,
        )
    if num_placeless:
        notices.append(f"left out: {num_placeless} evaluations of files that no commit has")
    return joined([lines_of(one, _date(one, checkout)) for one in documents], checkout)


def joined(batches: Sequence[Sequence[AnyEntry]], checkout: Checkout | None) -> History:
    """The lines of reports, each followed by what the code of its commit says of proposals."""
    entries: dict[bytes, AnyEntry] = {}
    events: list[Proposal | Fate] = []
    for lines in batches:
        new = [line for line in lines if encoded(line) not in entries]
        events += events_of(History(entries=tuple(new)))
        if checkout is not None:
            shas = [line.commit for line in new if isinstance(line, Run)]
            for sha in in_order(shas, checkout):
                fates = fates_at(sha, events, checkout)
                events += fates
                new += fates
        entries |= {encoded(line): line for line in new}
    return History(entries=tuple(entries.values()))


def in_order(shas: Sequence[str], checkout: Checkout) -> list[str]:
    """Those that the checkout knows, the oldest first, each once."""
    known = {sha for sha in shas if sha in checkout.places}
    return sorted(known, key=checkout.places.__getitem__)


def fates_at(sha: str, events: Sequence[Proposal | Fate], checkout: Checkout) -> list[Fate]:
    """What the code of a commit says of the proposals before it."""
    places = checkout.places
    here = places[sha]
    return settled(
        events,
        sha,
        lambda path: checkout.text(sha, path),
        lambda other: places.get(other, here) < here,
    )


def address_of(url: str | None) -> str | None:
    """Where commits can be looked at: the flag, else what Actions says of the repository.

    Raises:
        ConfigError: It is no address of a repository.
    """
    if url is None:
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        url = f"{server}/{name}" if server and name else None
    if url is not None and not ADDRESS.fullmatch(url):
        raise ConfigError(f"--repository-url {url}: expected https://HOST/OWNER/NAME")
    return None if url is None else url.rstrip("/")


def _date(document: Report, checkout: Checkout | None) -> datetime | None:
    return checkout.date(document.head_sha) if checkout else None
