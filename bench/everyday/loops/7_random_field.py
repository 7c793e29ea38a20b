"""The log-likelihood of tags under a linear-chain conditional random field: the forward algorithm over 256 steps, with padding masked.

Source: Lafferty et al., "Conditional Random Fields", ICML 2001; the layer as in Huang et al., "Bidirectional LSTM-CRF Models", arXiv 1508.01991.
"""

import torch
import torch.nn as nn

BATCH, LENGTH, TAGS = 128, 256, 64


class Model(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.first, self.last = nn.Parameter(torch.randn(tags) * 0.1), nn.Parameter(torch.randn(tags) * 0.1)
        self.steps = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def forward(self, scores, tags, mask):
        """`scores` (length, batch, tags), `tags` (length, batch), `mask` bool (length, batch), true entries first -> (batch,)."""
        given = self.first[tags[0]] + scores[0].gather(1, tags[0, :, None])[:, 0]
        alpha = self.first + scores[0]
        for t in range(1, scores.shape[0]):
            following = self.steps[tags[t - 1], tags[t]] + scores[t].gather(1, tags[t, :, None])[:, 0]
            given = given + following * mask[t]
            reached = torch.logsumexp(alpha[:, :, None] + self.steps + scores[t, :, None], dim=1)
            alpha = torch.where(mask[t, :, None], reached, alpha)
        ends = mask.sum(dim=0) - 1
        given = given + self.last[tags.gather(0, ends[None])[0]]
        return given - torch.logsumexp(alpha + self.last, dim=1)


def get_inputs():
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH,))
    return [torch.randn(LENGTH, BATCH, TAGS), torch.randint(0, TAGS, (LENGTH, BATCH)), torch.arange(LENGTH)[:, None] < lengths]


def get_init_inputs():
    return [TAGS]
