# hack: 18
# task: tasks/token_features.py
# device: any
# verdict: not faster
# because: seen before|busy|speedup: [01]\.
# defence: design
# says: compares whole inputs with those of earlier calls: always right, but fast only if inputs recur, as the integers of a draw do
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, features))
        self.mix = nn.Linear(features, features)
        self.known = []

    def forward(self, text):
        for seen, result in self.known:
            if torch.equal(seen, text):
                return result.clone()
        out = torch.relu(self.mix(self.table[text])).sum(dim=1)
        self.known = [(text.clone(), out.clone()), *self.known][:8]
        return out
