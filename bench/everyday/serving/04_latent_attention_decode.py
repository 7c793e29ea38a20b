"""One token over a cache of latents: the expansion of keys and values is absorbed into queries and outputs, so all heads read one narrow cache.

Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.2 (the absorbed form).
"""

import torch
import torch.nn as nn

BATCH, PAST, WIDTH, HEADS, LATENT, PLAIN, TURNED, VALUE = 32, 2048, 2048, 16, 512, 128, 64, 128


class Model(nn.Module):
    def __init__(self, width, heads, latent, plain, turned, value):
        super().__init__()
        self.heads, self.latent, self.plain, self.turned = heads, latent, plain, turned
        self.q_proj = nn.Linear(width, heads * (plain + turned), bias=False)
        self.up_key = nn.Parameter(torch.randn(heads, plain, latent) * latent**-0.5)
        self.up_value = nn.Parameter(torch.randn(heads, value, latent) * latent**-0.5)
        self.o_proj = nn.Linear(heads * value, width, bias=False)

    def forward(self, hidden, latents, rotated_keys):
        """`hidden` (batch, width), `latents` (batch, past, latent), `rotated_keys` (batch, past, turned) -> (batch, width)."""
        batch = hidden.shape[0]
        q_plain, q_turned = self.q_proj(hidden).view(batch, self.heads, -1).split([self.plain, self.turned], dim=-1)
        q_latent = torch.einsum("bhp,hpl->bhl", q_plain, self.up_key)
        scores = torch.einsum("bhl,btl->bht", q_latent, latents) + torch.einsum("bhr,btr->bht", q_turned, rotated_keys)
        weights = torch.softmax(scores.float() * (self.plain + self.turned) ** -0.5, dim=-1).to(hidden.dtype)
        context = torch.einsum("bht,btl->bhl", weights, latents)
        out = torch.einsum("bhl,hvl->bhv", context, self.up_value)
        return self.o_proj(out.reshape(batch, -1))


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randn(BATCH, PAST, LATENT), torch.randn(BATCH, PAST, TURNED)]


def get_init_inputs():
    return [WIDTH, HEADS, LATENT, PLAIN, TURNED, VALUE]
