"""What a target is in a training step: numbers where all is known, null where anything is not."""

from __future__ import annotations

import io
import math

import msgspec
import pytest
from rich.console import Console

from cudal1_ci.errors import ConfigError
from cudal1_ci.records import Device, Report, TracedSteps, TrainingStep
from cudal1_ci.render import render
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.render.merge import merge
from cudal1_ci.render.published import published
from cudal1_ci.render.step import mean_interval, step_of
from cudal1_ci.render.text import print_report
from cudal1_ci.render.wording import step_text
from tests.unit.render.samples import CPU, a_measurement, pooling_entry

H200 = Device(kind="cuda", name="NVIDIA H200")
STEPS = TracedSteps(durations_us=(9_900.0, 10_000.0, 10_100.0) * 7, device="NVIDIA H200")
MILLION = 1_000_000


@pytest.fixture
def entry(tmp_path):
    """A call of about 410 us, twice as fast now, that a step of 10 ms makes four times."""
    found = pooling_entry(tmp_path)
    (workload,) = found.workloads
    traced = msgspec.structs.replace(workload, provenance="traced", calls_per_step=4.0, steps=STEPS)
    measured = a_measurement(2.0, "wide", seed=3, device=H200, reference_us=410.0)
    (evaluation,) = found.evaluations
    evaluation = msgspec.structs.replace(evaluation, measurements=(measured,), device=H200)
    return msgspec.structs.replace(found, workloads=(traced,), evaluations=(evaluation,))


def but(entry, **fields):
    (workload,) = entry.workloads
    return msgspec.structs.replace(entry, workloads=(msgspec.structs.replace(workload, **fields),))


def test_the_share_is_calls_times_their_time_over_the_time_of_a_step(entry):
    found = step_of(entry, None)
    assert found.device == "NVIDIA H200"
    assert (found.num_steps, found.calls_per_step) == (21, 4.0)
    assert found.share == pytest.approx(4 * 410 / 10_000, rel=0.02)
    assert found.share_low < found.share < found.share_high
    assert found.share_high - found.share_low < 0.02
    assert found.gpu_hours_saved is None
    assert found.steps_per_month is None


def test_hours_are_what_the_calls_of_all_steps_take_less(entry):
    found = step_of(entry, MILLION)
    expected = MILLION * 4 * 410 / 2 / 3.6e9
    assert found.gpu_hours_saved == pytest.approx(expected, rel=0.03)
    assert found.gpu_hours_saved_low < found.gpu_hours_saved < found.gpu_hours_saved_high
    assert found.steps_per_month == MILLION
    twice = step_of(entry, 2 * MILLION)
    assert twice.gpu_hours_saved == pytest.approx(2 * found.gpu_hours_saved)


def test_a_step_on_another_device_gives_no_share_but_calls_are_calls(entry):
    for device in ("NVIDIA A100", None):
        other = but(entry, steps=msgspec.structs.replace(STEPS, device=device))
        assert step_of(other, None) is None
        found = step_of(other, MILLION)
        assert found.share is found.share_low is found.share_high is None
        assert found.gpu_hours_saved > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"calls_per_step": None, "steps": None},
        {"calls_per_step": None},
        {"steps": None},
        {"name": "another"},
    ],
)
def test_without_traced_steps_nothing_is_known(entry, fields):
    assert step_of(but(entry, **fields), MILLION) is None


def test_on_a_cpu_nothing_is_said(entry):
    (evaluation,) = entry.evaluations
    measured = a_measurement(2.0, "wide", device=CPU)
    evaluation = msgspec.structs.replace(evaluation, measurements=(measured,), device=CPU)
    on_cpu = msgspec.structs.replace(entry, evaluations=(evaluation,))
    steps = msgspec.structs.replace(STEPS, device=CPU.name)
    assert step_of(but(on_cpu, steps=steps), MILLION) is None


def test_calls_that_take_longer_than_the_step_they_are_in_give_no_share(entry):
    assert step_of(but(entry, calls_per_step=30.0), None) is None


def test_one_step_has_no_interval_and_so_no_share(entry):
    steps = TracedSteps(durations_us=(10_000.0,), device=H200.name)
    assert step_of(but(entry, steps=steps), None) is None


def test_without_a_proposal_there_is_a_share_and_nothing_saved(entry):
    found = step_of(msgspec.structs.replace(entry, best=None), MILLION)
    assert found.share == pytest.approx(0.164, rel=0.02)
    assert found.gpu_hours_saved is None


def test_the_interval_is_student_s():
    found = mean_interval([1.0, 2.0, 3.0], 0.05)
    assert found.estimate == 2.0
    assert found.high - 2.0 == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert mean_interval([1.0], 0.05) is None


def test_the_words_have_device_and_intervals(entry):
    said = step_text(step_of(entry, MILLION))
    assert "of a training step on NVIDIA H200 (4 calls a step, 21 steps traced)" in said
    assert "at 1,000,000 steps a month about 0.22" in said
    assert "GPU hours of NVIDIA H200 less, if steps wait for it" in said
    assert said.count("[") == 2
    assert step_text(None) == ""
    bounds = {"share": 0.1234, "share_low": 0.1201, "share_high": 0.1299}
    rounded = TrainingStep(device="x", num_steps=1, calls_per_step=1.0, **bounds)
    assert step_text(rounded).startswith("12.3 % [12.0, 13.0] of")


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
@pytest.mark.parametrize("width", [80, 160])
def test_every_readable_format_says_it_where_it_is_known(entry, output_format, width):
    known = published(Report(repository="r", entries=(entry,)), ReportConfig())
    unknown = published(Report(repository="r", entries=(but(entry, steps=None),)))

    def rendered(report):
        if output_format != "text":
            return render(report, output_format)
        buffer = io.StringIO()
        print_report(report, Console(file=buffer, width=width))
        return " ".join(buffer.getvalue().split())

    assert "of a training step on NVIDIA H200" in rendered(known)
    assert "hours" not in rendered(known)
    assert "a training step" not in rendered(unknown)


def test_hours_are_said_where_a_number_of_steps_is_configured(entry):
    config = ReportConfig(steps_per_month=MILLION)
    report = published(Report(repository="r", entries=(entry,)), config)
    assert report.entries[0].step.gpu_hours_saved > 0
    assert "GPU hours of NVIDIA H200" in render(report, "md")


def test_merged_reports_keep_what_one_says_and_drop_what_two_say_differently(entry):
    one = published(Report(repository="r", device=H200, entries=(entry,)))
    none = published(Report(repository="r", device=CPU, entries=(but(entry, steps=None),)))
    assert merge([one, none]).entries[0].step == one.entries[0].step
    other = msgspec.structs.replace(
        one.entries[0], step=msgspec.structs.replace(one.entries[0].step, device="NVIDIA A100")
    )
    assert merge([one, msgspec.structs.replace(one, entries=(other,))]).entries[0].step is None


def test_a_number_outside_of_its_bounds_is_refused():
    with pytest.raises(ValueError, match="share_low <= share <= share_high"):
        TrainingStep(device="x", num_steps=1, calls_per_step=1.0, share=0.5)


def test_no_steps_in_a_month_are_a_mistake():
    with pytest.raises(ConfigError, match=r"report\.steps-per-month"):
        ReportConfig(steps_per_month=0)
