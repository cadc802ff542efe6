"""A report as the comment of a pull request, and as the summary of a run."""

from __future__ import annotations

from cudal1_ci.report.markdown import render_markdown
from cudal1_ci.report.shape import ReportDocument
from cudal1_ci.schema import Record

MAX_CHARS = 60_000


class About(Record, frozen=True, kw_only=True):
    """What is known of the run beside its report, all of it from whoever publishes."""

    run_url: str | None = None
    artifact_url: str | None = None
    head_sha: str | None = None
    base_sha: str | None = None
    fail_on: str = "never"


def comment(document: ReportDocument, about: About) -> str:
    """Markdown of at most 60,000 characters, without the hidden marker."""
    del about
    return render_markdown(document, MAX_CHARS)


def summary(document: ReportDocument, about: About) -> str:
    """All of it, as Markdown."""
    del about
    return render_markdown(document)
