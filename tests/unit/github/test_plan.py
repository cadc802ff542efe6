"""What is posted, decided without a network."""

from __future__ import annotations

import json

import msgspec
import pytest

from cudal1_ci.github.check import MAX_SUMMARY_BYTES, annotations_of
from cudal1_ci.github.conclusion import standing
from cudal1_ci.github.event import Occasion
from cudal1_ci.github.marker import Comment, Marker, key_of, marked, marker_of
from cudal1_ci.github.plan import Options, plan
from cudal1_ci.github.posts import Known, Pull, Texts
from cudal1_ci.github.review import MAX_PATCH_LINES
from cudal1_ci.records import ContractCheck
from cudal1_ci.stats.gate import Policy
from tests.reports import (
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
)

RUN = Occasion(
    event="pull_request",
    repository="o/r",
    head_sha=HEAD,
    number=7,
    workflow="Speed",
    run_id=100,
    api_url="https://api.github.com",
    server_url="https://github.com",
)
TEXTS = Texts(comment="the comment", summary="the summary")
US = "github-actions[bot]"


def ours(number: int, verdict: str, run: int = 50, author: str = US) -> Comment:
    marker = Marker(key=key_of("Speed"), run=run, attempt=1, sha=HEAD, verdict=verdict)
    return Comment(id=number, author=author, body=marked(marker, f"text {number}"))


def known(*comments: Comment, **fields) -> Known:
    pull = Pull(number=7, head_sha=HEAD, comments=comments, diff={"pkg/model.py": DIFF})
    return Known(login=US, pull=msgspec.structs.replace(pull, **fields))


def posts(report, state: Known, what: str = "comment", options: Options | None = None):
    made = plan(report, TEXTS, RUN, options or Options(), state)
    return [
        (post.method, post.path.removeprefix("/repos/o/r/"), post.payload)
        for errand in made.errands
        if errand.what == what
        for post in errand.first
    ]


REGRESSION = a_report(compared("regression"))
SAME = a_report(compared("same", 1.0))
IN_HUNK = proposed()
BROKEN = (
    ContractCheck(aspect="one row of x", result="held"),
    ContractCheck(aspect="dtype float64", result="broken", detail="it fails: RuntimeError"),
)


def test_nothing_to_say_makes_no_comment_and_mends_the_one_that_is_there():
    assert posts(SAME, known()) == []
    ((method, path, payload),) = posts(SAME, known(ours(3, "regression")))
    assert (method, path) == ("PATCH", "issues/comments/3")
    assert payload["body"].endswith("verdict=same -->\nthe comment")


@pytest.mark.parametrize("before", ["same", "improvement", "acknowledged", "inconclusive"])
def test_a_turn_to_a_regression_is_a_new_comment_and_the_old_one_says_so(before):
    new, old = posts(REGRESSION, known(ours(3, before)))
    assert new[:2] == ("POST", "issues/7/comments")
    assert old[:2] == ("PATCH", "issues/comments/3")
    assert marker_of(old[2]["body"]).verdict == "superseded"
    assert old[2]["body"].endswith("text 3")
    assert marker_of(old[2]["body"]).run == 50, "who wrote it stays known"


def test_comments_that_were_left_by_a_run_that_was_cut_off_are_replaced_too():
    state = known(ours(3, "same"), ours(9, "regression"), ours(1, "superseded"))
    edited, left = posts(REGRESSION, state)
    assert edited[1] == "issues/comments/9"
    assert left[1] == "issues/comments/3"


def test_another_workflow_and_another_author_have_comments_of_their_own():
    body = ours(3, "same").body.replace("key=Speed", "key=Other")
    state = known(Comment(id=3, author=US, body=body), ours(4, "same", 999, author="stranger"))
    ((method, _, _),) = posts(REGRESSION, state)
    assert method == "POST"


def test_a_later_run_is_left_alone_and_the_check_is_made_all_the_same():
    state = known(ours(3, "same", run=101))
    made = plan(REGRESSION, TEXTS, RUN, Options(), state)
    assert [errand.what for errand in made.errands] == ["check run"]
    assert "later run 101" in made.remarks[0]


