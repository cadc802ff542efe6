import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        length, dim = q.shape[-2:]
        mask = torch.full((length, length), float("-inf"), dtype=q.dtype, device=q.device).triu_(1)
        flat = [t.reshape(-1, length, dim) for t in (q, k, v)]
        scores = torch.baddbmm(mask, flat[0], flat[1].transpose(1, 2), alpha=1 / math.sqrt(dim))
        return torch.bmm(torch.softmax(scores, dim=-1), flat[2]).view_as(q)
