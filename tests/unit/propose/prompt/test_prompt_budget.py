"""What is dropped when a prompt is too long, and what a task must not be."""

from __future__ import annotations

import re

import msgspec
import pytest

from cudal1_ci.errors import PromptError
from cudal1_ci.propose.llm.prompt import REPAIRABLE, estimated_tokens, render, render_repair
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.propose.llm.task import ProfileRow
from cudal1_ci.records import Finding, Verdict
from tests.unit.propose.prompt.samples import (
    block_task,
    cuda_task,
    text_task,
    triton_task,
    variant,
)

ROOMY = 100_000
IN_ORDER_OF_DROPPING = (
    "def split(",
    "def rotate(",
    "reduce_5",
    "fast = False",
    "def inverse(",
    "def frequencies(",
    "small: inference",
    "ampere_sgemm",
    "fast = True",
    "EPS = 1e-6",
    "class Normed(",
)
NEVER_DROPPED = ("class Block(Normed):\n    ", "import math", "large: training", "`NVIDIA H200`")


def request(messages: list[Message]) -> str:
    return messages[1].content


def least_budget(task) -> int:
    with pytest.raises(PromptError) as caught:
        render(task, 1)
    needed = re.search(r"needs (\d+) tokens", str(caught.value))
    assert needed is not None
    return int(needed[1])


def test_whole_parts_are_dropped_the_least_useful_first(root):
    task = block_task(root)
    seen = set()
    full = estimated_tokens(render(task, ROOMY))
    for budget in (*range(least_budget(task), full, 6), full):
        messages = render(task, budget)
        assert estimated_tokens(messages) <= budget
        text = request(messages)
        if text in seen:
            continue
        seen.add(text)
        shown = [piece in text for piece in IN_ORDER_OF_DROPPING]
        assert shown == sorted(shown), text
        assert all(piece in text for piece in NEVER_DROPPED)
    assert len(seen) == len(IN_ORDER_OF_DROPPING) + 1


def test_what_is_shown_is_never_cut(root):
    task = block_task(root)
    whole = {part.text.strip() for part in task.context} | {v.text.strip() for v in task.variants}
    for budget in range(least_budget(task), estimated_tokens(render(task, ROOMY)) + 1, 40):
        blocks = re.findall(r"^```python\n(.*?)\n```$", request(render(task, budget)), re.S | re.M)
        assert blocks[:-1], "the last one is the skeleton of the answer"
        assert {block.strip() for block in blocks[:-1]} <= whole


def test_what_was_dropped_is_said(root):
    text = request(render(block_task(root), least_budget(block_task(root))))
    assert "6 smaller pieces of its surroundings" in text
    assert "Left out to save room: 1 more." in text
    assert "There is none: left out to save room." in text
    assert "Earlier variants" not in text


def test_a_budget_below_the_core_is_refused_with_what_is_needed(root):
    needed = least_budget(block_task(root))
    assert estimated_tokens(render(block_task(root), needed)) == needed
    with pytest.raises(PromptError, match=f"needs {needed} tokens .* budget is {needed - 1}"):
        render(block_task(root), needed - 1)


def test_a_repair_turn_counts_the_answer_and_the_feedback(root):
    verdict = Verdict(status="runtime_error", log="RuntimeError: no")
    first = estimated_tokens(render(block_task(root), ROOMY))
    messages = render_repair(block_task(root), "word " * 300, verdict, first)
    assert estimated_tokens(messages) <= first
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert "def split(" not in request(messages)


@pytest.mark.parametrize(
    ("text", "least"), [("x" * 30, 10), ("1234567890", 10), ("é" * 10, 20), ("\U0001f600", 4)]
)
def test_the_estimate_is_never_below_what_a_byte_level_tokenizer_may_need(text, least):
    empty = estimated_tokens([Message(role="user", content="")])
    assert estimated_tokens([Message(role="user", content=text)]) - empty == least


def test_the_order_of_variants_and_workloads_given_does_not_matter(root):
    task = block_task(root)
    problem = msgspec.structs.replace(task.problem, workloads=task.problem.workloads[::-1])
    turned = msgspec.structs.replace(task, variants=task.variants[::-1], problem=problem)
    assert render(turned, ROOMY) == render(task, ROOMY)


def test_one_variant_is_not_asked_about_as_if_it_were_several(root):
    task = block_task(root)
    text = request(render(msgspec.structs.replace(task, variants=task.variants[:1]), ROOMY))
    assert "Why is the variant as fast as it is" in text
    assert "Why do the variants differ" not in text


