"""Examples in files, of this run and of earlier ones, and what their answers say they exchange."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from cudal1_ci.errors import ConfigError
from cudal1_ci.propose.llm.answer import Parsed, parse
from cudal1_ci.propose.llm.servers import Message
from model_training.answers import with_quotes, written
from model_training.collection import Example, lines
from model_training.examples import earlier_examples, read_examples
from model_training.exchanges import LONGEST, Exchange, exchanges, quotation, quoted
from model_training.tasks.record import Task

REFERENCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x, scale):
        x = torch.diag(scale) @ x
        for _ in range(3):
            x = x + 1.0
        x = torch.relu(x)
        return x
"""
CODE = REFERENCE.replace("Model(", "ModelNew(").replace(
    "torch.diag(scale) @ x", "scale[:, None] * x"
)
TASK = Task(source="generated", name="diagonal-0", family="diagonal", text=REFERENCE)
EXAMPLE = Example(
    task="diagonal-0",
    messages=(
        Message(role="user", content=f"Make it faster.\n```python\n{REFERENCE}```"),
        Message(role="assistant", content=written("Too much.", "Each row alone.", CODE)),
    ),
    speedup=2.0,
    techniques=("algebra",),
    proposer="hand-made:torch",
    form="0",
)


def forward(*statements):
    body = "\n".join(f"        {one}" for one in statements)
    return f"class ModelNew:\n    def forward(self, x):\n{body}\n"


def test_an_answer_names_what_it_exchanges_and_what_stays():
    analysis, design = quoted(REFERENCE, CODE, "Too much.", "Each row alone.")
    assert analysis == "The work to save is in `x = torch.diag(scale) @ x`. Too much."
    assert design == (
        "`x = scale[:, None] * x` in place of `x = torch.diag(scale) @ x`. "
        "All other statements stay. Each row alone."
    )
    assert quoted(REFERENCE, CODE, analysis, design) == (analysis, design), "once"


@pytest.mark.parametrize(
    ("before", "after", "told", "others"),
    [
        (["x = x + 0.0", "return x"], ["return x"], ["`x = x + 0.0` is left out."], False),
        (
            ["x = x + 1", "return x"],
            ["x = x + 1", "y = 2", "return x"],
            ["`y = 2` is added."],
            True,
        ),
        (["return x + x"], ["return 2 * x"], ["`return 2 * x` in place of `return x + x`."], False),
        (
            ["x = x + 1", "x = x * 2", "x = x - 3", "return x"],
            ["x = 1 + x", "x = x * 2", "x = -3 + x", "return x"],
            ["`x = 1 + x` in place of `x = x + 1`.", "`x = -3 + x` in place of `x = x - 3`."],
            True,
        ),
    ],
)
def test_exchanges_are_the_statements_that_differ(before, after, told, others):
    changed, others_stay = exchanges(forward(*before), forward(*after))
    assert [one.told for one in changed] == told
    assert others_stay is others


@pytest.mark.parametrize("code", ["x = (", "def other(x):\n    return x", REFERENCE])
def test_nothing_is_told_where_nothing_can_be(code):
    assert exchanges(REFERENCE, code) is None
    assert quoted(REFERENCE, code, "Why.", "How.") == ("Why.", "How.")


def test_a_quotation_is_short_and_ends_with_a_statement():
    assert (
        quotation(["for i in range(3):\n    x = x + i", "x = 1"]) == "for i in range(3): ...; x = 1"
    )
    many = [f"x = x + {number}" for number in range(10)]
    assert quotation(many) == "x = x + 0; x = x + 1; x = x + 2; ..."
    long = "x = " + " + ".join(["x"] * 40)
    assert quotation([long]).split(" ") == [*long.split(" ")[:LONGEST], "..."]
    assert Exchange(before=(long,), after=("x = 40 * x",)).told.endswith(" ...`.")


def test_an_answer_with_quotations_is_read_as_it_was_written():
    said = with_quotes(TASK.problem, EXAMPLE.messages[-1].content)
    read = parse(said)
    assert isinstance(read, Parsed)
    assert read.code.strip() == CODE.strip()
    assert read.design.startswith("`x = scale[:, None] * x` in place of")
    assert with_quotes(TASK.problem, said) == said
    assert with_quotes(TASK.problem, "no code") == "no code"


def test_examples_are_read_and_what_is_none_is_said(tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text(lines([EXAMPLE]))
    assert read_examples(path) == [EXAMPLE]
    packed = tmp_path / "examples.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_examples(packed) == [EXAMPLE]
    path.write_text(lines([EXAMPLE]) + '{"task": 1}\n')
    with pytest.raises(ConfigError, match=r"examples\.jsonl:2: expected an example"):
        read_examples(path)
    packed.write_bytes(packed.read_bytes()[:40])
    for broken in (packed, tmp_path / "none.jsonl"):
        with pytest.raises(ConfigError, match="model_training collect"):
            read_examples(broken)


def test_examples_of_an_earlier_run_are_those_of_the_tasks_of_this_one(tmp_path):
    path = tmp_path / "examples.jsonl"
    other = msgspec.structs.replace(EXAMPLE, task="attention-3")
    path.write_text(lines([EXAMPLE, other, EXAMPLE]))
    assert earlier_examples((str(path),), [TASK], quotes=False) == {TASK.id: [EXAMPLE]}
    ((one,),) = earlier_examples((str(path),), [TASK], quotes=True).values()
    assert "in place of" in one.messages[-1].content
    assert one.messages[:-1] == EXAMPLE.messages[:-1]
    changed = msgspec.structs.replace(TASK, text=REFERENCE.replace("1.0", "2.0"))
    with pytest.raises(ConfigError, match=r"examples\.jsonl:1: .* diagonal-0 .* another program"):
        earlier_examples((str(path),), [changed], quotes=False)
