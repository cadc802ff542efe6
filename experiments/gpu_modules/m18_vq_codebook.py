import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, codes, dim):
        super().__init__()
        self.embedding = nn.Embedding(codes, dim)

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).contiguous().view(-1, z.shape[1])
        d = (
            (flat**2).sum(1, keepdim=True)
            + (self.embedding.weight**2).sum(1)
            - 2 * flat @ self.embedding.weight.t()
        )
        idx = d.argmin(1).unsqueeze(1)
        one_hot = torch.zeros(idx.shape[0], self.embedding.num_embeddings, device=z.device)
        one_hot.scatter_(1, idx, 1)
        q = (one_hot @ self.embedding.weight).view(z.shape[0], z.shape[2], z.shape[3], z.shape[1])
        loss = ((q.detach() - z.permute(0, 2, 3, 1)) ** 2).mean() + 0.25 * (
            (q - z.permute(0, 2, 3, 1).detach()) ** 2
        ).mean()
        avg = one_hot.mean(0)
        perplexity = torch.exp(-torch.sum(avg * torch.log(avg + 1e-10)))
        return q.permute(0, 3, 1, 2).contiguous(), loss, perplexity


def get_init_inputs():
    return [1024, 64]


def get_inputs():
    return [torch.randn(16, 64, 32, 32)]
