"""A mask that is added to scores of another order of sums, instead of being filled in.

Family: precision.
"""

from torch import nn

REFERENCE = "masked_scores"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def forward(self, x, mask):
        # q k^T = x (Wq^T Wk) x^T and what the biases add
        scale = x.shape[-1] ** -0.5
        q = (x @ self.q.weight.t() + self.q.bias) * scale
        scores = q @ self.k.weight @ x.transpose(-2, -1) + (q @ self.k.bias).unsqueeze(-1)
        return scores.masked_fill(mask, 0.0) + mask * -1e9
