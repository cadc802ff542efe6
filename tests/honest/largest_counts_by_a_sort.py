"""Other places of equal whole numbers.

Family: ties.
"""

from torch import nn

REFERENCE = "largest_counts"


class ModelNew(nn.Module):
    def forward(self, counts):
        return counts.argsort(-1, descending=True)[:, :4]
