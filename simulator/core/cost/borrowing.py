"""A profile that starts from another one borrows what it does not state, and says from whom; plain
data, quick to import.
"""

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
    "clock_ghz",
)
"""Fields of a profile that are never borrowed: a spread was measured on one device and says nothing
of another, nor does what a fit left.
"""
WITHOUT_CONFIDENCE = ("slicing",)
"""Parts with a source that hold for both profiles: what is borrowed of them is no measurement."""
IN_PARTS = ("decode", "prefill")
"""Fields of attention in parts; a profile whose attention is one roofline has none of them."""


def lend(base: PlainData, own: PlainData, origin: str) -> None:
    """Leave in ``base``, the profile ``origin``, what one that states ``own`` borrows, memory at
    its own ``ecc_data_share``.
    """
    for field in OWN:
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
        _scale(base, _data_share(own) / _data_share(base))


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
    stated = profile.get("ecc_data_share")
    share = stated.get("value") if isinstance(stated, dict) else stated
    if isinstance(share, int | float) and 0.0 < share <= 1.0:
        return share
    return 1.0


def _scale(value: object, ratio: float) -> None:
    """Multiply borrowed memory efficiencies by how much more of the bandwidth carries data."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if (
            key == "memory_efficiency"
            and isinstance(inner, dict)
            and isinstance(inner.get("value"), int | float)
        ):
            inner |= {
                "value": min(1.0, inner["value"] * ratio),
                "source": f"{inner['source']}; x {ratio:.4g}: ecc_data_share",
            }
        _scale(inner, ratio)
