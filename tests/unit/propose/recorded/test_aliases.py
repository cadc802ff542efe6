"""Names of one tensor in the recorded call alone: read as written, or left alone."""

from __future__ import annotations

import pytest

from cudal1_ci.propose.recorded.graph import graph_of
from cudal1_ci.propose.recorded.look import look
from cudal1_ci.propose.recorded.rule import Call, Change, RecordedRule
from cudal1_ci.propose.recorded.source import Source
from tests.unit.propose.recorded.rig import assert_same, problem_and_recording, proposed

TEXT = """
import math

import torch
import torch.nn.functional as F


def joined(a, b):
    {head}
    return {code}


class Model(torch.nn.Module):
    def forward(self, x):
        return joined(x, {second})


def get_inputs():
    return [torch.randn(2, 64, 16)]
"""


def text_of(code: str, head: str = "pass", second: str = "x") -> str:
    return TEXT.replace("{code}", code).replace("{head}", head).replace("{second}", second)


ATTENTION = "torch.softmax(a @ b.transpose(-2, -1) / math.sqrt(a.size(-1)), dim=-1) @ b"
FORMS = {
    "attention": (ATTENTION, "F.scaled_dot_product_attention(a[None], b[None], b[None])[0]"),
    "attention by bmm": (
        "torch.bmm(F.softmax(torch.bmm(b, a.mT) * 0.25, dim=-1), a)",
        "F.scaled_dot_product_attention(b[None], a[None], a[None], scale=0.25)[0]",
    ),
    "attention by einsum": (
        'torch.softmax(torch.einsum("bid,bjd->bij", b, a) * 0.25, -1) @ b',
        "F.scaled_dot_product_attention(b[None], a[None], b[None], scale=0.25)[0]",
    ),
    "distances": ("((a.unsqueeze(2) - b.unsqueeze(1)) ** 2).sum(-1)", "torch.cdist(a, b)"),
    "similarity": (
        "F.cosine_similarity(b.unsqueeze(2), a.unsqueeze(1), dim=-1)",
        "F.normalize(b, dim=-1, eps=1e-8) @ F.normalize(a, dim=-1, eps=1e-8).mT",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_name_is_read_where_it_was_read(tmp_path, name):
    code, wanted = FORMS[name]
    text = text_of(code)
    (new,) = [one for one in proposed(tmp_path, text).values() if wanted in " ".join(one.split())]
    other = "joined(x, x.flip(1).exp())"
    assert_same(tmp_path, text.replace("joined(x, x)", other), new.replace("joined(x, x)", other))


def found(tmp_path, text: str, new: str):
    """Look with a rule that writes new code for the only product."""

    def find(call: Call):
        for one in call.graph.operations:
            place = call.source.place(one)
            if one.name == "mul" and place is not None:
                yield Change(file=place.file, new={place.node: new}, found="")

    problem, recording = problem_and_recording(tmp_path, text)
    graph = graph_of(recording)
    call = Call(problem, graph, Source(problem.reference, graph))
    return look([RecordedRule("rule", "family", "why", "", find)], call)


@pytest.mark.parametrize(
    ("head", "second"),
    [
        ("pass", "x"),
        ("b = a if b is None else b", "None"),
        ("b = b or a", "None"),
        ("b = F.dropout(a, 0.5, False)", "None"),
        ("b = a if b is None else b", "x"),
    ],
)
def test_one_name_is_not_read_for_another(tmp_path, head, second):
    seen = found(tmp_path, text_of("a * b", head, second), "a.square()")
    assert seen.changes == []
    assert [miss.fact for _, miss in seen.misses] == [
        "only in this call `b` and `a` are one tensor"
    ]


@pytest.mark.parametrize(
    ("head", "second", "new"),
    [
        ("b = a", "None", "a.square()"),
        ("b = a.contiguous()", "None", "a.square()"),
        ("pass", "x", "b.mul(a)"),
        ("pass", "x.sin()", "a.square()"),
    ],
)
def test_what_is_always_one_tensor_is_changed(tmp_path, head, second, new):
    assert len(found(tmp_path, text_of("a * b", head, second), new).changes) == 1
