"""Measured cards by how near they are to one, and a profile that is like the nearest."""

from collections.abc import Iterator

from simulator.report.blocks import Block, Listing, Page, Paragraph
from simulator.report.columns import Column, table
from simulator.report.wording import number, plural, whole_share
from simulator.studies.measured_cards import MeasuredCard, Nearness, Sheet

ORDER = (
    "Nearest is a card of the same architecture, then one of the same maker by years; among these, "
    "the one whose bandwidth and peak differ by the smallest factor. Bandwidth and peak: of this "
    "card relative to the measured one. Spread: one standard deviation of a layer's time where "
    "kernels are borrowed; ±6 % between cards of one chip, which these numbers do not tell."
)


def page(nearness: Nearness) -> Page:
    """Return the page of the measured cards, the nearest first."""
    columns: list[Column[MeasuredCard]] = [
        Column("card", lambda card: card.name),
        Column("architecture", lambda card: card.architecture),
        Column("year", lambda card: card.year),
        Column("in common", lambda card: in_common(nearness.sheet, card)),
        Column("bandwidth", lambda card: f"{number(card.bandwidth_ratio, 2)} ×"),
        Column("peak", lambda card: f"{number(card.peak_ratio, 2)} ×"),
        Column("spread", lambda card: f"±{whole_share(card.spread)}"),
    ]
    cards = table("Measured cards, nearest first", nearness.nearest, columns)
    opening: list[Block] = [cards, Paragraph(ORDER), *_profile(nearness)]
    return Page(
        f"Measured cards near {_called(nearness)}", answer=answer(nearness), opening=opening
    )


def _called(nearness: Nearness) -> str:
    return nearness.card or "this card"


def answer(nearness: Nearness) -> str:
    """Return in words which card it should be like, why, and which one its profile is like."""
    if not nearness.nearest:
        return f"There is no measured card beside {_called(nearness)}."
    nearest = nearness.nearest[0]
    why = (
        f"{reason(nearness.sheet, nearest)}, {number(nearest.bandwidth_ratio, 2)} times its "
        f"bandwidth, {number(nearest.peak_ratio, 2)} times its peak"
    )
    profile_of_it = ""
    if nearness.measured:
        profile_of_it = f" {_called(nearness)} has kernels of its own, which were measured."
    elif nearness.like:
        profile_of_it = f" Its profile is like {nearness.like}."
    return f"Nearest to {_called(nearness)} is {nearest.name}: {why}.{profile_of_it}"


def in_common(sheet: Sheet, card: MeasuredCard) -> str:
    """Return what a card and a measured one share, in a word."""
    if card.relation == "another maker":
        return "nothing"
    if sheet.architecture == card.architecture:
        return "architecture"
    if not sheet.maker:
        return "not known"
    return "maker"


def reason(sheet: Sheet, card: MeasuredCard) -> str:
    """Return what a card and a measured one share, and by how many years they differ."""
    if card.relation == "another maker":
        return f"of another maker, {card.maker}"
    if sheet.architecture == card.architecture:
        return f"of the same architecture, {card.architecture}"
    years = ""
    if sheet.year and card.year:
        years = f", {plural(abs(sheet.year - card.year), 'year')} apart"
    return f"of another architecture, {card.architecture}{years}"


def _profile(nearness: Nearness) -> Iterator[Block]:
    """Yield the lines of a profile that is like the nearest card."""
    if nearness.measured or not nearness.nearest:
        return
    yield Paragraph(
        "A profile of it, with dense numbers of its datasheet; its multiprocessors and its "
        "clock_ghz are worth a line each:"
    )
    yield Listing(profile(nearness), "yaml")


def profile(nearness: Nearness) -> str:
    """Return the YAML of a profile that is like the nearest card."""
    nearest = nearness.nearest[0]
    sheet = nearness.sheet
    lines = []
    if sheet.maker:
        lines.append(f"maker: {sheet.maker}")
    if sheet.architecture:
        lines.append(f"architecture: {sheet.architecture}")
    if sheet.year:
        lines.append(f"year: {sheet.year}")
    lines += [f"like: {nearest.name}", f"spread: {nearest.relation}"]
    if sheet.memory_gb is None:
        lines.append("memory_gb:  # in 1e9 bytes")
    else:
        lines.append(_stated("memory_gb", sheet.memory_gb))
    lines.append(_stated("memory_bandwidth_gb_s", sheet.memory_bandwidth_gb_s))
    lines.append(_stated("peak_tflops", sheet.peak_tflops))
    return "\n".join(lines) + "\n"


def _stated(field: str, value: float) -> str:
    return f"{field}: {{value: {value:g}, source: datasheet, confidence: datasheet}}"
