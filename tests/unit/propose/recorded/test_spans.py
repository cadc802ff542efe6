"""Rows by lengths and by classes: reduced with one mask or one index, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import loops
from tests.unit.propose.recorded.rig import loaded, outputs, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, STEPS = 6, 9


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 3)

    def forward(self, x, lengths):
        some = lengths % x.size(1) + 1
        bare = x[..., 0]
"""
END = """

def get_inputs():
    x = torch.randn(ROWS, STEPS, 4)
    return [x, torch.randint(-2, STEPS + 3, (ROWS,))]
"""
INPUTS = {
    "one row": ("ROWS, STEPS = 6, 9", "ROWS, STEPS = 1, 3"),
    "many": ("ROWS, STEPS = 6, 9", "ROWS, STEPS = 30, 4"),
    "strided, with nan": (
        "x = torch.randn(ROWS, STEPS, 4)",
        "x = torch.randn(STEPS, ROWS, 4).transpose(0, 1); x[0, -1] = float('nan')",
    ),
    "double": (
        "return [x, ",
        "return [x.double(), ",
    ),
}
FOUND = {
    "mean and deviation": """
mean, std = [], []
for i in range(x.shape[0]):
    n = int(lengths[i])
    mean.append(torch.mean(x[i, 0:n], dim=0))
    std.append(torch.std(x[i, 0:n], dim=0))
mean = torch.stack(mean)
std = torch.stack(std) + 1e-5
return torch.cat((mean, std), dim=1)
""",
    "sums of numbers": """
out = []
for i in range(x.size(0)):
    out.append(bare[i, : lengths[i]].sum())
return torch.stack(out)
""",
    "greatest": """
out = []
for row, n in zip(x, some):
    out.append(row[: n.item()].max(dim=0)[0])
return torch.stack(out)
""",
    "greatest, by its name": """
out = []
for i in range(len(x)):
    out.append(x[i, : some[i], :].amax(0))
return torch.stack(out, dim=0)
""",
    "variance of a projection": """
out = []
for i in range(x.size(0)):
    y = self.proj(x[i])
    out.append(y[: int(some[i])].var(0))
return torch.stack(out)
""",
    "joined": "return torch.cat([x[i, : lengths[i]] for i in range(x.size(0))])",
    "joined in a loop": """
parts = []
for i in range(x.size(0)):
    parts.append(x[i, : int(lengths[i])])
packed = torch.cat(parts, dim=0)
return packed * 2
""",
    "reversed": """
out = torch.zeros_like(x)
for i in range(x.size(0)):
    n = int(lengths[i])
    out[i, :n] = x[i, :n].flip(0)
return out
""",
    "reversed in a copy": """
out = bare.clone()
for i, n in enumerate(some.tolist()):
    out[i, :n] = torch.flip(bare[i, :n], dims=[0])
return out
""",
    "the first ones": """
out = torch.full_like(x, -1.0)
for i in range(len(x)):
    out[i, : lengths[i]] = x[i, : lengths[i]]
return out
""",
    "sums by their lengths": """
out = []
for i in range(x.size(0)):
    n = some[i].item()
    out.append(x[i, :n].sum(0) * n - x[i, :n].sum(0) / n)
return torch.stack(out)
""",
    "sums of reversed rows": """
out = []
for row, n in zip(x, some):
    out.append(row[: int(n)].flip([0]).sum(0))
return torch.stack(out)
""",
}
LEFT = {
    "from a position on": "out.append(x[i, int(some[i]) - 1 :].sum(0))",
    "with steps": "out.append(x[i, : some[i] : 2].sum(0))",
    "of the last dimension": "out.append(x[i, : some[i]].sum(-1).sum())",
    "kept": "out.append(x[i, : some[i]].mean(0, keepdim=True))",
    "of columns": "out.append(x[i, :, : some[i]].sum(1))",
    "population": "out.append(x[i, : some[i]].std(0, correction=0))",
    "whole numbers of a turn": "n = int(some[i])\n    out.append(x[i, :n].long().sum(0) * n)",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", FOUND)
def test_rows_with_lengths_share_one_mask(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    found = proposed(tmp_path, text, loops.RULES)
    assert len(found) == 1
    (new,) = found.values()
    assert "for " not in new and "torch.arange" in new
    for old, other in [("", ""), *INPUTS.values()]:
        if "proj" in FOUND[name] and "double" in other:
            continue
        for seed in range(3):
            torch.testing.assert_close(
                outputs(new.replace(old, other), tmp_path / "after.py", seed),
                outputs(text.replace(old, other), tmp_path / "again.py", seed),
                equal_nan=True,
            )


@pytest.mark.parametrize("name", LEFT)
def test_other_parts_of_rows_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out = []
for i in range(x.size(0)):
    {LEFT[name]}
return torch.stack(out)
"""
    assert "batched_loop" not in proposed(tmp_path, text_of(body), loops.RULES)


WRITTEN = {
    "of a longer tensor": (
        "torch.zeros(x.size(0), x.size(1) + 1, 4)",
        "out[i, :n] = x[i, :n].flip(0)",
    ),
    "along columns": ("torch.zeros_like(x)", "out[i, :n] = x[i, :n].flip(-1)"),
    "of the row before": ("x.view_as(x)", "out[i, :n] = x[i - 1, :n].flip(0)"),
    "of the whole row": ("torch.zeros_like(x)", "out[i, :n] = x[i].flip(0)[:n]"),
    "from a later position": ("torch.zeros_like(x)", "out[i, 1:n] = x[i, : n - 1].flip(0)"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_other_writes_of_parts_are_left_alone(tmp_path: Path, name: str) -> None:
    made, line = WRITTEN[name]
    body = f"""
out = {made}
for i in range(x.size(0)):
    n = int(some[i])
    {line}
return out
"""
    assert "batched_loop" not in proposed(tmp_path, text_of(body), loops.RULES)


CLASSES = {
    "sums": """
out = []
for c in range(5):
    out.append(flat[labels == c].sum(dim=0))
return torch.stack(out)
""",
    "means into a table": """
n = self.proj.out_features
centers = torch.zeros(n, 4, dtype=x.dtype)
for c in range(n):
    mine = c == labels
    centers[c] = flat[mine].mean(0)
return centers
""",
    "as many classes as there are": """
out = []
for c in range(int(labels.max()) + 4):
    out.append(flat[labels == c].sum(dim=0))
return torch.stack(out)
""",
    "of numbers": "return torch.stack([flat[:, 0][labels == c].sum() for c in range(4)])",
    "positions by where": """
out = []
for c in range(5):
    idx = torch.where(labels == c)[0]
    out.append(flat[idx].sum(0))
return torch.stack(out)
""",
    "positions by nonzero": """
out = torch.zeros(5, 4, dtype=x.dtype)
for c in range(5):
    mask = labels == c
    rows = flat[(labels == c).nonzero(as_tuple=True)[0]]
    out[c] = flat[mask.nonzero().squeeze(1)].sum(0) + rows.mean(0)
return out
""",
    "each class that is there": """
out = []
for c in torch.unique(labels):
    out.append(flat[labels == c].mean(0))
return torch.stack(out)
""",
    "means of classes with rows": """
out = torch.full((6, 4), 7.0, dtype=x.dtype)
for c in range(6):
    mask = labels == c
    if mask.sum() > 0:
        out[c] = flat[mask].mean(dim=0)
return out
""",
    "sums of numbers of classes with rows": """
out = x.new_ones(6)
for c in range(6):
    idx = (labels == c).nonzero(as_tuple=True)[0]
    if len(idx) > 0:
        out[c] = flat[:, 1][idx].sum()
return out
""",
}
IF_ANY = {
    "a mask": ("mask = labels == c", "mask.any()", "mask"),
    "a count": ("n = c", "(labels == c).sum().item() > 0", "labels == c"),
    "a function": ("mask = c == labels", "torch.any(mask)", "mask"),
    "positions": ("idx = torch.nonzero(labels == c, as_tuple=True)[0]", "idx.numel() != 0", "idx"),
}
IF_OTHER = {
    "of the length of a mask": ("mask = labels == c", "len(mask) > 0", "mask"),
    "of two rows": ("mask = labels == c", "mask.sum() > 1", "mask"),
    "of none": ("mask = labels == c", "mask.sum() == 0", "mask[:1]"),
    "of all": ("mask = labels == c", "mask.all()", "mask"),
    "of others": ("mask = labels == c + 1", "mask.any()", "mask"),
    "of both": ("mask = labels == c", "mask.any() and c > 2", "mask"),
}
OF_ALL = {
    "largest": "return torch.stack([flat[labels == c].amax(0) for c in range(n)])",
    "smallest, of pairs": """
out = []
for c in range(n):
    mine = labels == c
    out.append(flat[mine].min(dim=0).values)
return torch.stack(out)
""",
    "largest of numbers": """
best = torch.zeros(n, dtype=x.dtype)
for c in range(n):
    best[c] = flat[:, 1][c == labels].max()
return best
""",
}
"""Of classes that all have rows."""
OF_ROWS = {
    "softmax": """
out = torch.zeros_like(flat)
for c in range(n):
    mine = labels == c
    out[mine] = torch.softmax(flat[mine], dim=0)
return out
""",
    "softmax by hand": """
bare = flat[:, 1]
out = torch.ones_like(bare)
for c in range(2):
    mine = c == labels
    e = torch.exp(bare[mine] - bare[mine].max())
    total = e.sum()
    out[mine] = e / (total + 1e-6)
return out
""",
    "centered": """
out = torch.zeros_like(flat)
for c in range(n):
    mine = labels == c
    rows = flat[mine]
    out[mine] = (rows - rows.mean(0)).square() * 0.5
return out
""",
}
"""Written to each row of a class."""
ROWS_LEFT = {
    "another dimension": "out[mine] = torch.softmax(flat[mine], dim=1)",
    "rows of another class": "other = labels == c + 1\n    out[mine] = flat[other].mean(0)",
    "what is read": "flat[mine] = torch.softmax(flat[mine], dim=0)",
    "what was written": "out[mine] = flat[mine] - out.mean(0)",
    "columns": "out[:, 0] = torch.where(mine, flat[:, 0], out[:, 0])",
}
CLASSES_LEFT = {
    "the next class": "out.append(flat[labels == c + 1].sum(0))",
    "another class": "out.append(flat[labels != c].sum(0))",
    "products": "out.append(flat[labels == c].prod(0))",
    "a product": "out.append((flat * (labels == c)[:, None]).sum(0))",
    "columns": "out.append(flat[:, labels[:4] == c].sum(1))",
    "a number of positions": "out.append(torch.where(labels == c)[0].size(0) + flat[0])",
    "positions that are read": "i = torch.where(labels == c)[0]\n"
    "    out.append(i.sum() + flat[i].sum(0))",
    "several classes": "out.append(flat[labels == c].sum())",
}


def text_of_classes(body: str) -> str:
    given = "flat = x.flatten(0, 1)\nlabels = lengths.repeat_interleave(x.size(1))\n"
    return text_of(given + body.strip())


@pytest.mark.parametrize("name", CLASSES)
def test_rows_are_added_by_their_class(tmp_path: Path, name: str) -> None:
    text = text_of_classes(CLASSES[name])
    (new,) = proposed(tmp_path, text, loops.RULES).values()
    assert "for " not in new and ".index_add_(" in new
    for old, other in [("", ""), *INPUTS.values()]:
        for seed in range(3):
            torch.testing.assert_close(
                outputs(new.replace(old, other), tmp_path / "after.py", seed),
                outputs(text.replace(old, other), tmp_path / "again.py", seed),
                equal_nan=True,
            )


@pytest.mark.parametrize("made", ["mean(0)", "sum(0)", "amax(0)", "min(0)[0]"])
@pytest.mark.parametrize("name", IF_ANY)
def test_classes_without_rows_are_left_as_they_are(tmp_path: Path, name: str, made: str) -> None:
    line, test, rows = IF_ANY[name]
    body = f"out = torch.full((9, 4), 3.0)\nfor c in range(9):\n    {line}\n    if {test}:\n"
    text = text_of_classes(f"{body}        out[c] = flat[{rows}].{made}\nreturn out")
    new = proposed(tmp_path, text, loops.RULES, "train")["batched_loop"]
    assert "for " not in new
    made_of = []
    for one in (new, text):
        module = loaded(one, tmp_path / "module.py")
        torch.manual_seed(1)
        x, lengths = module.get_inputs()
        lengths[lengths == 4] = 5
        found = (getattr(module, "ModelNew", None) or module.Model)()(x.requires_grad_(), lengths)
        (found * torch.arange(found.numel()).view_as(found)).sum().backward()
        made_of.append((found.detach(), x.grad))
        assert (found[4] == 3).all()
    torch.testing.assert_close(*made_of, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", IF_OTHER)
def test_other_tests_of_classes_are_left_alone(tmp_path: Path, name: str) -> None:
    line, test, rows = IF_OTHER[name]
    body = f"out = torch.full((9, 4), 3.0)\nfor c in range(9):\n    {line}\n    if {test}:\n"
    rows = "labels == c" if "[" in rows else rows
    text = text_of_classes(f"{body}        out[c] = flat[{rows}].mean(0)\nreturn out")
    assert "batched_loop" not in proposed(tmp_path, text, loops.RULES)


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_of_classes_are_written_at_once(tmp_path: Path, name: str) -> None:
    given = "n, flat = 5, x.flatten(0, 1)\nlabels = torch.arange(len(flat)) % 6 % 5 - 1\n"
    text = text_of(given + OF_ROWS[name].strip())
    (new,) = proposed(tmp_path, text, loops.RULES).values()
    assert "for " not in new
    for old, other in [("", ""), *INPUTS.values()]:
        made = []
        for one in (new, text):
            module = loaded(one.replace(old, other), tmp_path / "module.py")
            torch.manual_seed(1)
            model = getattr(module, "ModelNew", None) or module.Model
            x, lengths = module.get_inputs()
            found = model()(x.requires_grad_(), lengths)
            (found.square() * torch.arange(found.numel()).view_as(found)).sum().backward()
            made.append((found.detach(), x.grad))
        torch.testing.assert_close(*made, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ROWS_LEFT)
def test_other_writes_to_classes_are_left_alone(tmp_path: Path, name: str) -> None:
    given = "n, flat = 5, x.flatten(0, 1) * 1\nlabels = torch.arange(len(flat)) % 7 - 1\n"
    given += "out = torch.zeros_like(flat)\nfor c in range(n):\n    mine = labels == c\n"
    given += f"    {ROWS_LEFT[name]}\n"
    found = proposed(tmp_path, text_of(f"{given}return out, flat"), loops.RULES)
    assert "batched_loop" not in found


@pytest.mark.parametrize("name", OF_ALL)
def test_extremes_of_classes_are_scattered(tmp_path: Path, name: str) -> None:
    given = "n, flat = 3, x.flatten(0, 1)\nlabels = torch.arange(len(flat)) % (n + 1)\n"
    text = text_of(given + OF_ALL[name].strip())
    (new,) = proposed(tmp_path, text, loops.RULES).values()
    assert "for " not in new and ".scatter_reduce(" in new
    for old, other in [("", ""), *INPUTS.values()]:
        torch.testing.assert_close(
            outputs(new.replace(old, other), tmp_path / "after.py"),
            outputs(text.replace(old, other), tmp_path / "again.py"),
            equal_nan=True,
        )


@pytest.mark.parametrize("name", CLASSES_LEFT)
def test_other_searches_for_classes_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out = []
for c in range(4):
    {CLASSES_LEFT[name]}
return torch.stack(out)
"""
    text = text_of_classes(body)
    for new in proposed(tmp_path, text, loops.RULES).values():  # the comparison may still move
        assert "index_add_" not in new
        for seed in range(3):
            torch.testing.assert_close(
                outputs(new, tmp_path / "after.py", seed),
                outputs(text, tmp_path / "again.py", seed),
                equal_nan=True,
            )
