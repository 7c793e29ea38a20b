"""A transformers model that is created for the test."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tiny_model(template: str | None = None):
    """Creates a Llama model with a few thousand weights whose tokens are single characters."""
    vocabulary = {token: n for n, token in enumerate(["<end>", "?", "\n", *map(chr, range(32, 127))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="?")
    fast.chat_template = template
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=8192,
        eos_token_id=0, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config), fast
