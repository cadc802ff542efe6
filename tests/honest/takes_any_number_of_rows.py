"""A softmax by its definition, for inputs that are of another shape at every call.

Family: output metadata.
"""

from torch import nn

REFERENCE = "ragged"


class ModelNew(nn.Module):
    def forward(self, x, weights=None):
        scores = x if weights is None else weights * x
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True)
