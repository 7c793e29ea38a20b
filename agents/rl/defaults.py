"""The trainer's settings and their defaults for the command line, kept in a separate module so that --help does not have to load PyTorch."""

from __future__ import annotations

CONFIG: dict[str, tuple[int | float, str]] = {
    "steps": (100, "in all, earlier ones included"),
    "prompts": (4, "per step; supervised: pairs per step"),
    "group": (8, "replies to each prompt"),
    "most_tokens": (1024, "of a reply"),
    "turns": (1, "per episode, as set on the server"),
    "discount": (0.4, "of a later turn's reward"),
    "learning_rate": (1e-5, "of AdamW"),
    "warm_up": (0, "steps over which the learning rate rises to its value"),
    "decay": (0, "1: it then falls linearly to zero at the last step"),
    "clip_low": (0.2, "how far a ratio may fall"),
    "clip_high": (0.28, "how far a ratio may rise"),
    "kl": (0.0, "weight of the distance from the previous policy"),
    "passes": (1, "over a step's samples"),
    "batch": (8, "sequences of a forward pass"),
    "temperature": (1.0, "of sampling"),
    "most_norm": (1.0, "of the gradient"),
    "rank": (16, "of LoRA; 0 trains everything"),
    "alpha": (32.0, "of LoRA"),
    "seed": (0, "of all randomness"),
    "save_every": (10, "steps between checkpoints"),
    "recompute": (0, "1: activations are computed again for the gradient: far less memory, a third more arithmetic"),
    "at_once": (16, "episodes in flight"),
    "apart": (0, "1: all replies of a turn are written before the first is judged, for a device that policy and judge share"),
}
