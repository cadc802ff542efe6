"""`cudal1-ci publish` against a GitHub on this machine: what it posts, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.github import client
from cudal1_ci.github.acknowledgements import Agreed, agreements_line
from cudal1_ci.github.marker import Marker, key_of, marked, marker_of
from cudal1_ci.records import Device
from cudal1_ci.records.published import to_json
from cudal1_ci.render.comment import About, comment, summary
from tests.github_fake import ACTIONS, MAIN, READ_ONLY, TOKEN, GitHub, serving
from tests.publishing import (
    NEXT,
    PROPOSAL,
    REGRESSION,
    SAME,
    Workflow,
    at,
    bodies,
    posted,
    pull_request,
    the_check,
    workflow_run,
)
from tests.reports import (
    BASE,
    DIFF,
    ELSEWHERE,
    HEAD,
    PATCH,
    a_report,
    a_target,
    agreed,
    compared,
    lacking,
    proposed,
    written,
)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """GitHub wants a second between writes; this one does not."""
    monkeypatch.setattr(client, "SECONDS_BETWEEN_WRITES", 0)


def with_pull(github: GitHub) -> GitHub:
    github.add_pull(7, HEAD)
    github.files[7] = [{"filename": "pkg/model.py", "status": "modified", "patch": DIFF}]
    return github


@pytest.fixture
def github(served) -> Iterator[GitHub]:
    with served(GitHub()) as fake:
        yield with_pull(fake)


@pytest.fixture
def workflow(github, tmp_path) -> Workflow:
    return Workflow(github, tmp_path)


# --- the comment -------------------------------------------------------------------------------


def test_a_regression_gets_a_comment_a_check_and_an_annotation(github, workflow):
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 0, result.output
    (body,) = bodies(github)
    marker = marker_of(body)
    assert marker is not None
    assert (marker.run, marker.attempt, marker.sha, marker.verdict) == (100, 1, HEAD, "regression")
    about = About(
        repository_url="https://github.com/o/r",
        run_url="https://github.com/o/r/actions/runs/100",
        artifact_url="https://github.com/o/r/actions/runs/100#artifacts",
        head_sha=HEAD,
        base_sha=BASE,
    )
    assert body.partition("\n")[2] == comment(REGRESSION, about)
    assert workflow.summary == summary(REGRESSION, about) + "\n"
    check = the_check(github)
    assert (check["name"], check["head_sha"]) == ("cudal1-ci", HEAD)
    assert (check["status"], check["conclusion"]) == ("completed", "neutral")
    (note,) = check["notes"]
    assert (note["path"], note["start_line"]) == ("pkg/model.py", 4)
    assert note["annotation_level"] == "warning"


def test_a_second_push_edits_the_same_comment(github, workflow):
    assert workflow.publish(REGRESSION, run=100).exit_code == 0
    github.push(7, NEXT)
    assert workflow.publish(at(SAME, NEXT), sha=NEXT, run=101).exit_code == 0
    (body,) = bodies(github)
    assert marker_of(body).sha == NEXT
    assert marker_of(body).verdict == "same"


def test_a_verdict_that_turns_to_a_regression_gets_a_new_comment(github, workflow):
    workflow.publish(a_report(compared("improvement", 0.5)), run=100)
    github.push(7, NEXT)
    assert workflow.publish(at(REGRESSION, NEXT), sha=NEXT, run=101).exit_code == 0
    old, new = bodies(github)
    assert marker_of(new).verdict == "regression"
    assert marker_of(old).verdict == "superseded"
    assert "Replaced" in old
    # And from then on the new one is the one that is edited, for another regression too.
    assert workflow.publish(at(REGRESSION, NEXT), sha=NEXT, run=102).exit_code == 0
    assert len(bodies(github)) == 2
    assert bodies(github)[0] == old
    assert marker_of(bodies(github)[1]).run == 102


@pytest.mark.parametrize(("run", "attempt"), [(99, 1), (99, 9), (100, 1)])
def test_an_older_run_does_not_overwrite_what_a_newer_one_wrote(github, workflow, run, attempt):
    workflow.publish(REGRESSION, run=100, attempt=2)
    before = bodies(github)
    result = workflow.publish(PROPOSAL, run=run, attempt=attempt)
    assert result.exit_code == 0
    assert bodies(github) == before
    assert not github.review_comments
    assert "later run 100" in result.stderr


def test_the_same_run_may_publish_again(github, workflow):
    workflow.publish(REGRESSION)
    assert workflow.publish(SAME).exit_code == 0
    (body,) = bodies(github)
    assert marker_of(body).verdict == "same"


def test_a_marker_that_somebody_else_planted_is_ignored(github, workflow):
    workflow.publish(REGRESSION)
    (ours,) = github.comments
    planted = github.add_comment(
        7, github.comments[ours]["body"].replace("run=100", "run=999999"), "stranger"
    )
    quoted = github.add_comment(7, "See: " + github.comments[ours]["body"], ACTIONS)
    kept = {number: github.comments[number]["body"] for number in (planted, quoted)}
    assert workflow.publish(SAME, run=101).exit_code == 0
    assert {number: github.comments[number]["body"] for number in (planted, quoted)} == kept
    assert marker_of(github.comments[ours]["body"]).run == 101


def test_the_comment_is_found_on_the_second_page_and_by_a_persons_token(github, workflow):
    github.login = "somebody"
    for i in range(35):
        github.add_comment(7, f"chat {i}", "stranger")
    workflow.publish(REGRESSION, run=100)
    workflow.publish(SAME, run=101)
    ours = [c for c in github.comments.values() if c["user"]["login"] == "somebody"]
    assert len(ours) == 1


@pytest.mark.parametrize(
    ("report", "words", "num_comments"),
    [
        (SAME, (), 0),
        (a_report(compared("inconclusive", 1.0)), (), 0),
        (SAME, ("--comment", "always"), 1),
        (REGRESSION, ("--comment", "never"), 0),
        (a_report(compared("same", 1.0, output_change="dtype")), (), 1),
        (PROPOSAL, (), 1),
    ],
)
def test_a_comment_is_made_when_there_is_something_to_say(
    github, workflow, report, words, num_comments
):
    assert workflow.publish(report, *words).exit_code == 0
    assert len(github.comments) == num_comments
    assert the_check(github)["status"] == "completed"
    assert workflow.summary


# --- which pull request, which commit -------------------------------------------------------


def test_a_number_in_the_report_is_no_address(github, workflow, tmp_path):
    github.add_pull(8, "8" * 40)
    spoofed = json.loads(to_json(REGRESSION))
    spoofed |= {"number": 8, "pull_request": {"number": 8}, "repository": "o/other"}
    path = tmp_path / "spoofed.json"
    path.write_text(json.dumps(spoofed))
    assert workflow.publish(path).exit_code == 0
    assert {c["issue"] for c in github.comments.values()} == {7}


def test_a_report_of_another_commit_is_refused(github, workflow):
    for sha in (NEXT, None, "x" * 4000):
        result = workflow.publish(msgspec.structs.replace(REGRESSION, head_sha=sha))
        assert result.exit_code == 5
        assert HEAD in result.stderr
    assert not github.comments
    assert {check["conclusion"] for check in github.checks.values()} == {"neutral"}
    assert not (workflow.folder / "summary.md").exists()


def test_a_force_push_between_measuring_and_publishing_leaves_the_comment_alone(github, workflow):
    workflow.publish(REGRESSION, run=100)
    before = bodies(github)
    github.push(7, NEXT)
    result = workflow.publish(PROPOSAL, run=101)
    assert result.exit_code == 0
    assert "moved on" in result.stderr
    assert bodies(github) == before
    assert not github.review_comments
    assert {check["head_sha"] for check in github.checks.values()} == {HEAD}


def test_a_fork_is_found_by_its_commit_and_its_repository(github, workflow):
    github.pulls.clear()
    github.add_pull(3, HEAD, "other/r")
    github.add_pull(2, HEAD, "stranger/another")
    github.add_pull(4, NEXT, "stranger/r")
    github.add_pull(5, HEAD, "stranger/r", state="closed")
    github.add_pull(6, HEAD, "stranger/r")
    result = workflow.publish(REGRESSION, event="workflow_run", payload=workflow_run())
    assert result.exit_code == 0, result.output
    assert {c["issue"] for c in github.comments.values()} == {6}
    marker = marker_of(bodies(github)[0])
    assert (marker.run, marker.attempt) == (55, 2), "the run that measured, not the one that posts"


def test_of_two_pull_requests_of_one_branch_neither_is_guessed(github, workflow):
    github.pulls.clear()
    github.add_pull(5, HEAD, "stranger/r")
    github.add_pull(6, HEAD, "stranger/r")
    result = workflow.publish(REGRESSION, event="workflow_run", payload=workflow_run())
    assert result.exit_code == 0
    assert not github.comments
    assert "no comment" in result.stderr


def test_a_green_check_of_one_base_covers_no_pull_request_into_another(github, workflow):
    """One commit is the head of both: GitHub finds a required check by name and commit."""
    github.contents[BASE, "pyproject.toml"] = '[tool.cudal1-ci]\nfail-on = "regression"\n'
    loose = {"sha": NEXT, "ref": "loose", "repo": MAIN}
    github.add_pull(8, HEAD, base=loose)
    payload = pull_request(number=8, base_branch="loose")
    payload["pull_request"]["base"] = loose
    workflow.publish(REGRESSION, run=100)
    workflow.publish(SAME, run=101, payload=payload)
    workflow.publish(REGRESSION, run=99)
    assert [(c["name"], c["conclusion"]) for c in github.checks.values()] == [
        ("cudal1-ci", "failure"),
        ("cudal1-ci into loose", "success"),
    ]


def test_a_check_is_named_after_the_base_from_its_beginning_to_its_end(github, workflow):
    payload = pull_request(base_branch="release/1")
    words = ("--project", "a b", "--project", "c")
    assert workflow.publish(None, "--start", *words, payload=payload).exit_code == 0
    names = ["cudal1-ci (a b) into release/1", "cudal1-ci (c) into release/1"]
    assert [c["name"] for c in github.checks.values()] == names
    workflow.publish(None, "--abandon", *words, payload=payload)
    assert [c["name"] for c in github.checks.values()] == names
    assert {c["status"] for c in github.checks.values()} == {"completed"}


@pytest.mark.parametrize("report", [REGRESSION, None], ids=["report", "none"])
def test_the_check_of_a_fork_is_named_after_the_base_that_github_knows(github, workflow, report):
    github.pulls.clear()
    github.add_pull(6, HEAD, "stranger/r", base={"sha": NEXT, "ref": "loose", "repo": MAIN})
    words = () if report else ("--abandon",)
    workflow.publish(report, *words, event="workflow_run", payload=workflow_run())
    assert the_check(github)["name"] == "cudal1-ci into loose"


def test_a_check_of_the_merge_queue_is_named_as_that_of_the_pull_request(github, workflow):
    payload = queue_entry() | {"repository": MAIN}
    payload["merge_group"]["base_ref"] = "refs/heads/release/1"
    workflow.publish(SAME, event="merge_group", payload=payload)
    assert the_check(github)["name"] == "cudal1-ci into release/1"


def test_a_fork_that_has_moved_on_gets_a_check_alone(github, workflow):
    github.pulls.clear()
    github.add_pull(6, NEXT, "stranger/r")
    result = workflow.publish(REGRESSION, event="workflow_run", payload=workflow_run())
    assert result.exit_code == 0
    assert not github.comments
    assert the_check(github)["status"] == "completed"


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("push", {"before": BASE, "after": HEAD}),
        ("merge_group", {"merge_group": {"base_sha": BASE, "head_sha": "f" * 40}}),
    ],
)
def test_an_event_without_a_pull_request_gets_a_check_alone(github, workflow, event, payload):
    result = workflow.publish(at(REGRESSION, "f" * 40), event=event, payload=payload)
    assert result.exit_code == 0
    assert not github.comments
    assert the_check(github)["head_sha"] == "f" * 40


# --- hostile reports -------------------------------------------------------------------------


def test_a_hostile_report_changes_nothing_that_it_should_not(github, workflow, tmp_path):
    huge = a_report(proposed(analysis="x" * 5_000_000))
    not_a_number = to_json(REGRESSION).replace(b'"slowdown":1.5', b'"slowdown":NaN')
    outside = a_report(compared("regression", target=a_target(path="../../etc/passwd")))
    for i, raw in enumerate((to_json(huge), not_a_number, to_json(outside))):
        path = tmp_path / f"{i}.json"
        path.write_bytes(raw)
        result = workflow.publish(path)
        assert result.exit_code == 2, result.output
    assert not github.comments
    assert {check["conclusion"] for check in github.checks.values()} == {"neutral"}


def test_mentions_and_control_characters_outside_of_the_comment_are_broken(github, workflow):
    target = a_target(qualname="@everyone\x1b[31m::error::\n\u202ehello" * 100)
    in_path = a_target(path="pkg/@everyone/x.py")
    report = a_report(
        compared("regression", target=target),
        compared("regression", target=in_path, output_change="@everyone"),
        proposed(target=target),
    )
    result = workflow.publish(report)
    assert result.exit_code == 0, result.output
    check = the_check(github)
    notes = [{**note, "path": ""} for note in check["notes"]]
    shown = json.dumps([notes, check["output"]["title"]], ensure_ascii=False)
    for words in [shown, *(c["body"] for c in github.review_comments.values())]:
        assert "@everyone" not in re.sub(r"`[^`\n]+`", "", words), "in code it calls nobody"
        assert "\x1b" not in words
        assert "\u202e" not in words
    assert all(len(note["title"]) <= 255 for note in check["notes"])
    assert {note["path"] for note in check["notes"]} == {"pkg/model.py", "pkg/@everyone/x.py"}
    assert "::error::" not in result.stderr


def test_what_is_wrong_with_a_report_cannot_be_a_command_of_the_log(github, workflow):
    bad = "--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,1 @@\r::add-mask::x\n@@ -1,1 +1,1 @@\r::error::y\n"
    result = workflow.publish(a_report(proposed(bad)))
    assert result.exit_code == 2
    assert "unified diff" in result.stderr
    lines = result.stderr.replace("\r", "\n").splitlines()
    assert [line for line in lines if line.startswith("::")] == lines[:1]


def test_the_token_is_in_nothing_that_is_printed_or_sent(github, workflow):
    github.refuse("POST", "comments", 500, "broken")
    result = workflow.publish(REGRESSION)
    assert TOKEN not in result.output + workflow.summary
    assert not any(TOKEN in request.body for request in github.requests)


# --- when GitHub does not do it ----------------------------------------------------------------


def test_a_read_only_token_is_no_failure_and_the_summary_is_written(github, workflow):
    github.may_write = False
    result = workflow.publish(REGRESSION, "--fail-on", "regression")
    assert result.exit_code == 0
    assert "notice" in result.stderr
    assert "check run, comment" in result.stderr
    assert workflow.summary


def test_a_token_that_may_not_read_is_no_failure_either(github, workflow):
    github.refuse("GET", "/issues/7/comments", 403, READ_ONLY)
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 0
    assert "cannot be read" in result.stderr
    assert workflow.summary


def test_other_refusals_are_named_and_all_else_is_posted(github, workflow):
    github.refuse("POST", "/issues/7/comments", 404, "Not Found")
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 5
    assert "the comment (404 Not Found)" in " ".join(result.stderr.split())
    assert the_check(github)["status"] == "completed"
    assert workflow.summary


@pytest.mark.parametrize(
    ("path", "denied", "kept"),
    [
        ("/check-runs", "check run", "comments"),  # pnpm#11883: `checks: write` is missing
        ("/issues/7/comments", "comment", "checks"),  # jaeger#2855: one of the two never comes
        ("/pulls/7/reviews", "suggestions", "comments"),
    ],
)
def test_a_permission_that_is_missing_costs_what_needs_it_alone(
    github, workflow, path, denied, kept
):
    github.refuse("POST", path, 403, READ_ONLY)
    both = a_report(compared("regression"), proposed())
    result = workflow.publish(both, "--comment", "always")
    assert result.exit_code == 0, result.output
    assert f"not posted: {denied}" in " ".join(result.stderr.split())
    assert len(getattr(github, kept)) == 1


def test_a_comment_that_somebody_has_deleted_is_made_again(github, workflow):
    """sticky-pull-request-comment: an id that is remembered is of nothing."""
    workflow.publish(REGRESSION)
    github.comments.clear()
    assert workflow.publish(at(REGRESSION, HEAD), run=101).exit_code == 0
    assert len(github.comments) == 1


def test_the_verdict_is_the_worst_target_and_never_a_mean(github, workflow):
    """pydantic-core#570: four slower benchmarks, and a mean that `will not alter performance`."""
    many = a_report(
        compared("regression", 1.2, target=a_target(qualname="slow")),
        *(compared("improvement", 0.2, target=a_target(qualname=f"f{i}")) for i in range(9)),
    )
    workflow.publish(many, "--fail-on", "regression")
    assert the_check(github)["conclusion"] == "failure"
    assert "1 of 10 targets got slower" in bodies(github)[0]


