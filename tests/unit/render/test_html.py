"""The page: well formed, self-contained, safe, and complete."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest

from cudal1_ci.records import Kernel, Operation, Understanding
from cudal1_ci.render import render
from cudal1_ci.render.diff_html import diff_html
from cudal1_ci.render.digest import digest
from cudal1_ci.render.html import asset
from cudal1_ci.render.plots import (
    RatioAxis,
    bar,
    change_axis,
    change_bar,
    paired_times,
    ratio_axis,
)
from cudal1_ci.render.profile import profile_of
from tests.unit.render import comparisons

VOID = {"meta", "input", "br", "path", "rect"}


class Page(HTMLParser):
    """Elements with their attributes and text; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is twice there"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str | None = None) -> str:
        return "".join(data for inside, data in self.texts if tag in (None, inside))


@pytest.fixture
def page(sample):
    return Page(render(sample, "html"))


def test_the_page_asks_nobody_for_anything(page):
    for _, attributes in page.elements:
        assert not {"src", "srcset", "data", "poster", "background"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert page.of("link") == []
    assert "url(" not in page.text("style")
    assert "@import" not in page.text("style")


def test_only_the_script_of_the_page_may_run(page):
    policies = [m["content"] for m in page.of("meta") if "content" in m]
    policy = next(p for p in policies if p.startswith("default-src 'none'"))
    (script,) = [data for inside, data in page.texts if inside == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_id_is_one_and_every_link_leads_somewhere(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for attributes in page.of("a"):
        assert attributes["href"].removeprefix("#") in ids
    for name in ("aria-labelledby", "data-copies"):
        assert {a[name] for _, a in page.elements if name in a} <= set(ids)


def test_the_page_can_be_used_without_seeing_it(page):
    assert page.of("html")[0]["lang"] == "en"
    assert all("scope" in th for th in page.of("th"))
    drawings = page.of("svg")
    assert drawings
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in drawings)
    assert all("aria-label" in i for i in page.of("input"))
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))


def test_each_measurement_has_a_bar_a_row_and_a_plot(sample, page):
    best = [entry.evaluations[entry.best] for entry in sample.entries if entry.best is not None]
    num_measurements = sum(len(evaluation.measurements) for evaluation in best)
    classes = [svg["class"] for svg in page.of("svg")]
    assert classes.count("bar") == classes.count("times") == num_measurements == 3
    rows = [tr for tr in page.of("tr") if "data-filter" in tr]
    assert len([tr for tr in rows if "Attention" in tr["data-filter"]]) == 1
    names = [span.get("title") for span in page.of("span") if span.get("class") == "name"]
    assert names == ["base", "long", "wide"]


def test_the_patch_is_there_to_be_copied_as_it_is(sample):
    text = render(sample, "html")
    patch = sample.entries[0].evaluations[1].candidate.patch
    hidden = re.search(r'<pre hidden id="p1-patch">\n(.*?)</pre>', text, re.DOTALL).group(1)
    assert Page(f"<pre>{hidden}</pre>").text() == patch


def test_text_from_outside_is_text(sample, replaced):
    evil = "\"><script>alert(1)</script><img src=x onerror='alert(1)'>"
    hostile = replaced(
        sample,
        target={"qualname": evil, "path": evil, "selected_because": evil},
        candidate={"analysis": evil, "design": evil, "proposer": evil, "techniques": (evil,)},
        repository=evil,
        head_sha=evil,
    )
    page = Page(render(hostile, "html"))
    assert len(page.of("script")) == 1
    assert page.of("img") == []
    assert evil in page.text()


def test_a_patch_from_outside_is_text(sample, replaced):
    lines = (
        "--- a/<b>.py\n+++ b/<b>.py\n@@ -1,1 +1,1 @@\n-<script>a</script>\n+<script>b</script>\n"
    )
    page = Page(render(replaced(sample, candidate={"patch": lines}), "html"))
    assert len(page.of("script")) == 1


def test_a_thousand_targets_are_a_page(sample):
    proposal, other = sample.entries[0], sample.entries[6]
    entries = tuple(
        msgspec.structs.replace(
            entry, target=msgspec.structs.replace(entry.target, qualname=f"Module{i}")
        )
        for i in range(500)
        for entry in (proposal, other)
    )
    page = Page(render(msgspec.structs.replace(sample, entries=entries), "html"))
    assert len(page.of("article")) == 500
    assert [svg["class"] for svg in page.of("svg")].count("bar") == 40
    assert [span.get("class") for span in page.of("span")].count("name") > 40


# --- the diff ---------------------------------------------------------------------------------


def lines_of(patch: str) -> list[str]:
    shown = str(diff_html(patch))
    return Page(shown[shown.index("<pre") :].removesuffix("</figure>")).text().splitlines()


def test_a_diff_shows_every_line_with_its_mark(sample):
    patch = sample.entries[0].evaluations[1].candidate.patch
    expected = [line for line in patch.splitlines() if line[:3] not in ("---", "+++", "@@ ")]
    assert lines_of(patch) == expected


