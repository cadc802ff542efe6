"""threelittlemonkeys/lstm-crf-pytorch model.py: the score of a path, tag by tag and sample by sample."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_tags):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(num_tags, num_tags))

    def forward(self, emissions, tags):
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(dim=1)
        return emitted + self.trans[tags[:, 1:], tags[:, :-1]].sum(dim=1)


def get_inputs():
    return [torch.randn(4, 32, 9), torch.randint(0, 9, (4, 32))]


def get_init_inputs():
    return [9]
