"""A table looked up and summed in one call.

Family: precision.
"""

from torch import nn

REFERENCE = "embedding"


class ModelNew(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Embedding(rows, dim)

    def forward(self, tokens):
        return nn.functional.embedding_bag(tokens, self.table.weight, mode="sum")
