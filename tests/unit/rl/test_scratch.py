"""The policy that is trained from scratch: its text, and sampling with a cache."""

from __future__ import annotations

import pytest
import torch

from agents.rl.scratch import END, Pairs, Size, TinyPolicy
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


def test_the_cache_changes_no_probability(pairs):
    policy = TinyPolicy(SMALL, seed=3, text=pairs)
    tokens = torch.tensor([policy.encode(LINES + LINES + "abc")] * 2)
    whole = policy.module(tokens)
    head = 3
    room = (2, SMALL.heads, tokens.shape[1], SMALL.width // SMALL.heads)
    cache = [(torch.empty(room), torch.empty(room)) for _ in range(SMALL.layers)]
    parts = [policy.module(tokens[:, :head], cache, 0)]
    parts += [policy.module(tokens[:, at : at + 1], cache, at) for at in range(head, tokens.shape[1])]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_it_is_saved_with_its_text(pairs, tmp_path):
    policy = TinyPolicy(SMALL, seed=3, text=pairs)
    policy.save(tmp_path)
    again = TinyPolicy.load(tmp_path)
    torch.manual_seed(0)
    written = policy.sample(policy.encode(LINES), 3, 12, 1.0)
    torch.manual_seed(0)
    assert again.sample(again.encode(LINES), 3, 12, 1.0) == written and all(len(one) <= 12 for one in written)


def test_the_learning_rate_rises_and_falls():
    config = Config.of(steps=10, learning_rate=1.0, warm_up=4, decay=1)
    assert [round(config.rate(step), 3) for step in (0, 1, 3, 5, 9)] == [0.25, 0.45, 0.7, 0.5, 0.1]
    assert Config.of(learning_rate=2.0).rate(99) == 2.0
    with pytest.raises(CannotTrain, match="warm_up"):
        Config.of(warm_up=-1)
