"""The product's prompts for a small task, as the stand-in receives them."""

from __future__ import annotations

from agents.llm.messages import Message, Reply
from agents.roles.digest import catalogue_text, program_text, step_text
from agents.roles.prompts import fenced, prompt
from agents.strategies import CATALOGUE

TASK = '''"""Two rows of work: a normalisation, a product, an activation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        x = torch.softmax(x * 0.5, dim=-1)
        return torch.relu(self.linear(x) + 1.0)


def get_inputs():
    return [torch.rand(64, 96)]


def get_init_inputs():
    return [96]
'''
STEP = {"id": "s1", "title": "Own kernels for g1", "operators": ["g1: softmax"], "space": "own kernel", "strategies": ["fuse-row-reduction"]}
NEXT = {"id": "s2", "title": "Own kernels for g3", "operators": ["g3: add, ReLU"], "space": "own kernel", "strategies": ["fuse-pointwise"]}


def messages(purpose: str, **values: str) -> list[Message]:
    """Returns the prompt's messages; variables that are not given are empty."""
    asked = prompt(purpose)
    known = {
        "task": "Name: small\nTarget language: cpp\nDevice: cpu\nMode: train",
        "device": "- CPU, 2 threads",
        "reference": fenced(TASK, "python"),
        "strategies": catalogue_text(CATALOGUE),
        "routes": "repair, optimise, next-step, re-plan, stop",
        "count": "4",
    }
    return asked.messages(dict.fromkeys(asked.variables, "") | {name: value for name, value in (known | values).items() if name in asked.variables})


def turns(purpose: str, **values: str) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages(purpose, **values)]


def again(said: list[tuple[str, str]], reply: str, problem: str) -> list[tuple[str, str]]:
    """Returns the conversation after a reply that could not be used."""
    mended = prompt("any/reply").messages({"asked": "coder/first", "problem": problem, "form": "", "left": ""})
    return [*said, ("assistant", reply), *((message.role, message.content) for message in mended)]


def reply(text: str) -> Reply:
    return Reply(text=text)


__all__ = ["NEXT", "STEP", "TASK", "again", "messages", "program_text", "reply", "step_text", "turns"]
