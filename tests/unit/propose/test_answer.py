"""Reading answers: a corpus of what models write, and texts that nobody would.

answers/ holds one answer a file. Those of GOOD have the code of wanted_form.md in one disguise or
another; those of BAD are refused.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudal1_ci.propose.llm.answer import LONGEST_ANSWER, LONGEST_CODE, Parsed, Unusable, parse
from cudal1_ci.propose.llm.answer_prose import LONGEST_PART

ANSWERS = Path(__file__).parent / "answers"
ANALYSIS = (
    "The reference makes the full diagonal matrix and multiplies by it: O(N^2 M) work for O(N M) "
    "results."
)
DESIGN = "Broadcast the diagonal over the rows; one elementwise kernel, no matrix."

WITH_PARTS = (
    "wanted_form",
    "numbered_headings",
    "bold_headings",
    "bare_headings",
    "step_headings",
    "no_tag",
    "py_tag",
    "python_with_attributes",
    "tildes",
    "four_backticks",
    "unicode_fences",
    "crlf",
    "thinking",
    "thinking_without_start",
    "usage_after_code",
    "closed_then_cut_off",
    "no_fence_with_headings",
    "only_closing_fence",
)
WITHOUT_PARTS = (
    "prose_around",
    "indented_fence",
    "quoted_fence",
    "control_characters",
    "two_blocks_last_wins",
    "reference_then_code",
    "shell_then_code",
    "no_fence",
    "no_fence_prose_after",
)
OTHER_CODE = {
    "nested_fences": ("python", "    ModelNew()(a, b)\n    ```\n"),
    "missing_imports": ("python", "class ModelNew(nn.Module):"),
    "renamed_class": ("python", "super(OptimizedModel, self)"),
    "inline_extension": ("python", "return extension.run(a, b)"),
    "cuda_in_python_fence": ("cuda", "__global__ void scale"),
}
BAD = {
    "empty": "empty",
    "blank": "empty",
    "prose_only": "no_code",
    "refusal": "no_code",
    "one_word": "no_code",
    "html": "no_code",
    "json": "no_code",
    "tool_call": "no_code",
    "diff": "no_code",
    "thinking_never_ends": "truncated",
    "truncated": "truncated",
    "truncated_whole_lines": "truncated",
    "unfenced_truncated": "syntax",
    "syntax_error": "syntax",
    "ellipsis_in_middle": "syntax",
    "return_outside": "syntax",
    "unbalanced_cuda": "syntax",
    "only_calls": "no_entry",
    "json_block": "no_entry",
}


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.md").read_bytes().decode()


def usable(text: str, **wanted) -> Parsed:
    found = parse(text, **wanted)
    assert isinstance(found, Parsed), found
    return found


def refused(text: str) -> Unusable:
    found = parse(text)
    assert isinstance(found, Unusable), found
    return found


def code_of_wanted_form() -> str:
    return answer("wanted_form").partition("```python\n")[2].removesuffix("```\n")


def test_every_answer_of_the_corpus_is_in_a_table():
    listed = {*WITH_PARTS, *WITHOUT_PARTS, *OTHER_CODE, *BAD}
    assert {file.stem for file in ANSWERS.iterdir()} == listed


@pytest.mark.parametrize("name", WITH_PARTS + WITHOUT_PARTS)
def test_the_code_is_found_in_any_disguise(name):
    found = usable(answer(name))
    assert found.code == code_of_wanted_form()
    assert found.language == "python"


@pytest.mark.parametrize("name", WITH_PARTS)
def test_analysis_and_design_are_found_under_headings_of_any_style(name):
    found = usable(answer(name))
    assert (found.analysis.split("\n")[0], found.design.split("\n")[0]) == (ANALYSIS, DESIGN)


@pytest.mark.parametrize(("name", "language", "holds"), [(k, *v) for k, v in OTHER_CODE.items()])
def test_other_code_is_taken_as_it_is(name, language, holds):
    found = usable(answer(name))
    assert found.language == language
    assert holds in found.code
    assert found.analysis == ANALYSIS


@pytest.mark.parametrize(("name", "kind"), BAD.items())
def test_what_has_no_usable_code_is_refused_by_kind(name, kind):
    found = refused(answer(name))
    assert found.kind == kind
    assert found.message.endswith((".", "`", "match")), "words that can be shown"


def test_a_syntax_error_is_told_with_its_line():
    message = refused(answer("syntax_error")).message
    assert message == ("The code does not parse: line 9: expected ':': `def forward(self, a, b)`")


def test_prose_without_headings_is_the_analysis():
    found = usable(answer("prose_around"))
    assert (found.analysis, found.design) == ("Sure! Here is the faster version.", "")


def test_code_without_fences_has_no_end_where_the_server_stopped_at_its_limit():
    assert usable(answer("no_fence")).code == code_of_wanted_form()
    assert usable(answer("wanted_form"), is_cut=True).code == code_of_wanted_form()
    cut = parse(answer("no_fence"), is_cut=True)
    assert isinstance(cut, Unusable)
    assert cut.kind == "truncated"


def test_the_names_that_are_wanted_decide_between_blocks():
    text = "```python\ndef fast(x): return 1\n```\n```python\ndef slow(x): return 2\n```\n"
    assert "slow" in usable(text).code, "the last word"
    assert "fast" in usable(text, wanted=("fast",)).code
    assert "fast" in usable(text, wanted=("absent", "fast", "slow")).code, "the best name"


def test_a_wanted_kernel_decides_between_cuda_blocks():
    kernel = "```cuda\n__global__ void {}(float* x) {{ x[0] = 1; }}\n```\n"
    found = usable(kernel.format("one") + kernel.format("two"), wanted=("one",))
    assert found.language == "cuda"
    assert " one(" in found.code


def test_a_broken_last_block_gives_way_to_a_whole_one_before_it():
    text = answer("wanted_form") + "\nShorter:\n```python\nclass ModelNew(:\n```\n"
    assert usable(text).code == code_of_wanted_form()


def test_long_parts_are_cut_between_words():
    text = "## Performance analysis\n" + "slowness " * 1000 + "\n## Code\n```\nclass A: pass\n```\n"
    analysis = usable(text).analysis
    assert len(analysis) <= LONGEST_PART
    assert analysis.endswith("slowness…")


def test_a_part_without_spaces_is_cut_too():
    text = "## Analysis\n" + "x" * 50_000 + "\n```\nclass A: pass\n```\n"
    assert usable(text).analysis == "x" * (LONGEST_PART - 1) + "…"


def test_code_holds_no_characters_that_python_refuses():
    code = usable("```python\nclass A:\u00a0\n    x\u200b = '\ud800\x07'\r\n```").code
    assert code == "class A: \n    x = ''\n"


@pytest.mark.parametrize(
    "text",
    [
        "a" * (LONGEST_ANSWER + 1),
        "x" * (10 * 1024 * 1024),
        "```python\n" + "x = 1\n" * (LONGEST_CODE // 5) + "```\n",
    ],
)
def test_texts_beyond_any_answer_are_refused_as_too_long(text):
    assert refused(text).kind == "too_long"


@pytest.mark.parametrize(
    "text",
    [
        "```\n" * 40_000,
        "~~~\n```python\n" * 15_000,
        "```python\nclass A: pass\n" * 9_000,
        "```python\n" + "(" * 190_000 + "\n```",
        "```python\nclass A:\n x = " + "-" * 150_000 + "1\n```",
        "```python\nclass A:\n x = 1" + "+1" * 90_000 + "\n```",
        "```python\nclass A:\n x = a" + ".b" * 400 + "\n```",
        "```cuda\n__global__ void f() {" + "/*" * 90_000 + "}\n```",
        "```cuda\n__global__ void f() {" + '"' * 180_000 + "}\n```",
        "**" * 100_000,
        "# " + " " * 190_000 + "x",
        "## Code" + " " * 190_000 + "x",
        "Code: \n" * 30_000,
        "<think>" * 25_000,
        "import a\n" + "class A(\n" * 20_000,
        "\n".join(f"def f{i}(x): return x" for i in range(8_000)),
    ],
    ids=lambda text: text[:18] + "...",
)
def test_hostile_texts_take_bounded_time(text):
    started_s = time.perf_counter()
    parse(text)
    # A quarter of a second on an idle machine; one that is busy may take ten times as long.
    assert time.perf_counter() - started_s < 6


PIECES = st.sampled_from(
    [
        "```", "```python\n", "\n```\n", "~~~\n", "````\n", "    ```py\n", "> ```\n", "｀｀｀\n",
        "<think>", "</think>", "## Code\n", "## Performance analysis\n", "**Design:** x\n",
        "1. Code:\n", "class ModelNew(nn.Module):\n", "    def forward(self, x):\n",
        "        return x\n", "import torch\n", "def f(x): return x\n", '"""', "'''", "\\", "\r\n",
        "\x00", "\u200b", "\ud800", "__global__ void k(int n) {\n", "}\n", "#include <x>\n", "{",
        "@triton.jit\n", "\t", " ", "\n", "prose of a model. ", "\u2028", "0x", "é", ")",
        "class A: pass\n",
    ]
)  # fmt: skip


@settings(
    max_examples=300, deadline=3_000, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(PIECES | st.text(max_size=8), max_size=60))
def test_any_text_is_either_usable_or_refused(pieces):
    found = parse("".join(pieces))
    if isinstance(found, Unusable):
        assert found.message
        return
    assert len(found.analysis) <= LONGEST_PART
    assert len(found.design) <= LONGEST_PART
    assert "\x00" not in found.code
    assert found.code.encode()
    if found.language == "python":
        assert any(
            isinstance(node, ast.ClassDef | ast.FunctionDef)
            for node in ast.walk(ast.parse(found.code))
        )
    else:
        assert found.code.count("{") or found.code.strip()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(["", "Sure!\n\n", "## Performance analysis\nslow\n", "Design: none\n\n"]),
    st.sampled_from(["```python\n{}```\n", "```\n{}```", "~~~py\n{}~~~\n", "  ````\n{}  ````\n"]),
    st.sampled_from(["", "\nbye\n", "\n```bash\nls\n```\n", "\n```python\nprint(1)\n```\n"]),
)
def test_fenced_code_comes_back_to_the_letter(before, fence, after):
    code = code_of_wanted_form()
    assert usable(before + fence.format(code) + after).code == code