@pytest.mark.parametrize(
    ("status", "message", "headers"),
    [
        (403, "You have exceeded a secondary rate limit", {"Retry_After": "1"}),
        (429, "Too many", {"Retry_After": "1"}),
    ],
)
def test_a_rate_limit_is_waited_for(github, workflow, status, message, headers):
    github.refuse("POST", "/issues/7/comments", status, message, **headers)
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 0, result.output
    assert "waiting 1 s" in result.stderr
    assert len(github.comments) == 1


def test_a_rate_limit_that_lasts_too_long_is_a_failure(github, workflow):
    github.refuse("POST", "/issues/7/comments", 403, "secondary rate limit", Retry_After="3000")
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 5
    assert "3000 s" in result.stderr


def test_a_broken_server_is_asked_again_where_that_does_no_harm(github, workflow):
    github.refuse("GET", "/pulls/7$", 502, "Bad gateway")
    assert workflow.publish(REGRESSION).exit_code == 0
    github.refuse("POST", "/check-runs", 502, "Bad gateway")
    assert workflow.publish(REGRESSION).exit_code == 5, "a check may have been made all the same"


def test_without_a_token_nothing_is_posted(github, workflow):
    workflow.token = None
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 2
    assert "GITHUB_TOKEN" in result.stderr
    assert not github.requests


