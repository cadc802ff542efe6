"""Compute how long to wait before a server is asked again.

    wait_s(attempt=2, asked_s=None, first_s=0.5, jitter=random.Random())   # 1.0 to 2.0

The server's own wait takes precedence over the computed one, up to a limit.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

MAX_WAIT_S = 30.0
MAX_ASKED_S = 120.0
"""The longest wait; a server that wants more will not answer in this run."""


def wait_s(*, attempt: int, asked_s: float | None, first_s: float, jitter: random.Random) -> float:
    """Return seconds before the attempt after number `attempt` (0 is the first). The wait doubles
    each time and differs between clients.
    """
    if asked_s is not None:
        return asked_s + jitter.uniform(0, first_s)
    longest_s = min(MAX_WAIT_S, first_s * 2.0 ** min(attempt, 16))
    return jitter.uniform(longest_s / 2, longest_s)


def asked_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the seconds of `Retry-After`: a number or a date; None if it is neither."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now_s
        except ValueError:
            return None
    return max(0.0, seconds) if seconds == seconds else None
