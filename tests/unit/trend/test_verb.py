"""`report --history` and `--history-append`, with checkouts of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.render.shape import ReportDocument
from tests.unit.trend.samples import (
    AFTER,
    BEFORE,
    H200,
    PATCH,
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


def written(folder: Path, *documents: ReportDocument) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:03d}.json" for number in range(len(documents))]
    for file, one in zip(files, documents, strict=True):
        file.write_bytes(msgspec.json.encode(one))
    return files


def proven(sha: str) -> ReportDocument:
    evaluation = an_evaluation(300.0, 2.5, H200, patch=PATCH)
    entry = an_entry(a_target("pool", "pkg/pooling.py"), evaluations=(evaluation,), best=0)
    return a_report(0, entry, head_sha=sha, generated_at=None)


def compared(sha: str, base: str) -> ReportDocument:
    entry = an_entry(a_target("f"), comparison=a_comparison(10, 10.1, H200))
    return a_report(0, entry, head_sha=sha, base_sha=base, generated_at=None)


def test_a_folder_of_reports_is_a_page(tmp_path):
    written(tmp_path / "reports", *a_line())
    page = tmp_path / "site" / "index.html"
    done = run("--history", tmp_path / "reports", "--html", page)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("30 commits; 6 targets")
    assert "acme/slowformer" in page.read_text()


def test_what_is_appended_is_the_page_of_its_reports_and_appending_again_adds_nothing(tmp_path):
    files = written(tmp_path / "reports", *a_line())
    history = tmp_path / "history.jsonl"
    for file in files:
        done = run(file, "--history-append", history)
        assert done.exit_code == 0, done.output
    before = history.read_bytes()
    again = run(*files, "--history-append", history)
    assert "0 lines added" in again.output
    assert history.read_bytes() == before
    of_lines, of_reports = (run("--history", s).output for s in (history, tmp_path / "reports"))
    assert of_lines == of_reports


def story(checkout) -> tuple[Path, list[str]]:
    """Proven at the first commit, applied by the third, which is not measured but the fourth is."""
    folder, commit = checkout
    shas = [
        commit({"pkg/pooling.py": BEFORE}),
        commit({"other.py": "1\n"}),
        commit({"pkg/pooling.py": '"""Pooling."""\n' + AFTER}),
        commit({"other.py": "2\n"}),
    ]
    return folder, shas


@pytest.mark.parametrize("is_appended", [True, False])
def test_a_checkout_says_that_a_proposal_was_accepted(tmp_path, checkout, is_appended):
    folder, shas = story(checkout)
    documents = [proven(shas[0]), compared(shas[1], shas[0]), compared(shas[3], shas[1])]
    files = written(tmp_path / "reports", *reversed(documents))
    source = tmp_path / "reports"
    if is_appended:
        source = tmp_path / "history.jsonl"
        for file in reversed(files):
            assert run(file, "--history-append", source, "--checkout", folder).exit_code == 0
        assert '"fate":"accepted"' in source.read_text()
    done = run("--history", source, "--checkout", folder)
    assert done.exit_code == 0, done.output
    assert (
        f"Accepted (1)\n  pkg/pooling.py:pool  playbook:diagonal at {shas[3][:10]}" in done.output
    )
    assert "Proven, not applied" not in done.output


def test_a_file_that_is_gone_makes_its_proposal_outdated(tmp_path, checkout):
    folder, commit = checkout
    first = commit({"pkg/pooling.py": BEFORE})
    (folder / "pkg" / "pooling.py").unlink()
    second = commit({"other.py": "1\n"})
    history = tmp_path / "history.jsonl"
    files = written(tmp_path / "reports", proven(first), compared(second, first))
    assert run(*files, "--history-append", history, "--checkout", folder).exit_code == 0
    assert '"fate":"outdated"' in history.read_text()


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
    assert "1 commit beside the line" in page
    assert "ffffffffff" not in page


def test_commits_that_the_checkout_does_not_have_are_no_history(tmp_path, checkout):
    folder, _ = story(checkout)
    written(tmp_path / "r", compared("f" * 40, "e" * 40))
    done = run("--history", tmp_path / "r", "--checkout", folder)
    assert done.exit_code == 2
    assert "fetch-depth: 0" in done.output


def test_what_is_no_report_is_named_and_left_out(tmp_path):
    written(tmp_path / "r", *a_line(num_commits=2))
    (tmp_path / "r" / "sub").mkdir()
    (tmp_path / "r" / "sub" / "package.json").write_text("{}")
    done = run("--history", tmp_path / "r")
    assert done.exit_code == 0
    assert "left out: " in done.output
    assert "package.json" in done.output
    (tmp_path / "empty").mkdir()
    empty = run("--history", tmp_path / "empty")
    assert empty.exit_code == 2
    assert "no report of any commit" in empty.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a report, got none"),
        (["{file}", "--history", "{file}"], "append to it first"),
        (["{file}", "--checkout", "."], "add --history"),
        (["{file}", "--history-append", "h.jsonl", "--html", "x"], "leave out --html"),
        (["--history", "{file}", "--json", "x.json"], "--history is written as text, html"),
        (["--history", "{file}", "--format", "md"], "--history is written as text, html"),
        (["--history", "{file}", "--repository-url", "javascript:alert(1)"], "https://HOST/OWNER"),
        (["--history", "{file}", "--repository-url", 'https://x/"><b>/c'], "https://HOST/OWNER"),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path, words, message):
    (file,) = written(tmp_path, proven("c0ffee" * 6))
    done = run(*(word.format(file=file) for word in words))
    assert done.exit_code == 2
    assert message in done.output


def test_in_a_workflow_links_lead_to_its_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/slowformer")
    written(tmp_path / "r", *a_line(num_commits=2))
    page = run("--history", tmp_path / "r", "--format", "html").output
    assert 'href="https://github.com/acme/slowformer/commit/0001c0ffee' in page
