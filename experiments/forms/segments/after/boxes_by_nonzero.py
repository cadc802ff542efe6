"""A common form, no one source: positions in each mask by nonzero, boxes in a list."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, masks):
        rows, columns = masks.any(2).byte(), masks.any(1).byte()
        ends = [columns.argmax(1), rows.argmax(1)]
        ends.append(columns.size(1) - 1 - columns.flip(1).argmax(1))
        ends.append(rows.size(1) - 1 - rows.flip(1).argmax(1))
        return torch.stack(ends, 1)


def get_inputs():
    steps = torch.arange(96)
    low, size = torch.randint(0, 60, (2, 40, 1)), torch.randint(4, 30, (2, 40, 1))
    inside = (steps >= low) & (steps < low + size)
    return [inside[0][:, :, None] & inside[1][:, None, :]]


def get_init_inputs():
    return []
