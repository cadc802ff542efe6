"""Prompts against golden files: a change of words is seen in review.

`UPDATE_GOLDEN=1 pytest tests/unit/propose/prompt` writes them anew: read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

from cudal1_ci.propose.llm.prompt import estimated_tokens, render, render_repair
from cudal1_ci.propose.llm.servers import Message
from cudal1_ci.records import Finding, Verdict
from tests.unit.propose.prompt.samples import (
    CPU,
    block_task,
    cuda_task,
    far_triton_task,
    string_task,
    text_task,
    triton_task,
)

GOLDEN = Path(__file__).parent / "golden"
ROOMY = 100_000


def check_golden(name: str, messages: list[Message]) -> None:
    text = "".join(f"<<< {message.role} >>>\n{message.content}" for message in messages)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_text_program_without_variants():
    check_golden("text", render(text_task(device=CPU, answer_tokens=600), ROOMY))


def test_a_class_of_a_checkout_with_helpers_a_profile_and_two_variants(root):
    check_golden("tree", render(block_task(root), ROOMY))


def test_a_triton_kernel(root):
    check_golden("triton", render(triton_task(root), ROOMY))


def test_a_cuda_kernel(root):
    check_golden("cuda", render(cuda_task(root), ROOMY))


def test_a_triton_kernel_that_a_class_of_another_file_reaches(root):
    check_golden("triton_far", render(far_triton_task(root), ROOMY))


def test_a_cuda_kernel_in_a_string(root):
    check_golden("cuda_string", render(string_task(root), ROOMY))


def test_the_turn_after_wrong_values(root):
    message = "output 0 is off by 0.31 at [3, 17] of [32, 512, 256]: got 0.52, expected 0.21"
    verdict = Verdict(
        status="incorrect_values",
        findings=(Finding(rule="values.mismatch", message=message, line=12, evidence="h = h + 1"),),
        max_abs_error=0.3125,
        max_rel_error=1.5,
        log="\n".join(f"step {i:80}" for i in range(40)) + "\nwarning: values differ\n",
    )
    answer = "## Performance analysis\nIt is slow.\n\n## Code\n```python\nh = h + 1\n```"
    check_golden("repair", render_repair(triton_task(root), answer, verdict, ROOMY))


def test_a_budget_that_is_so_small_that_parts_are_dropped(root):
    budget = 1_600
    messages = render(block_task(root), budget)
    assert estimated_tokens(messages) <= budget
    check_golden("small_budget", messages)
