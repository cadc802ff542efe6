"""Loops over rows that sort, mask and write: batched, equal for all inputs, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import loops
from tests.unit.propose.recorded.rig import outputs, proposed

START = """import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, WIDTH = 4, 9


class Model(nn.Module):
    def __init__(self, p=0.6, k=3):
        super().__init__()
        self.p, self.k = p, k
        self.scale = nn.Parameter(torch.rand(1))

    def forward(self, x, y, ids, lengths, images):
        x = x * 1.0
"""
END = """

def get_inputs():
    x = torch.randn(ROWS, WIDTH)
    return [
        x,
        torch.randn(ROWS, WIDTH),
        torch.randint(0, WIDTH, (ROWS, 5)),
        torch.randint(0, WIDTH + 1, (ROWS,)),
        torch.rand(ROWS, 3, WIDTH, 2),
    ]
"""
INPUTS = {
    "one row": ("ROWS, WIDTH = 4, 9", "ROWS, WIDTH = 1, 9"),
    "many": ("ROWS, WIDTH = 4, 9", "ROWS, WIDTH = 7, 5"),
    "ties": ("x = torch.randn(ROWS, WIDTH)", "x = torch.randint(0, 3, (ROWS, WIDTH)).float()"),
    "strided, with nan": (
        "x = torch.randn(ROWS, WIDTH)",
        "x = torch.randn(WIDTH, ROWS).t(); x[0] = float('nan')",
    ),
    "bfloat16": (
        "return [",
        "return [one.bfloat16() if one.is_floating_point() else one for one in _()]\n\n\n"
        "def _():\n    x = torch.randn(ROWS, WIDTH)\n    return [",
    ),
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def assert_same(tmp_path: Path, text: str, new: str) -> None:
    """Assert that two texts give the same, NaN where the other gives NaN."""
    torch.testing.assert_close(
        outputs(new, tmp_path / "after.py"), outputs(text, tmp_path / "again.py"), equal_nan=True
    )


def rewritten(tmp_path: Path, body: str) -> dict[str, str]:
    return proposed(tmp_path, text_of(body), loops.RULES)


SPANS = {
    "numbers of tensors": "    a, b = int(ids[i, 0]), lengths[i].item()\n    out[i, a:b] = 0.0",
    "a width": "    start = int(ids[i, 0])\n    out[i, start : start + 3] = -1e9",
    "a width of two bounds": "    n = lengths[i].item()\n    out[i, n - self.k : n] = True",
    "a bound that stays": "    out[i, 2 : lengths[i]] = float('-inf')",
    "a value of a tensor": "    out[i, ids[i, 1] :] = y.mean()",
}
FOUND = {
    "spans of columns": """
out = images.clone()
for i in range(len(out)):
    begin = int(ids[i, 0])
    out[i, :, begin : begin + int(lengths[i])] = 0.0
for i, n in enumerate(lengths.tolist()):
    out[i, :, n:] = 1.0
return out
""",
    **{
        f"spans, {name}": f"out = x.clone()\nfor i in range(len(x)):\n{lines}\nreturn out"
        for name, lines in SPANS.items()
    },
    "top k": """
out = []
for row in x:
    values, _ = torch.topk(row, self.k)
    row = torch.where(row < values[-1], torch.full_like(row, float("-inf")), row)
    out.append(F.softmax(row, dim=-1))
return torch.stack(out)
""",
    "top k by number": """
kept = []
for i in range(x.size(0)):
    least = torch.topk(x[i], self.k)[0][-1]
    kept.append(torch.softmax(x[i].masked_fill(x[i] < least, float("-inf")), dim=0))
return torch.stack(kept, dim=1)
""",
    "top k of a sort": """
rows = []
for row in x.unbind(0):
    least = torch.sort(row, descending=True).values[self.k - 1]
    row = torch.where(row >= least, row, float("-inf"))
    rows.append(row - row.logsumexp(dim=-1))
return torch.stack(rows)
""",
    "top k that is scattered": """
probs = torch.zeros_like(x)
for b in range(x.size(0)):
    best, where = x[b].topk(self.k, dim=-1)
    row = torch.full_like(x[b], -1e4).scatter(0, where, best)
    probs[b] = F.softmax(row, dim=-1)
return probs
""",
    "hits among the best": """
best = x.topk(self.k).indices
hits, seen = [], []
for i in range(x.size(0)):
    hits.append(torch.isin(best[i], ids[i]).sum().float() / ids.size(1))
    seen.append(torch.isin(best[i], ids[0]).float())
