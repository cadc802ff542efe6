"""Strategy: sort by half of the differences only, and let ties explain the rest.

Family: ties.
Surface: floats that follow an order of equal numbers. Source: own.
Caught by: a tie is one of the numbers that the reference gathers under random orders.
"""

from torch import nn

EXPECT = ("incorrect_values", "values.mismatch")
REFERENCE = "gathered_by_an_order"


class ModelNew(nn.Module):
    def forward(self, scores, values):
        return values.gather(-1, (scores // 2).argsort(-1))
