"""What ``specsim validate`` found: errors of every predicted cell, laws against simulation, and
slips of the papers.

Terminal, JSON, CSV of every cell, and a page.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import NamedTuple

from simulator.core.cost.engine import EngineErrors
from simulator.core.numeric import grouped
from simulator.core.plain import PlainData
from simulator.evidence.claims import Judged
from simulator.evidence.fits import OpenChoice, Paper, Question
from simulator.evidence.law_check import LawGap
from simulator.evidence.published import Contradiction, PaperFigure, PublishedCell
from simulator.evidence.validation import (
    NOISE_FLOOR,
    Errors,
    Prediction,
    Shortfall,
    Summary,
    Validated,
    apart,
    summaries,
)
from simulator.inputs.writing import csv_text
from simulator.report import validation_figures
from simulator.report.blocks import (
    FIRST,
    Block,
    Bullets,
    Code,
    Figure,
    Highlight,
    Hyperlink,
    Page,
    Paragraph,
    Remark,
    Standing,
    Strong,
    Table,
    sections,
)
from simulator.report.columns import Column, table
from simulator.report.law_claims import on_page
from simulator.report.pages.claims import by_paper, counts
from simulator.report.pages.methods import yes_no
from simulator.report.wording import (
    if_known,
    number,
    plural,
    share,
    shown,
    signed_share,
    whole_share,
)
from simulator.scenario.uncertain.draws import SHARE

CELLS = "cells.csv"
"""The table of every cell, a file beside the page."""
PARITY = "parity.svg"
RESIDUALS = "residuals.svg"
"""The drawings of the page."""
FAR = 0.10
"""Error, relative to the published value, beyond which a predicted cell is listed by name."""

ROLES = (
    "Roles of the published values were frozen before anything was fitted; free parameters are "
    "fitted to calibrated cells alone. Every number comes out of a run of its scenario."
)
BASELINE_RULE = (
    "Arithmetic has the same inputs: of the calibrated cells of the same method those that differ "
    "least (model and hardware first, then task and settings); printed tokens times the sibling's "
    "ratio of speed-up to tokens, else its value times the ratio that another method shows between "
    "the two settings; times the layers where it is a time. Interpolations are cells with a "
    "calibrated sibling of the same method, model and hardware that differs in the task or in one "
    "setting only; the others are predictions."
)
ENGINES_LEGEND = (
    "Calibrated, not predicted, but for groups that took no part. One constant: speed-up 1 + c "
    "(tokens a step - 1), a step c times the time in which the datasheet's bandwidth reads its "
    "weights, fitted to the same rows. The rows are not shipped; each engine's file names them."
)
LAWS_LEGEND = (
    "Step: with the acceptance and the kinds of steps that the run met, at its mean context. "
    "Token: with marginal rates, prompts left out. The worked examples of every equation are tests."
)


def as_data(
    papers: Sequence[Validated], gaps: Sequence[LawGap], missed: Sequence[Shortfall]
) -> PlainData:
    """Return laws, papers and cells as the object that ``--json`` prints.

    Gaps of laws are relative to the simulation, errors of cells are in per cent of what is
    published.
    """
    cells = _records(papers)
    unmapped = []
    for paper in papers:
        name = paper.paper.name
        for cell in paper.unmapped:
            unmapped.append({"paper": name, "cell": cell.cell, "role": cell.role})
    laws = []
    for gap in gaps:
        relative = {"step_gap": gap.step_gap, "tpot_gap": gap.tpot_gap}
        laws.append(gap._asdict() | relative)
    return {
        "laws": laws,
        "papers": [asdict(summary) for summary in summaries(papers)],
        "cells": [dict(zip(cells.head, row, strict=True)) for row in cells.rows],
        "unmapped": unmapped,
        "missed": [shortfall._asdict() for shortfall in missed],
    }


def _with_a_run(papers: Sequence[Validated]) -> Iterator[Prediction]:
    """Yield every cell that was run."""
    for paper in papers:
        yield from (*paper.predicted, *paper.checked, *paper.reported, *paper.calibrated)


def cells_csv(papers: Sequence[Validated]) -> str:
    """Return every cell that was run as CSV text."""
    cells = _records(papers)
    return csv_text(cells.head, cells.rows)


def _records(papers: Sequence[Validated]) -> Table:
    """Return the table of every cell that was run, for programs."""
    columns: list[Column[Prediction]] = [
        Column("paper", lambda cell: cell.paper),
        Column("role", lambda cell: cell.cell.role),
        Column("cell", lambda cell: cell.cell.cell),
        Column("source", lambda cell: cell.cell.source),
        Column("model", lambda cell: cell.cell.model),
        Column("task", lambda cell: cell.cell.task),
        Column("method", lambda cell: cell.cell.method),
        Column("hardware", lambda cell: cell.cell.hardware),
        Column("temperature", lambda cell: shown(cell.cell.temperature, "g")),
        Column("batch_size", lambda cell: shown(cell.cell.batch_size, "g")),
        Column("quantity", lambda cell: cell.cell.quantity),
        Column("unit", lambda cell: cell.cell.unit),
        Column("published", lambda cell: cell.cell.published),
        Column("run", lambda cell: f"{cell.run:.5g}"),
        Column("error_percent", lambda cell: f"{100 * cell.error:.5g}"),
        Column("low", lambda cell: _end(cell, 0)),
        Column("high", lambda cell: _end(cell, 1)),
        Column("baseline", lambda cell: shown(cell.baseline, ".5g")),
        Column("baseline_error_percent", _baseline_error_percent),
        Column("kind", _kind),
        Column("same_as", lambda cell: cell.cell.same_as),
        Column("note", lambda cell: cell.note),
    ]
    return table("Cells", _with_a_run(papers), columns)


def _end(prediction: Prediction, place: int) -> str:
    """Return the low (``place`` 0) or the high (1) end of a cell's interval; nothing where it has
    none.
    """
    if prediction.interval is None:
        return ""
    return f"{prediction.interval[place]:.5g}"


def _baseline_error_percent(prediction: Prediction) -> str:
    """Return the error of arithmetic on the same cell; nothing where it has no answer."""
    error = prediction.baseline_error
    if error is None:
        return ""
    return f"{100 * error:.5g}"


def _kind(prediction: Prediction) -> str:
    """Return how far a predicted cell is from what was calibrated; nothing for other roles."""
    if prediction.cell.role != "predict":
        return ""
    if prediction.interpolated:
        return "interpolation"
    return "prediction"


def page(
    papers: Sequence[Validated],
    gaps: Sequence[LawGap],
    missed: Sequence[Shortfall],
    figures: Sequence[PaperFigure],
    slips: Sequence[Contradiction],
    command: str,
    claims: Sequence[Judged] = (),
    engines: Mapping[str, EngineErrors] = MappingProxyType({}),
) -> Page:
    """Return the page: how far off predictions are, cell by cell, the laws, and what is wrong in
    the papers.

    It links to :data:`CELLS`, which is to be written beside it.
    """
    pooled = summaries(papers)[-1]
    answer = ""
    shown_highlights: Sequence[Highlight] = ()
    if pooled.errors:
        answer = headline(pooled.errors, pooled.again)
        shown_highlights = list(highlights(pooled.errors))
    opening: list[Block] = [Paragraph(laws_headline(gaps))]
    opening += _errors_and_bounds(papers, missed)
    opening += _drawings(papers)
    everywhere = sections(
        ("Engines beside arithmetic with one constant", _engines(engines)),
        (f"Predicted cells that are more than {100 * FAR:.0f} % off", _far_off(papers)),
    )
    in_files: list[tuple[str, Iterable[Block]]] = []
    for name, blocks in by_paper(claims).items():
        in_files.append((f"Claims of {name}", blocks))
    for paper in papers:
        in_files.append((paper.paper.name, _paper(paper)))
    every_cell = Paragraph(("As a table: ", Hyperlink(CELLS, CELLS), "."))
    in_files += [
        ("Laws against simulation", [Paragraph(LAWS_LEGEND), _gaps(gaps)]),
        ("Figures of the papers", _figures(figures, claims)),
        ("What is wrong in the papers", _slips(slips)),
        ("Every cell", [every_cell]),
    ]
    return Page(
        title="How far off the simulator is",
        answer=answer,
        opening=opening,
        sections=[*everywhere, *sections(*in_files, terminal=False)],
        command=command,
        highlights=shown_highlights,
        standing=_standing(gaps, missed, claims),
    )


def _standing(
    gaps: Sequence[LawGap], missed: Sequence[Shortfall], claims: Sequence[Judged]
) -> Standing:
    """Return what became of laws and of claims, and which goals are missed."""
    more = [Remark("Laws", laws_headline(gaps), FIRST)]
    if claims:
        more.append(Remark("Claims", f"{counts(claims)}.", FIRST))
    return Standing(doubts=[f"goal missed: {goal}" for goal in missed], more=more)


def _drawings(papers: Sequence[Validated]) -> Iterator[Figure]:
    parity = "Run against published, by paper"
    residuals = "Error of every predicted cell"
    yield Figure(parity, PARITY, lambda: validation_figures.parity(papers))
    yield Figure(residuals, RESIDUALS, lambda: validation_figures.residuals(papers))


def headline(pooled: Errors, again: int) -> str:
    """Return how far off predictions are on average; ``again``: cells that print the value of
    another one.
    """
    printed_twice = ""
    if again:
        printed_twice = f" ({pooled.count + again} cells, {again} of them printed twice)"
    mape = share(pooled.mape)
    median = share(pooled.median)
    within_10 = whole_share(pooled.within_10)
    return (
        f"{pooled.count} published values predicted from runs{printed_twice}: {mape} off on "
        f"average, half of them by less than {median}, {within_10} within 10 %."
    )


def highlights(pooled: Errors) -> Iterator[Highlight]:
    """Yield the statistics of all predicted values."""
    yield Highlight(share(pooled.mape), f"mean absolute error of {pooled.count} predicted values")
    yield Highlight(share(pooled.median), "median")
    yield Highlight(whole_share(pooled.within_10), "of them within 10 %")
    yield Highlight(signed_share(pooled.bias), "bias")


def laws_headline(gaps: Sequence[LawGap]) -> str:
    """Return a sentence: the median and the largest relative gap of a step, of the laws that claim
    to be exact.
    """
    exact = [gap for gap in gaps if gap.relation == "exact"]
    exact.sort(key=lambda gap: abs(gap.step_gap))
    if not exact:
        return "No law was checked."
    middle = exact[len(exact) // 2]
    worst = exact[-1]
    median = f"{abs(middle.step_gap):.1e}"
    furthest = f"{worst.scenario} ({signed_share(worst.step_gap)})"
    return (
        f"Law against simulation, {plural(len(exact), 'shipped scenario')} whose law claims to be "
        f"exact: a step by law is within {median} of the simulated one in half of them; furthest "
        f"off is {furthest}."
    )


class _FittedEngine(NamedTuple):
    name: str
    fit: EngineErrors


def _engines(engines: Mapping[str, EngineErrors]) -> Iterator[Block]:
    """Yield the errors that fits of engines left of measured runs, beside those of arithmetic
    fitted to the same rows.
    """
    if not engines:
        return
    columns: list[Column[_FittedEngine]] = [
        Column("engine", lambda engine: engine.name),
        Column("runs", lambda engine: engine.fit.rows),
        Column("free", lambda engine: engine.fit.free),
        Column("fitted", lambda engine: share(engine.fit.errors["fitted"])),
        Column("groups that took no part", _left_out),
        Column("one constant", lambda engine: share(engine.fit.errors["one constant"])),
    ]
    rows = [_FittedEngine(name, fit) for name, fit in engines.items()]
    yield table("Mean absolute errors", rows, columns)
    yield Paragraph(ENGINES_LEGEND)


def _left_out(engine: _FittedEngine) -> str:
    """Return the errors of the groups of runs that an engine was fitted without."""
    groups = []
    for group, error in engine.fit.errors.items():
        if group.startswith("without"):
            groups.append(f"{group} {share(error)}")
    return ", ".join(groups)


def _errors_and_bounds(papers: Sequence[Validated], missed: Sequence[Shortfall]) -> Iterator[Block]:
    """Yield the errors by paper, those of arithmetic beside them, and the bounds they miss."""
    yield Paragraph(ROLES)
    yield _errors(papers)
    yield Paragraph(legend())
    yield _beside_arithmetic(papers)
    yield Paragraph(f"{as_good(papers)} {BASELINE_RULE}")
    yield Paragraph("Goals:")
    goals = [f"missed: {shortfall}" for shortfall in missed]
    yield Bullets(goals or ["every bound is met"])


def _errors(papers: Sequence[Validated]) -> Table:
    """Return the table of errors, by paper and of all papers."""
    columns: list[Column[Summary]] = [
        Column("paper", lambda paper: paper.name),
        Column("cells", _cells_with_a_run),
        Column("free", lambda paper: paper.free),
        Column("MAPE", lambda paper: if_known(paper.errors, _mape)),
        Column("median", lambda paper: if_known(paper.errors, _median)),
        Column("most", lambda paper: if_known(paper.errors, _most)),
        Column("bias", lambda paper: if_known(paper.errors, _bias)),
        Column("≤ 5 %", lambda paper: if_known(paper.errors, _within_5)),
        Column("≤ 10 %", lambda paper: if_known(paper.errors, _within_10)),
        Column("baseline", lambda paper: if_known(paper.baseline, _mape)),
        Column("covered", _covered),
        Column("choices", lambda paper: paper.choices),
    ]
    return table(
        "Errors by paper",
        summaries(papers),
        columns,
        terminal_columns=(0, 1, 2, 3, 4, 8, 9, 10),
    )


def _cells_with_a_run(paper: Summary) -> str:
    return f"{_count(paper.errors)} of {paper.asked - paper.again}"


def _count(errors: Errors | None) -> int:
    if errors is None:
        return 0
    return errors.count


def _most(errors: Errors) -> str:
    return share(errors.most)


def _bias(errors: Errors) -> str:
    return signed_share(errors.bias)


def _within_5(errors: Errors) -> str:
    return whole_share(errors.within_5)


def _within_10(errors: Errors) -> str:
    return whole_share(errors.within_10)


def _covered(paper: Summary) -> str:
    if paper.errors is None:
        return ""
    return whole_share(paper.covered)


def _mape(errors: Errors) -> str:
    return share(errors.mape)


def _median(errors: Errors) -> str:
    return share(errors.median)


def legend() -> str:
    """Return what the columns of errors mean, and how far measurements of others are apart."""
    return (
        "cells: predicted ones with a run, of those there are, each measurement once; free: "
        "parameters fitted to other cells of the paper; MAPE, median and most of the absolute "
        "error, bias of the signed error; baseline: MAPE of arithmetic on the calibrated cells, "
        f"which needs no simulator; covered: published values within the {whole_share(SHARE)} "
        "interval of the run; choices: discrete ones, listed below. "
        f"{noise()} The intervals leave out links, host times that are not fitted, and acceptance."
    )


def noise() -> str:
    """Return how far apart measurements of the same methods are."""
    spans = []
    for name, ends in NOISE_FLOOR.items():
        percents = [f"{100 * end:.3g}" for end in ends]
        distinct = " to ".join(dict.fromkeys(percents))
        spans.append(f"{name}: {distinct} %")
    return f"Noise floor of the field, the same methods measured again: {'; '.join(spans)}."


def _beside_arithmetic(papers: Sequence[Validated]) -> Table:
    """Return the table of our errors beside those of arithmetic, of the same cells."""
    columns: list[Column[Summary]] = [
        Column("paper", lambda paper: paper.name),
        Column("cells", lambda paper: _count(paper.comparable)),
        Column("MAPE", lambda paper: if_known(paper.comparable, _mape)),
        Column("baseline", lambda paper: if_known(paper.baseline, _mape)),
        Column("median", lambda paper: if_known(paper.comparable, _median)),
        Column("its median", lambda paper: if_known(paper.baseline, _median)),
    ]
    return table("Beside arithmetic", apart(papers), columns)


def as_good(papers: Sequence[Validated]) -> str:
    """Return a sentence: where arithmetic is as good as the simulator, or better."""
    beaten = []
    for summary in apart(papers):
        ours = summary.comparable
        theirs = summary.baseline
        if ours and theirs and theirs.mape <= ours.mape:
            compared = f"{share(theirs.mape)} against our {share(ours.mape)}"
            beaten.append(f"{summary.name} ({compared}, {ours.count} cells)")
    if not beaten:
        return "Arithmetic is nowhere as good."
    return f"Arithmetic is as good or better for {'; '.join(beaten)}."


def _paper(paper: Validated) -> Iterator[Block]:
    """Yield the choices and the tables of a paper: predicted cells, then those of the other roles,
    then those without a run.
    """
    name = paper.paper.name
    choices = paper.paper.choices
    if choices:
        yield Paragraph(choices_legend(paper.paper))
        yield _choices(name, choices)
    if paper.predicted:
        yield _predicted(name, paper.predicted)
    roles = {
        "Must come out": paper.checked,
        "Reported, not pooled": paper.reported,
        "Fitted to": paper.calibrated,
    }
    for role, cells in roles.items():
        if cells:
            errors = Errors.of([cell.error for cell in cells])
            yield Paragraph(_summed_up(role, errors))
    for role in ("Must come out", "Reported, not pooled"):
        if roles[role]:
            yield Paragraph(f"{role}:")
            yield _unpredicted(f"{role}: cells of {name}", roles[role])
    if paper.unmapped:
        yield Paragraph(f"Without a run ({len(paper.unmapped)}):")
        rows = list(_unmapped_rows(paper))
        yield Table(("role", "cells", "why"), rows, f"Cells of {name} without a run")


def choices_legend(paper: Paper) -> str:
    """Return how many parameters are free and how many discrete choices there are, and how many of
    these were made after results were seen.
    """
    seen = sum(choice.after_seeing for choice in paper.choices)
    return (
        f"{paper.free} free parameters and {len(paper.choices)} discrete choices, {seen} of them "
        "made after results were seen:"
    )


def _choices(paper: str, choices: Sequence[OpenChoice]) -> Table:
    columns: list[Column[OpenChoice]] = [
        Column("choice", lambda choice: choice.what),
        Column("value", lambda choice: choice.value),
        Column("rests on", lambda choice: choice.rests_on),
        Column("results seen", lambda choice: yes_no(choice.after_seeing)),
    ]
    return table(f"Discrete choices of {paper}", choices, columns)


CELL: list[Column[Prediction]] = [
    Column("cell", lambda cell: cell.cell.cell),
    Column("what", lambda cell: what(cell.cell)),
    Column("published", lambda cell: f"{cell.cell.published} {cell.cell.unit}"),
    Column("run", lambda cell: number(cell.run, 3)),
]
"""The columns that every table of cells begins with."""
NOTE = Column[Prediction]("note", lambda cell: cell.note)


def _predicted(paper: str, cells: Sequence[Prediction]) -> Table:
    """Return the table of predicted cells; an error beyond ``FAR`` stands out."""
    columns: list[Column[Prediction]] = [
        *CELL,
        Column(f"{whole_share(SHARE)} interval", _interval),
        Column("error", _error),
        Column("baseline", lambda cell: signed_share(cell.baseline_error)),
        NOTE,
    ]
    return table(f"Predicted cells of {paper}", cells, columns, sortable=True)


def _interval(prediction: Prediction) -> str:
    if prediction.interval is None:
        return ""
    low, high = prediction.interval
    return f"{number(low, 3)} to {number(high, 3)}"


def _error(prediction: Prediction) -> Strong | str:
    error = signed_share(prediction.error)
    if abs(prediction.error) > FAR:
        return Strong(error)
    return error


def _unpredicted(title: str, cells: Sequence[Prediction]) -> Table:
    """Return the table of cells that are not predicted."""
    columns: list[Column[Prediction]] = [
        *CELL,
        Column("error", lambda cell: signed_share(cell.error)),
        NOTE,
    ]
    return table(title, cells, columns, sortable=True)


def _summed_up(role: str, errors: Errors) -> str:
    mape = share(errors.mape)
    most = share(errors.most)
    return f"{role}: {errors.count} cells, MAPE {mape}, most {most}."


def what(cell: PublishedCell) -> str:
    """Return method, model, task and conditions of a cell, and the quantity that was published."""
    parts = [cell.method, cell.model, cell.task]
    if cell.temperature is not None:
        parts.append(f"T {cell.temperature:g}")
    if cell.batch_size not in (None, 1):
        parts.append(f"batch {cell.batch_size}")
    parts.append(cell.qualifier)
    conditions = ", ".join(part for part in parts if part)
    return f"{conditions}: {cell.quantity.replace('_', ' ')}"


def _unmapped_rows(paper: Validated) -> Iterator[tuple[str, ...]]:
    """Yield a row for each reason why cells have no run, with their names table by table."""

    def reason(cell: PublishedCell) -> tuple[str, str]:
        why = paper.paper.note(cell) or cell.reason or "not mapped yet"
        return cell.role, why

    for (role, why), cells in grouped(paper.unmapped, reason).items():
        tables = defaultdict[str, list[str]](list)
        for cell in cells:
            printed_in, _, place = cell.cell.rpartition(":")
            tables[printed_in].append(place)
        listed = [f"{name}: {', '.join(places)}" for name, places in tables.items()]
        yield role, "; ".join(listed), why


def _far_off(papers: Sequence[Validated]) -> Iterator[Block]:
    """Yield the predicted cells with an error beyond ``FAR``, each in words."""
    far = []
    for paper in papers:
        far += [cell for cell in paper.predicted if abs(cell.error) > FAR]
    if far:
        yield Bullets([far_off(cell) for cell in far])


def far_off(prediction: Prediction) -> str:
    """Return a sentence: what the paper prints, what its run says, and why, where that is known."""
    cell = prediction.cell
    printed = f"{number(prediction.published)} {cell.unit}"
    compared = f"{number(prediction.run)} for {printed} ({signed_share(prediction.error)})"
    sentence = f"{prediction.paper} {cell.cell}: {compared}"
    if prediction.note:
        return f"{sentence}: {prediction.note}"
    return sentence


def _gaps(gaps: Sequence[LawGap]) -> Table:
    """Return the table of laws beside simulations of the shipped scenarios."""
    columns: list[Column[LawGap]] = [
        Column("scenario", lambda gap: gap.scenario),
        Column("step, simulated (ms)", lambda gap: number(gap.simulated_step_ms)),
        Column("step, law (ms)", lambda gap: number(gap.law_step_ms)),
        Column("", lambda gap: f"{100 * gap.step_gap:+.3f} %"),
        Column("token, simulated (ms)", lambda gap: number(gap.simulated_tpot_ms)),
        Column("token, law (ms)", lambda gap: number(gap.law_tpot_ms)),
        Column("", lambda gap: signed_share(gap.tpot_gap)),
        Column("the law is", _relation),
    ]
    return table("Laws against simulation", gaps, columns, sortable=True)


def _relation(gap: LawGap) -> str:
    """Return what a law claims to be, or how the simulation disagrees with that."""
    if gap.disagreement:
        return on_page(gap.shown)
    return gap.relation


def _figures(figures: Sequence[PaperFigure], claims: Sequence[Judged]) -> Iterator[Block]:
    """Yield the figures of the papers, and how their claims come out."""
    judged = {(claim.row.paper, claim.claim.claim): claim for claim in claims}

    def verdicts(figure: PaperFigure) -> str:
        places = [(figure.paper, name) for name in figure.claims.split()]
        return counts(judged[place] for place in places if place in judged)

    columns: list[Column[PaperFigure]] = [
        Column("paper", lambda figure: figure.paper),
        Column("figure", lambda figure: figure.figure),
        Column("shows", lambda figure: figure.shows),
        Column("claims", verdicts),
        Column("command", _command),
        Column("picture", _picture),
        Column("remark", lambda figure: figure.remark),
    ]
    reproduced = sum(figure.reproduced for figure in figures)
    claimed = sum(bool(figure.claims) for figure in figures)
    yield Paragraph(
        f"{len(figures)} entries; {reproduced} have a command, {claimed} have claims, the others "
        "say why not."
    )
    yield table("Figures of the papers", figures, columns, sortable=True)


def _command(figure: PaperFigure) -> Code | str:
    if figure.command:
        return Code(figure.command)
    return "not reproduced"


def _picture(figure: PaperFigure) -> Hyperlink | str:
    if figure.picture:
        return Hyperlink(figure.picture, f"../{figure.picture}")
    return ""


def _slips(slips: Sequence[Contradiction]) -> Iterator[Block]:
    """Yield what is wrong in the papers themselves."""
    heavy = [slip for slip in slips if slip.weight in ("medium", "large")]
    columns: list[Column[Contradiction]] = [
        Column("", lambda slip: slip.id),
        Column("paper", lambda slip: slip.paper),
        Column("where", lambda slip: slip.where),
        Column("finding", lambda slip: slip.finding),
        Column("treatment", lambda slip: slip.treatment),
        Column("weight", lambda slip: slip.weight),
    ]
    yield Paragraph(
        f"{len(slips)} slips, ambiguities and statements that cannot both hold; {len(heavy)} of "
        "them matter to a simulation. Findings that follow from printed values alone are "
        "recomputed from them by tests."
    )
    yield table("Slips of the papers", slips, columns, sortable=True)


def single_data(paper: str, cell: PublishedCell, question: Question, run: float) -> PlainData:
    """Return a cell with its run and the commands that give it, as ``validate --cell --json``
    prints it.
    """
    published = float(cell.published)
    commands = [question.run]
    if question.against:
        commands.append(question.against)
    return {
        "paper": paper,
        "cell": cell.cell,
        "source": cell.source,
        "role": cell.role,
        "model": cell.model,
        "task": cell.task,
        "method": cell.method,
        "batch_size": cell.batch_size,
        "quantity": cell.quantity,
        "unit": cell.unit,
        "qualifier": cell.qualifier,
        "published": published,
        "run": run,
        "error_percent": 100 * (run / published - 1),
        "commands": [command.typed for command in commands],
        "metric": cell.metric,
    }


def cells_page(cells: Sequence[PlainData], command: str) -> Page:
    """Return the page of single cells: what is published, what a run gives, and how to run it
    again.
    """
    again = []
    for cell in cells:
        commands = " against ".join(cell["commands"])
        again.append(f"{cell['cell']}: {commands}")
    opening: list[Block] = [_single(cells), Bullets(again)]
    return Page("Published values beside runs", opening=opening, command=command)


def _single(cells: Sequence[PlainData]) -> Table:
    columns: list[Column[PlainData]] = [
        Column("cell", lambda cell: cell["cell"]),
        Column("quantity", lambda cell: cell["quantity"]),
        Column("published", lambda cell: number(cell["published"])),
        Column("run", lambda cell: number(cell["run"])),
        Column("error", lambda cell: f"{cell['error_percent']:+.1f} %"),
    ]
    return table("Cells", cells, columns)
