"""Render a patch as HTML, with syntax colors and with line numbers that are not copied.

The lines of each side of a hunk are lexed together, so that a string over several lines is one
string; what began before the hunk cannot be known, and is colored as if it began there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

from cudal1_ci.errors import ReportError
from cudal1_ci.render.hunks import FileDiff, Hunk, files_of

CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (String, "s"),
    (Number, "m"),
    (Name.Decorator, "d"),
    (Name.Builtin, "b"),
    (Name.Function, "f"),
    (Name.Class, "f"),
)
"""Classes of the page's style sheet; a token has that of its first ancestor here."""

MARK_CLASSES = {"+": "add", "-": "del", " ": ""}


def diff_html(patch: str) -> Markup:
    """Render every file of a patch; show text that is not a patch unchanged."""
    try:
        files = files_of(patch)
    except ReportError:
        return Markup('<pre class="diff">{}</pre>').format(patch)
    return Markup("").join(_file_html(file) for file in files)


def _file_html(file: FileDiff) -> Markup:
    lexer = _lexer(file.path)
    body = Markup('<span class="gap">⋯</span>').join(_hunk_html(hunk, lexer) for hunk in file.hunks)
    return Markup(
        '<figure class="file"><figcaption>{path} <span class="added">+{added}</span> '
        '<span class="removed">-{removed}</span></figcaption>'
        '<pre class="diff" tabindex="0" aria-label="Changes of {path}"><code>{body}</code></pre>'
        "</figure>"
    ).format(path=file.path, added=file.num_added, removed=file.num_removed, body=body)


def _hunk_html(hunk: Hunk, lexer: Lexer) -> Markup:
    old = iter(_colored((line.text for line in hunk.lines if line.mark != "+"), lexer))
    new = iter(_colored((line.text for line in hunk.lines if line.mark != "-"), lexer))
    rows = []
    for line in hunk.lines:
        if line.mark == " ":
            next(old)
        colored = next(old) if line.mark == "-" else next(new)
        rows.append(
            Markup(
                '<span class="l {kind}" data-o="{old}"><i data-n="{new}">{mark}</i>{text}\n</span>'
            ).format(
                kind=MARK_CLASSES[line.mark],
                old=line.old_number or "",
                new=line.new_number or "",
                mark=line.mark,
                text=colored,
            )
        )
    return Markup("").join(rows)


def _colored(lines: Iterable[str], lexer: Lexer) -> Iterator[Markup]:
    """Yield each line as spans, without its line end."""
    source = "\n".join(line.rstrip("\r\n") for line in lines)
    row: list[Markup] = []
    # Not `get_tokens`, which would strip blank lines at both ends and so lose count of them.
    for _, token, value in lexer.get_tokens_unprocessed(source):
        first, *others = value.split("\n")
        row.append(_span(token, first))
        for other in others:
            yield Markup("").join(row)
            row = [_span(token, other)]
    yield Markup("").join(row)


def _span(token: _TokenType, text: str) -> Markup:
    name = next((name for ancestor, name in CLASSES if token in ancestor), None)
    if name is None or not text:
        return escape(text)
    return Markup('<span class="{}">{}</span>').format(name, text)


def _lexer(path: str) -> Lexer:
    """Return the lexer of a file's language; plain text where pygments knows none."""
    try:
        return get_lexer_for_filename(path)
    except ClassNotFound:
        return TextLexer()