def test_the_reference_is_not_shown_again_as_its_own_variant():
    task = text_task()
    (reference,) = (one for one in task.context if "class " in one.text)
    shown = (variant(task.problem, 1.0, reference.text), variant(task.problem, 2.0, "x = 2"))
    text = request(render(msgspec.structs.replace(task, variants=shown), ROOMY))
    assert "Variant 1 of 2: speedup 1.00\nIt is the reference, as above.\n\nVariant 2 of 2" in text
    assert text.count(reference.text.strip()) == 1
    assert "x = 2" in text


def test_kernels_of_one_brief_name_are_one_line(root):
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<{}>>(int)"
    rows = [
        ProfileRow(name=add.format("float"), num_calls=2, time_us=30.0),
        ProfileRow(name="fused", num_calls=1, time_us=50.0),
        ProfileRow(name=add.format("long"), num_calls=1, time_us=20.5),
    ]
    text = request(render(msgspec.structs.replace(block_task(root), profile=tuple(rows)), ROOMY))
    assert (
        "50.5 us, 50%, 3 launches: vectorized_elementwise_kernel<CUDAFunctor_add>\n"
        "50 us, 50%, 1 launch: fused\n"
    ) in text


def test_a_verdict_that_no_answer_can_mend_is_no_feedback(root):
    for status in ("passed", "inconclusive", "harness_error", "invalid_reference", "degenerate"):
        with pytest.raises(ValueError, match=status):
            render_repair(block_task(root), "answer", Verdict(status=status), ROOMY)


@pytest.mark.parametrize("status", sorted(REPAIRABLE))
def test_every_failure_has_its_words(root, status):
    text = render_repair(block_task(root), "answer", Verdict(status=status), ROOMY)[-1].content
    assert re.search(rf"failed: {status}\. (The|An) [\w ']+[.,]", text)
    assert "What the judge found" not in text


def test_the_first_findings_are_told_and_not_all(root):
    findings = tuple(Finding(rule=f"rule.{i}", message="no") for i in range(9))
    verdict = Verdict(status="mutates_input", findings=findings)
    text = render_repair(block_task(root), "answer", verdict, ROOMY)[-1].content
    assert re.findall(r"rule\.\d", text) == [f"rule.{i}" for i in range(5)]


def test_an_answer_without_code_is_told_so(root):
    text = render_repair(block_task(root), "I cannot.", "expected one block, got none", ROOMY)
    assert "failed: format. The answer does not have the form" in text[-1].content
    assert "expected one block, got none" in text[-1].content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "module_text"}, "module_text is no form of an answer for a tree program"),
        ({"form": "cuda"}, "expected a CUDA kernel for an answer in CUDA"),
        ({"name": "Block\n## Code"}, "expected the name of a class or function"),
        ({"context": ()}, "expected a context that shows the reference"),
        ({"profile": ()}, "expected a profile, or why there is none"),
        ({"profile": ""}, "expected a profile, or why there is none"),
    ],
)
def test_an_impossible_task_is_refused(root, change, message):
    with pytest.raises(ValueError, match=message):
        block_task(root, **change)


@pytest.mark.parametrize("form", ["patch", "cuda"])
def test_a_text_program_is_answered_by_a_whole_file(form):
    with pytest.raises(ValueError, match="is no form of an answer for a text program"):
        msgspec.structs.replace(text_task(), form=form)


def test_a_text_program_on_a_gpu_may_use_every_language():
    assert "load_inline" in request(render(text_task(), ROOMY))


def test_a_triton_answer_may_be_a_whole_file():
    text = request(render(msgspec.structs.replace(text_task(), form="triton"), ROOMY))
    assert "It is a whole file" in text
    assert "@triton.jit\ndef kernel(...):" in text


def test_a_variant_in_cuda_is_fenced_as_cuda(root):
    task = cuda_task(root)
    shown = variant(
        task.problem,
        2.0,
        "__global__ void f() {}",
    )
    shown = msgspec.structs.replace(shown, language="cuda")
    text = request(render(msgspec.structs.replace(task, variants=(shown,)), ROOMY))
    assert "```cuda\n__global__ void f() {}\n```" in text


def test_functions_and_classes_have_their_own_skeletons(root):
    assert "\nclass Block(...):\n    def __init__" in request(render(block_task(root), ROOMY))
    kernel = request(render(triton_task(root), ROOMY))
    assert "@triton.jit\ndef silu_kernel(...):" in kernel
    assert "def silu(...)" not in kernel
