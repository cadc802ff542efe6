"""The comment below a pull request: golden texts, hostile reports, and reports that are too long.

`UPDATE_GOLDEN=1 pytest tests/unit/render` writes the golden files anew: read the difference.
"""

from __future__ import annotations

import re
import time

import msgspec
import pytest
from markdown_it import MarkdownIt

from cudal1_ci.errors import ReportError
from cudal1_ci.records import (
    ContractCheck,
    Contradiction,
    Finding,
    Generation,
    Report,
)
from cudal1_ci.render import render
from cudal1_ci.render.comment import About, comment, summary
from cudal1_ci.render.comment_template import template_of
from cudal1_ci.stats.gate import GateConfig, Policy
from tests.unit.render import comparisons
from tests.unit.render.comparisons import (
    BASE_SHA,
    HEAD_SHA,
    NOT_CALLED,
    RUN_URL,
    a_document,
    a_row,
    compared,
)
from tests.unit.render.markdown_reading import all_tokens, text_of
from tests.unit.render.samples import with_findings
from tests.unit.render.test_rendering import check_golden

ABOUT = About(
    repository_url="https://github.com/acme/slowformer",
    run_url=RUN_URL,
    artifact_url=f"{RUN_URL}/artifacts/8",
    head_sha=HEAD_SHA,
    base_sha=BASE_SHA,
    policy=Policy(fail_on="regression"),
)
GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"details", "summary", "b", "br", "sub"}
EVIL = (
    "</summary></details><img src=//evil onerror=x>@octocat @org/team #12 GH-34 o/r#5 "
    "[a](http://evil) ![b](https://evil/p.png) www.evil.example <!-- cudal1-ci:v1 key=x --> "
    "`@code` ```\n````\n| x |\n# h\n> q\n- l\u202e\u200b\x1b[31m \\| &lt;b&gt; &#64;me"
)


# --- golden ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["regression", "acknowledged", "fixed", "three_devices", "other_uses", "nothing"]
)
def test_the_comment_is_as_it_was_agreed(name):
    shown = a_document(NOT_CALLED) if name == "nothing" else getattr(comparisons, name)()
    check_golden(f"comment-{name}.md", comment(shown, ABOUT))


def test_proposals_are_as_they_were_agreed(golden_report):
    check_golden("comment-proposals.md", comment(comparisons.proposals(golden_report), ABOUT))


def test_the_commands_are_named_only_where_something_answers_them(golden_report):
    shown = comparisons.proposals(golden_report)
    plain, named = (
        comment(shown, msgspec.structs.replace(ABOUT, commands=on)) for on in (False, True)
    )
    added = [line for line in named.splitlines() if line not in plain.splitlines()]
    ids = re.findall(r"`/cudal1 apply ([0-9a-f]{16})`", named)
    assert len(ids) == len(set(ids)) == plain.count("**To apply:**") > 0
    assert "/cudal1" not in plain
    assert added[-1].startswith("<sub>Commands, in a comment by anyone who may write here: ")
    assert len(added) == len(ids) + 1


def test_a_hostile_report_is_as_it_was_agreed(golden_report):
    shown = poisoned(comparisons.proposals(golden_report))
    check_golden("comment-hostile.md", comment(shown, ABOUT))


def test_what_is_left_out_when_there_is_no_room_is_as_it_was_agreed(golden_report, monkeypatch):
    shown = with_patches(comparisons.many(24), golden_report, 19_000)
    kept = ""
    for max_bytes in (90_000, 60_000, 40_000, 25_000, 12_000, 9_000, 7_000, 4_000, 1_500):
        monkeypatch.setattr("cudal1_ci.render.comment.MAX_COMMENT_BYTES", max_bytes)
        text = comment(shown, ABOUT)
        assert len(text.encode()) <= max_bytes
        kept += f"--- {max_bytes:,} bytes ---\n\n{skeleton(text)}\n\n"
    check_golden("comment-without-room.md", kept)


def skeleton(text: str) -> str:
    """What a comment is made of, without the rows of tables and what is folded."""
    begins = ("###", "On ", "**Left out", "Showing ", "<details>", "```diff", "And ", "Merge ")
    return "\n".join(line for line in text.splitlines() if line.startswith(begins))


# --- what it says ----------------------------------------------------------------------------


