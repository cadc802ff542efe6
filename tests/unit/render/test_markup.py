"""Text of others, read by a CommonMark parser: it must come out as the text that it was."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cudal1_ci.render.markup import (
    LINKED,
    SPLIT,
    UNSEEN,
    cleaned,
    code,
    escaped,
    fenced,
    html_text,
    inline,
    prose,
    quoted,
)
from tests.unit.render.markdown_reading import all_tokens, text_of

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
AWKWARD = st.text(
    st.sampled_from("ab1 \t\n\r\\`*_[]()<>|~&#!{}$@:/.-+=;'\"GHghw\u202e\u200b\x00é"), max_size=60
) | st.sampled_from(
    [
        "@octocat",
        "@org/team",
        "#12 GH-12 o/r#3",
        "[a](http://evil) ![b](//evil)",
        "<img src=x onerror=1>",
        "</details></summary>",
        "<!-- cudal1-ci:v1 -->",
        "a\\|b|c",
        "&#64;me &commat;me",
        "www.evil.example https://evil.example a@b.example",
    ]
)
WORDS_THAT_ARE_TEXT = {"text", "text_special", "entity", "softbreak"}


def one_line(text: str) -> str:
    return " ".join(cleaned(text).split())


@given(AWKWARD)
def test_escaped_text_is_read_as_the_same_text(text):
    (_, paragraph, _) = READER.parse(f"x {escaped(text)} x")
    assert {token.type for token in paragraph.children} <= WORDS_THAT_ARE_TEXT
    shown = "".join(token.content for token in paragraph.children)
    assert " ".join(shown.replace(SPLIT, "").split()) == " ".join(
        ["x", *one_line(text).split(), "x"]
    )
    assert not LINKED.search(shown) or all(
        shown[found.end() : found.end() + 1] == SPLIT for found in LINKED.finditer(shown)
    )


@given(AWKWARD, AWKWARD)
def test_a_cell_holds_what_was_put_into_it_and_ends_where_it_should(text, in_code):
    table = f"| a | b | c |\n| - | - | - |\n| {escaped(text)} | {code(in_code)} | last |"
    cells = [t for t in READER.parse(table) if t.type == "inline"][3:]
    assert [cell.content for cell in cells][2:] == ["last"]
    assert "".join(t.content for t in cells[0].children).replace(SPLIT, "") == one_line(text)
    assert "".join(t.content for t in cells[1].children).replace(SPLIT, "") == one_line(in_code)
    assert {t.type for t in cells[1].children} <= {"code_inline"}


@example("---", prose)
@example("x\n===", quoted)
@example("- ---\n- # a\n-     code", prose)
@example("1. a\n2) b\n+ c\n    d", quoted)
@given(AWKWARD, st.sampled_from([prose, quoted, inline]))
def test_sentences_are_paragraphs_lists_and_code_and_nothing_else(text, written_by):
    # A sentence in one line never stands at its beginning.
    begin = "x " if written_by is inline else "x\n\n"
    tokens = all_tokens(READER.parse(begin + written_by(text)))
    types = {re.sub("_(open|close)$", "", token.type) for token in tokens}
    blocks = {"paragraph", "inline", "bullet_list", "list_item", "code_inline", "blockquote"}
    assert types <= blocks | WORDS_THAT_ARE_TEXT


@example("a\n```\n@octocat\n````\n<img>")
@given(AWKWARD)
def test_a_fence_ends_where_the_text_ends(text):
    tokens = READER.parse(f"{fenced(text, 'diff')}\n\nafter")
    assert [t.type for t in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert not UNSEEN.search(tokens[0].content.replace("\n", ""))


@given(AWKWARD)
def test_text_of_an_element_is_text(text):
    shown = html_text(text)
    assert "<" not in shown and ">" not in shown
    assert html.unescape(shown).replace(SPLIT, "") == one_line(text)


@given(st.text(st.sampled_from("ab @#1`*[]\n-/"), max_size=80))
def test_no_mention_survives_outside_of_code(text):
    for written_by in (escaped, inline, prose, quoted):
        shown = text_of(READER.parse("x " + written_by(text)))
        assert not re.search(r"@\w|#\d", shown)


def test_what_cannot_be_seen_is_gone_and_named_in_code():
    hidden = "a\u202eb\u2066c\u200bd\x1b[31m\U000e0041\ud800"
    assert cleaned(hidden) == "abcd[31m"
    assert "\\u202e" in fenced(hidden)
    assert not UNSEEN.search(fenced(hidden).replace("\n", ""))
    assert fenced("a\r\nb") == "```\na\nb\n```"


@pytest.mark.parametrize("written_by", [escaped, code, inline, html_text, quoted])
def test_what_is_too_long_is_cut(written_by):
    shown = written_by("x" * 10_000_000, max_chars=10)
    assert "x" * 10 + "…" in shown
    assert len(shown) < 20
