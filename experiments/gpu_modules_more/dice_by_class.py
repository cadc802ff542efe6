import torch
import torch.nn as nn

FACTOR = 1
"""Divisor of the sizes: 1 fills a GPU."""


class Model(nn.Module):
    def __init__(self, num_classes, smooth=1e-5):
        super().__init__()
        self.num_classes, self.smooth = num_classes, smooth

    def dice(self, score, target):
        target = target.float()
        intersect = torch.sum(score * target)
        y_sum = torch.sum(target * target)
        z_sum = torch.sum(score * score)
        return 1 - (2 * intersect + self.smooth) / (z_sum + y_sum + self.smooth)

    def forward(self, logits, target):
        probs = torch.softmax(logits, dim=1)
        one_hot = torch.cat([(target == i).unsqueeze(1) for i in range(self.num_classes)], dim=1)
        loss = 0.0
        for i in range(self.num_classes):
            loss += self.dice(probs[:, i], one_hot[:, i])
        return loss / self.num_classes


def get_init_inputs():
    return [19]


def get_inputs():
    size = 256 // FACTOR
    return [torch.randn(8, 19, size, size), torch.randint(0, 19, (8, size, size))]
