"""Policies to train: any causal model that transformers can load, or our own small one (`agents.rl.scratch`). LoRA works with both. A policy samples
replies and returns logits. Everything else is the trainer's job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Policy(Protocol):
    module: nn.Module
    end: int
    device: torch.device
    longest: int  # context length in tokens, for prompt and reply together

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Maps shape (sequences, length) to (sequences, length, vocabulary). `lengths` is the number of tokens in each sequence; sequences are padded
        on the right."""
        ...

    def sample(self, prompts: Sequence[list[int]], most: int, temperature: float) -> list[list[int]]:
        """Returns one reply to each prompt, sampled in one batch with torch's generator, including the end token if there is one."""
        ...

    def recompute(self) -> None:
        """Turns on activation checkpointing: only the input of each layer is stored, and the rest is recomputed for the gradient."""
        ...

    def save(self, folder: Path) -> None: ...


class TransformersPolicy:
    """A causal model from a folder or a hub name, with its tokenizer and, if the model has one, its chat template."""

    def __init__(self, name: str, device: str = "cpu", dtype: torch.dtype = torch.bfloat16):
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError:
            raise RuntimeError("a transformers model needs that package: pip install -r requirements-rl.txt") from None
        self.tokenizer: Any = AutoTokenizer.from_pretrained(name)
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        self.module: Any = loaded.to(device)
        self.device, self.end = torch.device(device), int(self.tokenizer.eos_token_id)
        self.longest = int(getattr(self.module.config, "max_position_embeddings", None) or 1 << 30)

    def encode(self, text: str) -> list[int]:
        if self.tokenizer.chat_template:
            asked = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        return list(self.tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        seen = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        found: Tensor = self.module(input_ids=tokens, attention_mask=seen.long()).logits
        return found

    @torch.no_grad()
    def sample(self, prompts: Sequence[list[int]], most: int, temperature: float) -> list[list[int]]:
        tokens, pads = padded(prompts, self.end, self.device)
        seen = torch.arange(tokens.shape[1], device=self.device) >= pads[:, None]
        training = self.module.training
        self.module.eval()
        found = self.module.generate(
            input_ids=tokens, attention_mask=seen.long(), max_new_tokens=most, do_sample=True, temperature=temperature, top_p=1.0,
            top_k=0, eos_token_id=self.end, pad_token_id=self.end,
        )  # fmt: skip
        self.module.train(training)
        return [cut(row, self.end) for row in found[:, tokens.shape[1] :].tolist()]

    def recompute(self) -> None:
        self.module.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        self.module.train()  # layers check this flag only in training mode
        for layer in self.module.modules():  # keep dropout off in training mode
            for name in ("p", "attention_dropout"):
                if isinstance(getattr(layer, name, None), float):
                    setattr(layer, name, 0.0)

    def save(self, folder: Path) -> None:
        """Saves the full weights with the adapters merged, in the format that `transformers serve`, vLLM and the llama.cpp converters load."""
        self.module.save_pretrained(folder, state_dict=merged(self.module))
        self.tokenizer.save_pretrained(folder)


def padded(prompts: Sequence[list[int]], end: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the prompts as one tensor (sequences, length), padded on the left so that all replies begin at the same place, and the length of each
    sequence's padding."""
    longest = max(map(len, prompts))
    pads = [longest - len(prompt) for prompt in prompts]
    rows = [[*[end] * pad, *prompt] for pad, prompt in zip(pads, prompts, strict=True)]
    return torch.tensor(rows, device=device), torch.tensor(pads, device=device)


def cut(tokens: list[int], end: int) -> list[int]:
    """Returns the tokens up to and including the end token."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


class Adapted(nn.Module):
    """A frozen linear layer plus a trained low-rank update (LoRA, arXiv 2106.09685)."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base, self.scale, self.on = base, alpha / rank, True
        self.a = nn.Parameter(torch.empty(rank, base.in_features, device=base.weight.device))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x)
        return found + (self.scale * (x.to(self.a.dtype) @ self.a.T @ self.b.T)).to(found.dtype) if self.on else found

    def whole(self) -> Tensor:
        return self.base.weight + (self.scale * (self.b @ self.a)).to(self.base.weight.dtype)


def adapt(module: nn.Module, rank: int, alpha: float, seed: int = 0) -> None:
    """Applies LoRA to all linear layers except the output layer and freezes everything else. The same seed gives the same initial adapters."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and not name.endswith("lm_head")]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, layer in layers:
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, Adapted(layer, rank, alpha))


@contextmanager
def unadapted(module: nn.Module) -> Iterator[None]:
    """Restores the policy from before training for the duration of the block. It serves as the reference for a KL term."""
    layers = [layer for layer in module.modules() if isinstance(layer, Adapted)]
    for layer in layers:
        layer.on = False
    try:
        yield
    finally:
        for layer in layers:
            layer.on = True


def merged(module: nn.Module) -> dict[str, Tensor]:
    """Returns the state dict with the adapters merged into their layers, under the names that a model without adapters uses."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, Adapted)}
    found = {name: value.detach().cpu() for name, value in module.state_dict().items() if not any(name.startswith(f"{one}.") for one in layers)}
    for name, layer in layers.items():
        found[f"{name}.weight"] = layer.whole().detach().cpu()
        if layer.base.bias is not None:
            found[f"{name}.bias"] = layer.base.bias.detach().cpu()
    return found