def test_a_diff_has_syntax_colors_and_numbers_of_both_sides():
    patch = "--- a/a.py\n+++ b/a.py\n@@ -7,2 +7,2 @@\n def f():\n-    return 'a'\n+    return 1\n"
    shown = str(diff_html(patch))
    assert '<span class="k">def</span> <span class="f">f</span>' in shown
    assert '<span class="l del" data-o="8"><i data-n="">-</i>' in shown
    assert '<span class="l add" data-o=""><i data-n="8">+</i>' in shown
    assert re.search(r'<span class="s">&#39;.*a', shown)


@pytest.mark.parametrize("name", ["kernel.cu", "kernel.cuh", "README", "a.unknown"])
def test_a_diff_of_any_language_is_shown(name):
    patch = f"--- a/{name}\n+++ b/{name}\n@@ -1,2 +1,2 @@\n \n-__global__ void f() {{}}\n+\n"
    assert lines_of(patch) == [" ", "-__global__ void f() {}", "+"]


def test_a_string_over_several_lines_is_one_string_on_each_side():
    patch = '--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n x = """\n-old if\n+new for\n """\n'
    shown = str(diff_html(patch))
    assert 'class="k"' not in shown
    assert lines_of(patch) == [' x = """', "-old if", "+new for", ' """']


def test_what_is_not_a_patch_is_shown_as_it_is():
    assert str(diff_html("<not a patch>")) == '<pre class="diff">&lt;not a patch&gt;</pre>'


# --- the drawings -----------------------------------------------------------------------------


def test_the_axis_is_logarithmic_and_begins_at_one():
    axis = RatioAxis(low=1.0, high=100.0)
    assert [axis.percent(ratio) for ratio in (1, 10, 100)] == [0, 50, 100]
    assert axis.percent(1e9) == 100
    assert 1 in axis.ticks
    assert len(axis.ticks) <= 6


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.02), (0.2, 1.5), (1.1, 130_000), (1e-9, 1e9), (0.99, 1.0)]
)
def test_any_interval_has_an_axis(sample, low, high):
    measurement = sample.entries[0].evaluations[1].measurements[0]
    any_ = msgspec.structs.replace(
        measurement, speedup_low=low, speedup=(low + high) / 2, speedup_high=high
    )
    axis = ratio_axis([any_])
    assert axis.low <= min(low, 1) < max(high, 1) <= axis.high
    assert 1 in axis.ticks
    assert "<rect" in bar(any_, axis)


def test_what_was_not_measured_has_no_bar(sample):
    measurement = sample.entries[0].evaluations[1].measurements[0]
    unknown = msgspec.structs.replace(
        measurement, speedup=None, speedup_low=None, speedup_high=None
    )
    assert bar(unknown, ratio_axis([unknown])) == ""


def test_every_pair_is_drawn_inside_of_the_plot(sample):
    measurement = sample.entries[0].evaluations[1].measurements[0]
    drawing = str(paired_times(measurement, "times"))
    for series in ("reference", "candidate"):
        path = re.search(rf'class="dots {series}" d="([^"]*)"', drawing).group(1)
        dots = [tuple(map(float, dot)) for dot in re.findall(r"M([\d.]+) ([\d.]+)h0", path)]
        assert len(dots) == measurement.num_pairs
        assert all(68 <= x <= 628 and 12 <= y <= 194 for x, y in dots)
    reference_y, candidate_y = (
        float(re.search(rf'class="median {series}" d="M68 ([\d.]+)H', drawing).group(1))
        for series in ("reference", "candidate")
    )
    height = 194 - reference_y
    assert height / (194 - candidate_y) == pytest.approx(measurement.speedup, rel=0.03)


def test_no_times_are_said_and_not_drawn(sample):
    measurement = sample.entries[0].evaluations[1].measurements[0]
    assert "No times" in paired_times(msgspec.structs.replace(measurement, repetitions=()), "t")


# --- links, noise and profiles ----------------------------------------------------------------


def test_links_lead_to_the_lines_of_the_commit(sample):
    at = msgspec.structs.replace(sample, folder="packages/a b", head_sha="5f3c2a9d41")
    page = Page(render(at, "html", "https://github.com/acme/slowformer"))
    found = {a["href"] for a in page.of("a") if not a["href"].startswith("#")}
    blob = "https://github.com/acme/slowformer/blob/5f3c2a9d41/packages/a%20b/slowformer"
    assert f"{blob}/attention.py#L9-L23" in found
    assert f"{blob}/pooling.py#L4" in found
    assert "https://github.com/acme/slowformer/commit/5f3c2a9d41" in found


