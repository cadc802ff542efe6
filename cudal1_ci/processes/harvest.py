"""Run scripts of a checkout, confined, and return what became of them and what they called.

    with Harvester(root, import_roots=(".",)) as harvester:
        ran = harvester.run(script, Limits())
        print(ran.cells, ran.trace)

Each script has a process of its own (sandboxed/harvester), forked from one that has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from cudal1_ci.errors import UnsupportedError, WorkerError
from cudal1_ci.processes.local import Worker, without_torch
from cudal1_ci.sandboxed.wire.harvest import HarvestCell, OpenHarvest, RunScript, ScriptRan

START_S = 240.0
"""Time to import torch and the packages of the checkout, on a busy machine."""
WARM = 2.5
"""Scripts' times in which packages are imported, once for all scripts."""
SLACK_S = 30.0
"""More than a script's time: it is forked, confined and ended."""


class AnyCell(Protocol):
    """A piece of a script, as `discover.scripts` has it."""

    @property
    def line(self) -> int: ...
    @property
    def text(self) -> str: ...


class AnyScript(Protocol):
    """A script, as `discover.scripts` has it."""

    @property
    def kind(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def arguments(self) -> tuple[str, ...]: ...
    @property
    def cells(self) -> Sequence[AnyCell]: ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of each script."""

    cell_s: float = 30.0
    """Of a cell of a page."""
    script_s: float = 90.0
    memory_bytes: int = 6 * 2**30


def limits_for(budget_s: float) -> Limits:
    """Return bounds with which a dozen scripts that do not end leave time for others."""
    return Limits(
        cell_s=min(30.0, max(4.0, budget_s / 20)), script_s=min(90.0, max(10.0, budget_s / 8))
    )


class Harvester:
    """A worker that runs scripts of one checkout, inside a `with`.

    Raises:
        UnsupportedError: This kernel does not grant what confines a script, or the project's
            interpreter has no torch.
        WorkerError: It cannot be started.
    """

    def __init__(
        self,
        root: Path,
        *,
        python: str = sys.executable,
        import_roots: Sequence[str] = (".",),
        functions: Mapping[str, Sequence[str]] | None = None,
        packages: Sequence[str] = (),
        own: Sequence[str] = (),
        configurations: Sequence[str] = (),
        limits: Limits | None = None,
        num_threads: int = 1,
        has_gpu: bool = False,
    ):
        self.root = root.resolve()
        self.limits = limits or Limits()
        self.python = str(Path(python).absolute())
        self.num_threads = num_threads
        self.request = OpenHarvest(
            root=str(self.root),
            import_roots=tuple(import_roots),
            functions={path: tuple(names) for path, names in (functions or {}).items()},
            packages=tuple(packages),
            warm_s=min(START_S / 2, WARM * self.limits.script_s),
            own=tuple(own),
            memory_bytes=self.limits.memory_bytes,
            has_gpu=has_gpu,
            configurations=tuple(configurations),
        )
        self.worker: Worker | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start the worker, and ask what its sandbox grants."""
        device = "cuda" if self.request.has_gpu else "none"
        worker = Worker(
            "harvester", python=self.python, num_threads=self.num_threads, device=device
        )
        self.worker = worker.__enter__()
        try:
            opened = self.worker.ask(self.request, START_S)
            if opened.refused:
                layers = ", ".join(f"{name} ({why})" for name, why in opened.refused.items())
                raise UnsupportedError(
                    f"scripts of the repository are not run: this kernel does not grant {layers}; "
                    "trace a command of yours instead: `cudal1-ci trace -- COMMAND`"
                )
            if not opened.torch:
                raise UnsupportedError(without_torch(self.python))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the worker with all that it started."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.__exit__(None, None, None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def run(
        self,
        script: AnyScript,
        *,
        module: str = "",
        limits: Limits | None = None,
        is_smaller: bool = False,
        compares: bool = False,
    ) -> ScriptRan:
        """Run a script and return what became of it. `module` is the name by which its file is
        imported, `compares` whether what it gives is compared with what another tree gives. A
        worker that is lost is started again, and the script reported as ended."""
        limits = limits or self.limits
        request = RunScript(
            kind=script.kind,
            path=script.path,
            module=module,
            cells=tuple(HarvestCell(line=cell.line, text=cell.text) for cell in script.cells),
            cell_s=limits.cell_s,
            script_s=limits.script_s,
            is_smaller=is_smaller,
            arguments=script.arguments,
            compares=compares,
        )
        if self.worker is None:
            self.start()
        assert self.worker is not None
        try:
            return self.worker.ask(request, limits.script_s + SLACK_S)
        except WorkerError as error:
            self.stop()
            return ScriptRan(ending=str(error))


__all__ = ["Harvester", "Limits", "limits_for"]
