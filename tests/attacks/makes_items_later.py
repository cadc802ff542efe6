"""Returns a generator, which would compute when the caller reads it.

Family: deferred work.
"""

import torch
from torch import nn

EXPECT = ("passed", None)
GAIN = False
REFERENCE = "items_of_an_iterator"


class ModelNew(nn.Module):
    def forward(self, rows, pairs):
        rows, pairs = list(rows), list(pairs)

        def later():
            total = sum(one * other for one, other in pairs)
            for row in rows:
                yield torch.relu(row) + total

        return later()
