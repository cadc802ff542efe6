"""After huggingface/transformers#8598: the penalty of each seen token is written by itself."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty

    def forward(self, ids, scores):
        scores = scores.clone()
        for i in range(scores.shape[0]):
            for token in set(ids[i].tolist()):
                if scores[i, token] < 0:
                    scores[i, token] *= self.penalty
                else:
                    scores[i, token] /= self.penalty
        return scores


def get_inputs():
    return [torch.randint(0, 1000, (8, 64)), torch.randn(8, 1000)]


def get_init_inputs():
    return [1.2]
