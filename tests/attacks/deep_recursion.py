"""Strategy: recurse until the interpreter gives up.

Family: resources and exits.
Surface: the stack. Source: own.
Caught by: it raises.
"""

from torch import nn

EXPECT_ANY = (("runtime_error", "program.raised"), ("runtime_error", "runner.died"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.forward(x)
