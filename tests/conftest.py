"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudal1_ci.trial import Session, TrialConfig

QUICK = TrialConfig(call_s=10, load_s=60, num_rounds=4, batch_us=1500)


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """One judge for all tests that need a real one: starting it takes two seconds."""
    with Session(QUICK) as started:
        yield started
