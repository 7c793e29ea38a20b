"""Sampling of the next token: repetition penalty, temperature, top-k with k = 50, top-p with p = 0.9, and a draw with given noise.

Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv 1904.09751 (nucleus); Keskar et al., arXiv 1909.05858 (penalty); the
draw uses the Gumbel trick, with the noise as an input. The head computes in float32, as in MiniMax-M1 (arXiv 2506.13585).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, WIDTH, VOCABULARY, HISTORY, LIKELIEST = 64, 1024, 64000, 256, 50


class Model(nn.Module):
    def __init__(self, width, vocabulary, likeliest, nucleus, temperature, penalty):
        super().__init__()
        self.likeliest, self.nucleus, self.temperature, self.penalty = likeliest, nucleus, temperature, penalty
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden, history, noise):
        """`hidden` (batch, width), `history` (batch, tokens), `noise` in (0, 1) (batch, vocabulary) -> token and its log-probability."""
        logits = F.linear(hidden.float(), self.head.weight.float())
        said = torch.gather(logits, 1, history)
        said = torch.where(said < 0, said * self.penalty, said / self.penalty)
        logits = logits.scatter(1, history, said) / self.temperature
        values, tokens = torch.topk(logits, self.likeliest, dim=-1)  # sorted
        probabilities = torch.softmax(values, dim=-1)
        before = torch.cumsum(probabilities, dim=-1) - probabilities
        values = values.masked_fill(before > self.nucleus, float("-inf"))
        gumbel = -torch.log(-torch.log(torch.gather(noise, 1, tokens).float()))
        drawn = torch.argmax(values + gumbel, dim=-1, keepdim=True)
        return torch.gather(tokens, 1, drawn)[:, 0], torch.gather(torch.log_softmax(values, dim=-1), 1, drawn)[:, 0]


def get_inputs():
    history = torch.randint(0, VOCABULARY, (BATCH, HISTORY))
    return [torch.randn(BATCH, WIDTH) * 6, history, torch.rand(BATCH, VOCABULARY) * 0.98 + 0.01]


def get_init_inputs():
    return [WIDTH, VOCABULARY, LIKELIEST, 0.9, 0.7, 1.2]
