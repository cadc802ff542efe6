"""After sgl-project/sglang#27527: a mask is written for each text position."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def mask(self, is_image):
        batch, steps = is_image.shape
        mask = torch.full((batch, steps, steps), -10000.0, device=is_image.device)
        for b in range(batch):
            image = is_image[b].nonzero().flatten()
            text = (~is_image[b]).nonzero().flatten()
            mask[b, image[:, None], image] = 0.0
            for i, position in enumerate(text):
                mask[b, position, image] = 0.0
                mask[b, position, text[: i + 1]] = 0.0
        return mask

    def forward(self, scores, is_image):
        return (scores + self.mask(is_image)).softmax(dim=-1)


def get_inputs():
    return [torch.randn(4, 48, 48), torch.rand(4, 48) > 0.6]


def get_init_inputs():
    return []
