"""A scan's archive as a history: commits are found by the files that were measured."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.records import OverlayFile, TreeProgram, content_hash
from cudal1_ci.records.archive import Archive
from tests.unit.render.samples import a_candidate, a_measurement, failed, passed
from tests.unit.trend.samples import AFTER, BEFORE


def a_program(folder: Path, text: str, path: str = "pkg/pooling.py", after: str = AFTER):
    return TreeProgram(
        root=str(folder),
        import_root=".",
        import_path="pkg.pooling:pool",
        digest="0123456789abcdef",
        overlay=(OverlayFile(path=path, text=after, base_digest=content_hash(text)),),
    )


def an_evaluation(folder: Path, text: str, after: str = AFTER):
    candidate = a_candidate(folder, "pkg/pooling.py", text, after)
    program = a_program(folder, text, after=after)
    candidate = msgspec.structs.replace(candidate, program=program, problem_id=content_hash(text))
    return passed(candidate, a_measurement(3.1, seed=1))


def show(archive: Path, *words: object):
    return CliRunner().invoke(main, ["report", "--history", str(archive), *map(str, words)])


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "state" / "archive.sqlite"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes it a day of January, for git and for the archive."""

    def on(day: int) -> None:
        now = datetime(2026, 1, day, 12, tzinfo=UTC)
        for name in ("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE"):
            monkeypatch.setenv(name, now.isoformat())
        clock = SimpleNamespace(time=now.timestamp, monotonic=time.monotonic, sleep=time.sleep)
        monkeypatch.setattr("cudal1_ci.records.archive.time", clock)

    return on


def test_what_was_judged_is_of_the_commit_whose_files_it_had(checkout, archive, on):
    folder, commit = checkout
    on(1)
    first = commit({"pkg/pooling.py": BEFORE})
    on(2)
    with Archive.open(archive) as opened:
        opened.record(an_evaluation(folder, BEFORE), "policy")
        opened.record(an_evaluation(folder, BEFORE + "# never committed\n"), "policy")
        worse = an_evaluation(folder, BEFORE, after="broken").candidate
        opened.record(failed(worse, "incorrect_values", "other"), "policy")
    on(3)
    second = commit({"pkg/pooling.py": AFTER})
    done = show(archive, "--checkout", folder, "--html", "-")
    assert done.exit_code == 0, done.output
    assert "left out: 1 evaluations of files that no commit has" in done.output
    assert first[:10] in done.output
    assert "pkg/pooling.py" in done.output
    assert re.search(r"1\.8\d ms now", done.output)
    assert second[:10] not in done.output


def test_a_proposal_of_an_archive_is_accepted_by_a_later_scanned_commit(checkout, archive, on):
    folder, commit = checkout
    on(1)
    commit({"pkg/pooling.py": BEFORE})
    with Archive.open(archive) as opened:
        on(2)
        opened.record(an_evaluation(folder, BEFORE), "policy")
        on(3)
        second = commit({"pkg/pooling.py": AFTER})
        faster = AFTER.replace("unsqueeze(1)", "view(-1, 1)")
        on(4)
        opened.record(an_evaluation(folder, AFTER, faster), "policy")
    text = show(archive, "--checkout", folder).output
    assert f"Accepted (1)\n  pkg/pooling.py:pool  playbook:sdpa at {second[:10]}" in text
    assert "Proven, not applied (1)" in text


def test_paths_are_below_the_folder_that_was_scanned(checkout, archive):
    folder, commit = checkout
    commit({"sub/pkg/pooling.py": BEFORE})
    with Archive.open(archive) as opened:
        opened.record(an_evaluation(folder / "sub", BEFORE), "policy")
    assert show(archive, "--checkout", folder).exit_code == 2
    assert "1 target;" in show(archive, "--checkout", folder / "sub").output


def test_an_archive_needs_a_checkout(archive):
    with Archive.open(archive):
        pass
    done = show(archive)
    assert done.exit_code == 2
    assert "an archive knows no commits" in done.output
