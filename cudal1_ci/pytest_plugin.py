"""Record workloads while tests run, and assert that a function did not get slower.

    pytest --cudal1      # the calls of this run become the workloads of `cudal1-ci scan`

    def test_fused_norm(assert_not_slower):
        assert_not_slower(fused_norm, plain_norm, (torch.randn(64, 512),))

pytest loads this file in every run where the package is installed, so it imports what it needs when
it is asked for.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

SANDBOXED = Path(__file__).resolve().parent / "sandboxed"
NOT_SLOWER = 0.05
"""Relative: how much slower a function may get."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cudal1`."""
    parser.getgroup("cudal1-ci").addoption(
        "--cudal1",
        action="store_true",
        help="Record how the tests call modules and functions, as workloads of `cudal1-ci scan`.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start to record before the project's own modules are imported."""
    options = early_config.known_args_namespace
    if not getattr(options, "cudal1", False):
        return
    if getattr(options, "numprocesses", None) or hasattr(early_config, "workerinput"):
        raise pytest.UsageError("--cudal1 records one process: leave -n out, or pass -n 0")
    record(Path(early_config.rootpath))


def record(root: Path) -> None:
    """Record the calls of this process, until it ends."""
    from cudal1_ci.config import load_settings
    from cudal1_ci.discover import discover
    from cudal1_ci.discover.launchers import functions_to_trace
    from cudal1_ci.records.archive import make_folder

    settings = load_settings(root)
    state = root / settings.state_dir
    make_folder(state)
    fresh = state / "traces-new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    functions = fresh / "functions.json"
    functions.write_text(json.dumps(functions_to_trace(discover(root, settings.discover))))
    atexit.register(keep, fresh, state / "traces")  # runs after the tracer's own, which is later
    tracer().install(fresh, root, functions)


def tracer() -> Any:
    """Load the tracer as a package of its own, as `cudal1-ci trace` does."""
    folder = SANDBOXED / "tracer"
    spec = importlib.util.spec_from_file_location(
        "cudal1_tracer", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["cudal1_tracer"] = package
    spec.loader.exec_module(package)
    return importlib.import_module("cudal1_tracer.install")


def keep(fresh: Path, folder: Path) -> None:
    """Replace the earlier traces where something was recorded, and report it."""
    (fresh / "functions.json").unlink(missing_ok=True)
    from cudal1_ci.discover.traces import read_traces
    from cudal1_ci.render.wording import recorded_text

    found = read_traces(fresh)
    if found.calls:
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        num_calls = sum(map(len, found.calls.values()))
        said = recorded_text(num_calls, len(found.calls))
    else:
        shutil.rmtree(fresh, ignore_errors=True)
        said = "nothing was recorded: the tests called no module or function of this folder"
    sys.stderr.write(f"cudal1-ci: {said}\n")


@pytest.fixture
def assert_not_slower(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that asserts that one function computes the same as another and is not
    slower. Both must be importable by name; see `cudal1_ci.verify`.
    """
    root = Path(request.config.rootpath)

    def check(
        candidate: Callable[..., Any],
        reference: Callable[..., Any],
        inputs: Sequence[Any] | Mapping[str, Any],
        *,
        threshold: float = NOT_SLOWER,
        device: str = "auto",
    ) -> None:
        from cudal1_ci import verify
        from cudal1_ci.config import load_settings

        trial = load_settings(root).trial
        found = verify(reference, candidate, inputs, device=device, config=trial)
        judge(found, threshold)

    return check


def judge(evaluation: Any, threshold: float) -> None:
    """Fail for a candidate that is wrong or slower by more than the threshold, with its whole
    interval; skip where the verifier could not decide."""
    from cudal1_ci.stats.regression import slowdown

    __tracebackhide__ = True
    verdict = evaluation.verdict
    said = "; ".join(one.message for one in verdict.findings)
    if verdict.status in ("inconclusive", "harness_error"):
        pytest.skip(f"{verdict.status}: {said}")
    if verdict.status != "passed":
        pytest.fail(f"{verdict.status}: {said}", pytrace=False)
    for measurement in evaluation.measurements:
        found = slowdown(measurement)
        if found is not None and found.low is not None and found.low > 1 + threshold:
            pytest.fail(
                f"{found.estimate:.2f}x as long [{found.low:.2f}, {found.high:.2f}], more than "
                f"{100 * threshold:.0f} % slower",
                pytrace=False,
            )
