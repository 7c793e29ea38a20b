"""A step of beam search: scores all continuations, keeps the best beams of each sentence, and reorders their tokens and caches.

Source: Graves, "Sequence Transduction with Recurrent Neural Networks", arXiv 1211.3711 (beam search); length penalty from Wu et al., arXiv
1609.08144. The head computes in float32, as in MiniMax-M1 (arXiv 2506.13585).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, BEAMS, VOCABULARY, PAST, LAYER_HEADS, FEATURES, WIDTH = 8, 4, 50257, 512, 12, 64, 768


class Model(nn.Module):
    def __init__(self, width, vocabulary, beams, penalty):
        super().__init__()
        self.beams, self.vocabulary, self.penalty = beams, vocabulary, penalty
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden, scores, tokens, keys, values):
        """`hidden` (batch * beams, width), `scores` (batch, beams), `tokens` (batch, beams, past), caches (batch * beams, heads, past, features)."""
        batch, beams, past = tokens.shape
        logits = F.linear(hidden.float(), self.head.weight.float())
        steps = torch.log_softmax(logits, dim=-1).view(batch, beams, -1)
        total = scores[:, :, None].float() * past**self.penalty + steps
        best, place = torch.topk(total.view(batch, -1), beams, dim=-1)
        beam, token = torch.div(place, self.vocabulary, rounding_mode="floor"), place % self.vocabulary
        kept = torch.gather(tokens, 1, beam[:, :, None].expand(-1, -1, past))
        rows = (beam + torch.arange(batch, device=beam.device)[:, None] * beams).view(-1)
        extended = torch.cat((kept, token[:, :, None]), dim=-1)
        return best / (past + 1) ** self.penalty, extended, keys.index_select(0, rows), values.index_select(0, rows)


def get_inputs():
    cache = (BATCH * BEAMS, LAYER_HEADS, PAST, FEATURES)
    tokens = torch.randint(0, VOCABULARY, (BATCH, BEAMS, PAST))
    return [torch.randn(BATCH * BEAMS, WIDTH), torch.randn(BATCH, BEAMS) - 3, tokens, torch.randn(cache), torch.randn(cache)]


def get_init_inputs():
    return [WIDTH, VOCABULARY, BEAMS, 0.6]
