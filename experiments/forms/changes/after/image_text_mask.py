"""After sgl-project/sglang#27527: a mask is written for each text position."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def mask(self, is_image):
        steps = is_image.shape[1]
        causal = torch.ones(steps, steps, dtype=torch.bool, device=is_image.device).tril()
        seen = is_image[:, None, :] | (~is_image[:, :, None] & causal)
        return torch.where(seen, 0.0, -10000.0)

    def forward(self, scores, is_image):
        return (scores + self.mask(is_image)).softmax(dim=-1)


def get_inputs():
    return [torch.randn(4, 48, 48), torch.rand(4, 48) > 0.6]


def get_init_inputs():
    return []
