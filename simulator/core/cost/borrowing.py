"""A profile that starts from another one borrows what it does not state, and says from whom; plain
data, quick to import.
"""

from collections.abc import Iterator
from math import inf

from simulator.core.plain import PlainData

OWN = (
    "name",
    "about",
    "maker",
    "architecture",
    "year",
    "versions",
    "fit",
    "spread",
    "spreads",
    "price_usd_per_hour",
    "cache_mb",
    "cache_bandwidth_gb_s",
)
"""Fields of a profile that are never borrowed: a spread was measured on one device and says nothing
of another, nor does what a fit left. A clock is borrowed with the constants that are cycles of it,
so that a third profile starts from both.
"""
OF_A_GENERATION = ("dot_operations", "rows")
"""Fields that no device of another generation borrows."""
WITHOUT_CONFIDENCE = ("slicing",)
"""Parts with a source that hold for both profiles: what is borrowed of them is no measurement."""
IN_PARTS = ("decode", "prefill")
"""Fields of attention in parts; a profile whose attention is one roofline has none of them."""
KERNELS = ("matmul", "attention", "latent_attention")
"""Operations whose constants may go with the chip."""
BY_CHIP = {"fixed_us": "clock_ghz", "head_us": "multiprocessors"}
"""Constants in us, and the number of a chip with whose inverse they go: what a kernel takes at
least is a number of cycles, and its blocks are shared out over the multiprocessors. Found between
seven measured cards of one maker: of decode in 16 bits a block times multiprocessors is 3.5 to 4.1
us on all but the B200, the least time of a product 5.8 to 8.6 thousand cycles on all but the RTX
4090. Prompts, of many blocks each, came out worse with it and keep what is borrowed
(docs/background/errors.md, `python -m benchmarks.derived`).
"""


def lend(base: PlainData, own: PlainData, origin: str) -> None:
    """Leave in ``base``, the profile ``origin``, what one that states ``own`` borrows, memory at
    its own ``ecc_data_share`` and constants at its own clock and multiprocessors.
    """
    ratios = _chip_ratios(base, own)
    fields: tuple[str, ...] = OWN
    if _is_other(base, own, "maker") or _is_other(base, own, "architecture"):
        fields += OF_A_GENERATION
    for field in fields:
        base.pop(field, None)
    if "peak_tflops" in own:
        # those of the other device, beside which this peak would be odd
        base.pop("peaks_tflops", None)
    ours = own.get("attention")
    theirs = base.get("attention")
    if isinstance(ours, dict) and {*IN_PARTS}.isdisjoint(ours) != {*IN_PARTS}.isdisjoint(
        theirs or ()
    ):
        base.pop("attention", None)  # the other form has no field in common
    for field, value in base.items():
        if field not in WITHOUT_CONFIDENCE:
            borrow(value, origin)
    if "ecc_data_share" in own:
        _scale(base, "memory_efficiency", _data_share(own) / _data_share(base), "ecc_data_share")
    for constant, ratio in ratios.items():
        for part in _short_kernels(base):
            _scale(part, constant, ratio, BY_CHIP[constant])


def _chip_ratios(base: PlainData, own: PlainData) -> dict[str, float]:
    """Return how many times as long each constant of ``BY_CHIP`` takes on the chip of ``own``.

    None where its kernels were measured, where they are another maker's, where those of ``base``
    are not counted in blocks (attention as one roofline), or where a number of a chip is missing.
    """
    theirs = base.get("attention")
    in_blocks = isinstance(theirs, dict) and not {*IN_PARTS}.isdisjoint(theirs)
    if not in_blocks or _is_other(base, own, "maker") or not {*KERNELS}.isdisjoint(own):
        return {}
    ratios = {}
    for constant, field in BY_CHIP.items():
        before = _stated(base, field)
        after = _stated(own, field)
        if before and after and before != after:
            ratios[constant] = before / after
    return ratios


def _is_other(base: PlainData, own: PlainData, field: str) -> bool:
    """Return whether two profiles are known to differ in a field."""
    theirs, ours = base.get(field), own.get(field)
    return bool(theirs and ours and theirs != ours)


def _short_kernels(profile: PlainData) -> Iterator[object]:
    """Yield the parts of a profile whose constants go with the chip: products, and attention of
    decoding over each cache.
    """
    products, *attentions = KERNELS
    yield profile.get(products)
    for name in attentions:
        attention = _mapping(profile.get(name))
        yield attention.get("decode")
        for parts in _mapping(attention.get("kv_cache")).values():
            yield _mapping(parts).get("decode")


def _mapping(value: object) -> PlainData:
    """Return a mapping of a profile; an empty one where it is none, which the schema refuses."""
    return value if isinstance(value, dict) else {}


def borrow(value: object, origin: str) -> None:
    """Mark every number with a source in ``value`` as borrowed from ``origin``; one borrowed before
    keeps its first home.
    """
    if isinstance(value, list):
        for inner in value:
            borrow(inner, origin)
    if not isinstance(value, dict):
        return
    # a number, or a table with one source for all of its numbers
    if "value" in value or "source" in value:
        source = str(value.get("source", "not stated"))
        before = value.get("confidence", "assumed")
        if before != "borrowed":
            value |= {
                "source": f"borrowed from {origin} ({before}): {source}",
                "confidence": "borrowed",
            }
        return
    width_source = str(value.get("width_source", ""))
    if width_source and not width_source.startswith("borrowed from"):
        value["width_source"] = f"borrowed from {origin}: {width_source}"
    for inner in value.values():
        borrow(inner, origin)


def _data_share(profile: PlainData) -> float:
    """Return the share of a profile's bandwidth that carries data; 1 where none is stated, or none
    that the schema takes.
    """
    share = _stated(profile, "ecc_data_share")
    if 0.0 < share <= 1.0:
        return share
    return 1.0


def _stated(profile: PlainData, field: str) -> float:
    """Return a number of a profile; 0 where it states none, or none that the schema takes."""
    stated = profile.get(field)
    number = stated.get("value") if isinstance(stated, dict) else stated
    if isinstance(number, int | float) and 0.0 < number < inf:
        return number
    return 0.0


def _scale(value: object, name: str, ratio: float, why: str) -> None:
    """Multiply every borrowed number of a ``name`` in ``value`` by ``ratio``, shares up to 1, and
    say ``why`` in its source.
    """
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key == name and isinstance(inner, dict) and isinstance(inner.get("value"), int | float):
            scaled = inner["value"] * ratio
            inner |= {
                "value": scaled if name in BY_CHIP else min(1.0, scaled),
                "source": f"{inner.get('source', 'not stated')}; x {ratio:.4g}: {why}",
            }
        _scale(inner, name, ratio, why)
