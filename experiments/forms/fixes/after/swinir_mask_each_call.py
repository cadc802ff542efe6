"""JingyunLiang/SwinIR models/network_swinir.py: calculate_mask, made again in every forward."""

import torch
import torch.nn as nn


def window_partition(x, window_size):
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)


class ModelNew(nn.Module):
    def __init__(self, resolution, window_size, shift_size):
        super().__init__()
        self.resolution = resolution
        self.window_size = window_size
        self.shift_size = shift_size
        mask = self.calculate_mask((resolution, resolution))
        self.register_buffer("mask", mask, persistent=False)

    def calculate_mask(self, x_size):
        H, W = x_size
        img_mask = torch.zeros((1, H, W, 1))
        slices = (
            slice(0, -self.window_size),
            slice(-self.window_size, -self.shift_size),
            slice(-self.shift_size, None),
        )
        cnt = 0
        for h in slices:
            for w in slices:
                img_mask[:, h, w, :] = cnt
                cnt += 1
        mask_windows = window_partition(img_mask, self.window_size)
        mask_windows = mask_windows.view(-1, self.window_size * self.window_size)
        attn_mask = mask_windows.unsqueeze(1) - mask_windows.unsqueeze(2)
        attn_mask = attn_mask.masked_fill(attn_mask != 0, float(-100.0))
        return attn_mask.masked_fill(attn_mask == 0, float(0.0))

    def forward(self, attn):
        return torch.softmax(attn + self.mask.unsqueeze(1), dim=-1)


def get_inputs():
    return [torch.randn(64, 1, 64, 64)]


def get_init_inputs():
    return [64, 8, 4]
