"""The impact of all proposals, in every form of the report."""

from __future__ import annotations

import json
import re
import subprocess

import msgspec
import pytest
from click.testing import CliRunner

from cudal1_ci.cli import main
from cudal1_ci.cli.outputs import apply_best, write_beside
from cudal1_ci.records import (
    Baseline,
    CallCost,
    Device,
    Impact,
    InRoot,
    LeftOut,
    Report,
    TimelineEvent,
    Together,
)
from cudal1_ci.records.published import from_json, to_json
from cudal1_ci.render.chrome_trace import traces_of
from cudal1_ci.render.comment import About, comment
from cudal1_ci.render.config import ReportConfig
from cudal1_ci.render.digest import digest
from cudal1_ci.render.html import render_html
from cudal1_ci.render.impact import headlines, sizes_text, together_lines
from cudal1_ci.render.markdown import render_markdown
from cudal1_ci.render.merge import merge
from cudal1_ci.render.monthly import saving
from cudal1_ci.render.text import render_text
from cudal1_ci.render.timeline import timeline_of
from tests.report_schema import validated
from tests.unit.render.samples import a_measurement

GPU = Device(kind="cuda", name="NVIDIA H100")
EVENTS = (
    TimelineEvent(name=0, on_device=False, start_us=0.0, duration_us=4.0),
    TimelineEvent(name=1, on_device=True, start_us=3.0, duration_us=20.0),
)
BEFORE = CallCost(
    host_us=9e3,
    device_us=40e3,
    num_launches=1412,
    peak_bytes=812_000_000,
    energy_j=3.4,
    names=("aten::mm", "gemm <hostile>"),
    events=EVENTS,
)
AFTER = msgspec.structs.replace(
    BEFORE, device_us=25e3, num_launches=230, peak_bytes=640_000_000, energy_j=0.25
)
VISION = Impact(
    root="models/vision.py:VisionModel",
    workload="8x3x224x224",
    before_us=41_200.0,
    after_us=25_900.0,
    low=1.52,
    high=1.66,
    before=BEFORE,
    after=AFTER,
    compiled=Baseline(name="torch.compile", speedup=1.31, speedup_low=1.28, speedup_high=1.34),
)
TRAIN = msgspec.structs.replace(VISION, mode="train", workload="train", before=None, after=None)
STEP = msgspec.structs.replace(
    TRAIN, kind="step", optimizer="AdamW", compiled=None, is_confirmed=False
)


@pytest.fixture
def with_impact(sample):
    patch = digest(sample).proposals[0].evaluation.candidate.patch
    together = Together(
        patch=patch,
        included=("slowformer/attention.py:Attention",),
        left_out=(LeftOut(what="a.py:F", reason="it changes the same lines as G"),),
        not_reached=(LeftOut(what="model.py:Net", reason="the budget was spent"),),
    )
    impact = (VISION, msgspec.structs.replace(VISION, workload="shorter"), TRAIN, STEP)
    return msgspec.structs.replace(sample, impact=impact, together=together)


def test_a_headline_has_times_memory_launches_and_what_compiling_gains(with_impact):
    first, train, step = headlines(with_impact)
    assert first.text == (
        "VisionModel: 41.2 ms -> 25.9 ms, 1.59x [1.52, 1.66]; peak memory 812 MB -> 640 MB; "
        "launches 1,412 -> 230; device time 40.0 ms -> 25.0 ms; host time 9.00 ms -> 9.00 ms; "
        "energy 3.4 J -> 250 mJ; torch.compile alone 1.31x [1.28, 1.34]"
    )
    assert train.title == "VisionModel in training"
    assert step.title == "training step of VisionModel (AdamW)"
    assert "measured once" in step.text


@pytest.mark.parametrize(
    ("low", "high", "direction"),
    [(1.1, 1.3, "faster"), (0.7, 0.9, "slower"), (0.9, 1.1, "unclear")],
)
def test_what_got_slower_is_said_as_such(with_impact, low, high, direction):
    impact = msgspec.structs.replace(VISION, low=low, high=high)
    (one,) = headlines(msgspec.structs.replace(with_impact, impact=(impact,)))
    assert one.direction == direction
    assert f'<li class="{direction}">' in render_html(
        msgspec.structs.replace(with_impact, impact=(impact,))
    )


