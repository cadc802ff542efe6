"""`report --history` and `--history-append`, with checkouts of git."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.records import Repetition, Report
from cudal1_ci.records.published import to_json
from tests.unit.trend.samples import (
    H200,
    a_comparison,
    a_line,
    a_report,
    a_target,
    an_entry,
    an_evaluation,
)


@pytest.fixture(autouse=True)
def no_actions(monkeypatch):
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)


def run(*words: object):
    return CliRunner().invoke(main, ["report", *map(str, words)])


def written(folder: Path, *documents: Report) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:03d}.json" for number in range(len(documents))]
    for file, one in zip(files, documents, strict=True):
        file.write_bytes(to_json(one))
    return files


def compared(sha: str, base: str) -> Report:
    entry = an_entry(a_target("f"), comparison=a_comparison(10, 10.1, H200))
    return a_report(0, entry, head_sha=sha, base_sha=base, generated_at=None)


def history_in(folder: Path, *documents: Report) -> Path:
    history = folder / "history.jsonl"
    done = run(*written(folder / "reports", *documents), "--history-append", history)
    assert done.exit_code == 0, done.output
    return history


def test_reports_are_appended_and_shown_and_appending_again_adds_nothing(tmp_path):
    history = history_in(tmp_path, *a_line())
    before = history.read_bytes()
    again = run(*(tmp_path / "reports").iterdir(), "--history-append", history)
    assert "0 lines added" in again.output
    assert history.read_bytes() == before
    page = tmp_path / "site" / "index.html"
    done = run("--history", history, "--html", page)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("30 commits; 6 targets")
    assert "acme/slowformer" in page.read_text()


def test_the_last_commit_is_what_github_action_benchmark_reads(tmp_path):
    history = history_in(tmp_path, *a_line())
    path = tmp_path / "site" / "benchmarks.json"
    assert run("--history", history, "--json", path).output.startswith("30 commits")
    found = json.loads(path.read_text())
    assert len(found) == 12
    assert all({"name", "unit", "value"} <= set(one) for one in found)
    rotary = next(one for one in found if one["name"].startswith("pkg/rotary.py:Rotary, base, "))
    assert rotary["unit"] == "us"
    assert rotary["value"] > 0
    assert "of the base's time, paired: same" in rotary["extra"]
    assert json.loads(run("--history", history, "--format", "json").output) == found


def test_a_scanned_time_has_its_range(tmp_path):
    launches = tuple(
        Repetition(reference_us=(t,), candidate_us=(1.0,), num_calls=1)
        for t in (298.0, 300.0, 302.0)
    )
    evaluation = an_evaluation(300.0, 2.5, H200)
    (measured,) = evaluation.measurements
    measured = msgspec.structs.replace(measured, repetitions=launches)
    evaluation = msgspec.structs.replace(evaluation, measurements=(measured,))
    entry = an_entry(a_target("pool"), evaluations=(evaluation,), best=0)
    history = history_in(tmp_path, a_report(0, entry))
    (found,) = json.loads(run("--history", history, "--json", "-").output)
    assert found["value"] == 300.0
    assert found["range"].startswith("± ")
    assert "extra" not in found


def story(checkout) -> tuple[Path, list[str]]:
    """Four commits."""
    folder, commit = checkout
    return folder, [commit({"other.py": f"{number}\n"}) for number in range(4)]


def test_a_checkout_orders_commits_and_gives_their_dates(tmp_path, checkout):
    folder, shas = story(checkout)
    files = written(tmp_path / "r", compared(shas[3], shas[1]), compared(shas[1], shas[0]))
    stranger = written(tmp_path / "s", compared("f" * 40, shas[0]))
    history = tmp_path / "history.jsonl"
    done = run(*files, *stranger, "--history-append", history, "--checkout", folder)
    assert done.exit_code == 0, done.output
    when = subprocess.run(
        ["git", "show", "-s", "--format=%cs", shas[3]], cwd=folder, capture_output=True, text=True
    ).stdout.strip()
    page = run("--history", history, "--checkout", folder, "--html", "-").output
    assert page.index(shas[1][:10]) < page.index(shas[3][:10])
    assert when in page
    assert "1 commit not in the history" in page
    assert "ffffffffff" not in page


def test_commits_that_the_checkout_does_not_have_are_no_history(tmp_path, checkout):
    folder, _ = story(checkout)
    history = history_in(tmp_path, compared("f" * 40, "e" * 40))
    done = run("--history", history, "--checkout", folder)
    assert done.exit_code == 2
    assert "fetch-depth: 0" in done.output


def test_a_file_without_a_report_is_no_history(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    empty = run("--history", tmp_path / "empty.jsonl")
    assert empty.exit_code == 2
    assert "no report of any commit" in empty.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a report, got none"),
        (["{file}", "--history", "{file}"], "append to it first"),
        (["{file}", "--checkout", "."], "add --history"),
        (["{file}", "--history-append", "h.jsonl", "--html", "x"], "leave out --html"),
        (["--history", "{file}", "--sarif", "x.json"], "--history is written as text, html"),
        (["--history", "{file}", "--format", "md"], "--history is written as text, html"),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path, words, message):
    (file,) = written(tmp_path, a_report(0))
    done = run(*(word.format(file=file) for word in words))
    assert done.exit_code == 2
    assert message in done.output


def test_in_a_workflow_links_lead_to_its_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/slowformer")
    history = history_in(tmp_path, *a_line(num_commits=2))
    page = run("--history", history, "--format", "html").output
    assert 'href="https://github.com/acme/slowformer/commit/0001c0ffee' in page


def test_what_is_no_address_of_a_repository_is_no_link(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "javascript:alert(1)//")
    monkeypatch.setenv("GITHUB_REPOSITORY", 'x"><b>')
    history = history_in(tmp_path, *a_line(num_commits=2))
    assert '<a href="#' in run("--history", history, "--format", "html").output
    assert not re.search(r'<a href="[^#]', run("--history", history, "--format", "html").output)