def test_a_bad_token_is_a_failure(github, workflow):
    workflow.token = "expired"
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 5
    assert "Bad credentials" in result.stderr


# --- the check run ---------------------------------------------------------------------------


def test_a_check_that_was_started_is_completed(github, workflow):
    assert workflow.publish(None, "--start").exit_code == 0
    assert the_check(github)["status"] == "in_progress"
    assert workflow.publish(SAME).exit_code == 0
    assert (the_check(github)["status"], the_check(github)["conclusion"]) == (
        "completed",
        "success",
    )


def test_a_check_without_a_report_does_not_stay_in_progress(github, workflow):
    workflow.publish(None, "--start")
    assert workflow.publish(None, "--abandon", "--measured", "skipped").exit_code == 0
    check = the_check(github)
    assert (check["status"], check["conclusion"]) == ("completed", "neutral")
    assert "skipped, by a label" in check["output"]["summary"]


def test_without_a_report_there_is_a_check_all_the_same_and_a_gate_is_closed(github, workflow):
    words = ("--abandon", "--fail-on", "regression", "--measured", "failure")
    assert workflow.publish(None, *words).exit_code == 0
    check = the_check(github)
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert check["output"]["title"] == "Nothing was measured: the measuring job failed"


def test_what_a_run_has_concluded_is_not_replaced_where_something_fails_after_it(github, workflow):
    assert workflow.publish(REGRESSION, "--fail-on", "regression").exit_code == 0
    words = ("--abandon", "--on-missing", "neutral", "--measured", "unusable")
    assert workflow.publish(None, *words).exit_code == 0
    assert the_check(github)["conclusion"] == "failure"


