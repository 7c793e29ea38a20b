import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the cross entropy of each row against its class, without averaging, and whether the class had the highest score."""

    def forward(self, logits, classes):
        loss = torch.logsumexp(logits, dim=-1) - logits.gather(1, classes.unsqueeze(1)).squeeze(1)
        return loss, logits.argmax(dim=-1) == classes


def get_inputs():
    return [torch.randn(512, 1000), torch.randint(0, 1000, (512,))]


def get_init_inputs():
    return []
