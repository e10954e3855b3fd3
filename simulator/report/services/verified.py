"""What was predicted of a service beside what was measured after the change: the answer first."""

from collections.abc import Sequence

from simulator.evidence.verified import (
    LedgerOfNumber,
    VerifiedNumber,
    VerifiedPrediction,
    VerifiedPredictions,
)
from simulator.inputs.services.prediction import Bounds
from simulator.report.blocks import (
    FIRST,
    Bullets,
    Figure,
    Highlight,
    Page,
    Paragraph,
    Remark,
    Section,
    Standing,
    Table,
)
from simulator.report.columns import Column, table
from simulator.report.services.pictures import verified_figure
from simulator.report.wording import as_sentence, number, plural, signed_share

PICTURE = "verified.svg"
LEGEND = (
    "Error: predicted over measured, less 1. Inside: the interval of the prediction in which the "
    "measured number lies. Sign: whether it went up or down as predicted; none is claimed where "
    "the 80 % interval holds what was measured before."
)


def inside_words(each: VerifiedNumber) -> str:
    """Return in which of its intervals a number lies."""
    if each.in_90 is None:
        return "-"
    if each.in_80:
        return "80 %"
    return "90 %" if each.in_90 else "no"


NUMBERS = [
    Column[VerifiedNumber]("number", lambda each: each.number.words),
    Column[VerifiedNumber]("before", lambda each: number(each.predicted.before, 3) or "-"),
    Column[VerifiedNumber]("predicted", lambda each: number(each.predicted.after, 3)),
    Column[VerifiedNumber]("80 %", lambda each: bounds_words(each.predicted.within_80)),
    Column[VerifiedNumber]("90 %", lambda each: bounds_words(each.predicted.within_90)),
    Column[VerifiedNumber]("measured", lambda each: number(each.measured, 3)),
    Column[VerifiedNumber]("error", lambda each: signed_share(each.error) or "-"),
    Column[VerifiedNumber]("inside", inside_words),
    Column[VerifiedNumber]("sign", lambda each: _right(each.sign_right)),
]
LEDGER = [
    Column[LedgerOfNumber]("number", lambda row: row.words),
    Column[LedgerOfNumber]("n", lambda row: row.pairs),
    Column[LedgerOfNumber]("mean error", lambda row: _share(row.mean_error)),
    Column[LedgerOfNumber]("bias", lambda row: signed_share(row.bias) or "-"),
    Column[LedgerOfNumber]("inside 80 %", lambda row: _of(row.inside_80, row.with_interval)),
    Column[LedgerOfNumber]("inside 90 %", lambda row: _of(row.inside_90, row.with_interval)),
    Column[LedgerOfNumber]("signs right", lambda row: _of(row.signs_right, row.signs)),
]


def page(result: VerifiedPredictions, command: str = "") -> Page:
    """Return the page of predictions that were verified: one of them, or the ledger of several."""
    if len(result.pairs) == 1:
        pair = result.pairs[0]
        return Page(
            f"{pair.prediction.tried}: predicted and measured",
            answer=headline(result),
            highlights=_highlights(result),
            opening=[_picture(result), numbers_table(pair), Paragraph(LEGEND), *_remarks(pair)],
            command=command,
            standing=_standing(result),
        )
    sections = []
    for place, pair in enumerate(result.pairs, 1):
        title = f"{place}. {pair.prediction.tried}, {pair.prediction.scenario}"
        sections.append(Section(title, [numbers_table(pair), *_remarks(pair)]))
    return Page(
        "Predicted and measured",
        answer=headline(result),
        highlights=_highlights(result),
        opening=[_picture(result), table("Ledger", result.ledger(), LEDGER), Paragraph(LEGEND)],
        sections=sections,
        command=command,
        standing=_standing(result),
    )


def _picture(result: VerifiedPredictions) -> Figure:
    title = "What was measured, relative to what was predicted"
    return Figure(title, PICTURE, lambda: verified_figure(result))


def _standing(result: VerifiedPredictions) -> Standing:
    """Return in which intervals what was measured lies, whether signs are right, and which numbers
    are farthest off.
    """
    of_all = result.ledger()[-1]
    inside = ""
    if of_all.with_interval:
        inside = f"{_of(of_all.inside_80, of_all.with_interval)} numbers inside of 80 % intervals"
        inside += f", {_of(of_all.inside_90, of_all.with_interval)} of 90 %."
    signs = f"{_of(of_all.signs_right, of_all.signs)} signs as predicted." if of_all.signs else ""
    numbers = [each for pair in result.pairs for each in pair.numbers if each.error is not None]
    numbers.sort(key=lambda each: -abs(each.error or 0.0))
    farthest = [f"{each.number.words} {signed_share(each.error)} off" for each in numbers]
    beware = []
    for pair in result.pairs:
        beware += [Remark("Beware", f"{words}.", FIRST) for words in _cautions(pair)]
    return Standing(inside, signs, farthest, beware)


def headline(result: VerifiedPredictions) -> str:
    """Return how many numbers lie within their intervals, how far off they are in the mean, and
    how many signs are right.
    """
    of_all = result.ledger()[-1]
    if not of_all.pairs:
        return "None of the predicted numbers was measured after the change."
    parts = []
    if of_all.with_interval:
        count = _of(of_all.inside_90, of_all.with_interval)
        parts.append(f"inside of 90 % intervals {count} numbers")
    if of_all.mean_error is not None:
        parts.append(f"mean error {_share(of_all.mean_error)}")
    if of_all.signs:
        parts.append(f"signs right {_of(of_all.signs_right, of_all.signs)}")
    if len(result.pairs) > 1:
        parts.insert(0, plural(len(result.pairs), "prediction"))
    return as_sentence("; ".join(parts))


def numbers_table(pair: VerifiedPrediction) -> Table:
    """Return the numbers of a pair."""
    return table(f"Numbers of {pair.prediction.tried}", pair.numbers, NUMBERS)


def bounds_words(within: Bounds | None) -> str:
    """Return between what a number lies; a dash where nobody knows."""
    if within is None:
        return "-"
    return f"{number(within.low, 3)} to {number(within.high, 3)}"


def _highlights(result: VerifiedPredictions) -> list[Highlight]:
    of_all = result.ledger()[-1]
    shown = [Highlight(_of(of_all.inside_90, of_all.with_interval), "inside 90 %")]
    shown.append(Highlight(_share(of_all.mean_error), "mean error"))
    if of_all.signs:
        shown.append(Highlight(_of(of_all.signs_right, of_all.signs), "signs right"))
    return shown


def _remarks(pair: VerifiedPrediction) -> Sequence[Bullets]:
    """Return what a reader has to know of a pair; nothing where that is nothing."""
    remarks = _cautions(pair)
    return [Bullets(remarks)] if remarks else []


def _cautions(pair: VerifiedPrediction) -> list[str]:
    """Return what a reader has to know of a pair, in sentences without a full stop."""
    remarks = list(pair.cautions)
    if pair.not_measured:
        names = ", ".join(each.words for each in pair.not_measured)
        noun = plural(len(pair.not_measured), "number")
        remarks.append(f"{noun} predicted, but in none of the files after the change: {names}")
    return remarks


def _right(right: bool | None) -> str:
    if right is None:
        return "-"
    return "right" if right else "wrong"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "-"