def test_a_check_that_another_run_has_started_is_left_to_it(github, workflow):
    workflow.publish(None, "--start", run=99)
    workflow.publish(SAME, run=100)
    assert [c["status"] for c in github.checks.values()] == ["in_progress", "completed"]


@pytest.mark.parametrize("is_hostile", [True, False])
def test_a_check_whose_report_cannot_be_used_does_not_stay_in_progress(
    github, workflow, tmp_path, is_hostile
):
    workflow.publish(None, "--start")
    path = written(tmp_path / "other.json", at(REGRESSION, NEXT))
    if is_hostile:
        path.write_text("{")
    assert workflow.publish(path).exit_code == (2 if is_hostile else 5)
    check = the_check(github)
    assert (check["status"], check["conclusion"]) == ("completed", "neutral")
    assert not github.comments


def test_an_older_run_replaces_neither_the_comment_nor_the_check_and_ends_its_own(github, workflow):
    """A job of an earlier run was started again by hand, or waited for a machine."""
    workflow.publish(None, "--start", run=99)
    assert workflow.publish(REGRESSION, "--fail-on", "regression", run=100).exit_code == 0
    result = workflow.publish(SAME, "--fail-on", "regression", run=99)
    assert result.exit_code == 0
    assert "the later run 100" in result.stderr
    checks = list(github.checks.values())
    assert [(c["status"], c["conclusion"]) for c in checks] == [("completed", "failure")] * 2
    assert checks[0]["output"]["title"] == "Replaced by the later run 100"
    assert [marker_of(body).verdict for body in bodies(github)] == ["regression"]
    workflow.publish(SAME, run=98)
    assert len(github.checks) == 2, "none is made beside that of the later run"


