"""What a run can be asked for, for a command line that has nothing of the product.

Made by `python -m agents.choices`; a test keeps it current. Change agents/choices/ instead.
"""

from typing import Literal, get_args

Search = Literal["stitch", "forge", "pilot", "branch", "beam", "worldmodel", "descend", "random"]
Workflow = Literal["stitch", "forge", "pilot", "branch", "beam", "worldmodel", "descend", "random", "verify"]
SEARCHES: tuple[str, ...] = get_args(Search)
WORKFLOWS: tuple[str, ...] = get_args(Workflow)
DEFAULT: Search = "stitch"
# those that go several ways at once
PARALLEL = ("pilot", "branch", "beam")

USUAL: dict[str, float | None] = {  # limits of a budget where nobody chooses; null is no limit
    "candidates": 8,
    "calls": None,
    "tokens": None,
    "dollars": None,
    "verifier_seconds": 600,
    "seconds": 1800,
}
