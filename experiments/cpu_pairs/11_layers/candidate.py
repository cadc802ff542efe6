from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 256), nn.Linear(256, 128)

    def forward(self, x):
        return self.second(nn.functional.gelu(self.first(x)))
