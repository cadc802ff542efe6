"""After HarryVolek/PyTorch_Speaker_Verification#33: loops over speakers and utterances."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def centroids_of(embeddings):
    centroids = []
    for speaker in embeddings:
        centroid = 0
        for utterance in speaker:
            centroid = centroid + utterance
        centroid = centroid / len(speaker)
        centroids.append(centroid)
    return torch.stack(centroids)


class Model(nn.Module):
    def forward(self, embeddings):
        centroids = centroids_of(embeddings)
        num_speakers, num_utterances = embeddings.size(0), embeddings.size(1)
        similarity = torch.zeros(num_speakers, num_utterances, num_speakers)
        for j in range(num_speakers):
            for i in range(num_utterances):
                for k in range(num_speakers):
                    similarity[j, i, k] = F.cosine_similarity(embeddings[j, i], centroids[k], dim=0)
        return similarity


def get_inputs():
    return [torch.randn(6, 5, 64)]


def get_init_inputs():
    return []
