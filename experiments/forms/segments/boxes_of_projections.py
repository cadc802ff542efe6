"""After the bit masks of detectron2: rows and columns of each mask that hold something, with zeros for an empty mask."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, masks):
        boxes = torch.zeros(masks.shape[0], 4, dtype=torch.float32)
        x_any = torch.any(masks, dim=1)
        y_any = torch.any(masks, dim=2)
        for idx in range(masks.shape[0]):
            x = torch.where(x_any[idx, :])[0]
            y = torch.where(y_any[idx, :])[0]
            if len(x) > 0 and len(y) > 0:
                boxes[idx, :] = torch.as_tensor(
                    [x[0], y[0], x[-1] + 1, y[-1] + 1], dtype=torch.float32
                )
        return boxes


def get_inputs():
    steps = torch.arange(96)
    low, size = torch.randint(0, 60, (2, 40, 1)), torch.randint(4, 30, (2, 40, 1))
    inside = (steps >= low) & (steps < low + size)
    return [inside[0][:, :, None] & inside[1][:, None, :]]


def get_init_inputs():
    return []
