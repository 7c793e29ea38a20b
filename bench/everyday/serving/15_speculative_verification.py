"""Verification of five drafted tokens: how many are accepted for given uniform random numbers, and the distribution of the token that follows them.

Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192, algorithm 1. Random numbers are inputs.
"""

import torch
import torch.nn as nn

BATCH, DRAFTED, VOCABULARY = 32, 5, 32000


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, target_logits, draft_logits, drafted, uniform):
        """Logits (batch, drafted + 1, vocabulary) and (batch, drafted, vocabulary), `drafted` and `uniform` (batch, drafted) ->
        counts, probabilities."""
        target = torch.softmax(target_logits.float() / self.temperature, dim=-1)
        draft = torch.softmax(draft_logits.float() / self.temperature, dim=-1)
        chosen = drafted[:, :, None]
        wanted, offered = target[:, :-1].gather(2, chosen)[..., 0], draft.gather(2, chosen)[..., 0]
        accepted = (uniform.float() * offered <= wanted).long()
        count = torch.cumprod(accepted, dim=1).sum(dim=1)
        padded = torch.cat((draft, torch.zeros_like(draft[:, :1])), dim=1)
        place = count[:, None, None].expand(-1, 1, target.shape[-1])
        residual = (target.gather(1, place) - padded.gather(1, place))[:, 0].clamp(min=0)
        return count, residual / residual.sum(dim=-1, keepdim=True)


def get_inputs():
    target = torch.randn(BATCH, DRAFTED + 1, VOCABULARY)
    draft = target[:, :-1] + 0.5 * torch.randn(BATCH, DRAFTED, VOCABULARY)
    return [target, draft, torch.randint(0, VOCABULARY, (BATCH, DRAFTED)), torch.rand(BATCH, DRAFTED)]


def get_init_inputs():
    return [1.0]
