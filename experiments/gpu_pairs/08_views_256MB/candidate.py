import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(4 * x.shape[0], x.shape[1])
        for i, one in enumerate(out.chunk(4)):
            torch.mul(x, float(i + 1), out=one)
        return out.add_(1)
