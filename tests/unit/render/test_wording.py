"""How numbers are said."""

from __future__ import annotations

import math

import msgspec
import pytest

from cudal1_ci.records import Device, Measurement, Verdict, Workload
from cudal1_ci.render.wording import (
    change_text,
    count_text,
    devices_text,
    direction,
    duration_text,
    error_long,
    error_short,
    error_text,
    interval_text,
    one_line,
    percent_text,
    share_text,
    speedup_text,
    time_text,
)

CPU = Device(kind="cpu", name="cpu")


def measured(low, estimate, high) -> Measurement:
    return Measurement(
        workload="w",
        baseline="eager",
        speedup=estimate,
        speedup_low=low,
        speedup_high=high,
        control_spread=None,
        reference_us=None,
        candidate_us=None,
        num_pairs=0,
        device=CPU,
    )


@pytest.mark.parametrize(
    ("estimate", "low", "high", "text"),
    [
        (2.314, 2.2089, 2.4101, "2.31x [2.20, 2.42]"),
        (2.0, 2.0, 2.0, "2.00x [2.00, 2.00]"),
        (2.31, 2.31, 2.31, "2.31x [2.31, 2.31]"),
        (1.004, 0.999, 1.001, "1.00x [0.99, 1.01]"),
        (12.34, 9.999, 15.01, "12.3x [9.99, 15.1]"),
        (250.4, 199.9, 300.2, "250x [199, 301]"),
    ],
)
def test_bounds_are_rounded_away_from_the_estimate(estimate, low, high, text):
    assert interval_text(estimate, low, high) == text


def test_a_speedup_without_interval_is_a_dash():
    assert speedup_text(measured(None, None, None)) == "-"


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(1.01, 1.2, "faster"), (0.8, 0.99, "slower"), (0.99, 1.2, "unclear"), (1.0, 1.2, "unclear")],
)
def test_only_an_interval_above_one_is_faster(low, high, word):
    assert direction(measured(low, (low + high) / 2, high)) == word


def test_half_an_interval_is_refused():
    with pytest.raises(ValueError, match="speedup_low <= speedup"):
        measured(None, 2.0, 2.1)
    with pytest.raises(ValueError, match="speedup_low <= speedup"):
        msgspec.convert({**msgspec.to_builtins(measured(1, 2, 3)), "speedup": 4}, Measurement)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (None, "-"),
        (0.0123, "0.0123 us"),
        (1.0, "1.00 us"),
        (12.34, "12.3 us"),
        (835.2, "835 us"),
        (999.7, "1.00 ms"),
        (16_000.0, "16.0 ms"),
        (2.5e6, "2.50 s"),
        (5e9, "5000 s"),
    ],
)
def test_times_have_three_digits_and_a_unit(time_us, text):
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.42, "0.4 s"), (94.4, "94 s"), (600, "10 min"), (11_100, "3 h 05 min")],
)
def test_durations_have_the_unit_that_fits(duration_s, text):
    assert duration_text(duration_s) == text


def test_what_was_not_measured_is_never_zero():
    assert percent_text(None) == "-"
    assert error_text(None) == "-"
    assert percent_text(0.0) == "0.0 %"


def test_counts_have_their_plural():
    assert [count_text(n, "launch") for n in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
    assert count_text(2, "target") == "2 targets"


def test_text_of_many_lines_becomes_one():
    assert one_line("a\n  b\r\n\tc ") == "a b c"


def test_rounding_never_narrows_an_interval():
    for i in range(1, 4000):
        ratio = math.exp(i / 500 - 1)
        low, high = interval_text(ratio, ratio, ratio).split("[")[1].rstrip("]").split(", ")
        assert float(low) <= ratio + 1e-6 * ratio
        assert float(high) >= ratio - 1e-6 * ratio


def test_a_container_is_named_beside_the_device():
    software = {"torch": "2.13", "container": "debian:12 sha256:abc", "container_engine": "podman"}
    contained = msgspec.structs.replace(CPU, software=software, sandbox_missing=("landlock",))
    said = devices_text([contained])
    assert said == "cpu, torch 2.13, in a container of debian:12, sandbox without landlock"


@pytest.mark.parametrize(
    ("share", "root", "said"),
    [
        (None, None, ""),
        (0.42, None, "42 % of the traced time"),
        (0.42, "a.py:Model", "42 % of the traced time of Model"),
        (0.004, None, "less than 1 % of the traced time"),
    ],
)
def test_what_took_hardly_any_time_is_not_said_to_have_taken_none(share, root, said):
    workload = Workload(name="w", provenance="traced", call="()", share=share, root=root)
    assert share_text(workload) == said


@pytest.mark.parametrize(
    ("absolute", "relative", "short", "long"),
    [
        (1.5e5, 3.2e-7, "3.2e-07", "3.2e-07 of the output's magnitude"),
        (0.25, None, "2.5e-01 absolute", "2.5e-01 absolute"),
        (None, None, "-", "-"),
    ],
)
def test_an_error_is_told_beside_what_it_is_an_error_of(absolute, relative, short, long):
    verdict = Verdict(status="passed", max_abs_error=absolute, max_rel_error=relative)
    assert error_short(verdict) == short
    assert error_long(verdict) == long


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ((1.12, 1.1, 1.14), "+12.0 % [+10.0, +14.0]"),
        ((1.0, 0.99951, 1.00049), "+0.0 % [-0.1, +0.1]"),
        ((0.5, 0.49999, 0.50001), "-50.0 % [-50.1, -49.9]"),
        ((12.3456, 12.3401, 12.3499), "+1,135 % [+1,134, +1,135]"),
    ],
)
def test_a_change_is_signed_and_its_bounds_are_rounded_outward(ratios, said):
    assert change_text(*ratios) == said
