"""clcarwin/focal_loss_pytorch and forks: multi-class focal loss through a class mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, class_num, gamma):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(class_num, 1))
        self.gamma = gamma
        self.class_num = class_num

    def forward(self, inputs, targets):
        N, C = inputs.size(0), inputs.size(1)
        P = F.softmax(inputs, dim=1)
        class_mask = inputs.data.new(N, C).fill_(0)
        ids = targets.view(-1, 1)
        class_mask.scatter_(1, ids.data, 1.0)
        alpha = self.alpha[ids.data.view(-1)]
        probs = (P * class_mask).sum(1).view(-1, 1)
        log_p = probs.log()
        batch_loss = -alpha * (torch.pow((1 - probs), self.gamma)) * log_p
        return batch_loss.mean()


def get_inputs():
    return [torch.randn(2048, 500), torch.randint(0, 500, (2048,))]


def get_init_inputs():
    return [500, 2]
