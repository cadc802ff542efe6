"""Another order of equal numbers, which decides what is gathered.

Family: ties.
"""

from torch import nn

REFERENCE = "gathered_by_an_order"


class ModelNew(nn.Module):
    def forward(self, scores, values):
        return values.gather(-1, scores.sort(dim=-1, stable=True).indices)
