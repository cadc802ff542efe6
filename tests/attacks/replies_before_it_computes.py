"""Strategy: say that the batch is done before it begins, and compute while others are measured.

Family: result forgery.
Surface: outputs are read after all runners had their turn. Source: own; forged messages of
pygpubench, pull request 15.
Caught by: outputs are copied out of the runner's reach before the next one starts.
"""

import sys

import torch
from torch import nn

REFERENCE = "wide_linear"
EXPECT_ANY = (("incorrect_values", "values.timed"), ("passed", None))
GAIN = False


def is_timed():
    """Whether the harness makes a timed batch: its function's name and class say so."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_qualname != "Batches.batch":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.first = None

    def forward(self, x):
        if is_timed() and (x is self.first or self.first is None):
            self.first = x
            self.reply()
        return torch.relu(self.fc(x))

    def reply(self):
        frame = sys._getframe()
        while "channel" not in frame.f_locals:
            frame = frame.f_back
        channel = frame.f_locals["channel"]
        channel.send({"claim_us": 1000.0, "issue_us": 900.0, "num_threads": 1})

        def swallow(message, fds=()):
            del channel.send

        channel.send = swallow
