"""Fixtures that several rooms share, and which tests are run where.

Marks say what a test starts: `starts_verifier`, which is held by a check, and `compiles`. A test
of `times` asks a clock, so that a busy machine can fail it: `make test` leaves it out, `make
test-all` runs it with nothing beside it, and again where it fails.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from cudal1_ci.processes import Local
from cudal1_ci.verification import Session, TrialConfig
from tests import apart
from tests.attempts import pytest_runtest_protocol  # noqa: F401
from tests.github_judge import Judge, needs_rig
from tests.kept import Verifiers
from tests.selection import chosen, left_out

QUICK = TrialConfig(call_s=10, load_s=60, num_rounds=5, measure_s=1.5)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="what real verifiers measure on: cpu, cuda")
    parser.addoption(
        "--attacks",
        default="all",
        help="which attacks and honest programs: all, commit, or a number to draw them by",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say what the attacks are drawn by, so that the same ones can be run again. Have garbage
    collected less often than by default: syntax trees are many objects, and most of them stay."""
    gc.set_threshold(50_000, 20, 20)
    if worker := getattr(session.config, "workerinput", None):
        apart.take_core(worker)
    draw = chosen(session.config.getoption("--attacks"))
    if draw is not None and not hasattr(session.config, "workerinput"):
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(
            f"attacks: one of each family and a quarter of others: --attacks={draw}"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Give tests of `times` the time for their attempts. Of families, leave out what is not
    drawn."""
    for item in items:
        if item.get_closest_marker("times") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
    yield
    draw = chosen(config.getoption("--attacks"))
    if draw is not None and (others := left_out(items, draw)):
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def pytest_collection_finish() -> None:
    """Keep the garbage collector, and those that ask it for all objects, from what the imports of
    tests made: a million objects that stay."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give every file to one process."""
    from tests.groups import Grouped

    return Grouped(config, log)


@pytest.fixture(autouse=True)
def verifiers_are_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a verifier to a test that is not marked `starts_verifier`."""
    if request.node.get_closest_marker("starts_verifier"):
        return

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("starts a verifier and is not marked `starts_verifier`")

    monkeypatch.setattr(Local, "start", refuse)


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests build is no one's to find."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("caches"))


@pytest.fixture(scope="session", autouse=True)
def own_processor(pytestconfig: pytest.Config) -> Iterator[None]:
    """Tests next to these ones, which ask no clock either, are not waited for."""
    with pytest.MonkeyPatch.context() as patch:
        if worker := getattr(pytestconfig, "workerinput", None):
            apart.take_processor(worker, patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Who starts the tests in the background of a shell has SIGINT ignored, and by what they start
    too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where the tests that need a real verifier run it."""
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """GitHub's own description of its API, in front of whichever fake it is shown."""
    needs_rig()
    with Judge() as judge:
        yield judge


@pytest.fixture(scope="session")
def verifiers() -> Iterator[Verifiers]:
    """Verifiers that one test after the other has."""
    found = Verifiers()
    yield found
    found.close()


@pytest.fixture
def kept_verifiers(verifiers: Verifiers) -> Iterator[None]:
    """Sessions of a test have verifiers that other tests have had."""
    with verifiers.serving():
        yield


@pytest.fixture(scope="session")
def session(device: str) -> Iterator[Session]:
    """One verifier for all tests that need a real one: starting it takes two seconds."""
    with Session(QUICK, device=device) as started:
        yield started


@pytest.fixture(scope="session")
def hasty_session(device: str) -> Iterator[Session]:
    """One that waits two seconds for an answer, for programs that never give one."""
    with Session(msgspec.structs.replace(QUICK, call_s=2), device=device) as started:
        yield started