def test_another_attempt_of_a_run_counts_as_the_later_one(github, workflow):
    workflow.publish(REGRESSION, run=100, attempt=2)
    workflow.publish(SAME, run=100, attempt=1)
    assert the_check(github)["conclusion"] == "neutral"
    workflow.publish(SAME, run=100, attempt=3)
    assert [c["conclusion"] for c in github.checks.values()] == ["neutral", "success"]


def queue_entry(number: int = 7) -> Any:
    ref = f"refs/heads/gh-readonly-queue/main/pr-{number}-{BASE}"
    return {"merge_group": {"base_sha": BASE, "head_sha": HEAD, "head_ref": ref}}


@pytest.mark.parametrize(("number", "conclusion"), [(7, "success"), (8, "failure")])
def test_what_was_agreed_to_in_a_pull_request_holds_in_the_merge_queue(
    github, workflow, number, conclusion
):
    github.add_pull(8, NEXT)
    agreement = Agreed(target="pkg/model.py:pool", max_slowdown=1.6, reason="r", owner="me")
    marker = Marker(key=key_of("cudal1-ci"), run=50, attempt=1, sha=NEXT, verdict="regression")
    github.add_comment(7, marked(marker, agreements_line([agreement]) + "text"), ACTIONS)
    result = workflow.publish(
        *(REGRESSION, "--fail-on", "regression", "--workflow", "cudal1-ci"),
        event="merge_group",
        payload=queue_entry(number),
    )
    assert result.exit_code == 0
    check = the_check(github)
    assert (check["name"], check["conclusion"]) == ("cudal1-ci", conclusion)
    assert len(github.comments) == 1, "nothing is posted in the queue but the check"


CPU = Device(kind="cpu", name="AMD EPYC")
CPU_TIMES = a_report(compared("improvement", 0.5), proposed(), device=CPU, devices=(CPU,))


@pytest.mark.parametrize("base", [False, True], ids=["by the workflow", "by the base"])
def test_times_of_a_cpu_are_none_of_a_machine_that_has_a_gpu(github, workflow, base):
    """The driver is gone: torch sees no GPU, and measures on the CPU."""
    (workflow.folder / "cudal1-ci-h100").mkdir()
    file = written(workflow.folder / "cudal1-ci-h100" / "report.json", CPU_TIMES)
    words = ["--fail-on", "regression"]
    if base:
        github.contents[BASE, "pyproject.toml"] = "[tool.cudal1-ci.gate]\ngpus = ['h100']\n"
    else:
        words += ["--gpu-machine", "h100"]
    result = workflow.publish(file, *words)
    assert result.exit_code == 0, result.output
    check = the_check(github)
    assert check["conclusion"] == "failure"
    assert check["output"]["title"] == (
        "Nothing was measured: no GPU was visible on h100; run nvidia-smi and cudal1-ci doctor "
        "there"
    )
    assert "No GPU was visible on h100" in workflow.summary
    assert not github.comments, "CPU times and proposals of them are no news of that machine"


def test_a_machine_without_its_gpu_is_named_beside_one_that_has_measured(github, workflow):
    for name, report in (("h100", CPU_TIMES), ("l40", SAME), ("cpu", CPU_TIMES)):
        (workflow.folder / f"cudal1-ci-{name}").mkdir()
        written(workflow.folder / f"cudal1-ci-{name}" / "report.json", report)
    others = [str(workflow.folder / f"cudal1-ci-{n}" / "report.json") for n in ("l40", "cpu")]
    words = ["--gpu-machine", "h100", "--gpu-machine", "l40", "--machine", "cpu"]
    workflow.publish(
        workflow.folder / "cudal1-ci-h100" / "report.json",
        *(*others, *words, "--fail-on", "regression"),
    )
    check = the_check(github)
    assert check["conclusion"] == "failure"
    assert "no GPU visible on 1 machine" in check["output"]["title"]
    (body,) = bodies(github)
    assert "**1 unmeasured**: `h100`" in body
    assert "nvidia-smi" in body