def test_every_form_opens_with_it(with_impact):
    text = render_text(with_impact)
    assert text.startswith("VisionModel: 41.2 ms -> 25.9 ms, 1.59x [1.52, 1.66]")
    markdown = render_markdown(with_impact)
    assert markdown.index("VisionModel") < markdown.index("| Target |")
    said = comment(with_impact, About())
    assert said.splitlines()[2].startswith("- **VisionModel**: 41.2")
    page = render_html(with_impact)
    assert page.index("VisionModel") < page.index('class="cards"')


def test_a_report_without_impact_says_nothing_of_it(sample):
    assert headlines(sample) == [] and together_lines(sample) == []
    page = render_html(sample)
    assert '<ul class="impact">' not in page and 'id="together"' not in page


def test_a_page_without_times_explains_no_picture(with_impact):
    words = "its picture shows where time goes"
    assert words in render_html(with_impact)
    assert words not in render_html(msgspec.structs.replace(with_impact, impact=()))


def test_what_is_missing_is_said(with_impact):
    lines = together_lines(with_impact)
    assert lines[0].startswith("1 proposal is in one patch")
    assert "not in it: a.py:F: it changes the same lines as G" in lines
    assert "not measured: model.py:Net: the budget was spent" in lines
    text = render_text(with_impact)
    assert "All together: not in it: a.py:F" in text


def test_what_is_missing_for_one_reason_is_one_line_of_some_names(with_impact):
    spent = "the budget was spent"
    names = [f"torch.compile of m{n}.py:Model" for n in range(10)]
    missing = [LeftOut(what=one, reason=spent) for one in [*names, names[0]]]
    missing.append(LeftOut(what="model.py:Net", reason="it fails"))
    together = msgspec.structs.replace(with_impact.together, not_reached=tuple(missing))
    found = together_lines(msgspec.structs.replace(with_impact, together=together))
    assert found[-2:] == [
        f"not measured: {', '.join(names[:8])} and 2 more: {spent}",
        "not measured: model.py:Net: it fails",
    ]


def test_the_json_has_all_of_it_and_fits_the_schema(with_impact):
    encoded = to_json(with_impact)
    validated(encoded.decode())
    assert from_json(encoded) == with_impact
    assert merge([with_impact]) == with_impact


def test_an_event_without_a_name_is_refused():
    with pytest.raises(ValueError, match="expected names"):
        msgspec.structs.replace(BEFORE, names=("aten::mm",))


def test_names_of_kernels_are_escaped_in_the_picture(with_impact):
    page = render_html(with_impact)
    assert "gemm <hostile>" not in page and "gemm &lt;hostile&gt;" in page


def test_a_timeline_has_a_lane_for_host_and_device_on_one_scale():
    drawn = timeline_of(VISION)
    assert [(one.side, one.name) for one in drawn.lanes] == [
        ("before", "host"),
        ("before", "device"),
        ("after", "host"),
        ("after", "device"),
    ]
    # 23 us are the whole width.
    assert 'x="130.43" y="0" width="869.57"' in drawn.lanes[1].svg
    assert drawn.legend == (("o0", "gemm <hostile>"),)
    assert timeline_of(STEP) is None


def test_traces_are_those_of_headlines_that_were_profiled(with_impact):
    found = traces_of(with_impact)
    assert set(found) == {"VisionModel.before.trace.json", "VisionModel.after.trace.json"}
    events = json.loads(found["VisionModel.before.trace.json"])["traceEvents"]
    assert {"name": "aten::mm", "ph": "X", "pid": 0, "tid": 0, "ts": 0.0, "dur": 4.0} in events
    assert [one["args"]["name"] for one in events if one["ph"] == "M"] == ["host", "device"]


def test_a_month_of_calls_saves_hours_money_and_energy():
    config = ReportConfig(calls_per_day=1_000_000, gpu_hour_price=2.0)
    found = saving(VISION, GPU, config)
    # 15.3 ms of 30.4 million calls.
    assert found.gpu_hours_saved == pytest.approx(129.4, rel=1e-3)
    assert found.money_saved == pytest.approx(258.7, rel=1e-3)
    assert found.energy_saved_kwh == pytest.approx(26.63, rel=1e-3)
    (one,) = headlines(report_of(found))
    assert "129 GPU hours (cost 258.7" in one.text and "26.6 kWh saved a month" in one.text
    assert saving(TRAIN, GPU, config) == TRAIN
    steps = saving(STEP, GPU, ReportConfig(steps_per_month=1000))
    assert steps.gpu_hours_saved == pytest.approx(15.3 / 3600)
    assert steps.money_saved is None


