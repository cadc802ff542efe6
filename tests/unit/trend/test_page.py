"""The page: self-contained, safe, complete, and usable when it is long."""

from __future__ import annotations

import base64
import hashlib
import re

import msgspec
import pytest

from cudal1_ci.trend.drawing import NUM_SINGLE, NUM_THINNED, spark, ticks
from cudal1_ci.trend.page import render_page
from tests.unit.render.test_html import Page
from tests.unit.trend.conftest import view_of
from tests.unit.trend.samples import (
    H200,
    a_comparison,
    a_line,
    a_report,
    a_target,
    an_entry,
    sha,
)

ADDRESS = "https://github.com/acme/slowformer"


@pytest.fixture(scope="module")
def text(line):
    return render_page(line, ADDRESS)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_page_asks_nobody_for_anything(page):
    for _, attributes in page.elements:
        assert not {"src", "srcset", "data", "poster", "background"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert page.of("link") == []
    assert "url(" not in page.text("style")
    (script,) = [data for inside, data in page.texts if inside == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policies = [m["content"] for m in page.of("meta") if "default-src" in (m.get("content") or "")]
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        in (policies[0])
    )


def test_links_lead_to_commits_of_the_repository_and_nowhere_else(page):
    links = {a["href"] for a in page.of("a")} - {f"#t{number}" for number in range(1, 7)}
    assert links == {f"{ADDRESS}/commit/{sha(number)}" for number in range(30)}


def test_without_an_address_there_is_no_link(line):
    page = Page(render_page(line))
    assert {a["href"][0] for a in page.of("a")} == {"#"}
    assert sha(22)[:10] in page.text()


def test_the_page_can_be_used_without_seeing_it(page):
    assert page.of("html")[0]["lang"] == "en"
    drawings = page.of("svg")
    assert [svg["class"] for svg in drawings] == ["spark"] * 12 + ["history"] * 12
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in drawings)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for name in ("aria-labelledby",):
        assert {a[name] for _, a in page.elements if name in a} <= set(ids)


def test_each_point_level_step_and_break_is_drawn(line, page):
    classes = [a.get("class") or "" for _, a in page.elements]
    series = [one for target in line.targets for one in target.series]
    assert sum(c.split()[:1] == ["dot"] for c in classes) == sum(len(s.points) for s in series)
    assert classes.count("break") == 12
    assert sum(c.startswith("step ") for c in classes) == sum(len(s.steps) for s in series) == 8


def test_code_that_did_not_change_is_a_flat_line_of_the_overview(line):
    sparks = {
        one.target: {float(y) for y in re.findall(r"[ML]\d+ (\d+)", str(spark(one, 30)))}
        for target in line.targets
        for one in target.series
    }
    assert len(sparks["pkg/conv.py:Conv"]) == 1
    assert len(sparks["pkg/rotary.py:Rotary"]) == 2
    before, after = sorted(sparks["pkg/pooling.py:pool"])
    assert after > before


def test_a_step_names_its_commit(line, text):
    for seen in line.steps:
        assert f" at {line.commit(seen.step.place).sha[:7]}</text>" in text


def test_everything_is_drawn_inside_of_the_drawing(text):
    for drawing in re.findall(r"<svg class=\"history\".*?</svg>", text, re.DOTALL):
        for x, y in re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', drawing):
            assert 82 <= float(x) <= 626
            assert 26 <= float(y) <= 164
        for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", drawing):
            assert 0 <= float(x) <= 640
            assert 0 <= float(y) <= 190


EVIL = "\"><script>alert(1)</script><img src=x onerror='alert(1)'>"


def test_text_from_outside_is_text():
    device = msgspec.structs.replace(H200, name=EVIL, driver=EVIL)
    changed = msgspec.structs.replace(device, driver=f"{EVIL}2")
    entries = [
        an_entry(
            a_target(EVIL, EVIL),
            comparison=a_comparison(10, 10 if n < 4 else 12, one),
        )
        for n, one in enumerate([device] * 8 + [changed] * 2)
    ]
    documents = [
        a_report(n, e, repository=EVIL, devices=(device if n < 8 else changed,))
        for n, e in enumerate(entries)
    ]
    page = Page(render_page(view_of(*documents), ADDRESS))
    assert len(page.of("script")) == 1
    assert page.of("img") == []
    assert EVIL in page.text()
    assert page.of("svg")[0]["aria-label"].startswith(EVIL)


def test_of_many_commits_old_points_are_thinned_and_no_step_is(line):
    shown = view_of(*a_line(num_commits=400, names=("Attention", "Rotary")))
    page = Page(render_page(shown, ADDRESS))
    classes = [a.get("class") or "" for _, a in page.elements]
    assert sum(c.startswith("dot ") or c == "dot" for c in classes) == 4 * NUM_SINGLE
    dots = [a["d"].count("h0") for name, a in page.elements if a.get("class") == "dots"]
    assert len(dots) == 4
    assert all(100 <= count <= NUM_THINNED for count in dots)
    assert {seen.step.place for seen in shown.steps} >= {107, 214, 294}


def test_a_history_without_times_is_a_page():
    page = Page(render_page(view_of(a_report(0, devices=()))))
    assert "Nothing was timed." in page.text()


@pytest.mark.parametrize(
    ("low", "high"), [(9.7, 12.4), (1, 1000), (0.011, 0.013), (99, 101), (5e5, 2e6), (17.1, 21.3)]
)
def test_the_axis_of_time_has_a_few_round_ticks(low, high):
    found = ticks(low, high)
    assert 1 <= len(found) <= 5
    assert all(low <= tick <= high for tick in found)
    assert found == sorted(found)