def test_noise_is_a_band_around_one_and_takes_the_color_of_a_gain_within_it(sample):
    clear = Page(render(sample, "html"))
    assert [rect.get("class") for rect in clear.of("rect")].count("noise") == 6
    assert "within A/A" not in clear.text()
    entries = []
    for entry in sample.entries:
        for evaluation in entry.evaluations:
            spread = [
                msgspec.structs.replace(m, control_spread=20.0) for m in evaluation.measurements
            ]
            if evaluation is entry.evaluations[entry.best or 0] and entry.best is not None:
                best = msgspec.structs.replace(evaluation, measurements=tuple(spread))
                entry = msgspec.structs.replace(entry, evaluations=(best,), best=0)
        entries.append(entry)
    noisy = Page(render(msgspec.structs.replace(sample, entries=tuple(entries)), "html"))
    assert noisy.text("span").count("within A/A") == 6
    assert not any("speedup number faster" in str(span.get("class")) for span in noisy.of("span"))
    quiet = sample.entries[0].evaluations[1].measurements[0]
    axis = ratio_axis([quiet])
    assert axis.low <= 1 / (1 + quiet.control_spread) < 1 < axis.high


def test_a_rare_long_time_is_marked_and_takes_no_axis(sample):
    measured = sample.entries[0].evaluations[1].measurements[0]
    first, *others = measured.repetitions
    slow = (90 * first.reference_us[0], *first.reference_us[1:])
    longer = msgspec.structs.replace(first, reference_us=slow)
    jumped = msgspec.structs.replace(measured, repetitions=(longer, *others))
    shown = str(paired_times(jumped, "t"))
    assert shown.count('class="outlier reference"') == 1
    assert shown.count("h0") == str(paired_times(measured, "t")).count("h0") - 1


def test_the_time_of_a_call_is_split_before_and_after(sample):
    operations = (
        Operation(name="matmul", num_calls=2, share=0.7, num_bytes=4_000, line=12, code="q @ k"),
        Operation(name="softmax", num_calls=1, share=0.2, num_bytes=1_000, line=13, code="s"),
    )
    understanding = Understanding(
        category="memory-bound",
        bound="memory",
        bound_us=300.0,
        num_operations=3,
        num_syncs=1,
        operations=operations,
    )
    entry = sample.entries[0]
    kernels = (Kernel(name="fused", num_launches=1, device_us=9.0, is_own=True),)
    best = msgspec.structs.replace(entry.evaluations[entry.best], kernels=kernels)
    evaluations = tuple(best if i == entry.best else e for i, e in enumerate(entry.evaluations))
    entry = msgspec.structs.replace(entry, understanding=understanding, evaluations=evaluations)
    (proposal,) = digest(msgspec.structs.replace(sample, entries=(entry,))).proposals
    profile = profile_of(proposal)
    assert [(part.text, round(part.share, 3)) for part in profile.before] == [
        ("q @ k", 0.7),
        ("s", 0.2),
        ("other operations", 0.1),
    ]
    assert [part.text for part in profile.after] == ["fused"]
    facts = dict(profile.facts)
    assert facts["Launches"] == "3 operations → 1 kernel, 1 host sync before"
    assert facts["Memory"] == "5 kB read and written before"
    assert facts["Roofline"] == "6.09x → 1.97x the least time of 300 us (memory)"
    page = Page(render(msgspec.structs.replace(sample, entries=(entry,)), "html"))
    parts = [g["class"] for g in page.of("g") if "part" in g.get("class", "")]
    assert parts == ["part o0", "part o1", "part o6", "part k0"]
    assert "1.83 ms before, 591 us after" in {svg["aria-label"] for svg in page.of("svg")}

    train = tuple(msgspec.structs.replace(w, mode="train") for w in entry.workloads)
    entry = msgspec.structs.replace(entry, workloads=train)
    (proposal,) = digest(msgspec.structs.replace(sample, entries=(entry,))).proposals
    assert profile_of(proposal) is None


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_and_drawings_have_the_contrast_of_wcag_aa(theme):
    style = asset("report.css")
    block = style[style.index(theme) :]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[: block.index("}")]))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colors[one]), luminance(colors[other])))
        return (high + 0.05) / (low + 0.05)

    texts = ["ink", "muted", "accent", "good", "bad", "warn"]
    syntax = [name for name in colors if name.startswith("t-")]
    assert len(syntax) == 7
    for name in texts + syntax:
        for paper in ("paper", "sheet", *(("add", "del") if name in syntax else ())):
            assert contrast(name, paper) >= 4.5, (name, paper)
    for name in ("reference", "candidate", "good-soft"):
        assert contrast(name, "paper") >= 3, name


def test_each_change_has_a_bar_from_no_change():
    shown = comparisons.regression()
    page = Page(render(shown, "html"))
    rows = [row for e in shown.entries if e.comparison for row in e.comparison.rows]
    timed = [row for row in rows if row.slowdown is not None]
    bars = [svg for svg in page.of("svg") if svg["class"] == "bar"]
    assert len(bars) == len(timed) > 0
    assert all(", A/A " in svg["aria-label"] for svg in bars)
    axis = change_axis(timed)
    assert axis.low < 1 < axis.high
    slower = next(row for row in timed if row.verdict == "regression")
    faster = next(row for row in timed if row.verdict == "improvement")
    assert f'class="value slower" x="{axis.percent(1.0):g}"' in str(change_bar(slower, axis))
    assert f'class="value faster" x="{axis.percent(faster.slowdown):g}"' in str(
        change_bar(faster, axis)
    )
