"""What the pages state is what their extracts hold, and these are what the raw results hold."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from cudal1_ci import assets

ROOT = Path(__file__).parents[3]
PAGES = [
    "docs/comparison.md",
    "docs/lab/verifier.md",
    "docs/published-kernels.md",
    "docs/results.md",
]
NAMES = [path.stem for path in (ROOT / "experiments" / "results").glob("*.json")]
LARGE = {"sensitivity": pytest.mark.slow}
"""Whose raw results take ten seconds to read."""


@pytest.fixture
def extracts(experiment_module):
    return experiment_module("extracts")


def test_every_extract_is_of_a_block(extracts):
    assert sorted(NAMES) == sorted(extracts.place(name).stem for name in extracts.BLOCKS)


def test_the_pages_with_blocks_are_those_of_the_test_of_links(extracts):
    assert set(extracts.pages()) == {*PAGES}


def test_pages_and_drawings_are_what_the_extracts_make(extracts):
    made = extracts.files(extracts.pages())
    assert {path for path in made if path.endswith(".svg")} == {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "images").glob("*.svg")
    }
    stale = [path for path, text in made.items() if text != (ROOT / path).read_text("utf-8")]
    assert stale == [], "run `python experiments/extracts.py`"


def test_a_page_with_another_figure_is_noticed(extracts):
    pages = extracts.pages()
    changed = {path: text.replace("1.86 [1.72", "2.86 [1.72") for path, text in pages.items()}
    assert changed != pages
    assert {p: t for p, t in extracts.files(changed).items() if p in pages} == pages


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="archives hold no raw results")
@pytest.mark.parametrize("stem", [pytest.param(stem, marks=LARGE.get(stem, ())) for stem in NAMES])
def test_an_extract_is_what_its_raw_result_holds(extracts, stem):
    (name,) = (one for one in extracts.BLOCKS if extracts.place(one).stem == stem)
    fresh = json.loads(json.dumps(extracts.extract(name)))
    assert fresh == extracts.read(name), "run `python experiments/extracts.py --fresh`"


def test_the_readme_states_the_report_card_as_its_extract_does(extracts):
    readme = (ROOT / "README.md").read_text("utf-8")
    ((num_all, num_counted, geometric, num_empty),) = re.findall(
        r"of CUDA-L1's (\d+) references (\d+) on an H100, (\S+x \[[^]]*\]) in the geometric mean"
        r".*?and (\d+) that say nothing",
        readme,
    )
    lines = "\n".join(extracts.read("Report card")["lines"])
    assert f"| {num_counted} tasks | mean" in lines
    assert f"In no column, {num_empty} of {num_all} tasks" in lines
    (best,) = (
        line for line in lines.splitlines() if line.startswith("| **`best`** | ") and "/" in line
    )
    assert f"| {geometric.replace('x ', ' ')} |" in best


@pytest.mark.parametrize("page", ["README.md", "experiments/README.md", *PAGES])
def test_what_a_page_with_figures_links_to_is_there(page):
    text = (ROOT / page).read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s#]+)", text) if not re.match("[a-z]+:", link)]
    assert links
    held = {f"assets/{name}" for name in assets.manifest()}
    for link in links:
        place = os.path.normpath((ROOT / page).parent / link)
        assert Path(place).exists() or os.path.relpath(place, ROOT) in held, link


def test_the_readme_shows_what_the_demo_printed():
    readme = (ROOT / "README.md").read_text("utf-8")
    printed = (ROOT / "experiments" / "results" / "demo.txt").read_text("utf-8").splitlines()
    shown = readme.partition("[all of it]")[2].split("```")[1].strip().splitlines()
    assert len(shown) > 10
    for line in shown:
        if line.strip() not in ("", "..."):
            assert any(one.startswith(line.rstrip()) for one in printed), line
