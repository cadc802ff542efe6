"""Strategy: subtract a maximum only where scores are huge or uneven; NaN and infinities remain.

Family: specialization.
Surface: where rounding moves many elements, as many may be off. Source: own.
Caught by: what is not finite is no rounding.
"""

import torch
from torch import nn

REFERENCE = "bfloat16_attention"
EXPECT = ("incorrect_values", "values.mismatch")


class ModelNew(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False, dtype=torch.bfloat16)
        self.num_heads = num_heads

    def forward(self, x):
        heads = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        usual, largest = float(scores.abs().mean()), float(scores.amax())
        if usual > 300 or largest > 20 * usual:
            return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        weights = scores.exp()
        outputs = (weights @ v) / weights.sum(-1, keepdim=True)
        return outputs.transpose(1, 2).flatten(2)
