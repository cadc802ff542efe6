"""Strategy: leave the running statistics alone in timed calls.

Family: phase detection.
Surface: buffers after a timed batch. Source: own.
Caught by: the state after a timed round is compared.
"""

import sys

from torch import nn

REFERENCE = "train_batch_norm"
EXPECT = ("incorrect_values", "state.timed")


def is_timed():
    """Whether the harness makes a timed batch: its function's name says so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "batch":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        if not is_timed():
            return norm(x)
        return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
