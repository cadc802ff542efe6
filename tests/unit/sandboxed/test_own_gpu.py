"""Of several GPUs a runner may open one."""

from __future__ import annotations

import os
import subprocess
import uuid as uuids

import pytest

from cudal1_ci.processes.local import scrubbed_environment
from cudal1_ci.sandboxed.confinement import gpus, landlock, missing
from tests.templates import start_template

OWN, OTHER = (str(uuids.UUID(int=number)) for number in (7, 8))
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 40
GPU UUID: \t GPU-{uuid}
Video BIOS: \t 96.00.99.00.01
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Firmware: \t 580.159.04
"""
# Stands in for libcuda: as many GPUs as files that can be opened.
DRIVER = """
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static int number = 0;
static int count(const char *path) {
    int fd = open(path, O_RDWR);
    if (fd >= 0) close(fd);
    return fd >= 0;
}
int cuInit(unsigned flags) { number = count("/dev/zero") + count("/dev/full"); return 0; }
int cuDeviceGetCount(int *found) { *found = number; return number ? 0 : 100; }
int cuDeviceGet(int *device, int at) { *device = at; return at < number ? 0 : 101; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0, 16); uuid[15] = 7; return 0; }
"""


@pytest.fixture
def driver(tmp_path):
    """What the driver tells, of so many GPUs; the one at the first place has the highest number."""

    def tells(*found):
        for place, uuid in enumerate(found):
            folder = tmp_path / "driver" / "gpus" / f"0000:{place:02x}:00.0"
            folder.mkdir(parents=True)
            text = INFORMATION.format(uuid=uuid, bus=f"{place:02x}", minor=len(found) - place - 1)
            (folder / "information").write_text(text)
        return tmp_path / "driver"

    return tells


def test_the_files_of_other_gpus_are_told_by_the_driver(driver):
    third = str(uuids.UUID(int=9))
    folder = driver(OWN, OTHER, third)
    assert gpus.others_than(OWN, folder) == ("/dev/nvidia1", "/dev/nvidia0")
    assert gpus.others_than(third, folder) == ("/dev/nvidia2", "/dev/nvidia1")


def test_nothing_is_hidden_that_might_be_the_own_one(driver, tmp_path):
    folder = driver(OWN, OTHER)
    assert gpus.others_than(str(uuids.UUID(int=9)), folder) == ()
    assert gpus.others_than(OWN, tmp_path / "nowhere") == ()
    (folder / "capabilities" / "gpu1" / "mig" / "gi3").mkdir(parents=True)
    assert gpus.others_than(OWN, folder) == ()


class Driver:
    """As ctypes has it."""

    def __init__(self, *, uuid=OWN, number=1, **errors):
        self.uuid, self.number, self.errors = uuid, number, errors

    def __getattr__(self, name):
        def call(*arguments):
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.number
            if name == "cuDeviceGetUuid":
                arguments[0]._obj[:] = uuids.UUID(self.uuid).bytes
            return self.errors.get(name, 0)

        return call


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, None),
        ({"number": 2}, "2 GPUs are seen"),
        ({"uuid": OTHER}, f"the first is {OTHER}"),
        ({"cuInit": 100}, "cuInit fails with error 100"),
        ({"cuDeviceGetUuid": 1}, "cuDeviceGetUuid fails with error 1"),
    ],
)
def test_cuda_has_to_see_the_own_gpu_alone(found, why):
    if why is None:
        gpus.see_only(OWN, Driver(**found))
        return
    with pytest.raises(OSError, match=why):
        gpus.see_only(OWN, Driver(**found))


@pytest.fixture
def template(tmp_path, monkeypatch):
    """One for which libcuda is the stand-in."""
    library = tmp_path / "lib" / "libcuda.so.1"
    library.parent.mkdir()
    (tmp_path / "driver.c").write_text(DRIVER)
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "driver.c")]
    subprocess.run(build, check=True)
    home = tmp_path / "home"
    home.mkdir()
    environment = scrubbed_environment({**os.environ, "CUDA_VISIBLE_DEVICES": "1"}, home, 1)
    environment["LD_LIBRARY_PATH"] = str(library.parent)
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    started = start_template()
    try:
        if "landlock" in missing(started.sandbox):
            pytest.skip("this kernel has no Landlock")
        yield started
    finally:
        started.close()


def others(monkeypatch, *files):
    monkeypatch.setattr(gpus, "others_than", lambda uuid: files)


def test_a_runner_has_the_own_gpu_alone(template, monkeypatch):
    others(monkeypatch, "/dev/full")
    template.keep_to(OWN)
    assert template.sandbox["own_gpu"] is True
    assert template.settings().hidden == ("/dev/full",)
    assert template.settings().environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert "own_gpu" not in missing(template.sandbox)


@pytest.mark.parametrize(
    ("uuid", "files", "why"),
    [
        (OTHER, ["/dev/full"], "not 00000000-0000-0000-0000-000000000008 alone"),
        (OWN, ["/dev/nvidia9"], "2 GPUs are seen"),
        (OWN, ["/dev/full", "/dev/zero"], "cuDeviceGetCount fails with error 100"),
    ],
)
def test_where_cuda_does_not_work_so_all_stay_and_the_layer_is_missing(
    template, monkeypatch, uuid, files, why
):
    others(monkeypatch, *files)
    template.keep_to(uuid)
    assert why in template.sandbox["own_gpu"]
    assert "own_gpu" in missing(template.sandbox)
    assert template.settings().hidden == ()
    assert "CUDA_VISIBLE_DEVICES" not in template.settings().environment


def test_without_landlock_nothing_can_be_hidden(template, monkeypatch):
    others(monkeypatch, "/dev/full")
    template.sandbox["landlock"] = "refused: no such system call"
    template.keep_to(OWN)
    assert template.sandbox["own_gpu"] == "refused: needs landlock"
    assert template.settings().hidden == ()


def test_on_a_machine_with_one_gpu_nothing_is_tried(template, monkeypatch):
    others(monkeypatch)
    template.keep_to(OWN)
    assert "own_gpu" not in template.sandbox


def test_hidden_devices_are_not_granted(tmp_path, monkeypatch):
    listed = tuple((path, landlock.DEVICE) for path in ("/dev/nvidia0", "/dev/nvidia1"))
    monkeypatch.setattr(landlock, "readable", lambda search_path: listed)
    granted = [path for path, _ in landlock.grants(tmp_path, [], None, False, True, listed[0][:1])]
    assert "/dev/nvidia1" in granted and "/dev/nvidia0" not in granted