return torch.stack(hits), torch.stack(seen)
""",
    "softmax by position": """
rows = []
for row in x:
    rows.append(F.softmax(row, -1) + F.log_softmax(row * 2, 0))
return torch.stack(rows)
""",
    "penalty": """
for i in range(x.shape[0]):
    score = x[i, ids[i]]
    score = torch.where(score < 0, score * 1.2, score / 1.2)
    x[i, ids[i]] = score
return x
""",
    "penalty of enumerated rows": """
new = y.clone()
for b, seen in enumerate(ids):
    picked = new[b, seen]
    new[b, seen] = torch.where(picked > 0, picked / 1.5, picked * 1.5)
return new
""",
    "penalty in one line": """
rows = x.size(0)
for b in range(rows):
    seen = ids[b]
    x[b, seen] = x[b, seen] - self.p
return x
""",
    "penalty of copies": """
out = []
for i in range(x.shape[0]):
    row = x[i].clone()
    seen = ids[i] - 1
    picked = row[seen]
    row[seen] = torch.where(picked < 0, picked * 2, picked / 2)
    out.append(row)
return torch.stack(out)
""",
    "penalty that is scattered": """
out = []
for row, seen in zip(x, ids):
    picked = torch.gather(row, 0, seen)
    out.append(row.scatter(0, seen, torch.where(picked < 0, picked * 2, picked / 2)))
return torch.stack(out)
""",
    "the larger of two": """
out = []
for i in range(x.size(0)):
    high = torch.max(x[i, :2], y[:, :2])
    low = torch.min(high, y[i, 2:4])
    out.append((high - low).clamp(min=0).sum(dim=1))
return torch.stack(out)
""",
    "top p": """
out = []
for row in x:
    values, order = torch.sort(row, descending=True)
    drop = torch.cumsum(F.softmax(values, dim=-1), dim=-1) > self.p
    drop[1:] = drop[:-1].clone()
    drop[0] = False
    row = row.clone()
    row[order[drop]] = float("-inf")
    out.append(F.softmax(row, dim=-1))
return torch.stack(out)
""",
    "top p of a tensor's rows, in place": """
for i in range(x.size(0)):
    values, order = x[i].sort(descending=True)
    drop = values.softmax(0).cumsum(0) > self.p
    drop[..., 1:] = drop[..., :-1].clone()
    drop[..., 0] = 0
    remove = order[drop]
    x[i, remove] = -float("inf")
return x.softmax(-1)
""",
    "all after the first k": """
out = []
for row in x:
    order = torch.argsort(row, dim=-1, descending=True)
    row = row.clone()
    row[order[self.k :]] = 0.0
    out.append(row / row.sum())
return torch.stack(out)
""",
    "one tensor's values in another's places": """
other = torch.sigmoid(x)
out = []
for a, b in zip(x, other):
    mask = a > b
    a = a.clone()
    a[mask] = b[mask]
    out.append(a)
return torch.stack(out)
""",
    "gathered with a keyword": """
out = []
for i, row in enumerate(x):
    index = ids[i]
    logs = F.log_softmax(row / self.scale, dim=-1)
    out.append(logs.gather(dim=-1, index=index.unsqueeze(-1).squeeze(-1)))
return torch.stack(out)
""",
    "each normalised by itself": """
out = []
for image in images:
    image = (image - image.min()) / (image.max() - image.min() + 1e-3)
    out.append(image - image.mean(dim=(1, 2), keepdim=True))
return torch.stack(out)
""",
    "counted": """
out = torch.zeros_like(images)
for i, image in enumerate(images):
    out[i] = (image - image.mean()) / (image.std() + self.scale)
return out
""",
    "cropped": """
out = []
for i in range(images.shape[0]):
    one = images[i][:, 1:-1].flip(-1)
    out.append(one * 2)
return torch.stack(out)
""",
    "rows of ones": """
mask = torch.zeros(x.size(0), x.size(1), device=x.device)
for i in range(x.size(0)):
    mask[i, : int(lengths[i])] = 1.0
return x * mask
""",
    "rows of ones by their numbers": """
mask = torch.zeros(len(lengths), x.size(1))
for i, n in enumerate(lengths.tolist()):
    mask[i, :n] = 1
return mask
""",
    "ones in two tensors of one size": """
