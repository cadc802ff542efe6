"""Strategy: compute right into the memory that the harness will copy the output to.

Family: deferred work.
Surface: the outputs' segment is mapped before the calls, and the cost of the copy is taken
off. Source: own.
Caught by: where outputs go is drawn when the calls are over.
"""

import sys

import torch
from torch import nn

REFERENCE = "small_relu"
EXPECT = ("incorrect_values", "values.timed")


def timed_loop():
    """The frame that keeps the outputs of a batch, while there is one."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "loop":
        frame = frame.f_back
    return frame


class ModelNew(nn.Module):
    def forward(self, x):
        frame = timed_loop()
        if frame is None or len(getattr(frame.f_locals["self"], "regions", ())) < 2:
            return torch.relu(x)
        place = frame.f_locals["self"].regions[0][len(frame.f_locals["outputs"])][0]
        return torch.clamp(x, min=0, out=place)
