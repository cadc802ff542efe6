"""What is done about a command, decided without a network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cudal1_ci.github.command import command_in
from cudal1_ci.github.command_effects import Fetched, decide
from cudal1_ci.github.comment_event import Asked
from cudal1_ci.github.decision import Facts, Head, Rules
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import Comment, Marker, key_of, marked
from cudal1_ci.github.projects import Found
from tests.reports import HEAD, a_report, compared, proposed

US = "github-actions[bot]"
AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Occasion(
    event="issue_comment",
    repository="o/r",
    head_sha="f" * 40,
    workflow="cudal1-ci commands",
    run_id=500,
    api_url="https://api.github.com",
    server_url="https://github.com",
)
REPORT = a_report(compared("regression"), proposed())
FETCHED = Fetched(run=100, found=(Found(artifact="cudal1-ci-gpu", document=REPORT),))


def ours(number: int = 3, age_s: int = 60, sha: str = HEAD, **marker) -> Comment:
    known = {"key": "cudal1%2Dci", "run": 100, "attempt": 2, "sha": sha, "verdict": "regression"}
    body = marked(Marker(**(known | marker)), "text")
    return Comment(id=number, author=US, body=body, updated_at=AT - timedelta(seconds=age_s))


def decided(body: str, fetched: Fetched | None = None, *comments: Comment, **fields):
    asked = Asked(
        number=7,
        comment_id=9,
        author="me",
        body=body,
        made_at=AT,
        default_branch="main",
        is_obeyable=True,
    )
    head = Head(sha=HEAD, branch="feature", repository="o/r", base_sha="b" * 40, is_open=True)
    facts = Facts(
        permission="write",
        login=US,
        head=head,
        first_seen=AT - timedelta(seconds=1),
        comments=comments or (ours(),),
    )
    command = command_in(body)
    assert command is not None
    known = msgspec.structs.replace(facts, **fields)
    return decide(asked, command, known, Rules(occasion=RUN), fetched)


def test_the_key_of_the_samples_is_that_of_the_workflow():
    assert key_of("cudal1-ci") == "cudal1%2Dci"


@pytest.mark.parametrize("body", ["/cudal1 ack pool why", f"/cudal1 apply {'0' * 16}"])
def test_a_report_is_asked_for_first_and_nothing_is_done_before(body):
    made = decided(body)
    assert (made.report_run, made.reaction) == (100, "eyes")
    assert not (made.errands or made.proposed or made.reply)


def test_what_is_posted_is_posted_in_the_name_of_the_run_that_measured():
    made = decided("/cudal1 ack pool why", FETCHED)
    comment, check = made.errands
    assert check.posts[0].payload["external_id"] == "cudal1%2Dci/100/2"
    assert check.posts[0].payload["head_sha"] == HEAD
    assert [errand.what for errand in made.errands] == ["comment", "check run"]
    assert comment.posts[0].path == "/repos/o/r/issues/comments/3"
    assert "run=100 attempt=2" in comment.posts[0].payload["body"]


def test_an_agreement_that_could_be_kept_nowhere_is_in_no_check():
    later = ours(2, run=101, verdict="superseded")
    made = decided("/cudal1 ack pool why", FETCHED, later, ours())
    assert "there is nowhere to keep it" in (made.reply or "")
    assert not made.errands


@pytest.mark.parametrize(
    ("comments", "fields", "why"),
    [
        ((ours(age_s=0),), {}, "has changed since"),
        ((ours(age_s=-1),), {}, "has changed since"),
        ((ours(sha="2" * 40),), {}, "no report of this head"),
        ((ours(verdict="superseded"),), {}, "no report of this head"),
        ((ours(), ours(4, sha="2" * 40)), {}, "no report of this head"),
        ((msgspec.structs.replace(ours(), author="me"),), {}, "no report of this head"),
        ((ours(key="other"),), {}, "no report of this head"),
        ((), {"first_seen": None}, "not certain"),
        ((), {"first_seen": AT}, "not certain"),
    ],
)
def test_a_report_that_the_author_may_not_have_seen_is_not_used(comments, fields, why):
    for fetched in (None, FETCHED):
        made = decided("/cudal1 ack pool why", fetched, *comments, **fields)
        assert why in (made.reply or "")
        assert not (made.errands or made.report_run)


@pytest.mark.parametrize("fetched", [Fetched(run=99, found=FETCHED.found), Fetched(run=100)])
def test_the_report_of_another_run_and_none_are_not_used(fetched):
    made = decided("/cudal1 ack pool why", fetched)
    assert "gone or cannot be used" in (made.reply or "")
    assert not made.errands


@pytest.mark.parametrize("permission", ["read", "none", ""])
def test_who_may_not_write_is_told_nothing(permission):
    made = decided("/cudal1 help", permission=permission)
    assert (made.reply, made.errands, made.reaction) == (None, (), "confused")
