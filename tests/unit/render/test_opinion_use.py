"""What a report says of second opinions: the words quoted, the candidate listed, failures told."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.propose.llm.hack_review.reply import quoted
from cudal1_ci.propose.llm.hack_review.review import HACK
from cudal1_ci.records import Evaluation, Finding, OpinionUse, Report, Verdict
from cudal1_ci.render import render
from cudal1_ci.render.digest import SUSPECTED, digest
from cudal1_ci.render.merge import merge
from cudal1_ci.render.model_use import opinion_text
from cudal1_ci.render.published import published
from tests.unit.render.samples import CPU, pooling_entry

HOSTILE = "Ask @maintainers </p><img src=x> [here](https://example.org) `rm` | cell <script>"
USE = OpinionUse(
    model="org/critic", num_asked=3, num_suspected=1, failed={"timeout": 1, "unreadable": 1}
)


@pytest.fixture
def report(tmp_path):
    entry = pooling_entry(tmp_path)
    (first,) = entry.evaluations
    finding = Finding(rule=HACK, message=f'in its words: "{quoted(HOSTILE)}"')
    verdict = Verdict(status="inconclusive", findings=(finding,))
    suspected = Evaluation(candidate=first.candidate, verdict=verdict, device=CPU)
    doubted = msgspec.structs.replace(
        entry, evaluations=(suspected,), best=None, opinion_use=USE, model_use=None
    )
    calm = msgspec.structs.replace(
        entry, opinion_use=OpinionUse(model="org/critic", num_asked=1), best=0
    )
    return published(Report(repository="repo", entries=(doubted, calm)))


def test_the_rule_is_one():
    assert HACK == SUSPECTED


def test_questions_and_failures_are_counted_over_the_run(report):
    assert opinion_text(report) == (
        "second opinion of org/critic: asked about 4 jumps; 1 suspected; no opinion on 2 "
        "(1 too late, 1 without a verdict that can be read)"
    )
    bare = msgspec.structs.replace(report, entries=())
    assert opinion_text(bare) is None


@pytest.mark.parametrize("output_format", ["text", "md", "html"])
def test_a_suspected_candidate_is_listed_with_the_model_s_words(report, output_format):
    text = " ".join(render(report, output_format).split())
    assert "Fast, but suspected by another model, so not proposed" in text
    assert "second opinion of org/critic" in text
    assert "in its words:" in text
    assert len(digest(report).suspected) == 1
    assert len(digest(report).proposals) == 1


def test_hostile_words_are_text(report):
    markdown = render(report, "md")
    assert "@maintainers" not in markdown
    assert not re.search(r"(?<!\\)<img", markdown)
    assert not re.search(r"(?<!\\)\]\(https", markdown)
    page = render(report, "html")
    assert "<img" not in page
    assert page.count("<script>") == 1


def test_json_has_what_was_asked(report):
    entry = report.entries[0]
    assert msgspec.to_builtins(entry.opinion_use) == {
        "model": "org/critic",
        "num_asked": 3,
        "num_suspected": 1,
        "failed": {"timeout": 1, "unreadable": 1},
    }


def test_without_opinions_nothing_is_said(report):
    entries = tuple(
        msgspec.structs.replace(entry, opinion_use=None) for entry in report.entries[1:]
    )
    silent = msgspec.structs.replace(report, entries=entries)
    for output_format in ("text", "md", "html"):
        text = render(silent, output_format)
        assert "second opinion" not in text
        assert "suspected" not in text


def test_what_is_suspected_in_one_report_is_not_proposed_by_another(report):
    doubted, calm = report.entries
    one = msgspec.structs.replace(report, entries=(doubted,))
    other = msgspec.structs.replace(report, entries=(calm,))
    assert merge([other, other]).entries[0].best is not None
    merged = merge([one, other])
    assert merged.entries[0].best is None
    assert len(digest(merged).suspected) == 1
