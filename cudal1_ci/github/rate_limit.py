"""Keep to GitHub's rate limits: wait when it says so, up to a total time.

Primary and secondary rate limits are waited for, as `Retry-After` or the reset of the limit says,
else a minute. A harmless request is repeated when the server or the connection failed. All else is
a `Refusal` with GitHub's message.

Source: GitHub, Best practices for using the REST API (secondary rate limits).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import requests
from github.GithubException import BadAttributeException, GithubException

from cudal1_ci.github.answer import Refusal
from cudal1_ci.github.sanitize import log_line, one_line

MAX_WAIT_S = 300.0
"""In total; beyond it another run had better publish."""
UNSAID_WAIT_S = 60.0
"""A secondary limit that does not say how long lasts at least a minute."""
BROKEN_WAITS_S = (1.0, 4.0)

T = TypeVar("T")


class Patience:
    """Limit the waiting time of all requests of a command."""

    def __init__(
        self,
        tell: Callable[[str], None],
        total_s: float = MAX_WAIT_S,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tell = tell
        self._left_s = total_s
        self._sleep = sleep
        self._now = now

    def ask(self, request: Callable[[], T], *, is_repeatable: bool) -> T:
        """Return the request's result.

        Raises:
            Refusal: GitHub refuses it, cannot be reached, or asks for more time than is left.
        """
        broken = list(BROKEN_WAITS_S if is_repeatable else ())
        while True:
            try:
                return request()
            except GithubException as error:
                headers = {name.lower(): text for name, text in (error.headers or {}).items()}
                refusal = Refusal(message_of(error), error.status)
                wait_s = wait_of(error.status, headers, str(refusal), self._now())
                if wait_s is None and error.status >= 500 and broken:
                    wait_s = broken.pop(0)
            except requests.RequestException as error:
                refusal = Refusal(f"GitHub cannot be reached: {type(error).__name__}")
                wait_s = broken.pop(0) if broken else None
            except BadAttributeException as error:
                raise Refusal("GitHub gave an answer of an unknown shape") from error
            if wait_s is None:
                raise refusal
            self._wait(wait_s, refusal)

    def _wait(self, wait_s: float, refusal: Refusal) -> None:
        if wait_s > self._left_s:
            raise Refusal(
                f"{refusal}; to wait {wait_s:.0f} s is more than the {self._left_s:.0f} s left",
                refusal.status,
            ) from refusal
        self._left_s -= wait_s
        self._tell(f"waiting {wait_s:.0f} s: {log_line(str(refusal))}")
        self._sleep(wait_s)


def wait_of(status: int, headers: Mapping[str, str], message: str, now_s: float) -> float | None:
    """Return the seconds to wait before a retry; None where no rate limit was met."""
    if status not in (403, 429):
        return None
    if (after := headers.get("retry-after")) is not None:
        return max(1.0, _seconds(after, UNSAID_WAIT_S))
    if headers.get("x-ratelimit-remaining") == "0":
        reset_s = _seconds(headers.get("x-ratelimit-reset", ""), now_s + UNSAID_WAIT_S)
        return max(1.0, reset_s - now_s)
    if status == 429 or "rate limit" in message.lower():
        return UNSAID_WAIT_S
    return None


def _seconds(text: str, otherwise: float) -> float:
    return float(text) if text.isascii() and text.isdigit() else otherwise


def message_of(error: GithubException) -> str:
    """Return the status and GitHub's message, in one line."""
    data = error.data if isinstance(error.data, dict) else {}
    message = data.get("message") or error.message or "no reason was given"
    details = data.get("errors")
    text = f"{error.status} {message}" + (f" {details}" if details else "")
    return one_line(text, 400)
