"""How many edges are below each number, instead of a search among those that rise.

Family: precision.
"""

from torch import nn

REFERENCE = "bins"


class ModelNew(nn.Module):
    def forward(self, x, edges):
        return (x.unsqueeze(-1) > edges).sum(-1)
