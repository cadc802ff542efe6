"""Read settings of a process that calls of torch or of the interpreter change for all its code.

They are compared with those before the program was imported, so a change is shown with both of its
values. The program runs in this process and may forge what is read: a change counts only to its
disadvantage.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` says of a handler takes longer
import atexit
import contextlib
import copyreg
import ctypes
import decimal
import functools
import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

numpy: Any = sys.modules.get("numpy")  # torch imports it where it is installed

MAX_CHARS = 200
"""Of a value that is shown."""
TIMERS = {"real": signal.ITIMER_REAL, "virtual": signal.ITIMER_VIRTUAL, "prof": signal.ITIMER_PROF}
PRCTL = {"timer_slack": 30, "no_huge_pages": 42}
"""Settings of the kernel that `prctl` returns (PR_GET_TIMERSLACK, PR_GET_THP_DISABLE)."""
LIMITS = ("RLIMIT_NOFILE", "RLIMIT_STACK", "RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_NPROC")
SDP, MATMUL = "backends.cuda", "backends.cuda.matmul"
OF_TORCH = {
    "sdp.flash": f"{SDP}.flash_sdp_enabled",
    "sdp.math": f"{SDP}.math_sdp_enabled",
    "sdp.mem_efficient": f"{SDP}.mem_efficient_sdp_enabled",
    "sdp.cudnn": f"{SDP}.cudnn_sdp_enabled",
    "sdp.math_reduced": f"{SDP}.fp16_bf16_reduction_math_sdp_allowed",
    "matmul.tf32": f"{MATMUL}.allow_tf32",
    "matmul.fp16_reduction": f"{MATMUL}.allow_fp16_reduced_precision_reduction",
    "matmul.bf16_reduction": f"{MATMUL}.allow_bf16_reduced_precision_reduction",
    "matmul.fp16_accumulation": f"{MATMUL}.allow_fp16_accumulation",
    "cudnn.enabled": "backends.cudnn.enabled",
    "cudnn.deterministic": "backends.cudnn.deterministic",
    "mkldnn.deterministic": "_C._get_mkldnn_deterministic",
    "mkldnn.matmul": "backends.mkldnn.matmul.fp32_precision",
    "nnpack": "_C._get_nnpack_enabled",
    "mha_fastpath": "backends.mha.get_fastpath_enabled",
    "deterministic_warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "fill_uninitialized_memory": "utils.deterministic.fill_uninitialized_memory",
    "opt_einsum": "backends.opt_einsum.enabled",
    "jit.optimize": "_C._get_graph_executor_optimize",
    "jit.fuser_on_cpu": "_C._jit_can_fuse_on_cpu",
    "jit.texpr_fuser": "_C._jit_texpr_fuser_enabled",
    "autograd.multithreading": "_C._is_multithreading_enabled",
    "autograd.anomaly": "is_anomaly_enabled",
    "autograd.inference": "is_inference_mode_enabled",
    "autocast.cache": "is_autocast_cache_enabled",
    "dispatch.excluded": "_C._dispatch_tls_local_exclude_set",
    "dispatch.included": "_C._dispatch_tls_local_include_set",
    "overwrites_parameters": "__future__.get_overwrite_module_params_on_conversion",
    "swaps_parameters": "__future__.get_swap_module_params_on_conversion",
    "sparse_invariants": "sparse.check_sparse_tensor_invariants.is_enabled",
    "view_replay": "_C._is_view_replay_enabled",
    "warn_always": "is_warn_always_enabled",
    "cudnn.benchmark_limit": "backends.cudnn.benchmark_limit",
    "linalg": "_C._get_linalg_preferred_backend",
    "blas": "_C._get_blas_preferred_backend",
    "sharing": "multiprocessing.get_sharing_strategy",
    "num_threads": "get_num_threads",
    "num_interop_threads": "get_num_interop_threads",
}
"""Names of torch's settings, and where torch has them or returns them."""
HOOKS = {
    f"{place}.{name.strip('_')}": hooks
    for place, module in (
        ("torch.nn", torch.nn.modules.module),
        ("torch.optim", sys.modules["torch.optim.optimizer"]),
    )
    for name, hooks in vars(module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
}
"""Hooks of all modules and all optimizers."""
with contextlib.suppress(AttributeError):
    torch._functorch.vmap.lazy_load_decompositions()  # type: ignore[attr-defined]
KERNELS = frozenset(torch.library._impls)
"""Kernels that torch itself registers from Python, when it is imported or first calls `vmap`."""
SET_ONLY = ("_jit_set_profiling_executor", "_jit_set_profiling_mode")
"""Functions of torch._C that set what nothing else returns."""
REGISTER_AT_IMPORT = ("torch._inductor", "torch._dynamo", "triton", "multiprocessing.util", "numba")
"""Modules that register functions for the end of the process."""

LARGE_BYTES = 2**26
"""More than the largest threshold of glibc, from which on it maps a block."""
AUDITED: list[str] = []
"""Audit hooks that programs have tried to add. None is: it would run in code outside of calls,
and can be neither listed nor removed."""

Values = dict[str, str]
Changes = tuple[tuple[str, str, str], ...]


def values(scratch: Path) -> Values:
    """Return all settings by name. The program's own folder is called `scratch`."""
    found = {**interpreter(), **process(), **of_torch()}
    own = str(scratch)
    return {name: said.replace(own, "scratch")[:2000] for name, said in found.items()}


def changes(before: Values, now: Values) -> Changes:
    """Return the settings that differ, with both values."""
    return tuple(
        (name, *shown(before[name], now[name]))
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    )


def shown(before: str, now: str) -> tuple[str, str]:
    """Return two values from shortly before their first difference on."""
    pairs = zip(before, now, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
    start = 0 if max(len(before), len(now)) <= MAX_CHARS else max(0, same - 20)
    return before[start : start + MAX_CHARS], now[start : start + MAX_CHARS]


def interpreter() -> Values:
    """Return settings of the interpreter."""
    found = {
        "gc.enabled": gc.isenabled(),
        "gc.threshold": gc.get_threshold(),
        "gc.callbacks": names(gc.callbacks),
        "gc.debug": gc.get_debug(),
        "sys.recursionlimit": sys.getrecursionlimit(),
        "sys.switchinterval": sys.getswitchinterval(),
        "sys.path": sys.path,
        "sys.meta_path": names(sys.meta_path),
        "sys.path_hooks": names(sys.path_hooks),
        "sys.excepthook": name_of(sys.excepthook),
        "sys.unraisablehook": name_of(sys.unraisablehook),
        "sys.displayhook": name_of(sys.displayhook),
        "sys.breakpointhook": name_of(sys.breakpointhook),
        "sys.dont_write_bytecode": sys.dont_write_bytecode,
        "sys.stdout": type(sys.stdout).__name__,
        "sys.stderr": type(sys.stderr).__name__,
        "threading.excepthook": name_of(threading.excepthook),
        "threading.stack_size": threading.stack_size(),
        "socket.defaulttimeout": socket.getdefaulttimeout(),
    }
    if not any(name in sys.modules for name in REGISTER_AT_IMPORT):
        found["atexit"] = atexit._ncallbacks()
    return texts({**found, **libraries()})


def libraries() -> dict[str, Any]:
    """Return settings of the standard library and of numpy, which the runner has imported or
    which are read from the part that every process has."""
    return {
        "sys.audithooks": AUDITED,
        "threading.profile": name_of(threading.getprofile()),
        "threading.trace": name_of(threading.gettrace()),
        "sys.int_max_str_digits": sys.get_int_max_str_digits(),
        "sys.modules.hidden": [name for name, one in list(sys.modules.items()) if one is None],
        "locale": locale.setlocale(locale.LC_ALL),
        "decimal": decimal.getcontext(),
        "logging.disable": logging.root.manager.disable,
        "logging.level": logging.root.level,
        "logging.handlers": names(logging.root.handlers),
        "tracemalloc": tracemalloc.is_tracing(),
        "copyreg": sorted(map(name_of, copyreg.dispatch_table)),
        "multiprocessing.start_method": multiprocessing.get_start_method(allow_none=True),
        "numpy.errors": sorted(numpy.geterr().items()) if numpy is not None else "",
        "random.state": hash(random.getstate()),
        "numpy.random.state": state_of_numpy(),
    }


def state_of_numpy() -> int:
    """Return a hash of the state of the generator that all users of numpy share."""
    if numpy is None:
        return 0
    _, key, *rest = numpy.random.get_state()
    return hash((key.tobytes(), *rest))


def process() -> Values:
    """Return settings that the kernel keeps of this process."""
    mask = os.umask(0o077)
    os.umask(mask)
    found: dict[str, Any] = {
        "os.umask": f"{mask:03o}",
        "os.getcwd": folder(),
        "os.priority": os.getpriority(os.PRIO_PROCESS, 0),
        "os.scheduler": os.sched_getscheduler(0),
        **{f"os.{name}": ctypes.CDLL(None).prctl(one, 0, 0, 0, 0) for name, one in PRCTL.items()},
        "malloc.large_blocks": "mapped" if maps_large_blocks() else "kept",
        "signal.mask": sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }
    for number, name in SIGNALS.items():
        found[name] = name_of(_signal.getsignal(number))
    for name, timer in TIMERS.items():
        found[f"signal.timer.{name}"] = "off" if signal.getitimer(timer) == (0.0, 0.0) else "on"
    for name in LIMITS:
        found[f"resource.{name}"] = resource.getrlimit(getattr(resource, name))
    return texts(found)


class MallocFigures(ctypes.Structure):
    """What glibc says of its heaps: `mallinfo2` in mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def malloc_figures() -> MallocFigures | None:
    """Return what the C library says of its heaps; None where it does not."""
    try:
        figures = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    figures.restype = MallocFigures
    found: MallocFigures = figures()
    return found


def maps_large_blocks() -> bool:
    """Return whether the C library takes large blocks from the kernel and gives them back, as it
    does unless `mallopt` forbids that. Where all are kept, no call waits for pages."""
    before = malloc_figures()
    if before is None:
        return True
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    # Larger than all that is free: of that a block would be taken first.
    block = library.malloc(ctypes.c_size_t(LARGE_BYTES + before.fordblks))
    now = malloc_figures()
    if not block or now is None:
        return True
    library.free(ctypes.c_void_p(block))
    return bool(now.hblks > before.hblks)


def refuse_audit_hooks() -> None:
    """Note audit hooks instead of adding them."""
    sys.addaudithook = lambda hook: AUDITED.append(name_of(hook))


def folder() -> str:
    """Return the working folder, or that there is none any more."""
    try:
        return str(Path.cwd())
    except OSError:
        return "removed"


def of_torch() -> Values:
    """Return torch's own settings, where this version has them."""
    found: dict[str, Any] = {}
    for name, path in OF_TORCH.items():
        with contextlib.suppress(AttributeError, RuntimeError):
            value = functools.reduce(getattr, path.split("."), torch)
            found[f"torch.{name}"] = value() if callable(value) else value
    found["torch.printing"] = torch._tensor_str.PRINT_OPTS
    found["torch.saved_tensor_hooks"] = saved_tensor_hooks()
    for name, hooks in HOOKS.items():
        found[name] = names(hooks.values())
    found["torch.operators"] = sorted(filter(is_overridden, torch.library._impls - KERNELS))
    torch.autocast_increment_nesting()
    found["torch.autocast.nesting"] = torch.autocast_decrement_nesting()
    for kind in ("cpu", "cuda"):
        found[f"torch.autocast.{kind}"] = torch.is_autocast_enabled(kind)
        found[f"torch.autocast.{kind}.dtype"] = torch.get_autocast_dtype(kind)
    for name in SET_ONLY:
        with contextlib.suppress(AttributeError):
            found[f"torch.{name.strip('_')}"] = probe(getattr(torch._C, name))
    return texts(found)


def saved_tensor_hooks() -> list[str]:
    """Return the hooks that every tensor goes through which is saved for a backward pass."""
    return names(torch._C._autograd._top_saved_tensors_default_hooks(True) or ())


def is_overridden(kernel: str) -> bool:
    """Return whether a kernel that is registered from Python, as `aten/erf/CPU`, replaces one of
    torch's operators."""
    return kernel.startswith("aten/") and not kernel.endswith("/Meta")


def probe(setter: Callable[[bool], bool]) -> bool:
    """Return a setting that is only returned by the function that sets it."""
    before = setter(True)
    setter(before)
    return before


def texts(found: dict[str, Any]) -> Values:
    return {name: str(value) for name, value in found.items()}


def names(ones: Iterable[Any]) -> list[str]:
    return [name_of(one) for one in ones]


def name_of(one: Any) -> str:
    """Return the place in a module of a function, class or handler."""
    kind = one if hasattr(one, "__qualname__") else type(one)
    if type(one) is int or one is None:  # of a signal
        return "none" if one is None else signal.Handlers(one).name
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


SIGNALS = {int(one): f"signal.{signal_name(one)}" for one in signal.valid_signals()}
"""Names of the settings of all signals, by number."""