def test_a_machine_with_a_gpu_whose_change_touches_no_target_has_measured(github, workflow):
    (workflow.folder / "cudal1-ci-h100").mkdir()
    file = written(
        workflow.folder / "cudal1-ci-h100" / "report.json", a_report(device=None, devices=())
    )
    workflow.publish(file, "--fail-on", "regression", "--gpu-machine", "h100")
    assert the_check(github)["conclusion"] == "success"


def test_a_locked_conversation_makes_no_job_red(github, workflow):
    github.refuse("POST", "issues/7/comments", 403, "Unable to create comment: issue is locked.")
    result = workflow.publish(REGRESSION)
    assert result.exit_code == 0
    assert "the conversation is locked" in result.stderr
    assert the_check(github)["status"] == "completed"


def test_a_report_of_a_fork_is_no_success_and_no_suggestion(github, workflow):
    """A fork's job may have written any number."""
    github.add_pull(7, HEAD, "stranger/r")
    words = ("--fail-on", "regression", "--comment", "always")
    for report in (SAME, PROPOSAL):
        done = workflow.publish(report, *words, event="workflow_run", payload=workflow_run())
        assert done.exit_code == 0
    assert {c["conclusion"] for c in github.checks.values()} == {"failure"}
    assert "unverified" in bodies(github)[0]
    assert not github.review_comments


def test_a_fork_that_was_not_measured_has_a_check_that_says_so(github, workflow):
    """Its code is refused on a machine that is kept, and its own token may post nothing."""
    github.add_pull(7, HEAD, "stranger/r")
    assert (
        workflow.publish(None, "--abandon", event="workflow_run", payload=workflow_run()).exit_code
        == 0
    )
    check = the_check(github)
    assert (check["status"], check["conclusion"]) == ("completed", "neutral")
    assert "no report" in check["output"]["title"]


def test_a_file_with_a_space_and_brackets_is_annotated(github, workflow):
    odd = a_target(path="packages/@acme/my app/[slug].py")
    workflow.publish(a_report(compared("regression", target=odd)))
    assert [note["path"] for note in the_check(github)["notes"]] == [odd.path]


def test_51_annotations_are_sent_in_two_batches(github, workflow):
    entries = [
        compared("regression", target=a_target(f"f{i}", line=i + 1), slowdown=1.1 + i / 100)
        for i in range(51)
    ]
    assert workflow.publish(a_report(*entries)).exit_code == 0
    check = the_check(github)
    assert len(check["notes"]) == 51
    assert len(posted(github, "check-runs")) == 2
    assert "f50" in check["notes"][0]["title"], "the worst first"
    assert check["conclusion"] == "neutral"


@pytest.mark.parametrize(
    ("report", "fail_on", "conclusion"),
    [
        (REGRESSION, "regression", "failure"),
        (REGRESSION, "never", "neutral"),
        (a_report(compared("inconclusive")), "regression", "neutral"),
        (a_report(compared("inconclusive")), "inconclusive", "failure"),
        (a_report(compared("regression")), "inconclusive", "failure"),
        (a_report(compared("same", 1.0), ended="budget"), "regression", "success"),
        (a_report(compared("same", 1.0), lacking("over_budget")), "regression", "failure"),
        (a_report(ended="budget"), "never", "neutral"),
        (SAME, "regression", "success"),
        (PROPOSAL, "regression", "failure"),
        (PROPOSAL, "never", "neutral"),
    ],
)
def test_the_conclusion_of_the_check(github, workflow, report, fail_on, conclusion):
    assert workflow.publish(report, "--fail-on", fail_on).exit_code == 0
    assert the_check(github)["conclusion"] == conclusion


ACK = """
[[ack]]
target = "pkg/model.py:po*"
max-slowdown = {limit}
reason = "safer"
owner = "@me"
expires = "{expires}"
"""


@pytest.mark.parametrize(
    ("limit", "expires", "claimed", "conclusion"),
    [
        (1.6, "2099-01-01", None, "success"),
        (1.6, "2099-01-01", 9.0, "success"),
        (1.4, "2099-01-01", 9.0, "failure"),
        (1.6, "2020-01-01", 9.0, "failure"),
        (None, None, 9.0, "failure"),
    ],
)
def test_what_was_agreed_to_is_read_from_the_base_and_never_from_the_report(
    github, workflow, limit, expires, claimed, conclusion
):
    if limit is not None:
        github.contents[BASE, ".github/cudal1-ci.toml"] = ACK.format(limit=limit, expires=expires)
    report = a_report(compared("regression", acknowledged=claimed and agreed(claimed)))
    assert workflow.publish(report, "--fail-on", "regression").exit_code == 0
    assert the_check(github)["conclusion"] == conclusion
    (body,) = bodies(github)
    assert f"concludes **{conclusion}**" in body


def test_the_gate_of_the_base_goes_before_the_workflows(github, workflow):
    """A change can edit the workflow that measures it, and not the base."""
    github.contents[BASE, "pyproject.toml"] = (
        '[tool.cudal1-ci]\nfail-on = "regression"\n[tool.cudal1-ci.gate]\nmachines = ["h100"]\n'
    )
    assert workflow.publish(SAME, "--fail-on", "never").exit_code == 0
    check = the_check(github)
    assert check["conclusion"] == "failure"
    assert check["output"]["title"] == "No target got slower; no report from 1 machine"
    (body,) = bodies(github)
    assert "❌ **1 machine missing**: `h100`" in body


