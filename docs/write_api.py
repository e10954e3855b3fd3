#!/usr/bin/env python3
"""The page of the Python face, docs/reference/api.md: every public name with its signature and its
docstring.

``python3 dev.py reference`` writes it beside the other pages of the reference book.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import simulator

PAGE = Path(__file__).parent / "reference/api.md"
MADE = "*Made by `python3 dev.py reference`; changes go into the docstrings of `simulator/api`.*"
OPENING = """\
`import simulator` gives these functions; they do what the commands do. Nothing is loaded before it
is used. Every function returns a [`Result`](#result), which a notebook shows as a table with a
picture, and which can be tabulated and saved.

```python
import simulator

result = simulator.run("durations_only", {"strategy.gamma": 5, "requests.count": 20})
print(f"{result.speedup:.2f} times as fast as autoregressive decoding")
result.to_frame()  # law, replay and simulation as a pandas table
result.save("mine.html")  # or .md, .csv, .json, or the folder that `specsim run --out` writes

simulator.sweep("durations_only", {"durations.draft_ms": [6, 12, 24]}, evaluate="law").to_frame()
simulator.study("trees", "specpipe_llama_3_1_70b_8x3090").picture()
```"""
PARTS = """\
What a strategy of your own is made of comes from `simulator`, too: {names}.
[A strategy of your own](../how-to/own_strategy.md) says what each part is for,
[notebook 6](../../notebooks/6_your_own_strategy.py) builds one, and
[CONTRIBUTING](../../CONTRIBUTING.md) says how another package registers it."""


def page() -> str:
    """Return the page as Markdown."""
    functions = [name for name in simulator.__all__ if inspect.isfunction(getattr(simulator, name))]
    classes = [name for name in simulator.__all__ if inspect.isclass(getattr(simulator, name))]
    blocks = ["# Python", MADE, OPENING, "## Functions"]
    for name in functions:
        blocks += entry(name, getattr(simulator, name), 3)
    blocks.append("## What they return")
    for name in classes:
        blocks += class_entries(name, getattr(simulator, name))
    parts = ", ".join(f"`{name}`" for name in sorted(set(simulator._HOME) - set(simulator.__all__)))
    return (
        "\n\n".join([*blocks, "## What strategies are made of", PARTS.format(names=parts)]) + "\n"
    )


def class_entries(name: str, kind: type) -> Iterator[str]:
    """Yield the blocks of a class and of its own public methods and properties."""
    yield f"### {name}"
    yield marked(inspect.getdoc(kind) or "")
    if not kind.__module__.startswith("simulator.api."):
        return
    for member, value in vars(kind).items():
        if not member.startswith("_") and (inspect.isfunction(value) or hasattr(value, "func")):
            yield from entry(member, getattr(value, "func", value), 4, f"{name}.")


def entry(name: str, function: object, level: int, owner: str = "") -> list[str]:
    """Return the blocks of a function: its name, how it is called, what it does."""
    assert callable(function)  # noqa: S101
    signature = str(inspect.signature(function))
    # what annotations look like, and where pandas 2 says that its classes live
    for unread, read in (
        ("'", ""),
        ("(self, ", "("),
        ("(self)", "()"),
        ("pandas.core.frame.", "pandas."),
    ):
        signature = signature.replace(unread, read)
    return [
        f"{'#' * level} {owner}{name}",
        f"    {owner}{name}{signature}",
        marked(inspect.getdoc(function) or ""),
    ]


def marked(text: str) -> str:
    """Return a docstring as Markdown."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
