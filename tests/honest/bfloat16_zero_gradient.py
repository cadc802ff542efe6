"""Product and normalization in float32, rounded to bfloat16 at the end: of the bias's gradient,
which is zero, other rounding is left.

Family: precision.
"""

import torch
import torch.nn.functional as F
from torch import nn

REFERENCE = "bfloat16_train_bias_before_norm"


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(2 * dim, dtype=torch.bfloat16)

    def forward(self, x):
        norm = self.norm
        hidden = F.linear(x.float(), self.up.weight.float(), self.up.bias.float())
        var, mean = torch.var_mean(hidden, dim=0, correction=0)
        with torch.no_grad():
            count = x.shape[0]
            unbiased = var * count / (count - 1)
            norm.running_mean.copy_(norm.running_mean.float().lerp(mean, norm.momentum))
            norm.running_var.copy_(norm.running_var.float().lerp(unbiased, norm.momentum))
            norm.num_batches_tracked.add_(1)
        scale = torch.rsqrt(var + norm.eps) * norm.weight.float()
        return ((hidden - mean) * scale + norm.bias.float()).to(x.dtype)
