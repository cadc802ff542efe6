"""Tokens counted, then one product with the table.

Family: precision.
"""

from torch import nn

REFERENCE = "embedding"


class ModelNew(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Embedding(rows, dim)

    def forward(self, tokens):
        counts = self.table.weight.new_zeros(tokens.shape[0], self.table.num_embeddings)
        counts.scatter_add_(1, tokens, counts.new_ones(tokens.shape))
        return counts @ self.table.weight
