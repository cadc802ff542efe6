"""The faults: what a candidate does, what is done to others from outside, and what is right then.

A candidate is a linear layer with a ReLU and one fault in its `forward`; where it needs a library
or a kernel, its constructor compiles one. Faults of a GPU are compiled by NVRTC, through torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ci.records import Candidate, Made, Problem, TextProgram, Workload

REFERENCE_NAME, VICTIM_NAME = "f-reference", "f-candidate"
"""Names of their processes."""

SOURCE = """\
import ctypes, os, shutil, signal, subprocess, sys, time
import torch
from torch import nn

ctypes.CDLL(None).prctl(15, b"{name}")
STATE = {{"calls": 0, "hoard": []}}


def is_timed():
    return STATE["calls"] > 40


def again(*_):
    return max([0], key=again)


def forever(*_):
    return forever() + 1


def library(text):
    path = os.path.join(os.environ["TMPDIR"], "fault.so")
    words = ["c++", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", path]
    subprocess.run(words, input=text, text=True, check=True)
    return path


def kernel(text):
    return torch.cuda._compile_kernel('extern "C" __global__ ' + text, "fault")


class {entry}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
{setup}

    def forward(self, x):
        STATE["calls"] += 1
        first = STATE["calls"] == 1
{body}
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.rand(32, 64)]


def get_init_inputs():
    return [64]

# {number}
"""
DAEMON = """
if first and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4096)
        os.chdir("/")
        os.environ.clear()
        while True:
            signal.pause()
    os._exit(0)
"""
THOUSAND = """
if first:
    for _ in range(1000):
        if os.fork() == 0:
            while True:
                signal.pause()
"""
FILLS_DISK = """
page = bytes(2**24)
for number in range(1000):
    with open(os.path.join(os.environ["TMPDIR"], f"fill{number}"), "wb") as file:
        for _ in range(10):
            file.write(page)
"""
DELETES_SCRATCH = """
for place in (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()):
    shutil.rmtree(place, ignore_errors=True)
"""
IGNORES_SIGNALS = """
for n in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(n, signal.SIG_IGN)
while True: time.sleep(1)
"""
HOARDS_BYTES = "while True: STATE['hoard'].append(bytearray(2**28))"
HOARDS_DEVICE = """
while True: STATE["hoard"].append(torch.empty(2**30, dtype=torch.uint8, device=x.device))
"""
KEEPS_DEVICE = """
if first: STATE["hoard"].append(torch.ones(2**32, dtype=torch.uint8, device=x.device))
"""
ASSERTS_ON_DEVICE = """
torch.zeros(4, device=x.device)[torch.full((1,), 9, device=x.device)]
torch.cuda.synchronize()
"""
VICTIM = "if first: time.sleep(0.3)"

CPP_SPINS = "void fault() { volatile long i = 0; for (;;) i = i + 1; }"
CPP_WRITES = "void fault() { std::vector<int> v(4); volatile int *p = v.data(); p[1l << 40] = 1; }"
CPP_THROWS = 'void fault() { throw std::runtime_error("nobody catches this"); }'
CPP_HOARDS = "void fault() { for (;;) { volatile char *p = new char[1l << 30]; p[0] = 1; } }"
CPP_EXITS = "void fault() { std::exit(0); }"
KERNEL_SPINS = "void fault() { volatile long i = 0; while (true) i = i + 1; }"
KERNEL_WRITES = "void fault(float *x) { x[(1ll << 40) + threadIdx.x] = 1.0f; }"
KERNEL_TRAPS = "void fault() { __trap(); }"
LAUNCH = "self.fault(grid=({blocks}, 1, 1), block=({threads}, 1, 1), args=[{args}])"
SYNCHRONIZE = "\ntorch.cuda.synchronize()"

HARMLESS = ("passed", "inconclusive timing.noisy")
"""On a machine that is too busy to measure on the verifier says so, and accuses no program."""
TIMEOUT = ("timeout runner.timeout",)
DIED = ("runtime_error runner.died",)
RAISED = ("runtime_error program.raised",)
MEMORY = ("runtime_error memory.exhausted",)
BROKEN = ("WorkerError",)
"""The tool says that it failed; no verdict, nothing recorded."""
CPU, CUDA, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and the verdicts that are right then."""

    body: str
    right: tuple[str, ...]
    strike: str = ""
    """What is done from outside, and to whom; else the candidate does it."""
    setup: str = ""
    devices: tuple[str, ...] = CPU
    """Where it is injected."""


