"""What the process that runners are forked from imports must not ask the driver."""

from __future__ import annotations

import pytest
import torch

from cudal1_ci.worker import template


@pytest.fixture
def driver(monkeypatch):
    """A build with CUDA whose driver may not be asked."""

    def asked():
        raise AssertionError("the driver was asked, no runner could use it")

    monkeypatch.setattr(torch._C, template.DRIVER_COUNT, asked, raising=False)
    return asked


@pytest.mark.parametrize(("visible", "count"), [("2", 1), ("0,1", 2), ("", 0)])
def test_modules_hear_of_the_gpus_that_the_process_was_given(driver, monkeypatch, visible, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with template.unasked_driver():
        assert getattr(torch._C, template.DRIVER_COUNT)() == count
    assert getattr(torch._C, template.DRIVER_COUNT) is driver


def test_a_module_that_asks_when_it_is_imported(driver, monkeypatch, tmp_path):
    name = "asks_how_many_gpus"
    (tmp_path / f"{name}.py").write_text("import torch\nCOUNT = torch._C._cuda_getDeviceCount()\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(template, "is_installed", lambda name: True)
    monkeypatch.setattr(template.sys, "path", list(template.sys.path))
    assert template.warm([name], [str(tmp_path)]) == 1
    assert template.sys.modules.pop(name).COUNT == 1
