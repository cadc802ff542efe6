"""Render a report as GitHub-flavored Markdown: the digest first, diffs and long tables folded.

Every text that comes from outside is escaped unless the template says what else it is (`code`,
`fenced`): the environment escapes each expression that is not already Markdown (markup.py).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cudal1_ci.records import Listing, Report
from cudal1_ci.render.changes import CHANGE_FILTERS, VERDICT_WORDS, headline
from cudal1_ci.render.digest import (
    SUSPECTED_WORDS,
    digest,
    has_several_devices,
    nothing_text,
    summary,
    uncallable,
)
from cudal1_ci.render.impact import IMPACT_FILTERS, headlines, together_lines
from cudal1_ci.render.markup import code, escaped, fenced, html_text, inline, prose
from cudal1_ci.render.model_use import (
    CONTRADICTED_WORDS,
    MODEL_WORDS,
    attempts_text,
    model_text,
    opinion_text,
)
from cudal1_ci.render.other_uses import EXPLANATION, OTHER_USES_FILTERS, other_uses
from cudal1_ci.render.templates import templates_folder
from cudal1_ci.render.wording import ENDED_WORDS, FILTERS

MAX_CHARS = 1_000_000
"""GitHub cuts a step summary at one MiB."""
MAX_ROWS_WHEN_LONG = 100
MAX_NAMED = 12
"""Targets named for one reason that nothing calls them."""


def render_markdown(document: Report | Listing, max_chars: int = MAX_CHARS) -> str:
    """Render a report with as much detail as fits: first diffs are left out, then long tables."""
    if isinstance(document, Listing):
        return (
            _environment()
            .get_template("listing.md.j2")
            .render(listing=document, uncallable=uncallable(document), max_named=MAX_NAMED)
        )
    for has_patches, max_rows in ((True, None), (False, None), (False, MAX_ROWS_WHEN_LONG)):
        text = _rendered(document, has_patches=has_patches, max_rows=max_rows)
        if len(text) <= max_chars:
            return text
    return f"{text[: max_chars - 40].rpartition(chr(10))[0]}\n\n(cut: too long)\n"


def _rendered(document: Report, *, has_patches: bool, max_rows: int | None) -> str:
    template = _environment().get_template("report.md.j2")
    found = digest(document)
    return template.render(
        document=document,
        digest=found,
        other_uses=other_uses(found.changes),
        other_uses_words=EXPLANATION,
        headline=headline(found.changes, len(found.proposals), found.is_search),
        nothing=nothing_text(document),
        whys=[one for one in document.entries if one.near_misses or one.not_tried],
        summary=summary(document),
        impact=headlines(document),
        together=together_lines(document),
        model_use=model_text(document),
        opinion_use=opinion_text(document),
        model_words=MODEL_WORDS,
        suspected_words=SUSPECTED_WORDS,
        contradicted_words=CONTRADICTED_WORDS,
        ended=ENDED_WORDS.get(document.ended),
        several_devices=has_several_devices(document),
        has_patches=has_patches,
        max_rows=max_rows,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Escaping is `_finalize`'s: HTML entities would be wrong inside of code.
        autoescape=False,
    )
    environment.globals.update(words=VERDICT_WORDS)
    environment.filters.update(
        FILTERS,
        **CHANGE_FILTERS,
        **OTHER_USES_FILTERS,
        **IMPACT_FILTERS,
        attempts=attempts_text,
        code=code,
        fenced=fenced,
        prose=prose,
        inline=inline,
        html_text=html_text,
    )
    return environment


def _finalize(value: Any) -> Any:
    return escaped(value)