def cpp(text: str, right: tuple[str, ...], loader: str = "CDLL") -> Fault:
    """Return a call of compiled C++; through `PyDLL` it holds the interpreter's lock."""
    head = "#include <cstdlib>\n#include <stdexcept>\n#include <vector>\n"
    source = f'{head}extern "C" {text}\n'
    return Fault(
        "self.fault()", right, setup=f"self.fault = ctypes.{loader}(library({source!r})).fault"
    )


def cuda(
    text: str,
    right: tuple[str, ...],
    *,
    args: str = "",
    blocks: int = 1,
    threads: int = 1,
    before: str = "",
    after: str = "",
    strike: str = "",
) -> Fault:
    """Return a launch of a kernel, compiled by the constructor."""
    body = before + LAUNCH.format(blocks=blocks, threads=threads, args=args) + after
    return Fault(body, right, strike, setup=f"self.fault = kernel({text!r})", devices=CUDA)


FAULTS = {
    "hangs in Python": Fault("while True: pass", TIMEOUT, devices=BOTH),
    "hangs in C": Fault("ctypes.CDLL(None).pause()", TIMEOUT),
    "hangs in C holding the GIL": Fault("ctypes.PyDLL(None).sleep(1000)", TIMEOUT),
    "hangs in C++": cpp(CPP_SPINS, TIMEOUT),
    "hangs in C++ holding the GIL": cpp(CPP_SPINS, TIMEOUT, "PyDLL"),
    "hangs in a timed batch": Fault("if is_timed(): signal.pause()", TIMEOUT, devices=BOTH),
    "ignores SIGTERM, hangs": Fault(IGNORES_SIGNALS, TIMEOUT),
    "segfault": Fault("ctypes.string_at(0)", DIED),
    "illegal address in C++": cpp(CPP_WRITES, DIED),
    "uncaught exception in C++": cpp(CPP_THROWS, DIED),
    "abort": Fault("os.abort()", DIED),
    "stack overflow in C": Fault("sys.setrecursionlimit(10**9); again()", DIED),
    "infinite recursion": Fault("forever()", (*RAISED, *DIED)),
    "exit 0": Fault("os._exit(0)", DIED, devices=BOTH),
    "exit 0 in C++": cpp(CPP_EXITS, DIED),
    "exit 0 in a timed batch": Fault(
        "if is_timed() and STATE['calls'] % 7 == 0: os._exit(0)", DIED
    ),
    "SystemExit": Fault("sys.exit(0)", RAISED),
    "KeyboardInterrupt": Fault("raise KeyboardInterrupt", RAISED),
    "torch.ones(2**45)": Fault("torch.ones(2**45)", MEMORY),
    "growing list": Fault("while True: STATE['hoard'].append(torch.empty(2**26))", MEMORY),
    "growing list, written": Fault(HOARDS_BYTES, (*MEMORY, *TIMEOUT)),
    "out of memory in C++": cpp(CPP_HOARDS, DIED),
    "a thousand children": Fault(THOUSAND, (*HARMLESS, *RAISED, *TIMEOUT)),
    "daemon by a double fork": Fault(DAEMON, HARMLESS),
    "prints a gigabyte": Fault(
        "for _ in range(64): os.write(1, bytes(2**24))", (*RAISED, *TIMEOUT)
    ),
    "fills its disk": Fault(FILLS_DISK, (*RAISED, *TIMEOUT)),
    "scratch disk is full": Fault(VICTIM, (*HARMLESS, *BROKEN), "fill disk"),
    "deletes its scratch folder": Fault(DELETES_SCRATCH, (*HARMLESS, *RAISED)),
    "closes its descriptors": Fault("os.closerange(0, 4096)", DIED),
    "kill -9 of the runner": Fault(VICTIM, (*DIED, *HARMLESS), "kill runner", devices=BOTH),
    "SIGSTOP of the runner": Fault(VICTIM, (*TIMEOUT, *HARMLESS), "stop runner"),
    "kill -9 of the reference, learned": Fault(VICTIM, HARMLESS, "kill learned", devices=BOTH),
    "kill -9 of the reference, timed": Fault(VICTIM, HARMLESS, "kill reference", devices=BOTH),
    "kill -9 of the reference, always": Fault(
        VICTIM, ("inconclusive reference.died",), "killall reference"
    ),
    "SIGSTOP of the reference": Fault(
        VICTIM, (*HARMLESS, "inconclusive reference.timeout"), "stop reference"
    ),
    "kill -9 of the template": Fault(VICTIM, BROKEN, "kill template", devices=BOTH),
    "kill -9 of the judge": Fault(VICTIM, BROKEN, "kill judge", devices=BOTH),
    "kill -9 of the host": Fault("", (), "kill host"),
    "hangs in a kernel": cuda(KERNEL_SPINS, TIMEOUT),
    "hangs in kernels that fill the GPU": cuda(KERNEL_SPINS, TIMEOUT, blocks=4096, threads=256),
    "hangs in a kernel, timed": cuda(KERNEL_SPINS, TIMEOUT, before="if is_timed(): "),
    "kill -9 of the runner, kernel hanging": cuda(
        KERNEL_SPINS, (*DIED, *TIMEOUT), strike="kill runner"
    ),
    "kill -9 of the judge, kernel hanging": cuda(KERNEL_SPINS, BROKEN, strike="kill judge"),
    "illegal address in a kernel": cuda(KERNEL_WRITES, (*RAISED, *DIED), args="x", threads=32),
    "illegal address in a kernel, waited for": cuda(
        KERNEL_WRITES, (*RAISED, *DIED), args="x", threads=32, after=SYNCHRONIZE
    ),
    "trap in a kernel": cuda(KERNEL_TRAPS, (*RAISED, *DIED), after=SYNCHRONIZE),
    "assertion in a kernel": Fault(ASSERTS_ON_DEVICE, (*RAISED, *DIED), devices=CUDA),
    "torch.empty(2**50) on the GPU": Fault(
        "torch.empty(2**50, dtype=torch.uint8, device=x.device)", MEMORY, devices=CUDA
    ),
    "growing list on the GPU": Fault(HOARDS_DEVICE, MEMORY, devices=CUDA),
    # The verifier and the reference need memory of the same GPU at that moment.
    "growing list on the GPU, timed": Fault(
        f"if is_timed():\n    {HOARDS_DEVICE.strip()}",
        (*MEMORY, "inconclusive reference.raised", *BROKEN),
        devices=CUDA,
    ),
    "keeps 4 GiB of the GPU": Fault(KEEPS_DEVICE, HARMLESS, devices=CUDA),
}


def source_of(name: str, entry: str, number: object, fault: Fault | None = None) -> str:
    """Return the text of a program with a fault in it, or with none."""
    body, setup = (fault.body, fault.setup) if fault else ("", "")
    return SOURCE.format(
        name=name, entry=entry, number=number, body=indented(body), setup=indented(setup)
    )


def indented(text: str) -> str:
    return "\n".join(" " * 8 + line for line in text.strip().splitlines())


def problem_of(number: object) -> Problem:
    """Return a linear layer and a ReLU; another number is another problem."""
    workload = Workload(
        name="w",
        provenance="declared",
        init=Made(function="get_init_inputs"),
        call=Made(function="get_inputs"),
    )
    source = source_of(REFERENCE_NAME, "Model", number)
    return Problem(reference=TextProgram(source=source, entry="Model"), workloads=(workload,))


def candidate_of(problem: Problem, number: object, fault: Fault | None) -> Candidate:
    """Return a candidate of a text that was not verified before."""
    source = source_of(VICTIM_NAME, "ModelNew", number, fault)
    program = TextProgram(source=source, entry="ModelNew")
    return Candidate(problem_id=problem.id, program=program, proposer="faults")
