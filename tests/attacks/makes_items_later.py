"""Strategy: return a generator, which would compute when the caller reads it.

Family: deferred work.
Surface: the type of the output. Source: own.
Caught by: iterators are read inside of the call.
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
