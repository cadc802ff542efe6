"""Which proposals get a draft pull request, from a table."""

from __future__ import annotations

import pytest

from cudal1_ci.github.drafts import Drafts, address_of, branch_of, chosen, drafts_of, marked
from cudal1_ci.github.sweep_issue import Thread
from cudal1_ci.render.gains import gains_of
from tests.reports import PATCH, a_report, a_target, proposed

US = "github-actions[bot]"
GAINS = gains_of(
    a_report(*(proposed(PATCH.replace("* x", f"* x{i}"), a_target(f"f{i}")) for i in range(4)))
)
FIRST, SECOND, THIRD, FOURTH = (gain.id for gain in GAINS)


def a_pull(number: int, **fields) -> Thread:
    known = {"author": US, "is_pull": True, "body": marked(GAINS[number], "text")}
    return Thread(number=number, **(known | fields))


def test_drafts_are_ours_by_author_and_by_the_marker_at_the_beginning():
    threads = [
        a_pull(0),
        a_pull(1, is_open=False),
        a_pull(2, author="stranger"),
        a_pull(3, body="See " + marked(GAINS[3], "text")),
        a_pull(3, is_pull=False),
    ]
    assert drafts_of(threads, US) == Drafts(opened=(FIRST,), ended=(SECOND,))


@pytest.mark.parametrize(
    ("drafts", "most", "expected"),
    [
        (Drafts(), 0, []),
        (Drafts(), 2, [FIRST, SECOND]),
        (Drafts(opened=(FIRST,)), 2, [SECOND]),
        (Drafts(opened=(FIRST,)), 1, []),
        (Drafts(opened=("of another time",) * 3), 2, []),
        (Drafts(ended=(FIRST, THIRD)), 2, [SECOND, FOURTH]),
    ],
)
def test_the_best_that_had_none_come_first_up_to_what_may_be_open(drafts, most, expected):
    assert [gain.id for gain in chosen(GAINS, drafts, most)] == expected


def test_a_draft_is_found_by_its_branch_before_it_has_a_number():
    branch = branch_of(GAINS[0])
    assert branch == f"cudal1-ci/sweep-{FIRST}"
    address = address_of("https://github.com/o/r", FIRST)
    assert address.endswith(f"pulls?q=is%3Apr+head%3Acudal1-ci%2Fsweep-{FIRST}")
