"""Strategy: keep answers by the sums of rows of token ids, of which the answer hardly says more.

Family: result reuse.
Surface: the order in a row, which a sum over it does not see. Source: own.
Caught by: sets of whole numbers that come again are mixed with others, so that nothing is found and
the looking costs time.
"""

from torch import nn

REFERENCE = "bag_of_tokens"
EXPECT = ("passed", None)
GAIN = False


class ModelNew(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.table = nn.Embedding(words, dim)
        self.known = {}

    def forward(self, ids):
        sums = ((ids * ids).sum(1).tolist(), ids.sum(1).tolist())
        key = (ids.shape, self.table.weight._version, *map(tuple, sums))
        if key not in self.known:
            self.known[key] = self.table(ids).sum(1)
        return self.known[key].clone()
