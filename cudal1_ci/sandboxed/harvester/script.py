"""Run one script: its cells one after the other, or its file, or its tests with pytest.

A cell that raises is left with its reason, and the next one runs. A cell has a time of its own:
an alarm interrupts it between two lines of Python, and the server ends what does not hear it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import io
import json
import linecache
import os
import random
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..forkserver.server import CHANNEL_FD
from ..runner.programs import OverlayFinder
from ..tracer import install as tracing
from ..tracer.record import Log
from ..wire.codec import encode
from ..wire.harvest import ABSENT, CellRan, HarvestCell, OpenHarvest, Outcome, RunScript
from . import outputs, probe, smaller, substitutes
from .limits import failure, limited
from .stand_ins import imported, stand_in_for
from .suite import run_tests

AGAIN_SHARE = 0.08
"""Of a script's time: in it root calls are made again, and in inference. Longer calls are not."""


class Report:
    """Append lines to the file that the server reads."""

    def line(self, text: bytes) -> None:
        with contextlib.suppress(OSError):  # it is full: what was written counts
            os.write(CHANNEL_FD, text + b"\n")

    def cell(self, ran: CellRan) -> None:
        self.line(b"cell " + encode(ran))

    def note(self, text: str) -> None:
        self.line(json.dumps({"note": text}).encode())

    def trace(self, text: str) -> None:
        self.line(json.dumps({"trace": text}).encode())

    def silence(self) -> None:
        """Say nothing more, in a process that a script started."""
        null = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):
            os.dup2(null, CHANNEL_FD)
        os.close(null)


def main(opened: OpenHarvest, request: RunScript, scratch: Path) -> None:
    """Run a script in this process, and end it."""
    report = Report()
    began_s = time.monotonic()
    work = workspace(Path(opened.root), scratch / "work")
    os.chdir(work)
    prepare_imports(opened, request)
    tracing.begin(lambda: Log(report.trace, report.silence), Path(opened.root), opened.functions)
    import torch

    torch.manual_seed(request.seed)
    random.seed(request.seed)
    warm_up(torch)
    substitutes.apply(torch, report.note, has_gpu=opened.has_gpu, root=Path(opened.root))
    if request.compares:
        substitutes.without_dropout(torch)
    else:
        substitutes.draw_quickly(torch)
    tracer = tracing.current
    assert tracer is not None, "torch is there"
    tracer.provenance = request.kind
    tracer.source = request.path
    tracer.roots = {}
    try:
        if request.kind == "test":
            run_tests(opened, request, report, began_s)
        elif request.kind == "config":
            probe.run(opened, request, report, tracer, limited, failure)
        else:
            names = run_cells(opened, request, report, tracer, began_s)
            if not request.compares:
                probe.call_uncalled(names, tracer, limited)
        if not request.compares:
            left_s = request.script_s - (time.monotonic() - began_s)
            again(torch, tracer, min(AGAIN_SHARE * request.script_s, left_s))
    finally:
        signal.alarm(0)
        tracer.log.flush()
    os._exit(0)


def workspace(root: Path, folder: Path) -> Path:
    """Return a folder to write in that shows the checkout's top: what a script reads by a relative
    path is there."""
    folder.mkdir(parents=True)
    for entry in os.scandir(root):
        if not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry.path)
    return folder


def prepare_imports(opened: OpenHarvest, request: RunScript) -> None:
    """Put the checkout's folders first on the path of modules, and the script's own before."""
    roots = [str(Path(opened.root, one)) for one in opened.import_roots]
    folder = str(Path(opened.root, request.path).parent)
    if "." not in request.module:  # in a package, its files would hide others of their names
        roots.insert(0, folder)
    sys.path[:0] = list(dict.fromkeys([*roots, opened.root]))
    sys.path.append(folder)
    usual = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path.insert(usual, OverlayFinder({}, Path(opened.root)))
    own_names = frozenset(opened.own) - sys.stdlib_module_names - {"torch"}
    for name in [one for one in sys.modules if one.partition(".")[0] in own_names]:
        del sys.modules[name]  # installed too, and needed by another package
    sys.argv = [str(Path(opened.root, request.path)), *request.arguments]
    sys.setrecursionlimit(3000)


def warm_up(torch: Any) -> None:
    """Have done what the first calls of a process do once, so that no script's call is charged."""
    layer = torch.nn.Linear(64, 64)
    layer(torch.randn(32, 64)).softmax(-1).sum().backward()
    torch.nn.functional.conv2d(torch.randn(1, 4, 16, 16), torch.randn(4, 4, 3, 3))


