"""Strategy: return a dense matrix where the reference returns compressed rows.

Family: output metadata.
Surface: the layout of the output. Source: own.
Caught by: the layout is part of the output's structure.
"""

from torch import nn

EXPECT = ("incorrect_shape", "output.structure")
REFERENCE = "compressed_rows"


class ModelNew(nn.Module):
    def forward(self, matrix, x):
        return matrix.to_dense() * x