n = x.shape[0]
mask = torch.zeros(n, x.size(1))
gate = torch.ones(len(x), 2)
out = []
for a, b, c in zip(x, mask, gate):
    out.append((a + b) * c.sum())
return torch.stack(out)
""",
    "bounds from the end": """
mask = torch.zeros(len(lengths), x.size(1))
ends = lengths - 5
for i, n in enumerate(ends):
    mask[i, n:] = 1.0
return mask
""",
    "bounds of both ends": """
mask = torch.zeros(len(lengths), x.size(1))
ends = lengths - 5
for i in range(len(lengths)):
    mask[i, int(ends[i]) : lengths[i].item()] = 1.0
return mask
""",
    "the rest of each row": """
for i, n in enumerate(lengths):
    x[i, n:] = float("-inf")
return x.exp()
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_rows_are_batched(tmp_path: Path, name: str) -> None:
    body = FOUND[name]
    found = rewritten(tmp_path, body)
    assert list(found) == ["batched_loop"]
    new = found["batched_loop"]
    assert "for " not in new.split("def forward")[1].split("def get_inputs")[0]
    assert_same(tmp_path, text_of(body), new)
    for old, changed in INPUTS.values():
        assert_same(tmp_path, text_of(body).replace(old, changed), new.replace(old, changed))


@pytest.mark.parametrize("name", ["rows of ones", "the rest of each row"])
def test_no_rows_at_all(tmp_path: Path, name: str) -> None:
    new = rewritten(tmp_path, FOUND[name])["batched_loop"]
    given, old = text_of(FOUND[name]), "ROWS, WIDTH = 4"
    assert_same(tmp_path, *(one.replace(old, "ROWS, WIDTH = 0") for one in (given, new)))


