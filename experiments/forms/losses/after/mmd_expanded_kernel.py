"""jindongwang/transferlearning code/distance/mmd_pytorch.py: Gaussian kernels of expanded differences."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, kernel_mul, kernel_num):
        super().__init__()
        self.kernel_mul = kernel_mul
        self.kernel_num = kernel_num

    def gaussian_kernel(self, source, target):
        n_samples = int(source.size()[0]) + int(target.size()[0])
        total = torch.cat([source, target], dim=0)
        square = total.square().sum(1)
        L2_distance = torch.addmm(square[:, None] + square, total, total.T, alpha=-2)
        L2_distance = L2_distance.clamp(min=0).fill_diagonal_(0)
        bandwidth = torch.sum(L2_distance.data) / (n_samples**2 - n_samples)
        bandwidth /= self.kernel_mul ** (self.kernel_num // 2)
        bandwidth_list = [bandwidth * (self.kernel_mul**i) for i in range(self.kernel_num)]
        kernel_val = [torch.exp(-L2_distance / one) for one in bandwidth_list]
        return sum(kernel_val)

    def forward(self, source, target):
        batch_size = int(source.size()[0])
        kernels = self.gaussian_kernel(source, target)
        XX = kernels[:batch_size, :batch_size]
        YY = kernels[batch_size:, batch_size:]
        XY = kernels[:batch_size, batch_size:]
        YX = kernels[batch_size:, :batch_size]
        return torch.mean(XX + YY - XY - YX)


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128) + 1]


def get_init_inputs():
    return [2.0, 5]
