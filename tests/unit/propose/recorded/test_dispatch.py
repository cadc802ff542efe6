"""Loops over experts: the rows of all classes from one sort, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import dispatch
from tests.unit.propose.recorded.rig import assert_same, loaded, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 7


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 5)
        self.experts = nn.ModuleList([Expert() for _ in range(5)])
        self.up = nn.Parameter(torch.randn(5, 4, 4))
        self.n, self.k = 5, 2

    def forward(self, x, classes):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), self.k, dim=-1)
        best, route = self.gate(x).max(dim=-1)
        out = torch.zeros_like(x)
"""
END = """        return out


def get_inputs():
    return [torch.randn(TOKENS, 4), torch.randint(-1, 5, (TOKENS,))]
"""
FOUND = {
    "both positions": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += weights[row, slot, None] * expert(x[row])
""",
    "nonzero, and a skip": """
for e in range(self.n):
    row, slot = (e == chosen).nonzero(as_tuple=True)
    if row.numel() == 0:
        continue
    out.index_add_(0, row, self.experts[e](x[row]) * weights[row, slot].unsqueeze(1))
""",
    "one-hot mask": """
hot = F.one_hot(chosen, self.n).permute(2, 1, 0)
for e in range(self.n):
    slot, row = torch.where(hot[e])
    y = self.experts[e](x[row]) * weights[row, slot, None]
    out.index_add_(0, row, y)
""",
    "mask of the best": """
for i in range(len(self.experts)):
    here = route == i
    if here.any():
        out[here] = best[here, None] * self.experts[i](x[here])
""",
    "rows alone": """
for e in range(self.n):
    (rows,) = (route == e).nonzero(as_tuple=True)
    out[rows] = self.experts[e](x[rows]) * best[rows].unsqueeze(-1)
""",
    "rows alone, of where": """
for e, expert in enumerate(self.experts):
    (rows,) = torch.where(e == route)
    out.index_add_(0, rows, expert(x[rows]))
""",
    "slot after slot, by masks": """
for slot in range(self.k):
    for e in range(self.n):
        mask = chosen[:, slot] == e
        out[mask] += weights[mask, slot, None] * self.experts[e](x[mask])
""",
    "slot after slot, by masks that are tested": """
for j in range(chosen.shape[1]):
    for i, expert in enumerate(self.experts):
        here = i == chosen[:, j]
        if here.any():
            out[here] = out[here] + expert(x[here]) * weights[here, j].unsqueeze(-1)
""",
    "mask of any slot": """
full = torch.zeros(x.size(0), self.n).scatter_(1, chosen, weights)
for i, expert in enumerate(self.experts):
    here = (chosen == i).any(dim=1)
    if here.sum().item() > 0:
        out[here] += full[here, i].unsqueeze(1) * expert(x[here])
""",
    "slot after slot": """
for k in range(self.k):
    for i, expert in enumerate(self.experts):
        here = torch.where(chosen[:, k] == i)[0]
        out[here] += weights[here, k : k + 1] * expert(x[here])
""",
}
JOINED = {
    "with a test": """
for i, expert in enumerate(self.experts):
    for k in range(self.k):
        rows = (chosen[:, k] == i).nonzero().squeeze(-1)
        if rows.numel() > 0:
            out[rows] += weights[rows, k].unsqueeze(-1) * expert(x[rows])
""",
    "with a skip": """
for e in range(self.n):
    for slot in range(chosen.size(1)):
        rows = torch.where(chosen[:, slot] == e)[0]
        if len(rows) == 0:
            continue
        y = self.experts[e](x[rows])
        out[rows] += weights[rows, slot, None] * y
""",
}
HITS = """
hot = F.one_hot(chosen, num_classes=self.n).permute(2, 1, 0)
hit = torch.greater(hot.sum(dim=(-1, -2)), 0).nonzero()
for e in hit:
"""
OF_HITS = {
    "modules": """
    expert = self.experts[e]
    slot, row = torch.where(hot[e].squeeze(0))
    y = expert(x[None, row].reshape(-1, 4)) * weights[row, slot, None]
    out.index_add_(0, row, y.to(x.dtype))
""",
    "weights": """
    e = e[0]
    if e == self.n:
        continue
    slot, row = torch.where(hot[e])
    y = F.linear(x[row], self.up[e]) * weights[row, slot, None]
    out.index_add_(0, row, y)
""",
}
HITS_LEFT = {
    "rows by a tensor of one number": """
    slot, row = torch.where(hot[e].squeeze(0))
    out[row] += (x[row] @ self.up[e])[0]
""",
    "the number itself": """
    e = e[0]
    slot, row = torch.where(hot[e])
    out[row] += x[row] * e
""",
    "the next class": """
    e = e[0]
    slot, row = torch.where(hot[e - 1])
    out[row] += self.experts[e](x[row])
""",
}
LEFT = {
    "classes that may be negative": """
for i, expert in enumerate(self.experts):
    row = torch.where(classes == i)[0]
    out[row] += expert(x[row])
""",
    "a mask that is multiplied": """
for i, expert in enumerate(self.experts):
    here = route == i
    out = out + expert(x) * here[:, None]
""",
    "a mask of several columns": """
for i, expert in enumerate(self.experts):
    here = chosen == i
    out = out + expert(x) * weights[here].sum()
""",
    "classes that turns change": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += expert(x[row])
    chosen[row] = (chosen[row] + 1) % 5
""",
    "a number that is bound again": """
for i in range(self.n - 1):
    i = i + 1
    row = torch.where(route == i)[0]
    out[row] += self.experts[i](x[row])
""",
    "the next class": """
for i, expert in enumerate(self.experts):
    row = torch.where(route == i + 1)[0]
    out[row] += expert(x[row])
""",
    "some of the columns": """
for i, expert in enumerate(self.experts):
    for k in range(self.k - 1):
        rows = (chosen[:, k] == i).nonzero().squeeze(-1)
        out[rows] += weights[rows, k].unsqueeze(-1) * expert(x[rows])
""",
    "columns that see each other's rows": """
for i, expert in enumerate(self.experts):
    for k in range(self.k):
        rows = (chosen[:, k] == i).nonzero().squeeze(-1)
        if rows.numel() > 0:
            out[rows] += weights[rows, k].unsqueeze(-1) * expert(x[rows]).softmax(0)
""",
    "columns that overwrite": """
for i, expert in enumerate(self.experts):
    for k in range(self.k):
        rows = (chosen[:, k] == i).nonzero().squeeze(-1)
        out[rows] = weights[rows, k].unsqueeze(-1) * expert(x[rows])
""",
    "columns that count": """
for i, expert in enumerate(self.experts):
    for k in range(self.k):
        rows = (chosen[:, k] == i).nonzero().squeeze(-1)
        out[rows] += k * expert(x[rows])
""",
}