LEFT_ALONE = {
    "what is not among others": "out.append(torch.isin(index, ids[i], invert=True).float())",
    "rows among others": "out.append(torch.isin(ids, index).float())",
    "an index with duplicates": "row = row * 1\n    row[index] = y[0, :5]\n    out.append(row)",
    "other weights where positions repeat": "row = row * 1\n"
    "    row[index] = row[index] * y[0, :5]\n    out.append(row)",
    "limits where positions repeat": "row = row * 1\n"
    "    row[index] = row[index].clamp(max=y[0, :5])\n    out.append(row)",
    "other positions than were read": "row = row * 1\n    row[index] = row[ids[0]] * 2\n"
    "    out.append(row)",
    "positions bound again": "row = row * 1\n    index = index * 1\n    picked = row[index]\n"
    "    index = index.flip(0)\n    row[index] = picked * 2\n    out.append(row)",
    "a scatter of the same values": "row = row.scatter(0, index, y[0, :5])\n    out.append(row)",
    "positions that may repeat": "row = row * 1\n    row[index[index > 2]] = 0.0\n"
    "    out.append(row)",
    "values of another number": "row = row * 1\n    out.append(row[row > 0].sum())",
    "what the row before left": "row[0] = x[0, 0] + 1\n    out.append(row * 1)",
    "a state": "kept = kept + row\n    kept[row > 0] = 0.0\n    out.append(kept * 1)",
    "written after it was kept": "other = row * 2\n    out.append(other * 3)\n    other[0] = 9.0",
    "a name bound again": "other = row[1:]\n    row = row * 2\n    row[0] = 1.0\n    "
    "row = row * 3\n    out.append(other * 1 + row[1:])",
    "a branch on the data": "row = row.clone()\n    if row[0] > 0:\n"
    "        row[0] = 0.0\n    out.append(row)",
    "random": "row = row.clone()\n    row[torch.rand(9) > 0.5] = 0.0\n    out.append(row)",
    "a span as long as a fraction": "row = row.clone()\n    row[: int(x[i, 0] * 3)] = 0.0\n"
    "    out.append(row)",
    "a span of a value that rows change": "y[i, : lengths[i]] = y.mean()\n    out.append(y[i])",
    "a mask of another row": "row = row.clone()\n    row[x[0] > 0] = 0.0\n    out.append(row)",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_rows_that_need_more_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"""
out, kept = [], torch.zeros(9)
out = []
for i, row in enumerate(x):
    index = ids[i]
    {LEFT_ALONE[name]}
return torch.stack(out)
"""
    assert "batched_loop" not in rewritten(tmp_path, body)


UNEVEN = {
    "inputs": "other = torch.sigmoid(y)",
    "a part": "other = x[: self.k]",
    "unpacked rows": "other, _, _, _ = torch.exp(x)",
    "bound in a branch": "other = torch.exp(x)\nif self.k > 5:\n    other = other[1:]",
    "bound again": "other = torch.exp(x)\nx = x[:3]",
    "of a size that changes": "n = x.size(0)\nother = torch.ones(n, 9)\nn = 3\n"
    "x = torch.ones(n, 9)",
    "of a size that may be given": "n = lengths\nif self.k < 5:\n    n = x.size(0)\n"
    "other = torch.ones(n, 9)",
}


@pytest.mark.parametrize("name", UNEVEN)
def test_zip_of_tensors_that_may_be_uneven_ends_with_the_shortest(
    tmp_path: Path, name: str
) -> None:
    body = f"""
{UNEVEN[name]}
out = []
for a, b in zip(x, other):
    out.append(a * b)
return torch.stack(out)
"""
    text, new = text_of(body), rewritten(tmp_path, body)["batched_loop"]
    assert "turns = min(len(x), len(other))" in new
    for rows in (4, 1, 7) if "_, _, _" not in body else (4,):
        sized = f"ROWS, WIDTH = {rows}, 9"
        assert_same(tmp_path, *(one.replace("ROWS, WIDTH = 4, 9", sized) for one in (text, new)))


UNEVEN_LISTS = {
    "joined": "out = []\nfor row, n in zip(x, lengths.tolist()):\n    out.append(row * n)\n"
    "return torch.stack(out)",
    "written": "out = torch.zeros_like(x)\n"
    "for i, (a, b) in enumerate(zip(first.tolist(), lengths.tolist())):\n"
    "    out[i, a:b] = 1.0\nreturn out",
    "written from tensors": "out = x.clone()\n"
    "for i, (a, b) in enumerate(zip(first, lengths)):\n    out[i, a:b] = y.mean()\nreturn out",
}


@pytest.mark.parametrize("name", UNEVEN_LISTS)
def test_zip_of_lists_ends_with_the_shortest(tmp_path: Path, name: str) -> None:
    body = f"first = ids[:, 0]\n{UNEVEN_LISTS[name]}"
    text, new = text_of(body), rewritten(tmp_path, body)["batched_loop"]
    size = "(0, WIDTH + 1, (ROWS,))"
    for other in (size, size.replace("ROWS", "ROWS - 1"), size.replace("ROWS", "0")):
        changed = (one.replace(size, other) for one in (text, new))
        if other != "(0, WIDTH + 1, (0,))" or name != "joined":
            assert_same(tmp_path, *changed)


def test_zip_of_what_each_turn_unpacks_is_left_alone(tmp_path: Path) -> None:
    body = """
out = []
for (a, *_), b in zip(y, x):
    out.append(b * 2)
return torch.stack(out)
"""
    assert not rewritten(tmp_path, body)


COPIES = {
    "the copy alone is written": "a = row * 2\n    b = a.clone()\n"
    "    b[0] = 7.0\n    out.append(a + b)",
    "a view sees the write": "a = row * 2\n    b = a[1:]\n"
    "    a[1] = 7.0\n    out.append(b * a[1:])",
    "a copy does not": "a = row * 2\n    b = a[1:].clone()\n"
    "    a[1] = 7.0\n    out.append(b * a[1:])",
    "a copy beside what it was made of": "other = row\n    row = row.clone()\n    row[0] = 1.0\n"
    "    out.append(other + row)",
    "another name for the copy": "a = row.clone()\n    b = a\n    b[0] = 1.0\n"
    "    out.append(a + b)",
    "a view from before the write": "b = x[i]\n    x[i, 0] = 5.0\n    out.append(b * 2)",
    "a value from before the write": "b = x[i] * 2\n    x[i, : lengths[i]] = 5.0\n"
    "    out.append(b)",
    "the input of the loop": "x[i, 0] = 5.0\n    out.append(row * 2)",
    "written twice": "a = row.clone()\n    a[a > 0] = 0.0\n"
    "    a[a < -1] = 5.0\n    out.append(a * 1)",
}


@pytest.mark.parametrize("name", COPIES)
def test_writes_reach_what_they_reached(tmp_path: Path, name: str) -> None:
    body = f"""
out = []
for i, row in enumerate(x):
    {COPIES[name]}
return torch.stack(out)
"""
    found = rewritten(tmp_path, body)
    for new in found.values():
        assert_same(tmp_path, text_of(body), new)
    assert found
