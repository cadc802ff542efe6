"""The same in objects of its own.

Family: output metadata.
"""

import torch
from torch import nn

REFERENCE = "held_in_slots"


class Found:
    __slots__ = ("parts", "places", "rows", "seen")

    def __init__(self, rows, seen, parts, places):
        self.rows, self.seen, self.parts, self.places = rows, seen, parts, places


class ModelNew(nn.Module):
    def forward(self, x):
        parts = dict(enumerate(x.cumsum(1).unbind()))
        seen = set(x.round().int().unique().tolist())
        rows = iter(torch.relu(x).unbind())
        return {"all": rows}, Found(x + x, seen, parts.values(), torch.empty_like(x, device="meta"))
