"""The page: every number leads to its candidate, and nothing of others runs on it."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.report_card.page import DETAILS, render_page, roof_points
from cudal1_ci.report_card.roof import reference_us
from cudal1_ci.report_card.shape import DemandDocument
from cudal1_ci.report_card.table import render_table
from tests.unit.report_card.rig import a_run, a_task, told

COLUMNS = {"eager": 1.0, "compile": "timeout", "playbook": 2.5, "published": None}


def test_every_number_leads_to_a_candidate_with_its_code_verdict_and_times():
    page = render_page(
        a_run(told(a_task("level1/1"), COLUMNS), told(a_task("level2/1", "b"), COLUMNS))
    )
    places = re.findall(r'<td class="number"[^>]*><a href="#([^"]+)"', page)
    assert len(places) == 2 * 5
    assert all(f'id="{place}"' in page for place in places)
    (best,) = {place for place in places if place.endswith("playbook") and place.startswith("m0t0")}
    article = page[page.index(f'id="{best}"') :]
    article = article[: article.index('id="m0t0-published"')]
    assert "playbook 2.5" in article, "the code"
    assert "passed" in article
    assert '<svg class="times"' in article
    assert "timed out" in page
    assert "nothing given" in page


def test_text_of_others_is_text():
    evil = "</pre><script>alert(1)</script>"
    task = told(a_task("level1/1", evil), COLUMNS)
    trial = task.results[2].trials[0]
    result = msgspec.structs.replace(
        task.results[2], trials=(msgspec.structs.replace(trial, code=evil),)
    )
    task = msgspec.structs.replace(
        task, title=evil, results=(*task.results[:2], result, *task.results[3:])
    )
    page = render_page(a_run(task, left_out=(evil,)))
    assert page.count("<script>") == 1
    assert evil not in page


def test_a_wrapper_shows_what_it_adds_to_the_reference():
    task = told(a_task("level1/1", "class Model: ..."), {"compile": 1.5})
    trial = msgspec.structs.replace(
        task.results[0].trials[0], code="class Model: ...\n\nclass ModelNew(Model): added"
    )
    result = msgspec.structs.replace(task.results[0], trials=(trial,))
    page = render_page(a_run(msgspec.structs.replace(task, results=(result,))))
    assert "The reference, and below it:" in page
    assert '<pre class="log">class ModelNew(Model): added</pre>' in page


def test_a_run_without_a_task_that_counts_is_a_page_and_a_table_too():
    task = msgspec.structs.replace(
        told(a_task(), COLUMNS), standing="missing", reason="not reached"
    )
    run = a_run(task, ended="budget")
    assert "Excluded: not tried in every column" in render_page(run)
    assert "--resume continues" in render_table(run)


def test_both_ways_of_counting_and_several_machines_are_on_the_page():
    task = told(a_task(), COLUMNS)
    page = render_page(a_run(task, told(a_task(), COLUMNS, machine="another"), policy="cuda-l1"))
    assert "On several machines" in page
    assert page.count("counted as CUDA-L1 does") == 2


def test_the_page_is_named_after_what_was_run():
    page = render_page(a_run(told(a_task("level1/1"), COLUMNS)))
    title = re.findall("<title>(.*?)</title>", page)[0]
    task = told(a_task("level1/1"), COLUMNS)
    assert title == f"Report card of {task.source}: 1 task of level1 - cudal1-ci bench"


def test_a_page_that_is_too_large_keeps_what_counts(monkeypatch):
    run = a_run(told(a_task("level1/1"), COLUMNS), told(a_task("level2/1", "b"), COLUMNS))
    whole = render_page(run)
    sizes = [len(whole.encode())]
    assert "The JSON has everything" not in whole
    for detail in DETAILS[1:]:
        monkeypatch.setattr("cudal1_ci.report_card.page.MAX_BYTES", sizes[-1] - 1)
        page = render_page(run)
        sizes.append(len(page.encode()))
        assert sizes[-1] < sizes[-2]
        assert detail in page
        places = re.findall(r'<td class="number"[^>]*><a href="#([^"]+)"', page)
        assert all(f'id="{place}"' in page for place in places)
        drawn = page.count('<svg class="times"')
        assert drawn == (0 if detail == DETAILS[-1] else 2), "those that count in best"
        assert page.count("timed out") >= 2


def test_the_roofline_has_each_task_with_a_known_bound():
    task = told(a_task("level1/1"), COLUMNS)
    demand = DemandDocument(
        num_bytes=1000, product_flops=10_000, convolution_flops=0, dtype="float32"
    )
    bounded = msgspec.structs.replace(task, demand=demand, least_us=reference_us(task) / 4)
    (point,) = roof_points([bounded, told(a_task("level2/1", "b"), COLUMNS)], "best")
    assert point.intensity == 10
    assert point.before == pytest.approx(0.25)
    assert point.after == pytest.approx(0.25 * 2.5, rel=1e-4)
    page = render_page(a_run(bounded))
    assert "25.0 % of the roofline before, 62.5 % after" in page
    assert "<b>Roofline</b>" not in render_page(a_run(task))
