"""Our own small causal transformer, trained from scratch. It needs no pretrained weights, so it serves tests and experiments.

Its text consists of either characters, which need no learning, or byte pairs learned from the kind of text that it will write (`Pairs`). Programs
from
one compiler share most of their lines, so byte pairs turn 6,000 characters into a few hundred tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from agents.rl import tensors
from agents.rl.policy import cut, merged, padded

END = 0  # the token that ends a reply and is also used for padding
LOOK = 8  # tokens between looks at whether every reply has ended; a look waits for the device
WEIGHTS, PAIRS = "tiny.npz", "pairs.json"


class Text(Protocol):
    size: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class Characters:
    """Printable ASCII and line breaks; all other characters become "?"."""

    known = "\n" + "".join(map(chr, range(32, 127)))
    size = len(known) + 1

    def __init__(self) -> None:
        self._number = {character: number for number, character in enumerate(self.known, start=1)}

    def encode(self, text: str) -> list[int]:
        return [self._number.get(character, self._number["?"]) for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.known[token - 1] for token in tokens if token != END)


class Pairs:
    """Byte pairs, learned line by line: a line that many programs share becomes one token. Every text can be encoded."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.size = int(tokenizer.get_vocab_size())

    @classmethod
    def learn(cls, texts: Iterable[str], size: int, least: int) -> Pairs:
        """Learns at most `size` tokens. A pair becomes a token only if it occurs at least `least` times."""
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

        made = Tokenizer(models.BPE())
        lines = pre_tokenizers.Split(Regex("\n"), "merged_with_previous")
        made.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        made.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(
            texts,
            trainers.BpeTrainer(vocab_size=size, min_frequency=least, special_tokens=["<end>"], initial_alphabet=letters, show_progress=False),
        )
        return cls(made)

    @classmethod
    def load(cls, path: Path) -> Pairs:
        """Raises `RuntimeError` if the package is missing, and `ValueError` if the file holds no byte pairs."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise RuntimeError("byte pairs need the package tokenizers: pip install -r requirements-rl.txt") from None
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # the package raises bare exceptions
            raise ValueError(f"{path} holds no byte pairs ({error}): `python -m agents.rl tokens` writes them") from None

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode([token for token in tokens if token != END]))


@dataclass(frozen=True)
class Size:
    width: int = 64
    layers: int = 2
    heads: int = 4
    longest: int = 8192


SMALL = Size(width=512, layers=8, heads=8, longest=2048)  # 25 million parameters, plus the vocabulary


class Block(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.before, self.between = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor, kept: tuple[Tensor, Tensor] | None = None, at: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        """Maps (sequences, length, width) to the same shape. `kept`: a layer's keys and values, among which those of `x` are written to the places
        `at` (length). `seen`: which of them may be attended to; without a cache, everything before."""
        n, length, width = x.shape
        q, k, v = (part.view(n, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, dim=-1))
        if kept is not None and at is not None:
            k, v = (held.index_copy_(2, at, new) for held, new in zip(kept, (k, v), strict=True))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(mixed)
        answer: Tensor = x + self.down(F.gelu(self.up(self.between(x))))
        return answer


@dataclass
class Cache:
    """What earlier tokens of a batch left: keys and values of each layer, (layers, 2, sequences, heads, length, width of a head), of which the first
    `at` places of the length are filled. `pads`: how many of them are padding, per sequence. `at` is a tensor and all shapes stay the same from token
    to token, so that a CUDA graph can write the next one."""

    held: Tensor
    pads: Tensor
    at: Tensor


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, size: Size):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, size.width), nn.Embedding(size.longest, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.recomputes = False

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Maps (sequences, length) to logits (sequences, length, vocabulary). With a cache, the tokens follow those that it
        holds; there are no gradients then."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        at = seen = None
        if cache is not None:
            at = places + cache.at
            keys = torch.arange(cache.held.shape[4], device=tokens.device)
            seen = (keys <= at[:, None]) & (keys >= cache.pads[:, None, None])
            seen = (seen | (keys == at[:, None]))[:, None]  # padding attends to itself, because a softmax over nothing is NaN
            places = (at - cache.pads[:, None]).clamp(min=0)
            cache.at += tokens.shape[1]
        x = self.token(tokens) + self.place(places)
        for number, block in enumerate(self.blocks):
            if self.recomputes and cache is None:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                kept = (cache.held[number, 0], cache.held[number, 1]) if cache is not None else None
                x = block(x, kept, at, seen)
        found: Tensor = self.norm(x) @ self.token.weight.T
        return found


class Writing:
    """A batch of replies as they are written, one token of each in every step. Replies that have ended go on with the end token."""

    def __init__(self, module: nn.Module, cache: Cache, prompts: Tensor, most: int, temperature: float):
        """Writes the first token of each reply. `prompts`: (sequences, length); `most`: tokens of a reply."""
        self.module, self.cache, self.temperature = module, cache, temperature
        self.over = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
        self.written = torch.full((len(prompts), most), END, device=prompts.device)
        self.count = torch.zeros(1, dtype=torch.long, device=prompts.device)
        self.last = self._drawn(prompts)

    def step(self) -> None:
        self.last.copy_(self._drawn(self.last))

    def _drawn(self, tokens: Tensor) -> Tensor:
        """Returns the token that follows in each reply, (sequences, 1), after adding it to what is written."""
        chances = F.softmax(self.module(tokens, self.cache)[:, -1].float() / self.temperature, dim=-1)
        drawn = (chances / torch.empty_like(chances).exponential_()).argmax(-1)  # a draw by these chances, without waiting for the device
        drawn = torch.where(self.over, torch.full_like(drawn, END), drawn)
        self.over |= drawn == END
        self.written.index_copy_(1, self.count, drawn[:, None])
        self.count += 1
        return drawn[:, None]

    def recorded(self) -> Callable[[], None]:
        """Makes a step, and returns further ones as a CUDA graph: a token would otherwise wait for some hundred launches, the slower the busier the
        host's processors are."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.step()  # libraries allocate their memory before the recording
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step()
        return graph.replay


