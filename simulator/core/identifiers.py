"""Ids of models and paths of checkpoints, as Hugging Face and engines take them."""

import re

from simulator.core.faults import told

HUB_ID = re.compile(r"(?:[A-Za-z0-9_][\w.-]{0,95}/)?[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
"""An id on Hugging Face, as its library has them: OWNER/NAME or NAME."""
LONGEST_CHECKPOINT = 4_096
"""Characters of the path of a checkpoint, as Linux has them at most."""


def hub_id(text: str) -> str:
    """Return the id of a model on Hugging Face; raises :class:`ValueError` for what is none."""
    if not HUB_ID.fullmatch(text):
        raise ValueError(
            f"expected an id of Hugging Face, as in Qwen/Qwen3-8B, got {told(text[:100])}"
        )
    return text


def checkpoint_name(text: str) -> str:
    """Return the id of a checkpoint, or its path, which begins with ``/``, ``./``, ``../`` or
    ``~/``.

    Raises :class:`ValueError` for neither.
    """
    path = (
        text.startswith(("/", "./", "../", "~/"))
        and text.isprintable()
        and len(text) <= LONGEST_CHECKPOINT
    )
    if path:
        return text
    return hub_id(text)
