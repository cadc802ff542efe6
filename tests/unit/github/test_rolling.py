"""The marker of the rolling issue, and what a body says that people may have edited."""

from __future__ import annotations

from cudal1_ci.github.marker import Comment
from cudal1_ci.github.sweep_issue import (
    MARKER_BYTES,
    MAX_DISMISSED,
    Found,
    Stamp,
    Thread,
    asked_in,
    dismissed_in,
    found_issue,
    stamp_of,
    stamped,
)
from tests.reports import HEAD

US = "github-actions[bot]"
IDS = [f"{number:016x}" for number in range(MAX_DISMISSED + 2)]
ITEMS = f"- [x] `{IDS[1]}` **pool**\n- [ ] `{IDS[2]}` **other**\n  - [x] `{IDS[3]}` in a diff\n"


def a_stamp(*dismissed: str) -> Stamp:
    return Stamp(run=7, attempt=2, sha=HEAD, dismissed=dismissed)


def a_found(text: str = ITEMS, *dismissed: str) -> Found:
    body = stamped(a_stamp(*dismissed), text)
    return Found(number=3, is_open=True, body=body, stamp=a_stamp(*dismissed))


def test_a_marker_is_read_as_it_was_written_and_has_its_place():
    stamp = a_stamp(*IDS[:MAX_DISMISSED])
    body = stamped(stamp, "text")
    assert stamp_of(body) == stamp
    assert len(stamped(stamp, "").encode()) <= MARKER_BYTES
    assert stamp_of(f"{ITEMS}{body}") is None, "not at the beginning"


def test_only_lines_of_the_list_are_boxes():
    assert a_found().ticked == (IDS[1],)
    assert a_found().listed == {IDS[1], IDS[2]}


def test_what_was_dismissed_first_is_forgotten_first():
    found = a_found(ITEMS, *IDS[:MAX_DISMISSED])
    comments = [Comment(id=1, author="a", body=f"/cudal1 dismiss {IDS[-1]}")]
    assert dismissed_in(found, comments, lambda _: True) == (*IDS[1:MAX_DISMISSED], IDS[-1])


def test_a_ticked_box_and_a_line_of_who_may_write_ask_for_the_pull_request():
    comments = [
        Comment(id=1, author="writer", body=f"yes\r\n/cudal1 apply {IDS[2]}\r\n"),
        Comment(id=2, author="reader", body=f"/cudal1 apply {IDS[3]}"),
        Comment(id=3, author="writer", body=f"/cudal1 dismiss {IDS[4]}"),
    ]
    assert asked_in(a_found(), comments, lambda login: login == "writer") == (IDS[1], IDS[2])
    assert dismissed_in(a_found(), (), lambda _: True) == (), "a box dismisses nothing"


def test_who_wrote_no_command_is_not_asked_about():
    asked = []
    comments = [
        Comment(id=1, author="a", body="hello"),
        Comment(id=2, author="b", body=f"/cudal1 dismiss {IDS[1]}"),  # is so already
        Comment(id=3, author="c", body=f"/cudal1 dismiss {IDS[2]}"),
    ]
    found = dismissed_in(
        a_found(ITEMS, IDS[1]), comments, lambda login: bool(asked.append(login)) or True
    )
    assert asked == ["c"]
    assert found == (IDS[1], IDS[2])


def test_the_oldest_issue_of_ours_is_the_one():
    body = stamped(a_stamp(), ITEMS)
    threads = [
        Thread(number=9, author=US, body=body),
        Thread(number=5, author=US, body=body.replace("\n", "\r\n"), is_open=False),
        Thread(number=4, author=US, body=body, is_pull=True),
        Thread(number=2, author="stranger", body=body),
        Thread(number=1, author=US, body="another of this bot"),
    ]
    found = found_issue(threads, US)
    assert (found.number, found.is_open, found.listed) == (5, False, {IDS[1], IDS[2]})
    assert found_issue(threads, "nobody") is None
