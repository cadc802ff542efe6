"""After NVIDIA/TransformerEngine#3268: a padding mask is joined from a Python list for each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, scores, lengths):
        batch, steps = scores.size(0), scores.size(-1)
        mask = torch.tensor([], dtype=torch.bool, device=scores.device)
        for i in range(batch):
            row = torch.tensor(
                [False] * int(lengths[i]) + [True] * (steps - int(lengths[i])), device=scores.device
            ).reshape(1, 1, 1, -1)
            mask = torch.cat([mask, row], dim=0)
        return scores.masked_fill(mask, -10000.0).softmax(dim=-1)


def get_inputs():
    return [torch.randn(16, 2, 16, 64), torch.randint(1, 65, (16,))]


def get_init_inputs():
    return []
