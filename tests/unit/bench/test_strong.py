"""Rows for runs that queried a strong model: what counts as the model's gain, and relative to what."""

from __future__ import annotations

from bench.strong.rows import figures, line, over_compiler


def program(number: int, author: str, parent: int | None = None, gain: float | None = None, status: str = "passed") -> dict:
    ratio = {"ratio": gain, "low": gain, "high": gain} if gain else None
    return {"number": number, "author": author, "parent": parent, "status": status, "vs_eager": {"ratio": 2.0, "low": 1.9, "high": 2.1},
            "vs_parent": ratio, "vs_best": None, "best_baseline": None}  # fmt: skip


def row(*programs: dict) -> dict:
    return {"outcome": "improved", "best": 2, "calls": 2, "tokens": 1000, "programs": list(programs)}


def test_gains_are_chained_back_to_the_compilers_program():
    chained = row(program(1, "compiler"), program(2, "strong", 1, 2.0), program(3, "strong", 2, 1.5))
    assert over_compiler(chained) == 3.0
    assert "| 3.00 |" in f"| {' | '.join(line('everyday-domains-x', chained))} |"


def test_only_right_programs_of_the_model_count():
    refused = row(program(1, "compiler"), program(2, "strong", 1, 6.0, status="wrong_result"))
    assert over_compiler(refused) is None
    assert over_compiler(row(program(1, "compiler"), program(2, "a baseline of PyTorch", 1))) is None
    said = " ".join(figures({"everyday-a": refused, "everyday-b": row(program(1, "compiler"), program(2, "strong", 1, 1.3))}))
    assert "passed on 1 of the 2 tasks" in said and "or more: 1 of 2." in said
