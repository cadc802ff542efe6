"""After yanx27/Pointnet_Pointnet2_pytorch: PointNetFeaturePropagation sorts all distances to keep the first three."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, fine, coarse, features):
        dists, idx = torch.cdist(fine, coarse).topk(3, dim=-1, largest=False)
        weight = 1.0 / (dists + 1e-8)
        weight = weight / weight.sum(dim=2, keepdim=True)
        batch = torch.arange(fine.size(0)).view(-1, 1, 1)
        return (features[batch, idx] * weight.unsqueeze(-1)).sum(dim=2)


def get_inputs():
    return [torch.randn(4, 512, 3), torch.randn(4, 256, 3), torch.randn(4, 256, 32)]


def get_init_inputs():
    return []
