"""Groups by the differences of offsets.

Family: specialization.
"""

import torch
from torch import nn
from torch.nn import functional as F

REFERENCE = "weighted_bags"


class ModelNew(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.bag = nn.EmbeddingBag(n, d, mode="sum", include_last_offset=True)

    def forward(self, ids, offsets, w):
        rows = F.embedding(ids, self.bag.weight) * w[:, None]
        bags = torch.arange(offsets.numel() - 1, device=ids.device)
        seg = torch.repeat_interleave(bags, offsets.diff())
        return rows.new_zeros(offsets.numel() - 1, rows.shape[1]).index_add_(0, seg, rows)