@pytest.mark.parametrize(
    ("device", "config"),
    [
        (GPU, None),
        (GPU, ReportConfig()),
        (None, ReportConfig(calls_per_day=1)),
        (Device(kind="cpu", name="x"), ReportConfig(calls_per_day=1)),
    ],
)
def test_nothing_is_estimated_without_a_rate_or_a_gpu(device, config):
    assert saving(VISION, device, config) == VISION


def report_of(impact):
    return Report(repository="r", impact=(impact,))


def test_proposals_are_ordered_by_what_they_save_of_a_root(sample):
    proposals = digest(sample).proposals
    assert len(proposals) > 1
    last = proposals[-1].entry
    part = InRoot(root="m.py:Net", time_us=9e6, share=0.4)
    entries = [
        msgspec.structs.replace(entry, in_roots=(part,)) if entry is last else entry
        for entry in sample.entries
    ]
    first = digest(msgspec.structs.replace(sample, entries=tuple(entries))).proposals[0]
    assert first.entry.target == last.target
    assert re.fullmatch(r"[\d.]+ s \([\d.]+ %\) of a call of Net", first.saved.text)


def test_where_a_proposal_gains_least_is_shown(sample):
    entry = digest(sample).proposals[0].entry
    assert sizes_text(entry) == ""
    slow = msgspec.structs.replace(
        a_measurement(1.2), workload="base, half batch", speedup=1.2, speedup_low=1.1,
        speedup_high=1.3,
    )  # fmt: skip
    entry = msgspec.structs.replace(entry, at_sizes=(slow,), sizes_not_tried="x: no batch")
    assert sizes_text(entry) == (
        "gains least at base, half batch: 1.20x [1.10, 1.30]; "
        "not timed at another size: x: no batch"
    )
    entries = tuple(entry if one.target == entry.target else one for one in sample.entries)
    report = msgspec.structs.replace(sample, entries=entries)
    name = f"1. {entry.target.qualname}: "
    for width in (120, 72):
        text, why = (" ".join(render_text(report, width, why=one).split()) for one in (False, True))
        assert "gains least at base, half batch: 1.20x [1.10, 1.30]" in text
        assert "not timed at every size" in text
        assert (name in text) is (width == 120)
        assert "x: no batch" not in text
        assert "Not timed at another size: x: no batch" in why


def test_patch_and_traces_are_written_beside_the_report(with_impact, tmp_path):
    flags = {"json_path": None, "html_path": str(tmp_path / "report.html")}
    write_beside(with_impact, flags)
    assert (tmp_path / "report.patch").read_text() == with_impact.together.patch
    assert (tmp_path / "report.VisionModel.after.trace.json").exists()
    write_beside(with_impact, {"json_path": "-", "html_path": None})


def test_all_proposals_are_applied_as_one_patch(with_impact, checkout, capsys):
    apply_best(with_impact, checkout)
    said = capsys.readouterr().err
    assert "applied 1 proposal together" in said
    assert "not applied a.py:F: it changes the same lines as G" in said


def test_some_proposals_are_written_as_one_patch_by_their_numbers(with_impact, checkout, tmp_path):
    file, patch = tmp_path / "report.json", tmp_path / "chosen.patch"
    file.write_bytes(to_json(with_impact))

    def ask(*words):
        return CliRunner().invoke(main, ["report", str(file), "--patch", str(patch), *words])

    second = digest(with_impact).proposals[1].evaluation.candidate.patch
    assert ask("--select", "2").exit_code == 0
    assert patch.read_text() == second
    assert ask().exit_code == 0
    subprocess.run(["git", "apply", str(patch)], cwd=checkout, check=True)
    assert ask("--select", "7").exit_code == 2
    assert "from 1 to 2" in ask("--select", "7").output
    assert ask("--select", "one").exit_code == 2