def test_the_worst_comes_first_and_an_acknowledged_regression_after_the_others():
    shown = a_document(
        compared("Same", a_row(1.0)),
        compared("Agreed", a_row(1.15, "regression"), acknowledged=comparisons.AGREED),
        compared("Slow", a_row(1.1, "regression")),
        compared("Slower", a_row(1.2, "regression")),
        compared("Fast", a_row(0.9, "improvement")),
        compared("Faster", a_row(0.5, "improvement")),
    )
    text = comment(shown, ABOUT)
    assert re.findall(r"^\| \[`(\w+)`\]\(\S+\)<br>", text, re.MULTILINE) == [
        *("Slower", "Slow", "Agreed", "Faster", "Fast", "Same")
    ]
    assert text.startswith("### cudal1-ci: 2 of 6 targets got slower\n")
    assert "🔴 3 slower (1 acknowledged), 🟢 2 faster, ⚪ 1 same." in text


def test_at_most_ten_of_a_verdict_are_shown_and_all_in_the_summary():
    shown = a_document(*(compared(f"Layer{i}", a_row(1.2, "regression")) for i in range(34)))
    assert "Showing 10 of 34 that got slower." in comment(shown, ABOUT)
    assert "Layer33" not in comment(shown, ABOUT).replace("Layer3`", "").replace("layer3.py", "")
    assert "[`Layer33`](" in summary(shown, ABOUT)


def test_a_fourth_proposal_is_counted(golden_report):
    shown = with_patches(a_document(), golden_report, 100, num_proposals=5)
    text = comment(shown, ABOUT)
    assert text.count("```diff") == 3
    assert "And 2 more proposals in the [report]" in text
    assert summary(shown, ABOUT).count("```diff") == 5


def test_a_model_s_words_are_marked_and_quoted_and_contradicted(golden_report, replaced):
    entry = golden_report.entries[0]
    candidate_id = entry.evaluations[entry.best].candidate.id
    claim = Contradiction(candidate_id=candidate_id, claim="It is 5x as fast", measured="3.09x")
    generation = {
        "model": "m/7b",
        "temperature": 1.0,
        "max_tokens": 9,
        "prompt_digest": "0",
    }
    shown = replaced(
        golden_report,
        candidate={
            "analysis": "Line one.\n\n# Not a heading\n" + "x" * 5000,
            "generation": Generation(**generation),
        },
    )
    first = msgspec.structs.replace(shown.entries[0], contradictions=(claim,))
    shown = msgspec.structs.replace(shown, entries=(first, *shown.entries[1:]))
    text = comment(shown, ABOUT)
    assert "The model's own claims, not measured:\n\n> Line one." in text
    assert "> \\# Not a heading" in text
    assert "x" * 1400 in text and "x" * 1500 not in text
    assert 'The measurements contradict this: "It is 5x as fast": 3.09x' in text
    assert "written by `m/7b`." in text
    adapted = {**generation, "adapter": "0123456789abcdef", "adapter_name": "small | @all"}
    text = comment(replaced(golden_report, candidate={"generation": Generation(**adapted)}), ABOUT)
    assert "written by `m/7b` with adapter `small " in text


def test_what_differs_from_the_old_code_is_said_where_all_see_it(golden_report):
    lines = (
        ContractCheck(aspect="gradients", result="held"),
        ContractCheck(aspect="NaN in x", result="differs", detail="61 elements are finite"),
    )
    entry = next(e for e in golden_report.entries if e.best is not None)
    evaluation = msgspec.structs.replace(entry.evaluations[entry.best], contract=lines)
    entry = msgspec.structs.replace(entry, best=0, evaluations=(evaluation,))
    said = "It differs from the old code: NaN in x (61 elements are finite)."
    for text in (
        comment(a_document(entry), ABOUT),
        render(msgspec.structs.replace(golden_report, entries=(entry,)), "html"),
    ):
        above, _, below = text.partition("Contract: 1 held, 1 differs, 0 broken, 0 not tried")
        assert said in above
        assert "differs: NaN in x (61 elements are finite)" in below
    held = msgspec.structs.replace(evaluation, contract=lines[:1])
    entry = msgspec.structs.replace(entry, evaluations=(held,))
    assert "differs" not in comment(a_document(entry), ABOUT)


