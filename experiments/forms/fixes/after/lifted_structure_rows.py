"""msight-tech/research-ms-loss ret_benchmark/losses/multi_similarity_loss.py: pairs chosen row by row."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, thresh, scale_pos, scale_neg):
        super().__init__()
        self.thresh = thresh
        self.scale_pos = scale_pos
        self.scale_neg = scale_neg

    def forward(self, feats, labels):
        feats = nn.functional.normalize(feats, dim=1)
        sim_mat = torch.matmul(feats, feats.t())
        same = labels[:, None] == labels
        pos = torch.exp(-self.scale_pos * (sim_mat - self.thresh)).masked_fill(~same, 0.0)
        neg = torch.exp(self.scale_neg * (sim_mat - self.thresh)).masked_fill(same, 0.0)
        pos_loss = torch.log(1 + pos.sum(dim=1)) / self.scale_pos
        neg_loss = torch.log(1 + neg.sum(dim=1)) / self.scale_neg
        return (pos_loss + neg_loss).mean()


def get_inputs():
    return [torch.randn(96, 32), torch.randint(0, 16, (96,))]


def get_init_inputs():
    return [0.5, 2.0, 10.0]