def run_cells(
    opened: OpenHarvest, request: RunScript, report: Report, tracer: Any, began_s: float
) -> dict[str, Any]:
    """Run the cells of a page, or a file as one cell. Return the names that they bound; none
    where one was too large, which is run again."""
    cells = request.cells
    file = Path(opened.root, request.path)
    if not cells:
        text = file.read_text(encoding="utf-8-sig")
        cells = (HarvestCell(line=0, text=text),)
    module = namespace_of(opened, request, file, report.note)
    is_over = False
    for cell in cells:
        left_s = request.script_s - (time.monotonic() - began_s)
        if left_s < 0.5:
            report.cell(CellRan(line=cell.line, outcome="out_of_time", reason=NO_TIME))
            continue
        tracer.source = f"{request.path}:{cell.line}" if cell.line else request.path
        before = outputs.identities(module.__dict__)
        limits_s = left_s if cell.line == 0 else min(left_s, request.cell_s), left_s
        code = functools.partial(compiled, cell, str(file), request.is_smaller, report.note)
        for _ in range(MAX_STAND_INS):
            ran, missing = run_cell(cell.line, code, module, limits_s, request.seed, before)
            name = missing and stand_in_for(missing, opened.own)
            if not name:
                break
            report.note(f"{ABSENT}{name}")
        report.cell(ran)
        is_over = is_over or ran.outcome.startswith("out_of")
    return {} if is_over else module.__dict__


MAX_PRINTED_CHARS = 4000
MAX_STAND_INS = 8
NO_TIME = "the time of its script was over"


def namespace_of(
    opened: OpenHarvest, request: RunScript, file: Path, note: Callable[[str], None]
) -> types.ModuleType:
    """Return the module in which cells run. Examples of a docstring see what its module has. A
    file that is run gets its own name, so that what it defines can be imported."""
    name = request.module if request.module and not request.cells else "__main__"
    module = types.ModuleType(name)
    module.__file__ = str(file)
    if request.kind == "docstring" and request.module:
        with contextlib.suppress(BaseException):
            found = imported(request.module, opened.own, note)
            module.__dict__.update(
                {key: value for key, value in vars(found).items() if not key.startswith("__")}
            )
    if not request.cells:
        if "." in name:
            module.__package__ = name.rpartition(".")[0]
            with contextlib.suppress(BaseException):
                imported(module.__package__, opened.own, note)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=str(file))
    sys.modules[name] = module
    module.__dict__["display"] = lambda *_: None
    return module


def run_cell(
    line: int,
    code: Callable[[], types.CodeType],
    module: types.ModuleType,
    limits_s: tuple[float, float],
    seed: int,
    before: dict[str, int],
) -> tuple[CellRan, ModuleNotFoundError | None]:
    """Run a cell, and return what became of it, and what it says is not installed."""
    import torch

    start_s = time.monotonic()
    outcome: Outcome = "ran"
    reason = ""
    printed = io.StringIO()
    missing: ModuleNotFoundError | None = None
    try:
        program = code()
        torch.manual_seed(seed)
        with contextlib.redirect_stdout(printed), limited(*limits_s):
            exec(program, module.__dict__)
    except BaseException as error:  # noqa: BLE001 - whatever a script raises is its reason
        outcome, reason = failure(error)
        missing = error if isinstance(error, ModuleNotFoundError) else None
    signal.alarm(0)
    ran = CellRan(
        line=line,
        outcome=outcome,
        reason=reason,
        duration_s=time.monotonic() - start_s,
        outputs=outputs.outputs_of(module.__dict__, before) if outcome == "ran" else (),
        printed=printed.getvalue()[:MAX_PRINTED_CHARS],
    )
    return ran, missing


def compiled(
    cell: HarvestCell, file: str, is_smaller: bool, note: Callable[[str], None]
) -> types.CodeType:
    """Compile a cell so that its errors name the page's lines. What a file does as the main program
    is done, pretrained weights are not asked for."""
    tree: Any = ast.parse(cell.text)
    if cell.line:
        ast.increment_lineno(tree, cell.line - 1)
    tree = substitutes.Rewriting(note).visit(tree)
    if is_smaller:
        tree = smaller.Smaller(note).visit(tree)
    if cell.line:
        lines = [""] * (cell.line - 1) + cell.text.split("\n")
        linecache.cache[file] = (len(cell.text), None, [f"{one}\n" for one in lines], file)
    code: types.CodeType = compile(ast.fix_missing_locations(tree), file, "exec")
    return code


def again(torch: Any, tracer: Any, left_s: float) -> None:
    """Make each root call once more, as its first call holds what is done once, and once in
    inference where it was made in training. What they return or raise is of no interest."""
    deadline = time.monotonic() + left_s
    roots, tracer.roots = tracer.roots or {}, None
    for root in sorted(roots.values(), key=lambda one: one.elapsed_s):
        module, was_training = root.module, root.module.training
        for trains in (True, False, False) if was_training else (False,):
            left_s = deadline - time.monotonic()
            if left_s < 1.5 * root.elapsed_s:
                break
            with contextlib.suppress(BaseException), limited(left_s):
                module.train(trains)
                with torch.set_grad_enabled(trains):
                    module(*root.args, **root.kwargs)
        with contextlib.suppress(BaseException):
            module.train(was_training)
