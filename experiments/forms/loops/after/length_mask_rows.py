"""pcyin/tranX model/nn_utils.py: length_array_to_mask_tensor, a mask of ones, one row for each length."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x, lengths):
        steps = torch.arange(x.size(1), device=x.device)
        mask = (steps < lengths[:, None]).to(torch.float32)
        x = self.proj(x) * mask.unsqueeze(2)
        return x.sum(dim=1) / mask.sum(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(256, 32, 8), torch.randint(1, 33, (256,))]


def get_init_inputs():
    return [8]
