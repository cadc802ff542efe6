"""Lists of tensors that a loop pads: padded by one call, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import padded
from tests.unit.propose.recorded.rig import loaded, proposed

START = """import torch
import torch.nn as nn

LENGTHS, DTYPE = [3, 7, 1, 7, 4], torch.float32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pad = -2

    def forward(self, rows, lengths):
        width = rows[0].size(-1)
        most = max(row.size(0) for row in rows)
"""
END = """

def get_inputs():
    rows = [torch.randn(n, 4).to(DTYPE) for n in LENGTHS]
    return [rows, torch.tensor(LENGTHS)]
"""
INPUTS = {
    "as recorded": ("", ""),
    "one row": ("LENGTHS, DTYPE = [3, 7, 1, 7, 4],", "LENGTHS, DTYPE = [5],"),
    "an empty row": ("LENGTHS, DTYPE = [3, 7, 1, 7, 4],", "LENGTHS, DTYPE = [0, 2, 6],"),
    "of another type": ("torch.float32\n", "torch.float64\n"),
    "a row that is broadcast": ("return [rows,", "rows[0] = rows[0][:, :1]; return [rows,"),
    "rows of two types": ("return [rows,", "rows[1] = rows[1].double(); return [rows,"),
}
FOUND = {
    "enumerated": """
out = torch.zeros(len(rows), most, width)
for i, row in enumerate(rows):
    out[i, : row.shape[0]] = row
return out
""",
    "counted, with a mask": """
out = rows[0].new_zeros((len(rows), most, width))
mask = torch.ones(len(rows), most, dtype=torch.int32)
for i in range(len(rows)):
    row = rows[i]
    end = len(row)
    out[i, 0:end, :] = row
    mask[i, :end] = 0
return out, mask
""",
    "rows drawn": """
out = torch.full((len(rows), most, width), self.pad, dtype=rows[0].dtype)
for row, line in zip(rows, out):
    line[: row.size(0)].copy_(row)
return out
""",
    "filled, wider than the longest": """
out = rows[0].new(len(rows), 9, width).fill_(self.pad)
for i, row in enumerate(rows):
    out[i][: len(row)] = row
return out
""",
    "lengths given": """
sizes = [row.size(0) for row in rows]
out = torch.zeros(len(rows), max(sizes), width, dtype=rows[0].dtype)
for i, (row, n) in enumerate(zip(rows, sizes)):
    out[i, :n] = row
return out
""",
    "lengths in a list": """
out, sizes = None, None
sizes = []
out = torch.zeros(len(rows), most, width)
for i, row in enumerate(rows):
    out[i, : len(row)] = row
    sizes.append(len(row))
return out, sizes
""",
    "read before": """
out = torch.zeros(len(rows), most, width)
mask = torch.zeros(out.shape[:2], dtype=torch.bool)
for i, row in enumerate(rows):
    out[i, : len(row)] = row
    mask[i, : len(row)] = True
return out, mask
""",
}
FOUND["lengths in a list"] = FOUND["lengths in a list"].replace("out, sizes = None, None\n", "")
LEFT = {
    "at the end": "out[i, most - len(row) :] = row",
    "from another row": "out[i, : len(row)] = rows[0][:1]",
    "of another row": "out[i - 1, : len(row)] = row",
    "changed": "out[i, : len(row)] = row * 2",
    "shorter": "out[i, : len(row) - 1] = row[:-1]",
    "added": "out[i, : len(row)] += row",
    "columns": "out[i, :, : len(row)] = row[:1, :1]",
    "with more": "out[i, : len(row)] = row\n    rows[i] = row + 1",
    "twice": "out[i, : len(row)] = row\n    out[i, : len(row)] = 0",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def run(text: str, path: Path) -> object:
    """Return outputs and gradients of a text's model, or the type of what it raises."""
    module = loaded(text, path)
    torch.manual_seed(0)
    rows, lengths = module.get_inputs()
    is_trained = "in zip(rows, out)" not in text  # PyTorch gives such rows no gradient
    rows = [one.requires_grad_(is_trained) for one in rows]
    model = (getattr(module, "ModelNew", None) or module.Model)()
    try:
        found = model(rows, lengths)
    except (RuntimeError, ValueError) as error:
        return type(error)
    out = found[0] if isinstance(found, tuple) else found
    if is_trained:
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
    return found, [one.grad for one in rows]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", FOUND)
def test_a_list_is_padded_by_one_call(tmp_path: Path, name: str, mode: str) -> None:
    text = text_of(FOUND[name])
    new = proposed(tmp_path, text, padded.RULES, mode)["padded_rows"]
    assert "pad_rows(" in new.partition("forward")[2]
    for old, other in INPUTS.values():
        changed, given = (one.replace(old, other) if old else one for one in (new, text))
        found, wanted = run(changed, tmp_path / "new.py"), run(given, tmp_path / "old.py")
        if isinstance(wanted, type):
            assert found is wanted
        else:
            assert not isinstance(found, type)
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_padding_does_not_run_the_loop(tmp_path: Path) -> None:
    text = text_of(FOUND["enumerated"])
    new = proposed(tmp_path, text, padded.RULES)["padded_rows"]
    assert "for i, row" in new  # it stays for rows that differ
    run(
        new.replace("for i, row in", "raise TypeError\n            for i, row in"),
        tmp_path / "a.py",
    )


@pytest.mark.parametrize("name", LEFT)
def test_other_copies_are_left_alone(tmp_path: Path, name: str) -> None:
    body = "out = torch.zeros(len(rows), most, width)\nfor i, row in enumerate(rows):\n    "
    assert proposed(tmp_path, text_of(f"{body}{LEFT[name]}\nreturn out"), padded.RULES) == {}


@pytest.mark.parametrize(
    "made",
    [
        "torch.randn(len(rows), most, width)",
        "torch.zeros(len(rows), most, width).add(lengths[0])",
        "torch.zeros(len(rows), most, width)\nother = out[0]",
    ],
)
def test_other_tensors_are_left_alone(tmp_path: Path, made: str) -> None:
    body = f"out = {made}\nfor i, row in enumerate(rows):\n    out[i, : len(row)] = row\n"
    assert proposed(tmp_path, text_of(f"{body}return out"), padded.RULES) == {}


def test_what_a_pass_leaves_is_kept(tmp_path: Path) -> None:
    body = "out = torch.zeros(len(rows), most, width)\nfor i, row in enumerate(rows):\n"
    body += "    end = len(row)\n    out[i, :end] = row\nreturn out[:, :end]"
    assert proposed(tmp_path, text_of(body), padded.RULES) == {}
