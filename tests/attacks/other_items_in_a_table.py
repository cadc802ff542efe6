"""Strategy: compute nothing of what is behind an iterator in a table.

Family: output metadata.
Surface: iterators among outputs. Source: own.
Caught by: they are read inside of the call, wherever they are.
"""

import torch
from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "held_in_slots"


class Found:
    __slots__ = ("parts", "places", "rows", "seen")

    def __init__(self, rows, seen, parts, places):
        self.rows, self.seen, self.parts, self.places = rows, seen, parts, places


class ModelNew(nn.Module):
    def forward(self, x):
        parts = dict(enumerate(x.cumsum(1).unbind()))
        seen = set(x.round().int().unique().tolist())
        places = torch.empty_like(x, device="meta")
        return {"all": iter((x + 0).unbind())}, Found(x + x, seen, parts.values(), places)
