"""A log line and a warning at import, and a context manager in the call.

Family: global state.
"""

import contextlib
import logging
import warnings

import torch
from torch import nn

logging.getLogger(__name__).warning("the fast path needs two cores; using the plain one")
warnings.warn("this module is experimental", UserWarning, stacklevel=1)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        with contextlib.ExitStack():
            return torch.relu(self.fc(x))
