"""States how many rows each group of a grouped product gets (for example, each expert), because the best tile width depends on that."""

from __future__ import annotations

from statistics import median

from verifier.graph import Capture, GroupSizes

LISTED = 16  # maximum number of groups whose rows are listed one by one
TILES = (64, 128)  # heights of the tiles of products on tensor cores


def group_rows(capture: Capture | None) -> list[str]:
    """Returns a line for each source of groups that the capture counted."""
    return [group_line(sizes) for sizes in capture.group_sizes if sum(sizes.rows)] if capture is not None else []


def group_line(sizes: GroupSizes) -> str:
    rows = sizes.rows
    if len(rows) <= LISTED:
        said = ", ".join(map(str, rows))
    else:
        empty = f", {none} without any" if (none := rows.count(0)) else ""
        said = f"{min(rows)} to {max(rows)}, median {median(rows):g}, in {len(rows)} groups{empty}"
    tiles = "; ".join(f"tiles of {height} rows: {(count := tiles_of(rows, height))}, {sum(rows) / count / height:.0%} full" for height in TILES)
    return f"Rows a group, counted in one call with the task's inputs ({sizes.source}): {said} ({tiles}). They differ with inputs and weights."


def tiles_of(rows: list[int], height: int) -> int:
    return sum(-(-count // height) for count in rows)
