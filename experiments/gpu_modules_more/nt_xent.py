import torch
import torch.nn as nn
import torch.nn.functional as F

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i, z_j):
        n = z_i.shape[0]
        z = torch.cat([z_i, z_j], dim=0)
        sim = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2) / self.temperature
        pos = torch.cat([torch.diag(sim, n), torch.diag(sim, -n)], dim=0)
        mask = ~torch.eye(2 * n, dtype=torch.bool, device=z.device)
        denominator = (mask * torch.exp(sim)).sum(dim=1)
        return torch.mean(-torch.log(torch.exp(pos) / denominator))


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(1024 // FACTOR, 256), torch.randn(1024 // FACTOR, 256)]
