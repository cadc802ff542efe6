"""What a report says of a model: its words marked as such, and its failures counted."""

from __future__ import annotations

import html
import io

import msgspec
import pytest
from rich.console import Console

from cudal1_ci.records import Contradiction, Generation, ModelUse, Report
from cudal1_ci.render import render
from cudal1_ci.render.merge import merge
from cudal1_ci.render.model_use import CONTRADICTED_WORDS, MODEL_WORDS, model_text
from cudal1_ci.render.published import published
from cudal1_ci.render.text import print_report
from tests.unit.render.samples import pooling_entry

GENERATION = Generation(
    model="small-coder", temperature=0.8, max_tokens=512, prompt_digest="d", completion_tokens=90
)
USE = ModelUse(
    model="small-coder",
    num_answers=9,
    refused={"no_code": 3, "unchanged": 1},
    num_repairs=2,
    prompt_tokens=5400,
    completion_tokens=1234,
    generating_s=65.0,
    waiting_s=12.0,
)
HOSTILE = "Ask @maintainers </details> <img src=x> [here](https://example.org) `code` | cell"


@pytest.fixture
def report(tmp_path):
    entry = pooling_entry(tmp_path)
    (first, *others) = entry.evaluations
    candidate = msgspec.structs.replace(
        first.candidate,
        proposer="model:small-coder",
        analysis=HOSTILE,
        design="Multiply.",
        techniques=(),
        generation=GENERATION,
    )
    evaluations = (msgspec.structs.replace(first, candidate=candidate), *others)
    proposed = msgspec.structs.replace(
        entry,
        evaluations=evaluations,
        model_use=USE,
        best=0,
        contradictions=(
            Contradiction(candidate_id=candidate.id, claim=HOSTILE, measured="2 % on an H200"),
            Contradiction(candidate_id="another", claim="of another", measured="not shown"),
        ),
    )
    failed = msgspec.structs.replace(
        entry,
        evaluations=(),
        best=None,
        model_use=msgspec.structs.replace(USE, refused={"no_code": 8, "syntax": 1}, num_answers=9),
    )
    return published(Report(repository="repo", entries=(proposed, failed)))


def test_failures_are_counted_over_the_run_and_told_beside_what_came_of_it(report):
    assert model_text(report) == (
        "model small-coder: 18 answers (4 to repair an earlier one); 5 candidates verified; "
        "11 without code; 1 no Python; 1 a copy of the reference; "
        "2,468 tokens written, 10,800 read; "
        "2 min generating, 24 s of it with the verifier idle"
    )


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_the_adapter_on_a_model_is_named_with_its_hash(tmp_path, output_format):
    adapted = msgspec.structs.replace(USE, adapter="0123456789abcdef", adapter_name="small")
    entry = msgspec.structs.replace(pooling_entry(tmp_path), model_use=adapted)
    found = published(Report(repository="repo", entries=(entry, entry)))
    said = "model small-coder with adapter small (0123456789abcdef): 18 answers"
    assert model_text(found).startswith(said)
    plain = html.unescape(render(found, output_format)).replace("\\", "")
    assert said in " ".join(plain.split())


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_the_words_are_marked_as_the_models_and_what_failed_is_told(report, output_format):
    shown = render(report, output_format)
    assert "18 answers" in shown
    assert "8 without code; 1 no Python" in shown
    if output_format != "text":  # which shows no analysis without a patch
        assert (MODEL_WORDS if output_format == "md" else "The model&#39;s own claims") in shown


def test_a_models_words_are_text_and_nothing_else(report):
    markdown, page = render(report, "md"), render(report, "html")
    assert "@maintainers" not in markdown
    assert "\\<img" in markdown
    assert "](https://" not in markdown
    assert markdown.replace("\\</details", "").count("</details>") == markdown.count("<details>")
    assert "<img src=x" not in page
    assert "example.org" not in page.replace("(https://example.org)", "")


def test_json_says_how_a_candidate_came_to_be(report):
    entry = report.entries[0]
    assert entry.evaluations[0].candidate.generation.model == "small-coder"
    assert entry.model_use.refused == {"no_code": 3, "unchanged": 1}


def test_where_no_model_was_asked_none_is_spoken_of(tmp_path):
    plain = published(Report(repository="repo", entries=(pooling_entry(tmp_path),)))
    assert model_text(plain) is None
    for output_format in ("text", "md", "html"):
        assert "model" not in render(plain, output_format).lower().replace("model.py", "")


def test_what_was_measured_stands_beside_the_claim_that_it_contradicts(report):
    entry = report.entries[0]
    (claim,) = entry.contradictions_of(entry.evaluations[0].candidate)
    assert claim.measured == "2 % on an H200"
    for output_format in ("md", "html"):
        text = render(report, output_format)
        assert "<img src" not in text.replace("\\<", "")
        text = html.unescape(text)
        said = text.index(CONTRADICTED_WORDS)
        assert text.index(MODEL_WORDS) < said < text.index("2 % on an H200")
        assert "not shown" not in text
    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=300), patches=True)
    said = buffer.getvalue()
    assert f'{CONTRADICTED_WORDS} "{HOSTILE}" - 2 % on an H200' in said


def test_claims_are_kept_when_reports_are_merged(report):
    merged = merge([report, report])
    (entry, _) = merged.entries[:2] if len(merged.entries) > 1 else (merged.entries[0], None)
    (claim,) = entry.contradictions_of(entry.evaluations[0].candidate)
    assert claim.measured == "2 % on an H200"
