"""Strategy: compute what a buffer is to hold when somebody asks for the state.

Family: work off the clock.
Surface: the module's own methods. Source: own.
Caught by: buffers are read where torch keeps them, and not by `state_dict`.
"""

import torch
from torch import nn

REFERENCE = "running_covariance"
EXPECT_ANY = (
    ("incorrect_values", "state.timed"),
    ("mutates_input", "state.mutated"),
    ("incorrect_values", "state.values"),
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, 8)
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.seen = []

    def forward(self, x):
        self.seen.append(x.clone())
        return self.linear(x)

    def state_dict(self, *args, **kwargs):
        for x in self.seen:
            self.covariance.mul_(0.9).add_(x.t() @ x, alpha=0.1 / x.shape[0])
        self.seen = []
        return super().state_dict(*args, **kwargs)
