"""A report as GitHub-flavored Markdown: the digest first, diffs and long tables folded.

Every text that comes from outside is escaped unless the template says what else it is (`code`,
`fenced`): the environment escapes each expression that is not already Markdown. Mentions and
autolinks are broken up, so that a report cannot call people or lead them away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape as html_escape

from cudal1_ci.report.digest import SUSPECTED_WORDS, digest, has_several_devices, summary
from cudal1_ci.report.model_use import (
    CONTRADICTED_WORDS,
    MODEL_WORDS,
    attempts_text,
    model_text,
    opinion_text,
)
from cudal1_ci.report.prose import Piece, blocks_of, pieces_of
from cudal1_ci.report.shape import ListingDocument, ReportDocument
from cudal1_ci.report.wording import ENDED_WORDS, FILTERS
from cudal1_ci.templates_path import templates_folder

MAX_CHARS = 1_000_000
"""GitHub cuts a step summary at one MiB."""
MAX_ROWS_WHEN_LONG = 100

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#!{}$])")


class Markdown(str):
    """Text that is Markdown already and must not be escaped again."""

    __slots__ = ()


def render_markdown(document: ReportDocument | ListingDocument, max_chars: int = MAX_CHARS) -> str:
    """The report, with as much detail as fits: first the diffs are left out, then long tables."""
    if isinstance(document, ListingDocument):
        return _environment().get_template("listing.md.j2").render(listing=document)
    for has_patches, max_rows in ((True, None), (False, None), (False, MAX_ROWS_WHEN_LONG)):
        text = _rendered(document, has_patches=has_patches, max_rows=max_rows)
        if len(text) <= max_chars:
            return text
    return f"{text[: max_chars - 40].rpartition(chr(10))[0]}\n\n(cut: too long)\n"


def _rendered(document: ReportDocument, *, has_patches: bool, max_rows: int | None) -> str:
    template = _environment().get_template("report.md.j2")
    return template.render(
        document=document,
        digest=digest(document),
        summary=summary(document),
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


def escaped(value: object) -> Markdown:
    """Text in one line, shown as it is."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_escaped(" ".join(str(value).split())))


def _escaped(text: str) -> str:
    text = SPECIAL.sub(r"\\\1", text).replace("://", "\\://").replace("www.", "www\\.")
    # A comment splits the word that GitHub would take for a mention; a backslash does not.
    return text.replace("@", "@<!-- -->")


def prose(value: object) -> Markdown:
    """Sentences of ours, as paragraphs and lists."""
    text = ""
    for block in blocks_of(str(value)):
        line = _pieces(block.pieces)
        if block.is_item:
            text += f"\n- {line}"
        else:
            # What would make a list, a rule or a heading of the line is text.
            line = re.sub(r"^([-+=])", r"\\\1", line)
            text += "\n\n" + re.sub(r"^(\d+)([.)])", r"\1\\\2", line)
    return Markdown(text.strip("\n"))


def inline(value: object) -> Markdown:
    """A sentence of ours in one line, with its code."""
    return Markdown(_pieces(pieces_of(" ".join(str(value).split()))))


def _pieces(pieces: Iterable[Piece]) -> str:
    return "".join(code(p.text) if p.is_code else _escaped(p.text) for p in pieces)


def code(value: object) -> Markdown:
    """Text as a code span that also stands in a table."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    if not text:
        return Markdown()
    ticks = "`" * (1 + _longest_run(text))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return Markdown(f"{ticks}{pad}{text}{pad}{ticks}")


def fenced(value: object, language: str = "") -> Markdown:
    """Text as a block of code."""
    text = str(value)
    ticks = "`" * max(3, 1 + _longest_run(text))
    end = "" if text.endswith("\n") else "\n"
    return Markdown(f"{ticks}{language}\n{text}{end}{ticks}")


def html_text(value: object) -> Markdown:
    """Text inside of an HTML element, such as a summary, in one line."""
    text = str(html_escape(" ".join(str(value).split())))
    return Markdown(text.replace("@", "@<!-- -->"))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


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
    environment.filters.update(
        FILTERS,
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
