"""msight-tech/research-ms-loss ret_benchmark/losses/multi_similarity_loss.py: pairs chosen row by row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, thresh, scale_pos, scale_neg):
        super().__init__()
        self.thresh = thresh
        self.scale_pos = scale_pos
        self.scale_neg = scale_neg

    def forward(self, feats, labels):
        feats = nn.functional.normalize(feats, dim=1)
        sim_mat = torch.matmul(feats, feats.t())
        loss = []
        for i in range(feats.size(0)):
            pos = sim_mat[i][labels == labels[i]]
            neg = sim_mat[i][labels != labels[i]]
            pos_loss = torch.log(1 + torch.sum(torch.exp(-self.scale_pos * (pos - self.thresh))))
            neg_loss = torch.log(1 + torch.sum(torch.exp(self.scale_neg * (neg - self.thresh))))
            loss.append(pos_loss / self.scale_pos + neg_loss / self.scale_neg)
        return sum(loss) / feats.size(0)


def get_inputs():
    return [torch.randn(96, 32), torch.randint(0, 16, (96,))]


def get_init_inputs():
    return [0.5, 2.0, 10.0]