class TinyPolicy:
    """A transformer built from scratch. On a CUDA device it computes in bf16, with its weights in fp32."""

    def __init__(self, size: Size | None = None, seed: int = 0, device: str = "cpu", text: Text | None = None):
        self.size, self.device, self.end = size or Size(), torch.device(device), END
        self.longest = self.size.longest
        self.text = text or Characters()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: nn.Module = Transformer(self.text.size, self.size)
            for parameter in self.module.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.05 if self.size.width < SMALL.width else 0.02)
        self.module.to(self.device)

    def encode(self, text: str) -> list[int]:
        return self.text.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.text.decode(tokens)

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        with self._narrow():
            found: Tensor = self.module(tokens)  # attention is causal, so the padding on the right is never attended to
        return found

    @torch.no_grad()
    def sample(self, prompts: Sequence[list[int]], most: int, temperature: float) -> list[list[int]]:
        given, pads = padded(prompts, END, self.device)
        narrow = self.device.type == "cuda"
        module = copy.deepcopy(self.module).bfloat16() if narrow else self.module  # autocast would convert the weights for every token
        size = self.size
        room = (size.layers, 2, len(prompts), size.heads, given.shape[1] + most, size.width // size.heads)
        kind = torch.bfloat16 if narrow else torch.float32
        cache = Cache(torch.zeros(room, dtype=kind, device=self.device), pads, torch.zeros(1, dtype=torch.long, device=self.device))
        writing = Writing(module, cache, given, most, temperature)
        step, made = writing.step, 1
        if narrow and most > LOOK:
            step, made = writing.recorded(), 2
        for number in range(made, most):
            if number % LOOK == 0 and bool(writing.over.all()):
                break
            step()
        return [cut(row, END) for row in writing.written.tolist()]

    def _narrow(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def recompute(self) -> None:
        self.module.recomputes = True  # type: ignore[assignment]  # torch declares a module's attributes as tensors or modules

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.text, Pairs):
            self.text.save(folder / PAIRS)
        tensors.write(folder / WEIGHTS, merged(self.module), {"size": asdict(self.size)})

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> TinyPolicy:
        found, about = tensors.read(folder / WEIGHTS)
        text = Pairs.load(folder / PAIRS) if (folder / PAIRS).exists() else None
        made = cls(Size(**about["size"]), device=device, text=text)
        made.module.load_state_dict(found)
        return made