def test_settings_of_the_base_that_are_none_leave_the_gate_to_the_workflow(github, workflow):
    github.contents[BASE, "pyproject.toml"] = '[tool.cudal1-ci.gate]\nmachines = "h100"\n'
    result = workflow.publish(REGRESSION, "--fail-on", "regression")
    assert result.exit_code == 0
    assert "the gate is the workflow's" in result.stderr
    assert the_check(github)["conclusion"] == "failure"


# --- suggestions -------------------------------------------------------------------------------


def test_a_proposal_in_the_diff_is_suggested_once(github, workflow):
    assert workflow.publish(PROPOSAL, run=100).exit_code == 0
    (suggested,) = github.review_comments.values()
    assert (suggested["path"], suggested["start_line"], suggested["line"]) == ("pkg/model.py", 5, 6)
    assert "```suggestion\n    return weight.unsqueeze(1) * x\n```" in suggested["body"]
    assert workflow.publish(PROPOSAL, run=101).exit_code == 0
    assert len(github.review_comments) == 1
    assert len(posted(github, "/reviews")) == 1


def test_what_is_certain_at_least_is_not_rounded_up(github, workflow):
    (entry,) = PROPOSAL.entries
    (evaluation,) = entry.evaluations
    (measurement,) = evaluation.measurements
    low = msgspec.structs.replace(measurement, speedup_low=2.9996)
    evaluation = msgspec.structs.replace(evaluation, measurements=(low,))
    report = a_report(msgspec.structs.replace(entry, evaluations=(evaluation,)))
    assert workflow.publish(report).exit_code == 0
    (suggested,) = github.review_comments.values()
    said = suggested["body"] + str(the_check(github)["notes"])
    assert said.count("at least 66.6 % less time") == 2
    assert "-66.7 %" not in said


def test_a_project_below_the_top_is_posted_where_it_lies(github, workflow):
    """The same pull request, measured in the folder `pkg`."""
    (entry,) = PROPOSAL.entries
    patch = entry.evaluations[0].candidate.patch.replace("/pkg/model.py", "/model.py")
    inside = proposed(patch)
    target = msgspec.structs.replace(inside.target, path="model.py")
    inside = a_report(msgspec.structs.replace(inside, target=target), folder="pkg")
    assert workflow.publish(inside).exit_code == 0
    (suggested,) = github.review_comments.values()
    assert (suggested["path"], suggested["start_line"]) == ("pkg/model.py", 5)
    assert {note["path"] for note in the_check(github)["notes"]} == {"pkg/model.py"}


@pytest.mark.parametrize(
    "patch",
    [
        PATCH.replace("pkg/model.py", "pkg/unchanged.py"),
        PATCH.replace("scale @ x", "scale @ y"),
        PATCH.replace("unsqueeze(1)", "unsqueeze(1)\u202e"),
        None,
    ],
    ids=["other file", "other lines", "text turned around", "no patch"],
)
def test_what_is_not_of_the_diff_is_not_suggested(github, workflow, patch):
    result = workflow.publish(a_report(proposed(patch)))
    assert result.exit_code == 0, result.output
    assert not posted(github, "/reviews")
    assert not posted(github, "/pulls/7/comments")
    assert "cannot be suggested" in result.stderr
    assert len(github.comments) == 1


def test_a_proposal_beyond_a_hunk_of_the_diff_is_told_on_its_file_once(github, workflow):
    report = a_report(proposed(ELSEWHERE))
    assert workflow.publish(report, run=100).exit_code == 0
    (told,) = github.review_comments.values()
    assert (told["path"], told["subject_type"]) == ("pkg/model.py", "file")
    assert f"```diff\n{ELSEWHERE}```" in told["body"]
    github.push(7, NEXT)
    assert workflow.publish(at(report, NEXT), sha=NEXT, run=101).exit_code == 0
    assert len(github.review_comments) == 1
    assert not posted(github, "/reviews")


def test_a_comment_on_a_file_that_github_refuses_takes_nothing_with_it(github, workflow):
    github.refuse("POST", "/pulls/7/comments", 422, "Unprocessable Entity")
    report = a_report(proposed(ELSEWHERE), proposed(ELSEWHERE.replace("+x", "x + 0")), proposed())
    result = workflow.publish(report)
    assert result.exit_code == 0
    assert "dropped one of the comments on files" in result.stderr
    kinds = [comment.get("subject_type") for comment in github.review_comments.values()]
    assert kinds == [None, "file"]


def test_no_suggestions_where_none_are_wanted_or_the_pull_request_is_closed(github, workflow):
    assert workflow.publish(PROPOSAL, "--no-suggestions").exit_code == 0
    github.pulls[7]["state"] = "closed"
    assert workflow.publish(PROPOSAL, run=101).exit_code == 0
    assert not github.review_comments


