"""Methods that draft beside the target, side by side: which of them pays in which batch."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure as Drawing

from simulator.core.numeric import grouped
from simulator.report.blocks import Bullets, Figure, Page, Section, Table
from simulator.report.columns import Column, table
from simulator.report.drawing import canvas
from simulator.report.panels import dress, look
from simulator.report.wording import number, shown
from simulator.studies.parallel_methods import ParallelComparison, ParallelPoint

HEIGHT_IN = 3.2
LEGEND = (
    "By law, each method and serial speculation with the best window of each batch, up to 8 draft "
    "tokens or that of its file",
    "Speed-up: over plain decoding of the same batch on the target's devices alone; helps, may "
    "hurt or hurts follows from the chance that it is above 1",
    "Over plain, over serial: the same requests on as many devices, in copies of the target that "
    "decode plainly, or draft and verify in turn with both models; pays: over the better of both, "
    "as uncertain as the speed-up",
    "Reading prompts is left out: more copies of the target share that, too, which counts for "
    "plain decoding and for serial speculation where outputs are short",
    "A method pays for its devices where both are above 1; where there are fewer requests than "
    "devices, copies of the target have one each",
)


def page(result: ParallelComparison) -> Page:
    """Return the page: which method is best in which batch, a picture, and a table for each."""
    by_batch = grouped(result.points, lambda point: point.batch)
    title = f"{result.scenario}: {result.conditions}"
    drawing = "Speed over serial speculation on as many devices"
    sections = [
        Section(f"{batch} at a time", [_methods(points)]) for batch, points in by_batch.items()
    ]
    notes = [*LEGEND, *_notes(result)]
    return Page(
        f"When drafting beside the target pays: {title}",
        answer=headline(result),
        opening=[
            Figure(drawing, "parallel.svg", lambda: figure(result.points)),
            Bullets(list(sentences(result))),
        ],
        sections=[*sections, Section("How to read it", [Bullets(notes)])],
    )


def headline(result: ParallelComparison) -> str:
    """Return what brings a token soonest in the smallest and in the largest batch, and what its
    devices bring otherwise.
    """
    by_batch = grouped(result.points, lambda point: point.batch)
    if not by_batch:
        return "No method runs here."
    clauses = []
    for batch in dict.fromkeys((min(by_batch), max(by_batch))):
        best = min(by_batch[batch], key=lambda point: point.tpot_ms)
        clause = f"at batch {batch} {best.method} is the quickest, {best.speedup:.2f} times plain "
        clause += "decoding"
        if best.over_serial is not None:
            clause += f" and {best.over_serial:.2f} times serial speculation on as many devices"
        clauses.append(clause)
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def sentences(result: ParallelComparison) -> Iterator[str]:
    """Yield for each method in which batches it is worth its devices."""
    batches = sorted({point.batch for point in result.points})
    for method in dict.fromkeys(point.method for point in result.points):
        of_method = [point for point in result.points if point.method == method]
        if any(point.over_serial is None for point in of_method):
            continue
        paying = result.worth_it(method)
        asked = [point.batch for point in of_method]
        if not paying:
            yield f"{method}: its devices bring more otherwise in every batch"
        elif paying == asked == batches:
            yield f"{method}: worth its devices in every batch"
        else:
            yield f"{method}: worth its devices at batch {', '.join(map(str, paying))}"


def _notes(result: ParallelComparison) -> Iterator[str]:
    for method in result.never_off_exit:
        yield (
            f"{method}: acceptance states no overlap with its early exit, so that no window is "
            "lost here; set acceptance.overlap"
        )
    for excluded in result.excluded:
        yield f"{excluded.method} is left out, at least in part: {excluded.reason}"


def _methods(points: Sequence[ParallelPoint]) -> Table:
    columns: list[Column[ParallelPoint]] = [
        Column("method", lambda point: point.method),
        Column("window", lambda point: point.window),
        Column("devices", lambda point: f"{point.devices:g}"),
        Column("ms per token", lambda point: number(point.tpot_ms, 3)),
        Column("speed-up", lambda point: f"{point.speedup:.2f}"),
        Column("verdict", lambda point: point.verdict),
        Column("tokens/s a device", lambda point: number(point.tokens_per_s_per_device, 3)),
        Column("over plain", lambda point: f"{point.over_plain:.2f}"),
        Column("over serial", lambda point: shown(point.over_serial, ".2f")),
        Column("pays", lambda point: point.verdict_on_devices),
    ]
    return table("Methods, the quickest first", points, columns, sortable=True)


def figure(points: Sequence[ParallelPoint]) -> Drawing:
    """Return the speed of each method over serial speculation on as many devices, by batch."""
    with canvas(HEIGHT_IN) as drawing:
        axes = drawing.subplots()
        methods = list(dict.fromkeys(point.method for point in points))
        for place, method in enumerate(methods):
            own = sorted(
                (point.batch, point.over_serial) for point in points if point.method == method
            )
            batches, speeds = zip(*own, strict=True)
            colour, mark, line = look(place)
            axes.plot(batches, speeds, line, marker=mark, ms=4, color=colour, label=method)
        dress(
            axes,
            "requests that decode together at one target",
            "over serial speculation, as many devices",
            log_x=2,
            levels=(1.0,),
            legend_columns=3,
        )
        return drawing
