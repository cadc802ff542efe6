"""Settings of a process are shown with what they were. A change of the reference too is none."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import sys

import numpy
import pytest
import torch

from cudal1_ci.sandboxed.runner.process_settings import (
    AUDITED,
    changes,
    maps_large_blocks,
    refuse_audit_hooks,
    values,
)
from cudal1_ci.sandboxed.runner.settings import hooks
from cudal1_ci.sandboxed.verifier.changed_settings import is_refused, process_changes

M_MMAP_MAX, MOST_MAPPED = -4, 65536
LIBRARY = ctypes.CDLL(None)
THRESHOLD = gc.get_threshold()
CASES = {
    "gc.threshold": lambda: (gc.set_threshold(9, 9, 9), lambda: gc.set_threshold(*THRESHOLD)),
    "gc.enabled": lambda: (gc.disable(), gc.enable),
    "gc.callbacks": lambda: (gc.callbacks.append(print), lambda: gc.callbacks.remove(print)),
    "sys.recursionlimit": lambda: (
        sys.setrecursionlimit(5000),
        lambda: sys.setrecursionlimit(1000),
    ),
    "sys.switchinterval": lambda: (
        sys.setswitchinterval(1.0),
        lambda: sys.setswitchinterval(0.005),
    ),
    "os.umask": lambda: (os.umask(0o077), lambda: os.umask(0o022)),
    "signal.SIGUSR1": lambda: (
        signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    ),
    "signal.timer.virtual": lambda: (
        signal.setitimer(signal.ITIMER_VIRTUAL, 1000.0),
        lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0.0),
    ),
    "malloc.large_blocks": lambda: (
        LIBRARY.mallopt(M_MMAP_MAX, 0),
        lambda: LIBRARY.mallopt(M_MMAP_MAX, MOST_MAPPED),
    ),
    "torch.sdp.math": lambda: (
        torch.backends.cuda.enable_math_sdp(False),
        lambda: torch.backends.cuda.enable_math_sdp(True),
    ),
    "torch.autocast.nesting": lambda: (
        torch.autocast_increment_nesting(),
        torch.autocast_decrement_nesting,
    ),
    "torch.dispatch.excluded": lambda: (exclude_autograd(True), lambda: exclude_autograd(False)),
    "torch.swaps_parameters": lambda: (
        torch.__future__.set_swap_module_params_on_conversion(True),
        lambda: torch.__future__.set_swap_module_params_on_conversion(False),
    ),
    "random.state": lambda: (random.random(), random.seed),
    "numpy.random.state": lambda: (numpy.random.seed(0), numpy.random.seed),
    "os.timer_slack": lambda: (LIBRARY.prctl(29, 1), lambda: LIBRARY.prctl(29, 0)),
    "torch.jit_set_profiling_executor": lambda: (
        torch._C._jit_set_profiling_executor(False),
        lambda: torch._C._jit_set_profiling_executor(True),
    ),
}


def exclude_autograd(is_excluded: bool) -> None:
    """Let all operations of this thread pass over autograd."""
    key = torch._C.DispatchKey.AutogradCPU
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, is_excluded)


@pytest.mark.parametrize("name", CASES)
def test_a_changed_setting_is_named_with_both_values(name, tmp_path):
    before = values(tmp_path)
    assert changes(before, values(tmp_path)) == ()
    _, undo = CASES[name]()
    try:
        found = changes(before, values(tmp_path))
    finally:
        undo()
    assert [one[0] for one in found] == [name]
    assert found[0][1] != found[0][2]


def test_the_working_folder_is_that_of_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = values(tmp_path)
    monkeypatch.chdir("/")
    assert changes(before, values(tmp_path)) == (("os.getcwd", "scratch", "/"),)


def test_what_the_reference_changes_too_is_no_change():
    ours = [("os.umask", "022", "000"), ("sys.path", "a", "b")]
    theirs = [("os.umask", "022", "000"), ("sys.path", "a", "c")]
    assert process_changes(ours, theirs) == {"sys.path": ("a", "c")}


@pytest.mark.parametrize(
    ("name", "text", "patch"),
    [
        ("gc.enabled", True, True),
        ("signal.SIGTERM", True, True),
        ("os.umask", False, False),
        ("torch.sdp.math", False, True),
    ],
)
def test_what_may_flatter_a_time_is_refused(name, text, patch):
    assert is_refused(name, is_patch=False) is text
    assert is_refused(name, is_patch=True) is patch


def test_the_first_vmap_of_a_process_changes_no_setting(tmp_path):
    before = values(tmp_path)
    torch.vmap(torch.sin)(torch.ones(2))
    assert changes(before, values(tmp_path)) == ()


def test_free_memory_of_the_heap_is_no_changed_setting():
    LIBRARY.malloc.restype = ctypes.c_void_p
    LIBRARY.mallopt(M_MMAP_MAX, 0)
    large = LIBRARY.malloc(ctypes.c_size_t(2**28))
    above = LIBRARY.malloc(ctypes.c_size_t(64))  # so that the large one is not given back
    LIBRARY.mallopt(M_MMAP_MAX, MOST_MAPPED)
    LIBRARY.free(ctypes.c_void_p(large))
    try:
        assert maps_large_blocks()
    finally:
        LIBRARY.free(ctypes.c_void_p(above))


def test_a_hook_of_audits_is_noted_and_never_called(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", sys.addaudithook)
    refuse_audit_hooks()
    before = values(tmp_path)
    seen = []
    sys.addaudithook(lambda *_: seen.append(0))
    id(seen)
    try:
        ((name, was, now),) = changes(before, values(tmp_path))
    finally:
        AUDITED.clear()
    assert (name, was) == ("sys.audithooks", "[]") and "lambda" in now
    assert seen == [] and is_refused(name, is_patch=False)


def test_what_sees_other_code_run_is_named():
    usual = hooks()
    sys.setprofile(lambda *_: None)
    try:
        found = hooks()
    finally:
        sys.setprofile(None)
    assert [*usual, "sys.setprofile"] == sorted([*found])
    with torch.overrides.BaseTorchFunctionMode():
        assert hooks() == [*usual, "a function mode"]
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert hooks() == [*usual, "a dispatch mode"]
