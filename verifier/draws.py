"""Finds the operators that draw random numbers. All draws of a call advance one generator, so a program must make them in the order of the source,
including those whose results are never read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DRAWING = frozenset({
    "_sample_dirichlet", "_standard_gamma", "bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
    "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm", "rrelu_with_noise",
    "rrelu_with_noise_functional", "uniform", "_fused_dropout",
})  # fmt: skip
DROPPING = frozenset({"dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"})
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
OF_RECURRENT = 5  # position of the dropout probability among the arguments of a recurrent network
OF_ATTENTION = 4


def draws(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Returns whether operator `op`, with its arguments as in a graph, draws random numbers. `op` may be an in-place variant."""
    namespace, name = (op.split(".") + [""])[:2]
    name = name.removesuffix("_")
    if namespace not in ("aten", "prims"):
        return False

    def given(at: int, word: str, default: float | bool) -> Any:
        return args[at] if len(args) > at else kwargs.get(word, default)

    if name in DROPPING:
        return given(1, "p", 0.5) != 0 and given(2, "train", True) is not False
    if name in RECURRENT:
        return given(OF_RECURRENT, "dropout", 0.0) != 0 and given(OF_RECURRENT + 1, "train", False) is not False
    if "scaled_dot_product" in name:
        return bool(given(OF_ATTENTION, "dropout_p", 0.0) != 0)
    return name in DRAWING