def test_findings_and_other_baselines_are_shown(golden_report):
    entry = next(e for e in golden_report.entries if e.best is not None)
    evaluation = entry.evaluations[entry.best]
    (first, *_) = evaluation.measurements
    compiled = msgspec.structs.replace(first, baseline="compile")
    finding = Finding(rule="state.flags", message="sets `cudnn.benchmark`")
    shown = a_document(
        msgspec.structs.replace(
            entry,
            best=0,
            evaluations=(
                with_findings(
                    msgspec.structs.replace(evaluation, measurements=(first, compiled)), finding
                ),
            ),
        )
    )
    text = comment(shown, ABOUT)
    assert "| torch.compile |" in text
    assert "| head |" in text
    assert "- `state.flags`: sets `cudnn.benchmark`" in text


@pytest.mark.parametrize(
    ("fail_on", "missing", "said"),
    [
        ("never", "auto", "Advisory: nothing here fails the check."),
        ("never", "failure", "fails if a target was not measured, unless"),
        ("regression", "auto", "fails if a target got slower or was not measured, unless"),
        ("regression", "neutral", "fails if a target got slower, unless"),
        ("contract", "auto", "slower, was not measured or no longer works in a use that worked,"),
        ("inconclusive", "auto", "got slower, may have got slower or was not measured, unless"),
    ],
)
def test_what_fails_the_check_is_said_in_full(fail_on, missing, said):
    policy = Policy(fail_on=fail_on, gate=GateConfig(on_missing=missing))
    about = msgspec.structs.replace(ABOUT, policy=policy)
    assert said in comment(comparisons.fixed(), about)


def test_what_is_no_address_and_no_commit_is_not_shown():
    about = About(run_url="javascript:alert(1)", artifact_url="https://x/) <b>", head_sha="`@me`")
    shown = msgspec.structs.replace(comparisons.fixed(), base_sha="@you", head_sha=None)
    text = comment(shown, about)
    for hidden in ("javascript", "https://x", "@me", "@you", "compare "):
        assert hidden not in text


# --- hostile ---------------------------------------------------------------------------------


def test_nothing_of_a_report_becomes_an_element_a_link_or_a_call(golden_report):
    for shown in (
        comparisons.proposals(golden_report),
        comparisons.regression(),
        comparisons.three_devices(),
        comparisons.acknowledged(),
    ):
        for write in (comment, summary):
            check_harmless(write(poisoned(shown), ABOUT))


def check_harmless(text: str) -> None:
    tokens = GITHUB.parse(text)
    for token in all_tokens(tokens):
        assert token.type not in ("image", "hr")
        if token.type == "link_open":
            href = token.attrs["href"]
            assert href.startswith((RUN_URL, f"{ABOUT.repository_url}/blob/{HEAD_SHA}/"))
            assert "/../" not in href
        if token.type in ("html_block", "html_inline"):
            assert set(re.findall(r"</?([^\s>/]*)", token.content)) <= OURS
            assert "=" not in re.sub(r">[^<]*<", "><", token.content)
        if token.type == "heading_open":
            assert token.tag in ("h3", "h4")
    said = text_of(tokens)
    assert not re.search(r"@\w|#\d|gh-\d|://|www\.\w", said, re.IGNORECASE)
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", text)
    assert text.count("<details>") == text.count("</details>\n")
    assert "<!-- cudal1-ci" not in text


def test_the_poison_reaches_every_part(golden_report):
    shown = comment(poisoned(comparisons.proposals(golden_report)), ABOUT)
    assert shown.count("octocat") > 20


def test_five_megabytes_of_analysis_and_many_targets_take_less_than_a_second(golden_report):
    shown = with_patches(
        comparisons.many(80), golden_report, 900_000, analysis="@x `y` <z>\n" * 450_000
    )
    comment(comparisons.fixed(), ABOUT)  # the template is read once
    start = time.process_time()
    text = comment(shown, ABOUT)
    assert time.process_time() - start < 1
    assert len(text) <= 60_000


def test_the_longest_lists_of_the_longest_names_give_way_to_the_verdict():
    rows = [a_row(1.2, "regression", device=device) for device in (comparisons.H200,) * 3]
    agreed = {"acknowledged": comparisons.AGREED, "output_change": "differs"}
    shown = a_document(
        *(compared(f"Layer{i}", *rows, **agreed) for i in range(50)),
        devices=[msgspec.structs.replace(comparisons.H200, driver=str(i)) for i in range(50)],
    )
    text = comment(poisoned(shown, "@" * 4000), ABOUT)
    assert len(text.encode()) <= 60_000
    assert text.startswith("### cudal1-ci: 50 of 50 targets got slower, as acknowledged")
    assert "parts of lists" in text


