"""Tensors on disk without pickle: numpy arrays next to JSON. Reading such a file never runs code, regardless of who wrote it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

BITS = {"bfloat16": torch.int16}  # types that numpy lacks, and the integer type that stores their bits


class Damaged(ValueError):
    """Raised if a file does not contain tensors in our format."""


def write(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes the file atomically."""
    kinds: dict[str, str] = {}
    arrays: dict[str, Any] = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        kind = str(tensor.dtype).removeprefix("torch.")
        kinds[name] = kind
        held = tensor.detach().cpu().contiguous()
        arrays[f"t{number}"] = (held.view(BITS[kind]) if kind in BITS else held).numpy()
    said = json.dumps({"about": about, "tensors": kinds}).encode()
    draft = path.with_suffix(".part")
    with draft.open("wb") as file:
        np.savez(file, about=np.frombuffer(said, dtype=np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors, keyed by name and on the CPU, and the metadata that was written with them. Raises `Damaged`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            said = json.loads(file["about"].tobytes())
            found = {}
            for number, (name, kind) in enumerate(said["tensors"].items()):
                held = torch.from_numpy(file[f"t{number}"])
                found[name] = held.view(getattr(torch, kind)) if kind in BITS else held
            return found, dict(said["about"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        raise Damaged(f"{path} contains no weights of this program ({type(error).__name__})") from None
