"""zalandoresearch/pytorch-vq-vae: VectorQuantizer, encodings as a one-hot matrix, with perplexity."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_embeddings, embedding_dim):
        super().__init__()
        self._num_embeddings = num_embeddings
        self._embedding_dim = embedding_dim
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)

    def forward(self, inputs):
        input_shape = inputs.shape
        flat_input = inputs.view(-1, self._embedding_dim)
        weight = self._embedding.weight
        distances = torch.addmm(torch.sum(weight**2, dim=1), flat_input, weight.t(), alpha=-2)
        encoding_indices = torch.argmin(distances, dim=1)
        quantized = self._embedding(encoding_indices).view(input_shape)
        counts = torch.bincount(encoding_indices, minlength=self._num_embeddings)
        avg_probs = counts / encoding_indices.shape[0]
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return quantized, perplexity


def get_inputs():
    return [torch.randn(4, 256, 32)]


def get_init_inputs():
    return [512, 32]
