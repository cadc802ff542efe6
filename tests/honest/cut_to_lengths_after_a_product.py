"""One product for all rows.

Family: value shapes.
"""

import torch
from torch import nn

REFERENCE = "cut_to_lengths"


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        rows = [row[:length] for row, length in zip(x * 2, lengths.tolist(), strict=True)]
        return torch.nested.nested_tensor(rows)