def text_of(body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return f"{START}{lines}{END}"


@pytest.mark.parametrize("name", [*FOUND, *JOINED])
def test_rows_of_all_classes_are_sorted_once(tmp_path: Path, name: str) -> None:
    text = text_of({**FOUND, **JOINED}[name])
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    assert found.count("argsort(stable=True)") == 1
    for searched in ("torch.where", "nonzero", "chosen == ", "one_hot", ".any("):
        assert searched not in found
    for tokens in (7, 1, 40):
        sized = f"TOKENS = {tokens}"
        assert_same(tmp_path, *(t.replace("TOKENS = 7", sized) for t in (text, found)))


@pytest.mark.parametrize("name", JOINED)
def test_columns_of_distinct_classes_are_taken_at_once(tmp_path: Path, name: str) -> None:
    found = proposed(tmp_path, text_of(JOINED[name]), dispatch.RULES)["sorted_dispatch"]
    assert found.count("for ") == 2  # that of the constructor, and that over experts


@pytest.mark.parametrize("name", LEFT)
def test_other_loops_over_classes_are_left_alone(tmp_path: Path, name: str) -> None:
    assert proposed(tmp_path, text_of(LEFT[name]), dispatch.RULES) == {}


@pytest.mark.parametrize("name", OF_HITS)
def test_classes_with_rows_are_counted_by_the_sort(tmp_path: Path, name: str) -> None:
    text = text_of(HITS.strip() + OF_HITS[name].rstrip())
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    for searched in ("torch.where", "nonzero", "one_hot"):
        assert searched not in found
    for tokens in (7, 1, 40):
        sized = f"TOKENS = {tokens}"
        assert_same(tmp_path, *(t.replace("TOKENS = 7", sized) for t in (text, found)))


@pytest.mark.parametrize("name", HITS_LEFT)
def test_other_loops_over_classes_with_rows_are_left_alone(tmp_path: Path, name: str) -> None:
    text = text_of(HITS.strip() + HITS_LEFT[name].rstrip())
    assert proposed(tmp_path, text, dispatch.RULES) == {}


SUMMED = {
    "both positions": FOUND["both positions"],
    "nonzero, and a skip": FOUND["nonzero, and a skip"],
    "one-hot mask": FOUND["one-hot mask"],
    "mask of any slot": FOUND["mask of any slot"],
    **JOINED,
}
COUNTED = """
counts = torch.bincount(chosen.flatten(), minlength=self.n).tolist()
for e in range({classes}):
    if counts[e] == 0:
        continue
    row, slot = torch.where(chosen == e)
    out[row] += self.experts[e](x[row]) * weights[row, slot, None]
"""
ROWS_LEFT = {
    "what iterations write to may be what they read": """
out = x.view(-1, 4)
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += weights[row, slot, None] * expert(x[row])
""",
    "rows written before they are read": """
out = x + 0
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += expert(out[row])
""",
    "another name of what is read": """
x = x + 0
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    same = x
    same[row] += weights[row, slot, None] * expert(x[row])
out = x
""",
    "in place": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += expert(x[row].mul_(2))
""",
}
SUMS_LEFT = {
    "experts that are passed over": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    if i == 3:
        continue
    out[row] += weights[row, slot, None] * expert(x[row])
""",
    "not all experts": """
for i in range(self.n - 2):
    row, slot = torch.where(chosen == i)
    out[row] += weights[row, slot, None] * self.experts[i](x[row])
""",
    "only many rows": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    if len(row) > 2:
        out[row] += weights[row, slot, None] * expert(x[row])
""",
    "read in between": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += weights[row, slot, None] * expert(x[row]) + out.sum()
""",
    "one for all columns": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] += weights[row, slot, None] * expert(x[row]).mean(1, keepdim=True)
""",
    "written, not added": """
for i, expert in enumerate(self.experts):
    row, slot = torch.where(chosen == i)
    out[row] = weights[row, slot, None] * expert(x[row])
""",
}


def assert_same_at_sizes(tmp_path: Path, text: str, found: str) -> None:
    for tokens in (7, 1, 40, 0):
        sized = f"TOKENS = {tokens}"
        assert_same(tmp_path, *(t.replace("TOKENS = 7", sized) for t in (text, found)))


@pytest.mark.parametrize("name", SUMMED)
def test_rows_are_gathered_before_the_loop_and_added_after_it(tmp_path: Path, name: str) -> None:
    text = text_of(SUMMED[name])
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    loop = found[found.index("parts = []") : found.index("if parts:")]
    assert "x_by_class[" in loop
    assert "out" not in loop
    assert ".index_copy_(0, order, sums)" in found
    assert_same_at_sizes(tmp_path, text, found)


@pytest.mark.parametrize("name", ROWS_LEFT)
def test_rows_that_may_change_are_read_in_the_loop(tmp_path: Path, name: str) -> None:
    text = text_of(ROWS_LEFT[name])
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    assert "x_by_class" not in found
    assert "out_by_class" not in found
    assert_same_at_sizes(tmp_path, text, found)


@pytest.mark.parametrize("name", SUMS_LEFT)
def test_what_is_not_added_for_every_row_is_left_in_the_loop(tmp_path: Path, name: str) -> None:
    text = text_of(SUMS_LEFT[name])
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    assert "x_by_class" in found
    assert "parts" not in found
    assert_same_at_sizes(tmp_path, text, found)


@pytest.mark.parametrize("name", SUMMED)
def test_gradients_stay(tmp_path: Path, name: str) -> None:
    text = text_of(SUMMED[name])
    found = proposed(tmp_path, text, dispatch.RULES, mode="train")["sorted_dispatch"]
    made = []
    for one in (text, found):
        module = loaded(one, tmp_path / "gradients.py")
        torch.manual_seed(0)
        model = getattr(module, "ModelNew", module.Model)()
        model(*module.get_inputs()).square().sum().backward()
        made.append([each.grad for each in model.parameters() if each.grad is not None])
    torch.testing.assert_close(*made, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("classes", "adds_at_the_end"), [("self.n", True), ("self.first, self.n", False)]
)
def test_rows_that_the_program_counts_are_not_counted_again(
    tmp_path: Path, classes: str, adds_at_the_end: bool
) -> None:
    text = text_of(COUNTED.format(classes=classes))
    text = text.replace("self.n, self.k = 5, 2", "self.first, self.n, self.k = 0, 5, 2")
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    assert found.count("bincount") == 1
    assert "x[all_rows].split(counts)" in found
    assert ("parts" in found) is adds_at_the_end  # another process may have other experts
    assert_same_at_sizes(tmp_path, text, found)


def test_counts_that_change_are_counted_again(tmp_path: Path) -> None:
    text = text_of(COUNTED.format(classes="self.n"))
    text = text.replace("        for e in", "        counts[0] += 1\n        for e in")
    found = proposed(tmp_path, text, dispatch.RULES)["sorted_dispatch"]
    assert found.count("bincount") == 2
    assert_same_at_sizes(tmp_path, text, found)
