"""After kmkurn/pytorch-crf#16: the best path of each sample is followed back by itself, number by number."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def forward(self, emissions):
        steps, batch, _ = emissions.shape
        score, history = emissions[0], []
        for i in range(1, steps):
            total = score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1)
            score, index = total.max(dim=1)
            history.append(index)
        tags = [score.argmax(dim=1, keepdim=True)]
        for index in reversed(history):
            tags.append(index.gather(1, tags[-1]))
        return torch.cat(tags[::-1], dim=1)


def get_inputs():
    return [torch.randn(30, 32, 9)]


def get_init_inputs():
    return [9]
