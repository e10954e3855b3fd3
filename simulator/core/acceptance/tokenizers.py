"""Which vocabularies belong to one tokenizer."""

MOST_PADDING = 128
"""Most tokens by which vocabularies of one tokenizer differ (llama.cpp,
``SPEC_VOCAB_MAX_SIZE_DIFFERENCE``); padding makes tables fit the hardware (Qwen2.5: 151,936 and
152,064)."""


def share_tokenizer(*sizes: int | None) -> bool:
    """Return whether vocabularies of these sizes, in tokens, can be of one tokenizer; an unknown
    one differs from others.
    """
    known = [size for size in sizes if size is not None]
    if not known:
        return True
    if len(known) < len(sizes):
        return False
    return max(known) - min(known) <= MOST_PADDING
