"""Render a Report as text, Markdown, comment, HTML, SARIF or JSON.

    render(published(report), "html")

`published` makes a report of what a run recorded, `reading` and `merge` take it back in; `text`,
`markdown`, `html`, `sarif` and `comment` show it; `patch` is a proposal as a diff, `progress` a run
as it goes. Nothing here measures, verifies or prints by itself.
"""

from __future__ import annotations

import msgspec

from cudal1_ci.errors import ReportError
from cudal1_ci.records import Evaluation, Listing, Report
from cudal1_ci.records.published import to_json
from cudal1_ci.render.comment import About
from cudal1_ci.render.comment import comment as render_comment
from cudal1_ci.render.markdown import render_markdown
from cudal1_ci.render.sarif import render_sarif

FORMATS = ("text", "md", "json", "html", "sarif", "comment")
LISTING_FORMATS = ("text", "md", "json")

__all__ = ["FORMATS", "render", "render_json"]


def render(document: Report | Listing, output_format: str, address: str | None = None) -> str:
    """Render a report or a listing in one of FORMATS, ending in a newline. `address` is that of the
    repository, `https://github.com/o/r`, for links of the page.

    Raises:
        ReportError: There is no such format, or it cannot hold a listing.
    """
    known = FORMATS if isinstance(document, Report) else LISTING_FORMATS
    if output_format not in known:
        what = "a report" if isinstance(document, Report) else "a listing (`--list`)"
        raise ReportError(f"{what} is written as {', '.join(known)}; got {output_format!r}")
    match output_format, document:
        case "json", _:
            return render_json(document)
        case "md", _:
            return render_markdown(document)
        case "html", Report():
            from cudal1_ci.render.html import render_html  # pygments; publishing has none

            return render_html(document, address)
        case "sarif", Report():
            return render_sarif(document)
        case "comment", Report():
            return render_comment(document, About())
        case _:
            from cudal1_ci.render.text import render_text  # rich; publishing has none

            return render_text(document)


def render_json(shown: Report | Listing | Evaluation) -> str:
    """Return what `--json` writes, indented."""
    return msgspec.json.format(to_json(shown), indent=2).decode() + "\n"
