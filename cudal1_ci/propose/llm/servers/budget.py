"""Limit the tokens that a run may spend.

    if await budget.reserve(2048):
        budget.settle(2048, spent=311)

An answer is requested only when the budget has all tokens that it may use, so the limit always
holds. Tokens that were reserved and not used return to waiting requests.
"""

from __future__ import annotations

import asyncio


class TokenBudget:
    """Count completion tokens for the answers of one event loop."""

    def __init__(self, limit: int | None):
        self._limit = limit
        self._spent = 0
        self._reserved = 0
        self._settled = asyncio.Event()

    async def reserve(self, num_tokens: int) -> bool:
        """Reserve tokens after a wait for reserved ones; return False if the budget is spent."""
        while self._limit is not None and self._spent + self._reserved + num_tokens > self._limit:
            if not self._reserved:
                return False
            await self._settled.wait()
        self._reserved += num_tokens
        return True

    def settle(self, num_tokens: int, *, spent: int) -> None:
        """Return the unspent part of a reservation to the budget."""
        self._reserved -= num_tokens
        self._spent += spent
        self._settled.set()
        self._settled = asyncio.Event()