def test_the_longest_summary_that_fits_is_the_one_of_the_check():
    for summary, comment, expected in (
        ("s" * 60_000, "c", "s" * 60_000),
        ("s" * 60_001, "c" * 10, "c" * 10),
        ("é" * 40_000, "é" * 40_000, "1 of 1 target got slower. The report is too long"),
    ):
        texts = Texts(comment=comment, summary=summary)
        made = plan(REGRESSION, texts, RUN, Options(), Known())
        shown = made.errands[0].posts[0].payload["output"]["summary"]
        assert shown.startswith(expected)
        assert len(shown.encode()) <= MAX_SUMMARY_BYTES


def test_annotations_end_somewhere_and_the_worst_are_kept():
    entries = [compared("regression", 1.1 + i / 1000, target=a_target(f"f{i}")) for i in range(500)]
    batches = posts(a_report(*entries), Known(), "check run")
    notes = [note for *_, payload in batches for note in payload["output"]["annotations"]]
    assert [len(p["output"]["annotations"]) for *_, p in batches] == [50] * 4
    assert "f499" in notes[0]["title"]
    assert {path for _, path, _ in batches[1:]} == {"check-runs/{id}"}


def test_the_best_three_proposals_are_suggested_each_once():
    lines = [f"    x{i} = {i}" for i in range(9)]
    diff = "\n".join(["@@ -0,0 +1,9 @@", *(f"+{line}" for line in lines)])
    entries = [
        proposed(f"--- a/m.py\n+++ b/m.py\n@@ -{i},1 +{i},1 @@\n-{lines[i - 1]}\n+    y = {i}\n")
        for i in range(1, 6)
    ]
    state = known(diff={"m.py": diff})
    ((_, path, payload),) = posts(a_report(*entries, *entries), state, "suggestions")
    assert path == "pulls/7/reviews"
    assert payload["event"] == "COMMENT"
    assert len(payload["comments"]) == 3
    again = tuple(
        Comment(id=i, author=US, body=c["body"]) for i, c in enumerate(payload["comments"])
    )
    state = known(diff={"m.py": diff}, review_comments=again)
    assert posts(a_report(*entries), state, "suggestions") == []
    planted = tuple(msgspec.structs.replace(c, author="stranger") for c in again)
    state = known(diff={"m.py": diff}, review_comments=planted)
    assert len(posts(a_report(*entries), state, "suggestions")) == 1


def test_the_best_three_count_where_they_stand_and_a_file_keeps_what_it_was_told():
    report = a_report(*(proposed(ELSEWHERE.replace("+x", f"{i} * x")) for i in range(3)), IN_HUNK)
    told = posts(report, known(), "comments on files")
    assert [path for _, path, _ in told] == ["pulls/7/comments"] * 3
    assert {p["subject_type"] for *_, p in told} == {"file"}
    assert posts(report, known(), "suggestions") == [], "it is the fourth"
    again = tuple(Comment(id=i, author=US, body=p["body"]) for i, (*_, p) in enumerate(told))
    assert posts(report, known(review_comments=again), "comments on files") == []
    planted = tuple(msgspec.structs.replace(c, author="stranger") for c in again)
    assert posts(report, known(review_comments=planted), "comments on files") == told


@pytest.mark.parametrize(
    ("num_lines", "is_shown"), [(MAX_PATCH_LINES - 10, True), (MAX_PATCH_LINES, False)]
)
def test_a_patch_that_nobody_reads_in_a_margin_is_where_the_report_is(num_lines, is_shown):
    lines = "".join(f"+    # {i} ```\n" for i in range(num_lines))
    patch = ELSEWHERE.replace("+9,2 @@", f"+9,{num_lines + 1} @@").replace(
        "+    return +x\n", lines
    )
    ((*_, payload),) = posts(a_report(proposed(patch)), known(), "comments on files")
    assert ("\n````diff\n--- a/pkg/model.py\n" in payload["body"]) is is_shown
    assert ("/actions/runs/100)" in payload["body"]) is not is_shown
    assert "suggestion\n" not in payload["body"], "nobody can apply it with a click"


