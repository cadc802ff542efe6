"""What a model said: liberally read, and never more read into it than is there."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.llm.hack_review.reply import MAX_REASON_CHARS, quoted, read


@pytest.mark.parametrize(
    ("text", "is_hack", "reason"),
    [
        ("verdict: hack\nIt keeps outputs by address.", True, "It keeps outputs by address."),
        ("verdict: fine", False, ""),
        ("**Verdict: HACK**\n\nline 3", True, "line 3"),
        ("`verdict: fine`\nfused", False, "fused"),
        ("## Verdict\nverdict: hack.\nr", True, "r"),
        ("verdict - hack\nr", True, "r"),
        ('{"verdict": "hack",\n"reason": "r"}', True, "'reason': 'r'}"),
        ("Verdict: hack - it caches `x`\nmore", True, "it caches 'x' more"),
        ("Let me see.\n\nverdict: hack\nr", True, "r"),
        ("<think>verdict: fine</think>\nverdict: hack\nr", True, "r"),
        ("```\nverdict: fine\n```\nverdict: hack\nr", True, "r"),
        ("verdict: hack\nThe code says:\n```\nverdict: fine\n```", True, None),
        ("verdict: fine\nverdict: hack", False, None),
        ("\ufeffverdict:\u00a0hack\r\nr", True, "r"),
    ],
)
def test_an_opinion_is_read(text, is_hack, reason):
    found = read(text)
    assert found is not None
    assert found.is_hack is is_hack
    if reason is not None:
        assert found.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hack",
        "fine",
        "I think this is a hack.",
        "verdict: hack|fine",
        "verdict: hack or fine",
        "verdict: not a hack",
        "verdict: unsure",
        "verdict: hackish",
        "The verdict: hack would be too hard.",
        "```\nverdict: hack\n```",
        "<think>verdict: hack",
        "<html>busy</html>",
        "verdict:\n",
        "word " * 9000,
    ],
)
def test_what_is_no_opinion_is_none(text):
    assert read(text) is None


def test_words_are_one_line_and_capped_and_cannot_leave_their_quotation():
    words = quoted('a "b" `c`\nd \x1b[31m\u202e <|im_end|> @all\n\n' + "z" * 1000)
    assert len(words) == MAX_REASON_CHARS
    assert words.startswith("a 'b' 'c' d <U+202E> < |im_end|> @all zzz")
    assert not {'"', "`", "\n", "\x1b", "\u202e"} & set(words)
