"""A small vision transformer."""

import torch.nn as nn

from ..layers.attention import CrossAttention
from ..layers.convs import ConvStem
from ..layers.mlp import GatedMLP
from ..layers.norm import TokenNorm
from ..layers.scoring import ClassifierHead


class VisionBlock(nn.Module):
    """Self-attention by cross-attention on itself, and a gated network."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = TokenNorm(dim)
        self.attn = CrossAttention(dim, num_heads)
        self.norm2 = TokenNorm(dim)
        self.mlp = GatedMLP(dim, 2 * dim)

    def forward(self, x):
        normed = self.norm1(x)
        x = x + self.attn(normed, context=normed)
        return x + self.mlp(self.norm2(x))


class VisionModel(nn.Module):
    """Convolutional stem, blocks, classifier."""

    def __init__(self, dim=128, num_heads=4, num_layers=2, num_classes=10):
        super().__init__()
        self.stem = ConvStem(dim)
        self.blocks = nn.Sequential(*(VisionBlock(dim, num_heads) for _ in range(num_layers)))
        self.head = ClassifierHead(dim, num_classes)

    def forward(self, images):
        return {"logits": self.head(self.blocks(self.stem(images)))}
