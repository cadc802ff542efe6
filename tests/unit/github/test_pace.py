"""Waiting for GitHub: as long as it says, in all no longer than there is time."""

from __future__ import annotations

import pytest
import requests
from github import GithubException

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.rate_limit import Patience, wait_of

SECONDARY = "You have exceeded a secondary rate limit."


@pytest.mark.parametrize(
    ("status", "headers", "message", "wait_s"),
    [
        (403, {"retry-after": "17"}, SECONDARY, 17),
        (429, {"retry-after": "0"}, "", 1),
        (403, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, SECONDARY, 60),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1030"}, "limit", 30),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, "limit", 1),
        (403, {}, SECONDARY, 60),
        (429, {}, "", 60),
        (403, {"x-ratelimit-remaining": "40"}, "Resource not accessible by integration", None),
        (422, {"retry-after": "17"}, "", None),
        (500, {}, "", None),
    ],
)
def test_how_long_to_wait(status, headers, message, wait_s):
    assert wait_of(status, headers, message, now_s=1000.0) == wait_s


class Line:
    """Fails as often as it is told, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.num_asked = 0

    def __call__(self) -> str:
        self.num_asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def limited(seconds: int) -> GithubException:
    return GithubException(403, {"message": SECONDARY}, {"Retry-After": str(seconds)})


def patience(slept: list[float], total_s: float = 100) -> Patience:
    return Patience(lambda text: None, total_s=total_s, sleep=slept.append)


def test_limits_are_waited_for_whatever_is_asked():
    slept: list[float] = []
    line = Line(limited(20), limited(30))
    assert patience(slept).ask(line, is_repeatable=False) == "done"
    assert slept == [20, 30]


def test_the_time_is_one_for_all_requests():
    slept: list[float] = []
    waiting = patience(slept, total_s=50)
    waiting.ask(Line(limited(40)), is_repeatable=True)
    with pytest.raises(Refusal, match=r"to wait 20 s is more than the 10 s left"):
        waiting.ask(Line(limited(20)), is_repeatable=True)
    assert slept == [40]


@pytest.mark.parametrize("error", [GithubException(502, {}), requests.ConnectionError("gone")])
def test_what_broke_is_asked_again_only_where_that_does_no_harm(error):
    slept: list[float] = []
    assert patience(slept).ask(Line(error, error), is_repeatable=True) == "done"
    assert len(slept) == 2
    line = Line(error)
    with pytest.raises(Refusal):
        patience(slept).ask(line, is_repeatable=False)
    assert line.num_asked == 1


def test_a_server_that_stays_broken_is_left():
    line = Line(*[GithubException(503, None)] * 9)
    with pytest.raises(Refusal, match="503"):
        patience([]).ask(line, is_repeatable=True)
    assert line.num_asked == 3


def test_a_refusal_says_what_github_said_in_one_line():
    error = GithubException(422, {"message": "Validation\nFailed", "errors": ["line @x"]})
    with pytest.raises(Refusal) as caught:
        patience([]).ask(Line(error), is_repeatable=True)
    assert str(caught.value) == "422 Validation Failed ['line @\u200bx']"
    assert caught.value.is_unprocessable
    assert not caught.value.is_read_only
