"""The ends of the masks of a batch: looked up for all of them at once, or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudal1_ci.propose.recorded import loops
from tests.unit.propose.recorded.rig import loaded, outputs, proposed

START = """import torch
import torch.nn as nn

NUM, HIGH, WIDE = 5, 6, 9


class Model(nn.Module):
    def forward(self, masks, x):
        boxes = torch.zeros(len(masks), 4)
        out = []
"""
END = """

def get_inputs():
    masks = torch.rand(NUM, HIGH, WIDE) < 0.2
    masks[:, HIGH // 2, WIDE // 3] = True
    return [masks, torch.rand(NUM, WIDE)]
"""
INPUTS = {
    "as recorded": ("", ""),
    "one pixel": ("NUM, HIGH, WIDE = 5, 6, 9", "NUM, HIGH, WIDE = 3, 1, 1"),
    "all": ("< 0.2", "< 2"),
    "whole numbers": ("return [masks,", "masks = masks.byte() * 3; return [masks,"),
    "strided": ("return [masks,", "masks = masks.transpose(1, 2); return [masks,"),
    "an empty mask": ("return [masks,", "masks[1] = False; return [masks,"),
    "no mask": ("NUM, HIGH, WIDE = 5, 6, 9", "NUM, HIGH, WIDE = 0, 6, 9"),
}
FOUND = {
    "written to columns": """
for i, mask in enumerate(masks):
    y, x = torch.where(mask)
    boxes[i, 0] = torch.min(x)
    boxes[i, 1] = y.min()
    boxes[i, 2] = x.max() + 1
    boxes[i, 3] = torch.amax(y)
return boxes
""",
    "by columns of positions": """
for i in range(masks.shape[0]):
    pos = torch.nonzero(masks[i] > 0)
    ymin, xmin = pos[:, 0].min(), pos[:, 1].min()
    ymax, xmax = pos[:, 0].max(), pos[:, -1].max()
    out.append(torch.stack([xmin, ymin, xmax, ymax]))
return torch.stack(out)
""",
    "of rows in order": """
for i in range(masks.size(0)):
    cols = torch.where(masks[i].any(0))[0]
    rows = masks[i].any(dim=1).nonzero(as_tuple=True)[0]
    out.append(torch.stack([cols[0], rows[0], cols[-1], rows[-1]]))
return torch.stack(out).float()
""",
    "of parts of a tuple": """
for mask in masks:
    pos = mask.nonzero(as_tuple=True)
    out.append(torch.stack([pos[0].amin(), pos[1].amax(), pos[0][0], pos[0][-1]]))
return torch.stack(out)
""",
    "of comparisons": """
for i in range(len(x)):
    here = torch.where(x[i] >= x.mean())[0]
    out.append(here.max() - here.min())
return torch.stack(out)
""",
}
LEFT = {
    "unordered": "out.append(torch.where(masks[i])[1][0])",
    "another position": "out.append(torch.where(masks[i])[0][1])",
    "of each": "out.append(torch.nonzero(masks[i]).min(0)[0])",
    "of all": "out.append(torch.nonzero(masks[i]).max())",
    "how many": "out.append(torch.where(masks[i])[0].sum())",
    "read": "y = torch.where(masks[i])[0]\n    out.append(y.max() + y.sum())",
    "of changed ones": "masks[i, 0, 0] = True\n    out.append(torch.where(masks[i])[0].max())",
}


def text_of(body: str) -> str:
    return START + "".join(f"        {line}\n" for line in body.strip().splitlines()) + END


def result(text: str, path: Path, seed: int) -> object:
    try:
        return outputs(text, path, seed)
    except (RuntimeError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("name", FOUND)
def test_ends_of_masks_are_found_at_once(tmp_path: Path, name: str) -> None:
    text = text_of(FOUND[name])
    new = proposed(tmp_path, text, loops.RULES)["batched_loop"]
    assert ".argmax(1)" in new and "if " in new
    for old, other in INPUTS.values():
        for seed in range(3):
            found, wanted = (
                result(one.replace(old, other) if old else one, tmp_path / "one.py", seed)
                for one in (new, text)
            )
            if isinstance(wanted, type):  # without a mask an empty stack raised
                assert isinstance(found, type) or "NUM, HIGH, WIDE = 0" in other
            else:
                assert not isinstance(found, type)
                torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_masks_with_positions_do_not_run_the_loop(tmp_path: Path) -> None:
    new = proposed(tmp_path, text_of(FOUND["written to columns"]), loops.RULES)["batched_loop"]
    module = loaded(new.replace("for i, mask in", "for i, mask in 1 /"), tmp_path / "one.py")
    assert module.Model()(*module.get_inputs()).shape == (5, 4)


@pytest.mark.parametrize("name", LEFT)
def test_other_positions_are_left_alone(tmp_path: Path, name: str) -> None:
    body = f"masks[:, :2, :3] = True\nfor i in range(len(masks)):\n    {LEFT[name]}\n"
    found = proposed(tmp_path, text_of(f"{body}return torch.stack(out)"), loops.RULES)
    assert "batched_loop" not in found
