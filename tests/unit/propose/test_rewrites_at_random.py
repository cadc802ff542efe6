"""Straight-line programs that assign a few names again and again compute the same after every
rewrite, alone and together: what a rewrite captures is what was read where it stood."""

from __future__ import annotations

import random

import pytest
import torch

from cudal1_ci.propose.rewrites.strategy import Playbook
from cudal1_ci.records import Call, Problem, TextProgram, Workload
from tests.unit.propose.test_rewrites import module

INIT = """\
self.fc = nn.Linear(6, 6)
self.fd = nn.Linear(6, 6)
self.relu = nn.ReLU()
self.w = nn.Parameter(torch.randn(6, 6))"""
OPERATIONS = (
    "self.fc({a})",
    "self.fc({a}).sum(-1, keepdim=True) + self.fd({b})",
    "{a}.sum(-1, keepdim=True).expand(4, 6, 6)",
    "torch.sum({a}, dim=-1, keepdim=True) + {b}",
    "torch.matmul({a}, {b}).sum(dim=-1, keepdim=True) + {b}",
    "{a}.max(dim=1, keepdim=True)[0] + {b}",
    "torch.logsumexp({a}.mean(1, keepdim=True), dim=1, keepdim=True) + {b}",
    "F.max_pool1d(F.max_pool1d({a}, 2), 3).sum(-1, keepdim=True) + {b}",
    "{a}.abs().sum(dim=1, keepdim=True) + {b}",
    "F.leaky_relu({a}, 0.1)",
    "self.relu({a})",
    "{a} * torch.sigmoid({b})",
    "{a}.transpose(1, 2)",
    "{a}.clone() * 2",
    "{a} @ self.w.t() + {b}",
    "torch.tanh({a})",
    "torch.min({a}, torch.tensor(0.25))",
    "{a} * 1.0",
)
RETURNED = ("return x", "return x, y", "return x + y", "return torch.sum(x, dim=-1)")


def drawn(rng: random.Random) -> str:
    """A forward of x and y, whose every value has their shape."""
    lines, names = [], ["x", "y"]
    for _ in range(rng.randint(4, 8)):
        a, b = (rng.choice(names) for _ in range(2))
        target = rng.choice(["x", "x", "y", "h"])
        line = f"{target} = {rng.choice(OPERATIONS).format(a=rng.choice([a, 'x']), b=b)}"
        kind = rng.random()
        if kind < 0.1:
            line = f"{target} = {a}"
        elif kind < 0.2 and target in names:
            line = f"{target} = {target} + 0\n{target} += {b}.mean()"
        elif kind < 0.3 and target in names:
            line = f"if {b}.mean() > 0:\n    {line}"
        lines.append(line)
        names.append(target)
    return module(INIT, "\n".join([*lines, rng.choice(RETURNED)]), "self, x, y")


def answers(text: str) -> tuple[torch.Tensor, ...]:
    names: dict = {}
    exec(compile(text, "<program>", "exec"), names)
    torch.manual_seed(0)
    model = names["Model"]().double().eval()
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 6, 6, generator=generator, dtype=torch.double) for _ in range(2))
    with torch.no_grad():
        found = model(x, y)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("seed", [*range(10), 144])
def test_a_rewritten_program_computes_the_same(seed):
    text = drawn(random.Random(seed))
    workload = Workload(name="w", provenance="declared", init=Call(), call=Call())
    problem = Problem(reference=TextProgram(source=text, entry="Model"), workloads=(workload,))
    try:
        expected = answers(text)
    except RuntimeError:  # it writes into a tensor that was expanded
        return
    for candidate in Playbook().propose(problem, (), 50):
        assert isinstance(candidate.program, TextProgram)
        for found, wanted in zip(answers(candidate.program.source), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8, msg=candidate.proposer)
