"""facebookresearch/audiocraft audiocraft/models/lm.py: LMModel, a sum of one embedding for each codebook."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, card, dim, n_q):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(card, dim) for _ in range(n_q)])
        self.linears = nn.ModuleList([nn.Linear(dim, card, bias=False) for _ in range(n_q)])

    def forward(self, sequence):
        B, K, S = sequence.shape
        input_ = sum([self.emb[k](sequence[:, k]) for k in range(K)])
        return torch.stack([self.linears[k](input_) for k in range(K)], dim=1)


def get_inputs():
    return [torch.randint(0, 32, (4, 64, 4))]


def get_init_inputs():
    return [32, 16, 64]
