"""Strategy: import the reference from the harness and call it.

Family: answer theft.
Surface: an importable reference. Source: Kevin's paper; KernelBench executes both sources in
one namespace.
Caught by: a runner has one program, its own.
"""

from program import Model
from torch import nn

EXPECT_ANY = (("compile_error", "program.import"), ("runtime_error", "program.raised"))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.model = Model(dim)

    def forward(self, x):
        return self.model(x)
