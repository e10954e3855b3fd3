"""Models of one tokenizer may have tables of different sizes, padded for the hardware (Qwen2.5: 151,936, 152,064)."""

MOST_PADDING = 128
"""Most tokens by which vocabularies of one tokenizer differ (llama.cpp, ``SPEC_VOCAB_MAX_SIZE_DIFFERENCE``)."""


def share_tokenizer(*sizes: int | None) -> bool:
    """Return whether vocabularies of these sizes, in tokens, can be of one tokenizer; an unknown one differs from others."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return not known
    return not known or max(known) - min(known) <= MOST_PADDING
