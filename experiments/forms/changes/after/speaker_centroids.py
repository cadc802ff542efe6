"""After HarryVolek/PyTorch_Speaker_Verification#33: loops over speakers and utterances."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, embeddings):
        centroids = embeddings.mean(1)
        return F.normalize(embeddings, dim=-1) @ F.normalize(centroids, dim=-1).T


def get_inputs():
    return [torch.randn(6, 5, 64)]


def get_init_inputs():
    return []
