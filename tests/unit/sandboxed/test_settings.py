"""What a program changes in its process is seen by name, and torch's own changes are not held
against it."""

from __future__ import annotations

import functools
import threading
import time
import warnings

import pytest
import torch

from cudal1_ci.sandboxed.runner.settings import attributes, hidden, patched, settings


@pytest.fixture
def before():
    return attributes()


def test_nothing_was_changed(before):
    found = settings(before, ())
    assert found == settings(before, ())
    assert found.patched == ()


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (torch.nn.functional, "relu", "torch.nn.functional.relu"),
        (torch.Tensor, "copy_", "torch.Tensor.copy_"),
        (torch, "allclose", "torch.allclose"),
        (torch.nn.Module, "__call__", "torch.nn.Module.__call__"),
        (time, "perf_counter", "time.perf_counter"),
    ],
)
def test_a_function_that_was_replaced_is_named(before, monkeypatch, owner, name, told):
    real = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: real(*args, **kwargs))
    assert patched(before) == [told]


class Timer:
    count = 0

    def time(self):
        return self.count


def test_an_object_with_an_attribute_in_the_place_of_a_method_is_named():
    timer = Timer()
    timer.count = 1
    assert hidden({Timer: timer}) == []
    timer.time = lambda: 0
    assert hidden({Timer: timer}) == ["Timer.time"]


def test_an_object_of_another_class_is_named():
    timer = Timer()
    timer.__class__ = type("Timer", (Timer,), {})
    assert hidden({Timer: timer}) == ["Timer.__class__"]


def test_a_wrapper_that_borrows_a_name_is_seen(before, monkeypatch):
    @functools.wraps(torch.relu)
    def relu(x):
        return x

    monkeypatch.setattr(torch, "relu", relu)
    assert patched(before) == ["torch.relu"]


def test_what_torch_replaces_itself_is_no_patch(before, monkeypatch):
    monkeypatch.setattr(torch, "relu", torch.nn.functional.hardtanh)
    assert patched(before) == []


def test_threads_environment_and_silenced_warnings_are_told(before, monkeypatch):
    quiet = settings(before, ())
    assert quiet.silences_warnings is False
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left behind")
    thread.start()
    monkeypatch.setenv("SEEN", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = settings(before, ())
    stop.set()
    thread.join()
    assert "left behind" in found.threads
    assert "SEEN=1" in found.environment
    assert found.silences_warnings is True
    assert {key for key, value in vars(quiet).items() if value != vars(found)[key]} == {
        "threads",
        "environment",
        "silences_warnings",
    }
