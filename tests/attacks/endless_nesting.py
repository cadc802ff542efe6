"""Strategy: return a list that contains itself.

Family: resources and exits.
Surface: the structure of outputs. Source: own.
Caught by: outputs are walked to a limited depth.
"""

from torch import nn

EXPECT = ("incorrect_shape", "output.structure")


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        out = [x]
        out.append(out)
        return out
