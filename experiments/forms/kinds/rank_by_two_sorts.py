"""After vllm-project/vllm#24443: a permutation is sorted to turn it back; here for random masks, as in facebookresearch/mae."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, ratio):
        super().__init__()
        self.ratio = ratio

    def forward(self, x, noise):
        batch, steps, width = x.shape
        num_kept = int(steps * (1 - self.ratio))
        shuffled = torch.argsort(noise, dim=1)
        restored = torch.argsort(shuffled, dim=1)
        kept = shuffled[:, :num_kept]
        shown = torch.gather(x, 1, kept.unsqueeze(-1).repeat(1, 1, width))
        mask = torch.ones(batch, steps, device=x.device)
        mask[:, :num_kept] = 0
        return shown, torch.gather(mask, 1, restored)


def get_inputs():
    return [torch.randn(8, 4096, 4), torch.rand(8, 4096)]


def get_init_inputs():
    return [0.75]
