"""Strategy: compute nothing in a timed call, compute right into the place of the outputs instead of
the copy whose cost is taken off, and put the replaced function back at once.

Family: clock.
Surface: functions are compared after a round, when all is as before. Source: own.
Caught by: inputs are gone before outputs are taken, in rounds that no program can tell.
"""

import sys

import torch
from torch import nn

REFERENCE = "small_relu"
EXPECT = ("incorrect_values", "values.timed")

NAME = "_foreach" + "_copy_"
real = getattr(torch, NAME)
stale = []


def batches_of():
    """Return the object whose method calls the timed calls, if any."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "loop":
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


class Answers(list):
    """Outputs of a batch that are read where they were delivered."""

    def __getitem__(self, position):
        return self.places[position].clone()


def put_of(batches):
    def put(places, _):
        vars(torch)[NAME] = real
        for number, place in zip(batches.order, places, strict=True):
            torch.clamp_min(batches.subject.inputs[number][0], 0, out=place)
        batches.timed = Answers(batches.timed)
        batches.timed.places = places

    return put


class ModelNew(nn.Module):
    def forward(self, x):
        batches = batches_of()
        if batches is None or len(batches.regions) < 2:
            return torch.relu(x)
        if vars(torch)[NAME] is real:
            vars(torch)[NAME] = put_of(batches)
        if not stale:
            stale.append(torch.zeros_like(x))
        return stale[0]
