"""The page: every number leads to its candidate, and nothing of others runs on it."""

from __future__ import annotations

import re

import msgspec

from cudal1_ci.report_card.page import render_page
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
    assert "Left out: not every column had its turn" in render_page(run)
    assert "--resume continues" in render_table(run)


def test_both_ways_of_counting_and_several_machines_are_on_the_page():
    task = told(a_task(), COLUMNS)
    page = render_page(a_run(task, told(a_task(), COLUMNS, machine="another"), policy="cuda-l1"))
    assert "On several machines" in page
    assert page.count("counted as CUDA-L1 does") == 2
