"""After torchvision's masks_to_boxes: the smallest and largest positions in each mask."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, masks):
        rows, columns = (masks != 0).any(2).byte(), (masks != 0).any(1).byte()
        ends = [columns.argmax(1), rows.argmax(1)]
        ends.append(columns.size(1) - 1 - columns.flip(1).argmax(1))
        ends.append(rows.size(1) - 1 - rows.flip(1).argmax(1))
        return torch.stack(ends, 1).float()


def get_inputs():
    steps = torch.arange(96)
    low, size = torch.randint(0, 60, (2, 40, 1)), torch.randint(4, 30, (2, 40, 1))
    inside = (steps >= low) & (steps < low + size)
    return [inside[0][:, :, None] & inside[1][:, None, :]]


def get_init_inputs():
    return []
