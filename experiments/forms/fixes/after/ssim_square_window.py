"""Po-Hsun-Su/pytorch-ssim pytorch_ssim/__init__.py: five convolutions with a square Gaussian window."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def create_window(window_size, channel):
    gauss = torch.tensor(
        [math.exp(-((x - window_size // 2) ** 2) / (2 * 1.5**2)) for x in range(window_size)]
    )
    line = (gauss / gauss.sum()).unsqueeze(1)
    window = line.mm(line.t()).unsqueeze(0).unsqueeze(0)
    return window.expand(channel, 1, window_size, window_size).contiguous()


class ModelNew(nn.Module):
    def __init__(self, window_size, channel):
        super().__init__()
        self.window_size = window_size
        self.channel = channel
        self.register_buffer("window", create_window(window_size, channel))

    def blur(self, x):
        across = self.window.sum(dim=2, keepdim=True)
        down = self.window.sum(dim=3, keepdim=True)
        p = self.window_size // 2
        x = F.conv2d(x, across, padding=(0, p), groups=self.channel)
        return F.conv2d(x, down, padding=(p, 0), groups=self.channel)

    def forward(self, img1, img2):
        mu1 = self.blur(img1)
        mu2 = self.blur(img2)
        mu1_sq, mu2_sq, mu1_mu2 = mu1.pow(2), mu2.pow(2), mu1 * mu2
        sigma1_sq = self.blur(img1 * img1) - mu1_sq
        sigma2_sq = self.blur(img2 * img2) - mu2_sq
        sigma12 = self.blur(img1 * img2) - mu1_mu2
        C1, C2 = 0.01**2, 0.03**2
        ssim_map = ((2 * mu1_mu2 + C1) * (2 * sigma12 + C2)) / (
            (mu1_sq + mu2_sq + C1) * (sigma1_sq + sigma2_sq + C2)
        )
        return ssim_map.mean()


def get_inputs():
    return [torch.rand(1, 3, 96, 96), torch.rand(1, 3, 96, 96)]


def get_init_inputs():
    return [19, 3]
