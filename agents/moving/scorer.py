"""The trained ranking of moves, implemented without torch as a small network whose weights are stored as numbers in a text file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.moving.features import MOVE, STATE, Floats, Seen

FORMAT = 1
HEADS = ("preference", "gain")


class NotWeights(ValueError):
    """Raised if a file contains no weights for these features. The message says what to do."""


@dataclass(frozen=True)
class Scorer:
    """Layers of (weights, bias), each followed by a hyperbolic tangent except the last. `about`: what the weights were trained on."""

    layers: tuple[tuple[Floats, Floats], ...]
    about: Mapping[str, Any]

    def score(self, seen: Seen) -> tuple[Floats, Floats]:
        """Returns two values for each move: a preference (higher is better, and only differences are meaningful) and the logarithm of its gain over
        the fastest program."""
        x = seen.rows
        for number, (weights, bias) in enumerate(self.layers):
            x = x @ weights.T + bias
            x = np.tanh(x) if number < len(self.layers) - 1 else x
        return x[:, 0], x[:, 1]


def write(path: Path, layers: Sequence[tuple[Floats, Floats]], about: Mapping[str, Any]) -> None:
    """Writes the weights with four decimals, which keeps the file small and changes no ranking that matters."""
    plain = [{"weights": np.round(weights, 4).tolist(), "bias": np.round(bias, 4).tolist()} for weights, bias in layers]
    content = {"format": FORMAT, "move": MOVE, "state": STATE, "about": dict(about), "layers": plain}
    path.write_text(json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n", encoding="utf-8")


def read(path: Path) -> Scorer:
    """Reads a file of weights. Raises `NotWeights`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["move"], content["state"]) != (FORMAT, MOVE, STATE):
            raise NotWeights(f"{path} was trained on other features: train it again (python -m agents.rl plans train)")
        layers = tuple((np.array(layer["weights"], dtype=float), np.array(layer["bias"], dtype=float)) for layer in content["layers"])
        fitting = all(w.ndim == 2 and b.shape == w.shape[:1] for w, b in layers)
        wide = [MOVE + STATE, *(len(b) for _, b in layers)]
        if not layers or not fitting or [w.shape[1] for w, _ in layers] != wide[:-1] or wide[-1] != len(HEADS):
            raise NotWeights(f"{path}: its layers have mismatched sizes")
        if not all(math.isfinite(float(np.abs(part).sum())) for layer in layers for part in layer):
            raise NotWeights(f"{path} contains numbers that are not finite")
        return Scorer(layers, content["about"])
    except NotWeights:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotWeights(f"{path} contains no weights ({type(error).__name__}): python -m agents.rl plans train writes them") from None
