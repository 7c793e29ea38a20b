"""The policy that is trained from scratch: its tokens, and sampling with a cache."""

from __future__ import annotations

import pytest
import torch

from agents.rl.policy import padded
from agents.rl.scratch import END, Cache, Pairs, Size, TinyPolicy
from agents.rl.training import CannotTrain, Config

LINES = "x = torch.relu(x)\nreturn x\n"
SMALL = Size(width=32, layers=2, heads=2, longest=64)


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return Pairs.learn([LINES] * 30, size=300, least=20)


def test_a_line_that_texts_share_is_one_token(pairs, tmp_path):
    assert len(pairs.encode(LINES)) == 2
    other = "größe = 1\n\tif x:\n"
    assert pairs.decode([*pairs.encode(other), END]) == other and END not in pairs.encode(other)
    pairs.save(tmp_path / "pairs.json")
    again = Pairs.load(tmp_path / "pairs.json")
    assert again.size == pairs.size and again.encode(LINES) == pairs.encode(LINES)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match="no byte pairs"):
        Pairs.load(tmp_path / "bad.json")


@torch.no_grad()
def test_neither_cache_nor_padding_changes_a_probability(pairs):
    policy = TinyPolicy(SMALL, seed=3, text=pairs)
    rows = [policy.encode(LINES + "abc"), policy.encode(LINES + LINES + "abcdef")]
    tokens, pads = padded(rows, END, policy.device)
    length = tokens.shape[1]
    cache = Cache(torch.zeros(SMALL.layers, 2, 2, SMALL.heads, length, SMALL.width // SMALL.heads), pads, torch.zeros(1, dtype=torch.long))
    parts = [policy.module(tokens[:, :3], cache)] + [policy.module(tokens[:, at : at + 1], cache) for at in range(3, length)]
    found = torch.cat(parts, dim=1)
    for row, one, pad in zip(rows, found, pads.tolist(), strict=True):
        torch.testing.assert_close(one[pad:], policy.module(torch.tensor([row]))[0], rtol=1e-4, atol=1e-5)


def test_replies_of_one_batch_belong_to_their_prompts(pairs):
    """At a low temperature, a reply in a batch is the same as the reply to the prompt alone."""
    policy = TinyPolicy(SMALL, seed=3, text=pairs)
    prompts = [policy.encode(text) for text in (LINES, "x", LINES + "return")]
    assert policy.sample(prompts, 6, 1e-6) == [policy.sample([prompt], 6, 1e-6)[0] for prompt in prompts]


def test_it_is_saved_with_its_text(pairs, tmp_path):
    policy = TinyPolicy(SMALL, seed=3, text=pairs)
    policy.save(tmp_path)
    again = TinyPolicy.load(tmp_path)
    torch.manual_seed(0)
    written = policy.sample([policy.encode(LINES)] * 3, 12, 1.0)
    torch.manual_seed(0)
    assert again.sample([again.encode(LINES)] * 3, 12, 1.0) == written and all(len(one) <= 12 for one in written)


def test_the_learning_rate_rises_and_falls():
    config = Config.of(steps=10, learning_rate=1.0, warm_up=4, decay=1)
    assert [round(config.rate(step), 3) for step in (0, 1, 3, 5, 9)] == [0.25, 0.45, 0.7, 0.5, 0.1]
    assert Config.of(learning_rate=2.0).rate(99) == 2.0
    with pytest.raises(CannotTrain, match="warm_up"):
        Config.of(warm_up=-1)