def test_a_refused_review_is_tried_comment_by_comment(github, workflow):
    github.refuse("POST", "/reviews", 422, "Unprocessable Entity")
    assert workflow.publish(PROPOSAL).exit_code == 0
    assert len(github.review_comments) == 1
    github.review_comments.clear()
    for path, num_refused in (("/reviews", 1), ("/pulls/7/comments", 2)):
        for _ in range(num_refused):
            github.refuse("POST", path, 422, "Unprocessable Entity")
    result = workflow.publish(PROPOSAL, run=101)
    assert result.exit_code == 0
    assert "dropped one" in result.stderr
    assert not github.review_comments


def test_a_suggestion_that_is_refused_by_itself_is_told_on_its_file_once(github, workflow):
    for run in (100, 101):
        github.refuse("POST", "/reviews", 422, "Unprocessable Entity")
        github.refuse("POST", "/pulls/7/comments", 422, "Unprocessable Entity")
        result = workflow.publish(PROPOSAL, run=run)
        assert result.exit_code == 0, result.output
        assert "dropped" not in result.stderr
    (told,) = github.review_comments.values()
    assert (told["path"], told["subject_type"]) == ("pkg/model.py", "file")
    assert "does not take it as a suggestion" in told["body"]
    assert f"```diff\n{PATCH}" in told["body"]


# --- the dry run -------------------------------------------------------------------------------


@pytest.fixture
def unread(tmp_path) -> Iterator[Workflow]:
    """With nobody between it and GitHub: who judges a request writes it anew."""
    with serving(GitHub()) as fake:
        yield Workflow(with_pull(fake), tmp_path)


def between_guards(stdout: str) -> str:
    """What is printed while the runner takes no commands."""
    first, _, rest = stdout.partition("\n")
    word = first.removeprefix("::stop-commands::")
    assert len(word) == 32
    assert rest.endswith(f"::{word}::\n")
    return rest.removesuffix(f"::{word}::\n")


def as_printed(github: GitHub) -> str:
    def shown(request: Any) -> str:
        payload = request.payload
        return payload["body"] if payload.keys() == {"body"} else request.body

    names = {"check-runs": "check run", "reviews": "suggestions", "issues/": "comment"}
    names |= {"pulls/": "comments on files"}
    return "".join(
        f"=== {next(n for k, n in names.items() if k in w.path)}: {w.method} {w.path}\n{shown(w)}\n"
        for w in github.writes
    )


@pytest.mark.parametrize("before", [None, SAME])
def test_a_dry_run_prints_byte_for_byte_what_is_posted(unread, before):
    workflow, github = unread, unread.github
    if before:
        workflow.publish(None, "--start", run=101)
        workflow.publish(before, "--comment", "always", run=100)
        github.requests.clear()
    report = a_report(compared("regression"), proposed(), proposed(ELSEWHERE))
    dry = workflow.publish(report, "--dry-run", run=101)
    assert dry.exit_code == 0, dry.output
    assert not github.writes
    assert workflow.publish(report, run=101).exit_code == 0
    assert between_guards(dry.stdout) == as_printed(github)
    assert len(github.writes) == (5 if before else 4)


def test_a_dry_run_without_a_token_contacts_nobody(unread):
    workflow, github = unread, unread.github
    workflow.token = None
    dry = workflow.publish(REGRESSION, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert not github.requests
    workflow.token = TOKEN
    workflow.publish(REGRESSION)
    assert between_guards(dry.stdout) == as_printed(github)


# --- the command line ----------------------------------------------------------------------------


def test_the_verb_in_a_process_of_its_own(github, workflow, tmp_path):
    report = written(tmp_path / "report.json", REGRESSION)
    environ = workflow.environment("pull_request", pull_request(), 100, 1)
    for words in (["--start"], [str(report)], [str(report), "--dry-run"]):
        done = subprocess.run(
            [sys.executable, "-m", "cudal1_ci", "publish", *words],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert between_guards(done.stdout).startswith("=== check run: POST /repos/o/r/check-runs\n{")
    assert len(github.comments) == 1
    assert the_check(github)["status"] == "completed"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--start", "report.json"],
        ["--abandon", "report.json"],
        ["--start", "--abandon"],
        ["--sweep", "--start"],
        ["--artifact-url", "x", "r"],
    ],
)
def test_a_command_line_that_says_nothing_sensible_is_refused(github, workflow, words):
    assert workflow.publish(None, *words).exit_code == 2
    assert not github.requests


@pytest.mark.parametrize(
    "change",
    [
        {"GITHUB_EVENT_PATH": "/nowhere"},
        {"GITHUB_REPOSITORY": "o/r/../x"},
        {"GITHUB_RUN_ID": "one"},
        {"GITHUB_EVENT_NAME": ""},
        {"GITHUB_EVENT_NAME": "workflow_run"},
    ],
)
def test_an_environment_that_is_not_of_a_workflow_is_refused(workflow, tmp_path, change):
    report = written(tmp_path / "report.json", REGRESSION)
    environ = workflow.environment("pull_request", pull_request(), 1, 1) | change
    result = CliRunner().invoke(main, ["publish", str(report)], env=environ)
    assert result.exit_code == 2
    assert "GITHUB_" in result.stderr


def test_the_rest_of_the_tool_does_without_pygithub():
    code = "import sys, cudal1_ci.cli; sys.exit('github' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 0
