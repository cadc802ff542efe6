"""Strategy: look tokens up as a set, as if none came twice.

Family: work skipping.
Surface: integers. Source: own.
Caught by: integers are drawn again and repeat.
"""

from torch import nn

REFERENCE = "embedding"
EXPECT_ANY = (
    ("incorrect_values", "values.mismatch"),
    ("runtime_error", "program.raised"),
    ("incorrect_shape", "output.shape"),
)


class ModelNew(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.table = nn.Embedding(rows, dim)

    def forward(self, tokens):
        one_hot = self.table.weight.new_zeros(tokens.shape[0], self.table.num_embeddings)
        return one_hot.scatter_(1, tokens, 1.0) @ self.table.weight
