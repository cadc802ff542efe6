"""Render a report as one HTML file without requests: styles, script and drawings are inside.

A content security policy allows that one script and no request at all, so that text which slipped
through the escaping could not run or call home either.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache, partial
from itertools import groupby

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from cudal1_ci import __version__
from cudal1_ci.records import Measurement, Report
from cudal1_ci.records.published import SCHEMA_VERSION
from cudal1_ci.render.changes import BY_CALLERS, CHANGE_FILTERS, VERDICT_WORDS, headline
from cudal1_ci.render.chrome_trace import chrome_trace, file_part
from cudal1_ci.render.diff_html import diff_html
from cudal1_ci.render.digest import (
    SUSPECTED_WORDS,
    Digest,
    digest,
    has_several_devices,
    nothing_text,
)
from cudal1_ci.render.impact import IMPACT_FILTERS, compares, headlines
from cudal1_ci.render.model_use import (
    CONTRADICTED_WORDS,
    MODEL_WORDS,
    attempts_text,
    model_text,
    opinion_text,
)
from cudal1_ci.render.other_uses import EXPLANATION, OTHER_USES_FILTERS, other_uses
from cudal1_ci.render.plots import bar, change_axis, change_bar, paired_times, ratio_axis
from cudal1_ci.render.profile import profile_of
from cudal1_ci.render.prose import Piece, blocks_of, pieces_of
from cudal1_ci.render.source_link import SHA, source_link
from cudal1_ci.render.templates import templates_folder
from cudal1_ci.render.timeline import timeline_of
from cudal1_ci.render.wording import ENDED_WORDS, FILTERS, KIND_WORDS, STATUS_WORDS

MAX_BARS = 40
"""Bars of the overview; more than fit on a screen or two are read from the table."""
MAX_OPEN_DIFFS = 25
"""Diffs that are unfolded at first; with more of them the page is for searching."""


def render_html(document: Report, address: str | None = None) -> str:
    """Render the whole page. `address` is that of the repository, `https://github.com/o/r`."""
    found = digest(document)
    script = asset("report.js")
    bars = _measurements(found)[:MAX_BARS]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            digest=found,
            other_uses=other_uses(found.changes),
            other_uses_words=EXPLANATION,
            source=partial(source_link, address, document.head_sha, document.folder),
            commit_url=_commit_url(document.head_sha, address),
            impact=headlines(document),
            together=document.together,
            compares=any(compares(one) for one in document.impact or ()),
            headline=headline(found.changes, len(found.proposals), found.is_search),
            nothing=nothing_text(document),
            whys=[one for one in document.entries if one.near_misses or one.not_tried],
            axis=ratio_axis(bars),
            change_axis=change_axis([r for c in found.changes.all for r in c.comparison.rows]),
            num_bars=len(bars),
            several_devices=has_several_devices(document),
            open_diffs=len(found.proposals) <= MAX_OPEN_DIFFS,
            style=Markup(asset("report.css")),
            script=Markup(script),
            script_hash=integrity(script),
            version=__version__,
            schema_version=SCHEMA_VERSION,
            ended=ENDED_WORDS.get(document.ended),
            model_use=model_text(document),
            opinion_use=opinion_text(document),
            status_words=STATUS_WORDS,
            kind_words=KIND_WORDS,
        )
    )


def _commit_url(sha: str | None, address: str | None) -> str | None:
    return f"{address}/commit/{sha}" if address and sha and SHA.fullmatch(sha) else None


def _measurements(found: Digest) -> list[Measurement]:
    return [m for proposal in found.proposals for m in proposal.evaluation.measurements]


def page_environment() -> Environment:
    """Return an environment for templates of pages that escapes whatever they show."""
    environment = Environment(
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment


@cache
def _environment() -> Environment:
    environment = page_environment()
    environment.filters.update(
        **CHANGE_FILTERS,
        **OTHER_USES_FILTERS,
        **IMPACT_FILTERS,
        attempts=attempts_text,
        timeline=timeline_of,
        trace=chrome_trace,
        file_part=file_part,
        diff=diff_html,
        profile=profile_of,
        prose=prose,
        inline=inline,
    )
    environment.globals.update(
        bar=bar,
        change_bar=change_bar,
        paired_times=paired_times,
        model_words=MODEL_WORDS,
        contradicted_words=CONTRADICTED_WORDS,
        suspected_words=SUSPECTED_WORDS,
        verdict_words=VERDICT_WORDS,
        by_callers=BY_CALLERS,
    )
    return environment


def prose(text: str) -> Markup:
    """Render our own sentences as paragraphs and lists."""
    parts = []
    for is_item, blocks in groupby(blocks_of(text), key=lambda block: block.is_item):
        tag = "li" if is_item else "p"
        lines = Markup("").join(
            Markup(f"<{tag}>{{}}</{tag}>").format(_pieces(block.pieces)) for block in blocks
        )
        parts.append(Markup("<ul>{}</ul>").format(lines) if is_item else lines)
    return Markup("").join(parts)


def inline(text: str) -> Markup:
    """Render one of our own sentences, with its code."""
    return _pieces(pieces_of(text))


def _pieces(pieces: Iterable[Piece]) -> Markup:
    return Markup("").join(
        Markup("<code>{}</code>").format(p.text) if p.is_code else escape(p.text) for p in pieces
    )


def asset(name: str) -> str:
    """Read a style or a script of a page."""
    return (templates_folder() / name).read_text(encoding="utf-8")


def integrity(script: str) -> str:
    """Return the hash by which the policy recognizes the script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