def test_the_longest_of_everything_still_has_its_verdict(golden_report):
    long = "@é" * 2000
    shown = poisoned(comparisons.many(120), long)
    shown = poisoned(with_patches(shown, golden_report, 19_000, num_proposals=9), long)
    text = comment(shown, ABOUT)
    assert len(text.encode()) <= 60_000
    assert text.startswith("### cudal1-ci: 30 of 120 targets got slower, 30 inconclusive; 9 faster")
    assert "**Left out**" in text
    assert f"[run]({RUN_URL})" in text
    assert len(summary(shown, ABOUT).encode()) <= 1_000_000
    assert text == comment(shown, ABOUT)


# --- templates of users ----------------------------------------------------------------------


def own(block: str, text: str) -> str:
    return f'{{% extends "comment.md.j2" %}}{{% block {block} %}}{text}{{% endblock %}}'


def test_a_block_can_be_replaced_and_what_it_says_is_escaped_too():
    template = own("footer", "Ask {{ document.repository }}.\n{{ super() }}")
    shown = msgspec.structs.replace(comparisons.fixed(), repository="<b>@octocat</b>")
    text = comment(shown, ABOUT, template=template)
    assert "Ask \\<b\\>@&#8203;octocat\\</b\\>.\n✅ The check `cudal1-ci` concludes" in text
    assert text.startswith("### cudal1-ci: no target got slower")


@pytest.mark.parametrize(
    "block",
    sorted(template_of(None).blocks),
)
def test_every_block_can_be_left_out_and_kept(golden_report, block):
    shown = comparisons.proposals(golden_report)
    assert comment(shown, ABOUT, template=own(block, "{{ super() }}")) == comment(shown, ABOUT)
    assert comment(shown, ABOUT, template=own(block, "")) != "" or block == "verdict"


@pytest.mark.parametrize(
    "text",
    [
        "{{ missing }}",
        "{% if %}",
        "{{ document.repository | safe }}",
        "{{ document.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        '{% include "nowhere" %}',
    ],
)
def test_a_template_that_does_not_work_is_said_to(text):
    with pytest.raises(ReportError, match="template of the comment"):
        comment(comparisons.fixed(), ABOUT, template=own("footer", text))


def test_a_template_that_says_too_much_gives_way_to_ours():
    template = own("verdict", "{{ 'word ' * 100 }}\n" * 1000)
    text = comment(comparisons.fixed(), ABOUT, template=template)
    assert text == comment(comparisons.fixed(), ABOUT)


# --- reports made worse ----------------------------------------------------------------------


def poisoned(shown: Report, evil: str = EVIL) -> Report:
    """With something hostile after every text that is free."""
    return msgspec.convert(_poisoned(msgspec.to_builtins(shown), evil), Report)


FIXED = {"type", "kind", "verdict", "status", "provenance", "mode", "ended", "base_sha", "head_sha"}


def _poisoned(value, evil: str, key: str = ""):
    if isinstance(value, dict):
        return {name: _poisoned(each, evil, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_poisoned(each, evil, key) for each in value]
    # Workloads of measurements are found by their names, devices by theirs: all change alike.
    return value[:30] + evil if isinstance(value, str) and key not in FIXED else value


def with_patches(
    shown: Report,
    golden_report: Report,
    patch_chars: int,
    num_proposals: int = 3,
    **fields,
) -> Report:
    """With proposals whose diffs have so many characters."""
    entry = next(e for e in golden_report.entries if e.best is not None)
    evaluation = entry.evaluations[entry.best]
    patch = (evaluation.candidate.patch + "+    x = x + 1  # again\n" * (patch_chars // 24))[
        :patch_chars
    ]
    candidate = msgspec.structs.replace(evaluation.candidate, patch=patch, **fields)
    proposed = msgspec.structs.replace(
        entry, best=0, evaluations=(msgspec.structs.replace(evaluation, candidate=candidate),)
    )
    entries = (*shown.entries, *(proposed for _ in range(num_proposals)))
    return msgspec.structs.replace(shown, entries=entries)
