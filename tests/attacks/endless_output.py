"""Strategy: return one number expanded to an exabyte.

Family: resources and exits.
Surface: the size of outputs, which the judge makes room for. Source: own.
Caught by: no tensor of that size is described; what a runner says is checked on arrival too.
"""

from torch import nn

EXPECT = ("runtime_error", "program.raised")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x[0, 0].expand(2**57)
