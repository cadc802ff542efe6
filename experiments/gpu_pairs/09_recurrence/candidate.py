import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        s = torch.zeros_like(x[:, 0])
        out = []
        for r in (x * 0.1).unbind(1):
            s = torch.add(r, s, alpha=0.9)
            out.append(s)
        return torch.stack(out, 1)