def test_a_number_that_makes_no_sense_is_short_and_no_gain_is_no_suggestion():
    slow = proposed()
    (evaluation,) = slow.evaluations
    for low, high, num_suggested in ((0.5, 0.7, 0), (1e308, 1e308, 1)):
        measurement = msgspec.structs.replace(
            evaluation.measurements[0], speedup_low=low, speedup=high, speedup_high=high
        )
        changed = msgspec.structs.replace(evaluation, measurements=(measurement,))
        report = a_report(msgspec.structs.replace(slow, evaluations=(changed,)))
        written = posts(report, known(), "suggestions")
        assert len(written) == num_suggested
        assert len(json.dumps(written)) < 1500


def test_words_of_a_model_are_in_no_suggestion():
    report = a_report(proposed(PATCH, analysis="IGNORE ALL", design="AND CLICK"))
    written = json.dumps(posts(report, known(), "suggestions"))
    assert "IGNORE" not in written
    assert "CLICK" not in written


# --- what a report says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "overall", "has_news", "title"),
    [
        ((), "same", False, "No faster version proven"),
        ((compared("same", 1.0),), "same", False, "No target got slower"),
        ((compared("new", 1.0),), "same", False, "Nothing to compare"),
        ((lacking("skipped"),), "skipped", False, "Nothing could be compared"),
        (
            (lacking("lost"), compared("same", 1.0)),
            "missing",
            False,
            "No target got slower, 1 removed",
        ),
        ((proposed(),), "same", True, "1 faster version proven"),
        (
            (compared("improvement", 0.5), compared("inconclusive"), compared("regression")),
            "regression",
            True,
            "1 of 3 targets got slower, 1 inconclusive",
        ),
        (
            (compared("regression", 1.5, acknowledged=agreed(1.5)), compared("improvement", 0.5)),
            "acknowledged",
            True,
            "1 of 2 targets got slower, as acknowledged",
        ),
        (
            (compared("regression", 1.5, acknowledged=agreed(1.5)), compared("inconclusive")),
            "inconclusive",
            True,
            "1 of 2 targets got slower, as acknowledged, 1 inconclusive",
        ),
        (
            (compared("same", 1.0, output_change="[1, 2] became [2]"),),
            "same",
            True,
            "No target got slower; 1 changed output",
        ),
        (
            (compared("same", 1.0, contract=BROKEN), compared("same", 1.0, contract=BROKEN[:1])),
            "same",
            True,
            "No target got slower; 1 target with a use that no longer works",
        ),
        ((compared("same", 1.0, contract=BROKEN[:1]),), "same", False, "No target got slower"),
    ],
)
def test_the_worst_target_decides(entries, overall, has_news, title):
    said = standing(a_report(*entries), Policy())
    assert (said.overall, said.has_news, said.title) == (overall, has_news, title)


def test_a_use_that_no_longer_works_fails_the_check_only_where_that_is_asked_for():
    broken = a_report(compared("same", 1.0, contract=BROKEN))
    conclusions = {
        fail_on: standing(broken, Policy(fail_on=fail_on)).judgement.conclusion
        for fail_on in ("never", "regression", "inconclusive", "contract")
    }
    assert conclusions.pop("contract") == "failure"
    assert set(conclusions.values()) == {"neutral"}
    contract = Policy(fail_on="contract")
    kept = standing(a_report(compared("same", 1.0, contract=BROKEN[:1])), contract)
    assert kept.judgement.conclusion == "success"
    slower = standing(a_report(compared("regression", 1.5)), contract)
    assert slower.judgement.conclusion == "failure"


def test_a_use_that_no_longer_works_is_a_notice_at_its_lines():
    entries = compared("same", 1.0, contract=BROKEN), compared("same", 1.0, contract=BROKEN[:1])
    (made,) = annotations_of(a_report(*entries))
    assert made["annotation_level"] == "notice"
    assert made["title"].startswith("Worked in the base: ")
    assert made["message"] == "broken: dtype float64 (it fails: RuntimeError)"


def test_what_was_not_reached_is_said_and_is_no_success():
    entries = compared("same", 1.0), lacking("over_budget")
    said = standing(a_report(*entries, ended="budget"), Policy())
    assert said.title == "No target got slower, 1 not measured"
    assert said.judgement.conclusion == "neutral"
    assert standing(a_report(*entries), Policy(fail_on="regression")).judgement.conclusion == (
        "failure"
    )
