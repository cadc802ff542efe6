"""What `doctor` says of noise."""

from __future__ import annotations

import types

import pytest

from cudal1_ci.cli import noise


def written(folder, files):
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return folder


def test_a_busy_machine_is_named():
    assert noise.load(0.2, 8).grade == "ok"
    busy = noise.load(3.0, 8)
    assert (busy.grade, busy.found) == ("limited", "3.0 on 8 cores in the last minute")
    assert busy.fix


QUIET = {
    "cpu0/cpufreq/scaling_governor": "performance",
    "intel_pstate/no_turbo": "1",
    "smt/active": "0",
}
LOUD = {
    "cpu0/cpufreq/scaling_governor": "powersave",
    "intel_pstate/no_turbo": "0",
    "smt/active": "1",
}


@pytest.mark.parametrize(
    ("files", "grade"),
    [(QUIET, "ok"), (LOUD, "limited"), ({}, "unknown")],
)
def test_clocks_and_threads_of_the_processor(tmp_path, files, grade):
    written(tmp_path, files)
    for check in (noise.governor, noise.turbo, noise.threads_per_core):
        one = check(tmp_path)
        assert one.grade == grade
        assert bool(one.fix) == (grade == "limited")


@pytest.mark.parametrize(("boost", "grade"), [("0", "ok"), ("1", "limited")])
def test_turbo_of_other_processors(tmp_path, boost, grade):
    assert noise.turbo(written(tmp_path, {"cpufreq/boost": boost})).grade == grade


class FakeError(Exception):
    pass


def nvml(*, mode=1, bits=0, programs=(), has_driver=True):
    """Answer as NVML does, for one GPU."""

    def init():
        if not has_driver:
            raise FakeError("no driver")

    return types.SimpleNamespace(
        NVMLError=FakeError,
        NVML_CLOCK_SM=1,
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlClocksThrottleReasonHwThermalSlowdown=64,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPersistenceMode=lambda _: mode,
        nvmlDeviceGetClockInfo=lambda *_: 1200,
        nvmlDeviceGetMaxClockInfo=lambda *_: 1980,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: bits,
        nvmlDeviceGetComputeRunningProcesses=lambda _: programs,
    )


def test_a_quiet_gpu():
    rows = list(noise.gpus(nvml()))
    assert [(one.name, one.grade) for one in rows] == [
        ("GPU 0 persistence", "ok"),
        ("GPU 0 clocks", "ok"),
        ("GPU 0 processes", "ok"),
    ]


def test_a_gpu_that_others_use_and_heat_slows():
    rows = list(noise.gpus(nvml(mode=0, bits=4 | 64, programs=(1, 2))))
    assert [one.grade for one in rows] == ["limited"] * 3
    assert rows[0].fix == "`sudo nvidia-smi -i 0 -pm 1`"
    assert rows[1].found == "SM at 1200 of 1980 MHz, lowered by heat and the power limit"
    assert rows[2].found == "2 other programs"


def test_no_driver_means_no_row_and_a_refused_question_means_unknown():
    assert list(noise.gpus(nvml(has_driver=False))) == []
    fake = nvml()

    def refused(_):
        raise FakeError("not supported")

    fake.nvmlDeviceGetPersistenceMode = refused
    assert [one.grade for one in noise.gpus(fake)] == ["unknown", "ok", "ok"]
