"""Outputs in an object with slots, a set, the view of a dictionary and an iterator in a table."""

import torch
from torch import nn


class Found:
    __slots__ = ("parts", "places", "rows", "seen")

    def __init__(self, rows, seen, parts, places):
        self.rows, self.seen, self.parts, self.places = rows, seen, parts, places


class Model(nn.Module):
    def forward(self, x):
        parts = {number: row.cumsum(0) for number, row in enumerate(x)}
        seen = set(x.round().int().flatten().tolist())
        places = torch.empty(x.shape, device="meta")
        return {"all": (torch.relu(row) for row in x)}, Found(x * 2, seen, parts.values(), places)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return []
