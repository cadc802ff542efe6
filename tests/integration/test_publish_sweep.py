"""`cudal1-ci publish --sweep` against a GitHub on this machine: one issue, a few drafts, and what
people have said no to."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cudal1_ci.cli import main
from cudal1_ci.github import client
from cudal1_ci.github.action.commands import commands
from cudal1_ci.github.sweep_issue import stamp_of
from cudal1_ci.records import Report
from cudal1_ci.records.published import to_json
from cudal1_ci.render.gains import gains_of
from tests.github_fake import ACTIONS, READ_ONLY, TOKEN, GitHub, serving
from tests.reports import HEAD, MODEL, PATCH, a_report, a_target, proposed, written

TEXT = "\n".join(MODEL) + "\n"
ELSEWHERE = PATCH.replace("pkg/model.py", "pkg/other.py")
POOL, OTHER = proposed(), proposed(ELSEWHERE, target=a_target("other", "pkg/other.py"))
ONE, TWO = a_report(POOL), a_report(POOL, OTHER)
NOTHING = a_report()
IDS = {gain.entry.target.qualname: gain.id for gain in gains_of(TWO)}
NEXT = "2" * 40


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)


def with_files(github: GitHub) -> GitHub:
    files = {"pkg/model.py": ("100644", TEXT), "pkg/other.py": ("100644", TEXT)}
    github.git.put("main", files, HEAD)
    return github


@pytest.fixture
def github(served) -> Iterator[GitHub]:
    with served(GitHub()) as fake:
        yield with_files(fake)


@dataclass
class Night:
    """Runs of the scheduled workflow."""

    github: GitHub
    folder: Path
    token: str | None = TOKEN

    def publish(
        self,
        report: Report | Path,
        *words: str,
        run: int = 100,
        event: str = "schedule",
        ref: str = "refs/heads/main",
        sha: str = HEAD,
        payload: Any = None,
    ) -> Result:
        if isinstance(report, Report):
            report = written(self.folder / "report.json", report)
        (self.folder / "event.json").write_text(json.dumps(payload or {"schedule": "7 2 * * *"}))
        environ: dict[str, str | None] = {
            **{name: None for name in os.environ if name.startswith("GITHUB_")},
            **self.environment(run),
            "GITHUB_EVENT_NAME": event,
            "GITHUB_SHA": sha,
            "GITHUB_REF": ref,
            "GITHUB_TOKEN": self.token,
        }
        return CliRunner().invoke(main, ["publish", "--sweep", str(report), *words], env=environ)

    def environment(self, run: int) -> dict[str, str]:
        return {
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": str(run),
            "GITHUB_WORKFLOW": "sweep",
            "GITHUB_SHA": HEAD,
            "GITHUB_API_URL": self.github.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_TOKEN": self.token or "",
        }

    def posts(self, *arguments: Any, **named: Any) -> Result:
        done = self.publish(*arguments, **named)
        assert done.exit_code == 0, done.output
        return done


@pytest.fixture
def night(github, tmp_path) -> Night:
    return Night(github, tmp_path)


@pytest.fixture
def unread(tmp_path) -> Iterator[Night]:
    """With nobody between it and GitHub: who judges a request writes it anew."""
    with serving(GitHub()) as fake:
        yield Night(with_files(fake), tmp_path)


def the_issue(github: GitHub) -> dict[str, Any]:
    (issue,) = github.issues.values()
    return issue


def boxes(github: GitHub) -> list[str]:
    return re.findall(r"^- \[ \] `(\w+)`", the_issue(github)["body"], re.MULTILINE)


def tick(github: GitHub, name: str) -> None:
    """As a person does in the page, which writes line ends of its own."""
    issue = the_issue(github)
    body = issue["body"].replace(f"- [ ] `{IDS[name]}`", f"- [x] `{IDS[name]}`")
    assert body != issue["body"]
    issue["body"] = body.replace("\n", "\r\n")


# --- the issue -----------------------------------------------------------------------------------


def test_what_was_found_gets_one_issue_and_an_edit_when_there_is_more(github, night):
    night.posts(ONE)
    issue = the_issue(github)
    assert issue["title"] == "Faster code that cudal1-ci has proven"
    assert [label["name"] for label in issue["labels"]] == ["cudal1-ci"]
    assert stamp_of(issue["body"]).run == 100
    assert boxes(github) == [IDS["pool"]]
    assert "at least 66.6 % less time, saves 200 us per call" in issue["body"]
    night.posts(TWO, run=101)
    assert set(boxes(github)) == set(IDS.values())
    assert stamp_of(the_issue(github)["body"]).run == 101


def test_a_sweep_without_news_edits_nothing(github, night):
    night.posts(TWO, run=100)
    body = the_issue(github)["body"]
    done = night.posts(TWO, run=101)
    assert "is up to date" in done.stderr
    assert the_issue(github)["body"] == body
    assert [request.method for request in github.writes] == ["POST"]


def test_nothing_to_say_makes_no_issue(github, night):
    done = night.posts(NOTHING)
    assert not github.writes
    assert "nothing to report" in done.stderr
    assert "There are no proposals at present." in (night.folder / "summary.md").read_text()


def test_what_was_merged_or_changed_drops_out_and_an_empty_issue_is_closed(github, night):
    night.posts(TWO, run=100)
    night.posts(ONE, run=101)
    assert boxes(github) == [IDS["pool"]]
    night.posts(NOTHING, run=102)
    assert the_issue(github)["state"] == "closed"
    assert boxes(github) == []


def test_a_closed_issue_is_opened_again_only_when_there_is_something_new(github, night):
    night.posts(ONE, run=100)
    the_issue(github)["state"] = "closed"
    body = the_issue(github)["body"]
    done = night.posts(ONE, run=101)
    assert "closed, and there is nothing new" in done.stderr
    assert (the_issue(github)["state"], the_issue(github)["body"]) == ("closed", body)
    night.posts(TWO, run=102)
    assert the_issue(github)["state"] == "open"
    assert set(boxes(github)) == set(IDS.values())


def test_an_older_run_leaves_what_a_newer_one_wrote(github, night):
    night.posts(TWO, run=100)
    body = the_issue(github)["body"]
    done = night.posts(ONE, run=99)
    assert "later run 100" in done.stderr
    assert the_issue(github)["body"] == body


def test_a_marker_that_somebody_else_planted_is_ignored(github, night):
    night.posts(ONE, run=100)
    ours = the_issue(github)
    planted = {**ours, "number": 3, "user": {"login": "stranger"}}
    github.issues[3] = planted | {"body": ours["body"].replace("run=100", "run=99999")}
    quoted = "see <!-- cudal1-ci:v1 sweep run=99999 attempt=1 sha=" + HEAD + " dismissed= -->"
    github.issues[4] = {**ours, "number": 4, "body": quoted}
    before = {number: dict(github.issues[number]) for number in (3, 4)}
    night.posts(TWO, run=101)
    assert {number: github.issues[number] for number in (3, 4)} == before
    assert stamp_of(github.issues[ours["number"]]["body"]).run == 101
    assert len(github.issues) == 3


def test_the_issue_is_found_behind_many_others(github, night):
    night.posts(ONE, run=100)
    ours = the_issue(github)
    for number in range(1, 80):
        github.issues[number] = {**ours, "number": number, "body": "chat"}
    night.posts(TWO, run=101)
    assert len(github.issues) == 80
    assert stamp_of(github.issues[ours["number"]]["body"]).run == 101


def test_at_most_so_many_items_are_listed(github, night):
    entries = [
        proposed(PATCH.replace("unsqueeze(1)", f"unsqueeze(1)[{i}]"), target=a_target(f"f{i}"))
        for i in range(40)
    ]
    night.posts(a_report(*entries))
    body = the_issue(github)["body"]
    assert len(boxes(github)) == 20
    assert "And 20 more proposals" in body
    night.posts(a_report(*entries), "--max-items", "3", run=101)
    assert len(boxes(github)) == 3


def test_a_body_keeps_to_its_limit_and_says_what_it_lost(github, night):
    long = "x" * 18_000
    entries = [
        proposed(
            PATCH.replace("unsqueeze(1)", f"unsqueeze({i}) + '{long}'"), target=a_target(f"f{i}")
        )
        for i in range(20)
    ]
    night.posts(a_report(*entries))
    body = the_issue(github)["body"]
    assert len(body.encode()) <= 60_000
    assert len(boxes(github)) == 20
    assert "**Left out**, because there is no room for it: the diffs of" in body


# --- what people dismiss ---------------------------------------------------------------------


def dismiss(github: GitHub, name: str) -> None:
    github.permissions["person"] = "write"
    number = the_issue(github)["number"]
    github.add_comment(number, f"/cudal1 dismiss {IDS[name]}", "person")


def test_what_somebody_dismisses_stays_so(github, night):
    night.posts(TWO, run=100)
    dismiss(github, "pool")
    night.posts(TWO, run=101)
    assert boxes(github) == [IDS["other"]]
    assert "Dismissed so far: 1" in the_issue(github)["body"]
    night.posts(NOTHING, run=102)
    night.posts(ONE, run=103)
    assert boxes(github) == []
    assert the_issue(github)["state"] == "closed", "what was dismissed is no news"
    assert stamp_of(the_issue(github)["body"]).dismissed == (IDS["pool"],)


def test_a_dismissed_proposal_stays_so_when_its_lines_have_moved(github, night):
    night.posts(TWO, run=100)
    dismiss(github, "pool")
    moved = proposed(PATCH.replace("@@ -2,8 +2,7 @@", "@@ -32,8 +32,7 @@"), a_target(line=34))
    night.posts(a_report(moved, OTHER), run=101)
    assert boxes(github) == [IDS["other"]]


def test_a_box_that_was_ticked_opens_that_pull_request_at_the_next_sweep(github, night):
    night.posts(TWO, run=100)
    tick(github, "pool")
    night.posts(TWO, run=101)
    (pull,) = github.pulls.values()
    assert pull["head"]["ref"] == f"cudal1-ci/sweep-{IDS['pool']}"
    assert f"- [x] `{IDS['pool']}`" in the_issue(github)["body"], "it is open"
    assert boxes(github) == [IDS["other"]]
    night.posts(TWO, run=102)
    assert len(github.pulls) == 1, "a box that stays ticked opens no second one"


@pytest.mark.parametrize("how", ["box", "comment", "comment of a reader"])
def test_what_is_asked_for_in_the_issue_is_opened_at_once(github, night, tmp_path, how):
    """The workflow of commands runs for an edit of the issue, and for a comment in it."""
    night.posts(TWO, run=100)
    issue = the_issue(github)
    event = {"action": "edited", "issue": {"number": issue["number"]}}
    if how == "box":
        tick(github, "pool")
    else:
        github.permissions["person"] = "read" if "reader" in how else "write"
        github.add_comment(issue["number"], f"/cudal1 apply {IDS['pool']}", "person")
        event |= {"action": "created", "comment": {"body": f"/cudal1 apply {IDS['pool']}"}}
    (tmp_path / "asked.json").write_text(json.dumps(event))
    folder = tmp_path / "cudal1-ci" / "reports" / "cudal1-ci-gpu"
    folder.mkdir(parents=True)
    written(folder / "report.json", TWO)
    environment = {
        **night.environment(run=500),
        "GITHUB_EVENT_NAME": "issues" if how == "box" else "issue_comment",
        "GITHUB_EVENT_PATH": str(tmp_path / "asked.json"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "RUNNER_TEMP": str(tmp_path),
    }
    assert commands(environment) == 0
    if "reader" in how:
        assert not (tmp_path / "output").exists()
        return
    assert (tmp_path / "output").read_text() == "report-run=100\n"
    assert not github.pulls
    assert commands({**environment, "REPORT_RUN": "100"}) == 0
    (pull,) = github.pulls.values()
    assert pull["head"]["ref"] == f"cudal1-ci/sweep-{IDS['pool']}"
    assert f"- [x] `{IDS['pool']}`" in the_issue(github)["body"]


@pytest.mark.parametrize(
    ("comment", "permission", "is_dismissed"),
    [
        ("/cudal1 dismiss {}", "write", True),
        ("No, thanks.\r\n/cudal1 dismiss {}\r\n", "admin", True),
        ("/cudal1 dismiss {}", "read", False),
        ("> /cudal1 dismiss {}", "write", False),
        ("please /cudal1 dismiss {}", "write", False),
        ("/cudal1 dismiss {}0", "write", False),
    ],
)
def test_a_line_of_a_comment_dismisses_where_its_author_may_write(
    github, night, comment, permission, is_dismissed
):
    night.posts(TWO, run=100)
    github.permissions["person"] = permission
    number = the_issue(github)["number"]
    github.add_comment(number, comment.format(IDS["pool"]), "person")
    night.posts(TWO, run=101)
    assert (IDS["pool"] not in boxes(github)) is is_dismissed
    assert IDS["other"] in boxes(github)


def test_a_check_that_a_dead_runner_has_left_is_ended_at_night(unread):
    """Its run is over or gone; what still runs, and what others made, is left alone, and so is the
    check of a pull request into another base. The base of the project decides; where it is silent,
    no conclusion lets a required check pass."""
    fake = unread.github
    fake.add_pull(7, NEXT)
    fake.runs = {50: "completed", 51: "in_progress"}
    for number, name, external in (
        (900, "cudal1-ci", "cudal1%2Dci/50/1"),
        (901, "cudal1-ci (b c)", "cudal1%2Dci/49/2"),
        (902, "cudal1-ci", "cudal1%2Dci/51/1"),
        (903, "build", "cudal1%2Dci/50/1"),
        (904, "cudal1-ci", "of another tool"),
        (905, "cudal1-ci into release/1", "cudal1%2Dci/50/1"),
        (906, "cudal1-ci (silent)", "cudal1%2Dci/50/1"),
    ):
        fake.checks[number] = {
            "id": number,
            "name": name,
            "head_sha": NEXT,
            "notes": [],
            "status": "in_progress",
            "external_id": external,
        }
    fake.contents["b" * 40, "pyproject.toml"] = '[tool.cudal1-ci]\nfail-on = "regression"\n'
    fake.contents["b" * 40, "b c/pyproject.toml"] = '[tool.cudal1-ci]\nfail-on = "never"\n'
    unread.posts(ONE)
    assert {n: c.get("conclusion") for n, c in fake.checks.items()} == {
        900: "failure",
        901: "neutral",
        906: "cancelled",
        **dict.fromkeys((902, 903, 904, 905)),
    }
    assert "its runner may have died" in fake.checks[900]["output"]["title"]


# --- draft pull requests -----------------------------------------------------------------------


def test_without_the_flag_no_pull_request_is_opened(github, night):
    night.posts(TWO)
    assert not github.pulls


def test_drafts_are_opened_up_to_the_limit_and_the_issue_leads_to_them(github, night):
    night.posts(TWO, "--max-open-prs", "1")
    (pull,) = github.pulls.values()
    assert pull["draft"] is True
    assert pull["base"]["ref"] == "main"
    first = gains_of(TWO)[0]
    assert pull["title"] == f"Faster {first.entry.target.qualname}: at least 66.6 % less time"
    assert pull["head"]["ref"] == f"cudal1-ci/sweep-{first.id}"
    files = github.git.files_of(pull["head"]["sha"])
    assert "weight.unsqueeze(1) * x" in files[first.entry.target.path][1]
    assert f"head%3Acudal1-ci%2Fsweep-{first.id})" in the_issue(github)["body"]
    assert the_issue(github)["body"].count("draft pull request](") == 1
    done = night.posts(TWO, "--max-open-prs", "1", run=101)
    assert len(github.pulls) == 1
    assert "is up to date" in done.stderr
    night.posts(TWO, "--max-open-prs", "2", run=102)
    assert len(github.pulls) == 2


def test_what_was_closed_unmerged_is_not_opened_again(github, night):
    night.posts(ONE, "--max-open-prs", "1")
    (pull,) = github.pulls.values()
    pull["state"] = "closed"
    del github.git.branches[pull["head"]["ref"]]
    night.posts(ONE, "--max-open-prs", "1", run=101)
    assert len(github.pulls) == 1
    assert "([draft pull request](" not in the_issue(github)["body"]


def test_what_was_dismissed_gets_no_draft(github, night):
    night.posts(TWO)
    dismiss(github, "pool")
    night.posts(TWO, "--max-open-prs", "5", run=101)
    assert [pull["title"] for pull in github.pulls.values()] == [
        "Faster other: at least 66.6 % less time"
    ]


def test_a_draft_of_somebody_else_with_our_marker_counts_for_nothing(github, night):
    body = f"<!-- cudal1-ci:v1 proposal={IDS['pool']} -->"
    github.add_pull(9, NEXT, user={"login": "stranger"}, body=body)
    night.posts(ONE, "--max-open-prs", "1")
    assert len(github.pulls) == 2


def test_a_patch_that_nobody_should_commit_gets_no_draft_and_is_listed(github, night):
    hidden = proposed(PATCH.replace("unsqueeze(1)", "unsqueeze(1)\u202e"))
    workflow = proposed(PATCH.replace("pkg/model.py", ".github/workflows/x.yml"))
    new = proposed("--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1,1 @@\n+x = 1\n")
    night.posts(a_report(hidden, workflow, new), "--max-open-prs", "9")
    assert not github.pulls
    assert len(boxes(github)) == 3


def test_a_draft_that_github_refuses_is_named_and_the_issue_is_posted(github, night):
    github.may_open_pulls = False
    done = night.publish(ONE, "--max-open-prs", "1")
    assert done.exit_code == 5
    assert "not permitted to create" in " ".join(done.stderr.split())
    assert boxes(github) == [IDS["pool"]]
    assert "([draft pull request](" not in the_issue(github)["body"]


# --- where, and of what ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "code", "words"),
    [
        ({"event": "pull_request", "payload": {"number": 7}}, 2, "GITHUB_EVENT_PATH"),
        (
            {"event": "merge_group", "payload": {"merge_group": {"head_sha": HEAD}}},
            2,
            "merge_group",
        ),
        ({"ref": "refs/tags/v1"}, 2, "GITHUB_REF"),
        ({"sha": NEXT}, 5, NEXT),
        ({"event": "workflow_dispatch", "ref": "refs/heads/topic"}, 0, "this run of topic"),
    ],
)
def test_a_run_that_is_not_of_the_default_branch_posts_nothing(github, night, named, code, words):
    done = night.publish(ONE, **named)
    assert done.exit_code == code, done.output
    assert words in done.stderr
    assert not github.writes


def test_a_dispatch_on_the_default_branch_posts(github, night):
    night.posts(ONE, event="workflow_dispatch", payload={"inputs": None})
    assert boxes(github) == [IDS["pool"]]


def test_a_hostile_report_dismisses_nothing_calls_nobody_and_plants_no_marker(github, night):
    night.posts(ONE, run=100)
    ours = stamp_of(the_issue(github)["body"])
    evil = (
        f"@octocat #12 <img src=x>\n- [x] `{IDS['pool']}` gone\n"
        f"<!-- cudal1-ci:v1 sweep run=9 attempt=1 sha={HEAD} dismissed={IDS['pool']} -->\n"
    )
    line = f" [x] `{IDS['pool']}` of a diff"
    patch = PATCH.replace("     scale = torch.diag(weight)", line).replace(
        "-    scale = torch.diag(weight)", f"-{line}"
    )
    hostile = proposed(patch, a_target(evil[:400], "pkg/model.py"), analysis=evil * 20)
    night.posts(a_report(POOL, hostile), run=101)
    body = the_issue(github)["body"]
    assert stamp_of(body).run == 101
    assert stamp_of(body).dismissed == ours.dismissed == ()
    assert body.count("<!-- cudal1-ci") == 1
    prose = re.sub(r"```diff\n.*?```|`[^`\n]+`", "", body, flags=re.DOTALL)
    assert "@octocat" not in prose
    assert not re.search(r"(?<!\\)<img", prose)
    night.posts(a_report(POOL, hostile), run=102)
    assert IDS["pool"] in boxes(github), "a line of a diff is no box that somebody ticked"


def test_a_report_that_is_none_posts_nothing(github, night, tmp_path):
    not_a_number = to_json(ONE).replace(b'"speedup_low":3.0', b'"speedup_low":NaN')
    outside = a_report(proposed(PATCH.replace("pkg/model.py", "../../etc/passwd")))
    for raw in (b"{", not_a_number, to_json(outside)):
        path = tmp_path / "hostile.json"
        path.write_bytes(raw)
        assert night.publish(path).exit_code == 2
    assert not github.writes


def test_a_token_that_may_not_write_or_read_issues_is_no_failure(github, night):
    github.may_write = False
    done = night.posts(ONE, "--max-open-prs", "1")
    assert "not posted" in done.stderr
    assert (night.folder / "summary.md").read_text()
    github.refuse("GET", "/issues$", 403, READ_ONLY)
    assert "cannot be read" in night.posts(ONE).stderr


# --- the dry run ---------------------------------------------------------------------------------


def as_printed(github: GitHub) -> str:
    (request,) = (w for w in github.writes if w.path.startswith("/repos/o/r/issues"))
    payload = request.payload
    shown = payload["body"] if payload.keys() == {"body"} else request.body
    return f"=== issue: {request.method} {request.path}\n{shown}\n"


@pytest.mark.parametrize("has_issue", [False, True])
def test_a_dry_run_prints_byte_for_byte_what_is_posted(unread, has_issue):
    night, github = unread, unread.github
    if has_issue:
        night.posts(ONE, run=100)
    github.requests.clear()
    words = ("--max-open-prs", "1")
    dry = night.posts(TWO, *words, "--dry-run", run=101)
    assert not github.writes
    night.posts(TWO, *words, run=101)
    (pull,) = github.pulls.values()
    assert dry.stdout.endswith(as_printed(github))
    draft = dry.stdout.removesuffix(as_printed(github))
    assert draft.startswith(f"=== draft pull request: {pull['head']['ref']} into main at {HEAD}\n")
    assert f"\n{pull['title']}\n\n{pull['body']}" in draft
    assert draft.endswith(gains_of(TWO)[0].evaluation.candidate.patch + "\n")


def test_a_dry_run_without_a_token_contacts_nobody(github, night):
    night.token = None
    dry = night.posts(ONE, "--dry-run")
    assert not github.requests
    assert dry.stdout.startswith("=== issue: POST /repos/o/r/issues\n{")


def test_without_a_token_nothing_is_posted(github, night):
    night.token = None
    assert night.publish(ONE).exit_code == 2
    assert not github.requests


def test_the_issue_is_found_by_a_persons_token(github, night):
    github.login = "somebody"
    night.posts(ONE, run=100)
    night.posts(TWO, run=101)
    assert the_issue(github)["user"]["login"] == "somebody" != ACTIONS


def test_what_was_found_is_told_also_where_github_does_not_answer(github, night):
    github.refuse("GET", "/issues$", 404, "Not Found")
    done = night.publish(ONE)
    assert done.exit_code == 5
    assert "`pool`" in (night.folder / "summary.md").read_text()
