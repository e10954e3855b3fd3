"""Windows walked one by one, in plain Python: what a vectorised replay is held against."""

from __future__ import annotations

from collections.abc import Sequence


def walk(run: Sequence[int], gamma: int, bonus: bool = True) -> list[int]:
    """Accepted draft tokens of each window of ``gamma`` over a request whose run lengths are
    ``run``.
    """
    kept, position = [], 0
    while position < len(run):
        accepted = min(run[position], gamma)
        kept.append(accepted)
        position += accepted + (1 if bonus or accepted < gamma else 0)
    return kept
