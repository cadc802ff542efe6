"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from cudal1_ci.verification import Session, TrialConfig
from cudal1_ci.verification.repetitions import BATCH_US

QUICK = TrialConfig(call_s=10, load_s=60, num_rounds=5, measure_s=1.5)
JUDGES = frozenset({"session", "hasty_session", "judges"})
"""Fixtures that measure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="what real judges measure on: cpu, cuda")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that a real judge takes part in are `alone`, whoever wrote them, and have the time to
    measure again where the machine is busy."""
    for item in items:
        if JUDGES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("alone")
        if item.get_closest_marker("alone") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests build is no one's to find."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Who starts the tests in the background of a shell has SIGINT ignored, and by what they start
    too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def brief_batches() -> None:
    """On a CPU; on a GPU a batch this short is lost in the exchange."""
    BATCH_US["cpu"] = 1500.0


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where the tests that need a real judge run it."""
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def session(device: str) -> Iterator[Session]:
    """One judge for all tests that need a real one: starting it takes two seconds."""
    with Session(QUICK, device=device) as started:
        yield started


@pytest.fixture(scope="session")
def hasty_session(device: str) -> Iterator[Session]:
    """One that waits two seconds for an answer, for programs that never give one."""
    with Session(msgspec.structs.replace(QUICK, call_s=2), device=device) as started:
        yield started
