"""The commands ``specsim calibrate``: profiles from measured times of operations, engines from
measured runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from simulator.cli import options
from simulator.cli.catalogue import class_of
from simulator.cli.options import (
    Names,
    Paths,
    answer,
    beside_the_package,
    faults_as_lines,
    page_in,
    working,
)
from simulator.core.faults import BadInput
from simulator.core.parallel import counted
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import Document
from simulator.inputs.shell import command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.evidence.calibrate.profile import FittedProfile
    from simulator.evidence.live.cases import ObservedCase
    from simulator.scenario.live.service import LoadForm


measured_times = click.argument("tables", type=options.FILE, nargs=-1, required=True)
like_profile = click.option(
    "--like",
    metavar="NAME",
    required=True,
    help="Profile whose other numbers hold, with the datasheet's rates.",
)
profile_out = options.output("--out", type=options.NEW_FILE, help="Profile (.yaml) to write.")
report_folder = options.output(
    "--report", type=options.FOLDER, help="Folder for a page and its figure."
)


@click.group()
def calibrate() -> None:
    """Fit profiles to measured times of operations, and engines to measured runs.

    One CSV holds a time in each row: operation, part, model, tensor_parallel, shape, tokens,
    size_bytes, flops, ranks, layers, time_us, source, and more. operation, size_bytes and time_us
    must be there; so must tokens for all but collectives and transfers, flops for products,
    attention and experts, and ranks for collectives. `import` makes it from files of other
    projects.
    """


@calibrate.command("import")
@click.argument("files", type=options.FILE, nargs=-1, required=True)
@click.option(
    "--from",
    "form",
    type=click.Choice(["vidur", "llmservingsim", "frontier", "aiconfigurator"]),
    required=True,
    help="Whose files.",
)
@click.option(
    "--model", help="Model whose shapes were measured, where the file does not hold them."
)
@click.option(
    "--source",
    required=True,
    help="Where the rows come from: repository@commit, licence; the file's path is added.",
)
@options.output(
    "--out", type=options.NEW_FILE, required=True, help="CSV file to write (.csv, .csv.gz)."
)
@click.option(
    "--device", "card", metavar="NAME", help="Set aside rows that beat its peak or its memory."
)
@click.option(
    "--cache-mb",
    type=float,
    help="Mark rows that a cache holds [default: that of --device; 80 for aiconfigurator, "
    "frontier].",
)
@options.as_json
@options.own
def import_(
    files: Paths,
    form: str,
    model: str | None,
    source: str,
    out: Path,
    card: str | None,
    cache_mb: float | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Convert measurements of microsoft/vidur, casys-kaist/LLMServingSim, NetX-lab/Frontier or
    ai-dynamo/aiconfigurator; say what is skipped.
    """
    import pandas as pd

    from simulator.evidence.calibrate.importers import CACHE_MB, checked, imported
    from simulator.evidence.calibrate.measurements import write

    skipped: Counter[str] = Counter()
    with working("reading") as status:
        shapes = None
        if model is not None:
            _, shapes = _entry("model", model, own)
        chip = None
        if card is not None:
            _, chip = _entry("device", card, own)
        tables: list[Any] = []
        for file in counted(files, "files"):
            status.update(f"reading {file.name}")
            path = str(file)
            if file.is_absolute():
                path = "/".join(file.parts[-2:])
            rows_of_file = imported(form, file, shapes, skipped)
            tables.append(rows_of_file.assign(source=f"{source} {path}"))
        if cache_mb is None:
            cache_mb = CACHE_MB.get(form, 0.0)
            if chip and chip.cache_mb:
                cache_mb = chip.cache_mb.value
        every_row = pd.concat(tables, ignore_index=True)
        rows = checked(every_row, chip, cache_mb, skipped)
        write(rows, out)
    _answer_import(rows, skipped, out, card, as_json)


def _answer_import(
    rows: Any, skipped: Counter[str], out: Path, card: str | None, as_json: bool
) -> None:
    """Say how many rows were written, which of them are marked, and what was skipped."""
    from simulator.evidence.calibrate.measurements import CACHED, REASONS

    counts = {str(name): len(part) for name, part in rows.groupby("operation")}
    reasons = {reason: count for reason, count in skipped.most_common() if count}
    left_out = {why: int((rows.left_out == why).sum()) for why in REASONS}
    data = {
        "written": str(out),
        "rows": counts,
        "cached": left_out[CACHED],
        "left_out": {why: count for why, count in left_out.items() if count},
        "skipped": reasons,
        "checked": card,
    }
    against = card or "no device (--device)"
    marked = []
    for why, count in left_out.items():
        if count or why == CACHED:
            marked.append(f"{count:,} marked ({REASONS[why]})")
    lines = [f"{out}: {counts}, {', '.join(marked)}, rates checked against {against}"]
    for reason, count in reasons.items():
        lines.append(f"skipped, {reason}: {count:,}")
    answer(as_json, lambda: data, None, *lines)


@calibrate.command("device")
@measured_times
@like_profile
@profile_out
@report_folder
@options.own
@options.as_json
@options.long
@click.option("--table", is_flag=True, help="A table of ratios by token count beside the formula.")
@click.option(
    "--at",
    type=options.SIZES,
    help="Token counts of that table [default: 11, on both sides of each step].",
)
@click.option(
    "--tiles",
    type=options.SIZES,
    help="Kernel tiles [default: the best of six sets; 64 with a table].",
)
@click.option(
    "--ratios",
    type=click.IntRange(2, 10_000),
    metavar="TOKENS",
    help="Fit the table's ratios to TOKENS, no more.",
)
@click.option("--quick", is_flag=True, help="Skip fits that leave a model, degree or shape out.")
def device(
    tables: Paths,
    like: str,
    out: Path | None,
    report: Path | None,
    as_json: bool,
    own: Paths,
    table: bool,
    at: list[int] | None,
    tiles: list[int] | None,
    ratios: int | None,
    quick: bool,
) -> None:
    """Fit products, attention and small operations of a device; print the errors, also of what was
    left out.
    """
    from simulator.evidence.calibrate import profile
    from simulator.evidence.calibrate.fit import TABLE, Form
    from simulator.evidence.calibrate.measurements import read

    with working("reading"):
        document, card = _entry("device", like, own)
        rows = read(tables)
        name = _name(like)
        form = Form(tuple(tiles)) if tiles else None
        if table or at:
            form = Form(tuple(tiles or TABLE.tiles), tuple(at or TABLE.at))
            name += "_table"
        if ratios:
            name += "_ratios"
        fitted = profile.device(rows, document, card, form, not quick, ratios)
        options = []
        if table:
            options.append("--table")
        if at:
            options += ["--at", _listed(at)]
        if tiles:
            options += ["--tiles", _listed(tiles)]
        if ratios:
            options += ["--ratios", str(ratios)]
        command = _command("device", tables, like, options)
        written = _write_results(name, fitted, out, report, command)
    _print_fit(name, fitted, command, written, as_json)


@calibrate.command("link")
@measured_times
@like_profile
@profile_out
@report_folder
@options.own
@options.as_json
@options.long
def link(
    tables: Paths, like: str, out: Path | None, report: Path | None, as_json: bool, own: Paths
) -> None:
    """Fit all-reduce and transfer of a link, in every form that a profile can have."""
    from simulator.evidence.calibrate import profile
    from simulator.evidence.calibrate.measurements import read

    name = _name(like)
    with faults_as_lines():
        rows = read(tables)
        document, wire = _entry("link", like, own)
        fitted = profile.link(rows, document, wire)
        command = _command("link", tables, like, [])
        written = _write_results(name, fitted, out, report, command)
    _print_fit(name, fitted, command, written, as_json)


@calibrate.command("passes")
@measured_times
@like_profile
@profile_out
@options.own
@options.as_json
def passes(tables: Paths, like: str, out: Path | None, as_json: bool, own: Paths) -> None:
    """Fit a device to whole passes as llama-bench prints them: a constant per layer, efficiency,
    widths by weight format.
    """
    from simulator.evidence.calibrate import profile
    from simulator.evidence.calibrate.measurements import read
    from simulator.evidence.calibrate.passes import fit, written
    from simulator.inputs import writing

    with faults_as_lines():
        document, card = _entry("device", like, own)
        rows = read(tables)
        fitted = fit(card, rows)
        if out:
            device_data = written(fitted, document)
            writing.write(out, profile.text(device_data))
    formats = {}
    lines = [f"{fitted.us_per_layer:g} us per layer, all but its weights"]
    for name, weights in fitted.formats.items():
        formats[name] = weights._asdict()
        ratios = ", ".join(f"{tokens}: {ratio:g}" for tokens, ratio in weights.width)
        efficiency = f"memory efficiency {weights.memory_efficiency:g}"
        lines.append(f"{name}: {efficiency}; memory time by tokens {ratios}")
    files = []
    if out:
        files.append(str(out))
        lines.append(f"written: {out}")
    data = {"us_per_layer": fitted.us_per_layer, "formats": formats, "written": files}
    answer(as_json, lambda: data, None, *lines)


@calibrate.command("score")
@click.argument("name", metavar="PROFILE")
@measured_times
@options.output("--out", type=options.FOLDER, help="Folder for a page.")
@options.as_json
@options.long
@options.own
def score(name: str, tables: Paths, out: Path | None, as_json: bool, own: Paths) -> None:
    """Hold a device or a link against tables without a fit: errors by operation, part, format,
    implementation and rows.

    PROFILE is a link where the tables hold collectives or transfers alone.
    """
    from simulator.evidence.calibrate import quality
    from simulator.evidence.calibrate.measurements import LINK_OPERATIONS, read, unfit
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.calibrate import score_page

    with working("reading"):
        rows = read(tables)
        if rows.operation.isin(LINK_OPERATIONS).all():
            _, wire = _entry("link", name, own)
            errors = list(quality.link_scores(wire, rows))
        else:
            _, card = _entry("device", name, own)
            errors = list(quality.scores(card, rows))
        if not errors:
            raise unfit(
                "hold no operation of a device or a link whose time a profile tells; whole "
                "passes are fitted alone"
            )
        names = [name]
        names += [table.name for table in tables]
        command = command_line("calibrate score", names, ())
        stem = Path(name).stem
        page = score_page(stem, errors, command)
        if out:
            files = page_files(page, f"{stem}_score")
            write_files(out, files)
    data = {"profile": name, "errors": [error._asdict() for error in errors]}
    answer(as_json, lambda: data, lambda: page, page_at=page_in(out, f"{stem}_score"))


@calibrate.command("engine")
@click.argument("runs", type=options.FILE)
@click.option("--like", metavar="NAME", required=True, help="Engine whose other numbers hold.")
@click.option(
    "--scenario",
    metavar="NAME",
    required=True,
    help="Scenario that the rows vary; it names the engine.",
)
@click.option(
    "--free",
    metavar="NUMBER",
    multiple=True,
    required=True,
    help="Dotted number of the engine, or `device`.",
)
@click.option(
    "--group",
    "groups",
    metavar="COLUMN",
    multiple=True,
    help="Leave out its groups in turn; COLUMN+: and all above.",
)
@click.option("--source", help="Where the rows come from [default: the file's name].")
@options.output("--out", type=options.NEW_FILE, help="Engine (.yaml) to write.")
@options.overrides
@options.as_json
@options.long
@options.own
def engine(
    runs: Path,
    like: str,
    scenario: str,
    free: Names,
    groups: Names,
    source: str | None,
    out: Path | None,
    overrides: Names,
    as_json: bool,
    own: Paths,
) -> None:
    """Fit numbers of an engine to measured steps and speed-ups, from one row up; say what the rows
    do not identify.

    A row of RUNS states fields of the scenario by dotted name, tokens_per_step, and one of
    step_ms, tokens_per_s, speedup and tpot_ms.
    """
    from simulator.evidence.calibrate import profile
    from simulator.evidence.calibrate.runs import fit, read_runs, written
    from simulator.inputs import writing
    from simulator.report.pages.calibrate import engine_page

    name = _name(like)
    with working("fitting"):
        document, card = _entry("engine", like, own)
        rows = read_runs(runs, scenario, Catalogue(own), overrides)
        named = card.model_copy(update={"name": name})
        fitted = fit(rows, named, free, groups)
        if out:
            others = []
            for other in Catalogue(own).names("engine"):
                if other != name:
                    _, lending = _entry("engine", other, own)
                    others.append(lending.model_copy(update={"name": other}))
            engine_data = written(fitted, dict(document.data), source or runs.name, others)
            writing.write(out, profile.text(engine_data))
    numbers = {number: value._asdict() for number, value in fitted.numbers.items()}
    file = None
    lines = []
    if out:
        file = str(out)
        lines.append(f"written: {out}")
    data = {"numbers": numbers, "errors": fitted.errors, "written": file}
    answer(as_json, lambda: data, lambda: engine_page(fitted, name), *lines)


@calibrate.command("service")
@click.argument("observations", metavar="OBSERVED...", type=options.FILE, nargs=-1, required=True)
@click.option(
    "--like",
    metavar="NAME",
    required=True,
    help="Scenario that supplies models, device, engine and method.",
)
@click.option(
    "--hold-out",
    "held_out",
    metavar="OBSERVED",
    type=options.FILE,
    multiple=True,
    help="An observation that no fit sees, and that is simulated all the same; repeatable.",
)
@click.option(
    "--free",
    metavar="TERM",
    multiple=True,
    help="A term that may be fitted, as engine.outside_ms; repeatable, at most eight "
    "[default: the first eight that act].",
)
@options.skip
@options.output(
    "--out", type=options.FOLDER, help="Folder for device.yaml, engine.yaml, scenario.yaml, a page."
)
@options.as_json
@options.long
@options.own
def service(
    observations: Paths,
    like: str,
    held_out: Paths,
    free: Names,
    skip: int,
    out: Path | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Fit at most eight numbers of device and engine to a running service, as `specsim observe`
    wrote it down.

    One request of four is held out by a fixed rule, and its error printed; terms that the files do
    not tell keep their values, and what would tell them is said.
    """
    from simulator.evidence.live.calibration import fit_service
    from simulator.evidence.live.written import fitted_files, scenario_files
    from simulator.report.page import page_files, write_files
    from simulator.report.services.fitted import fitted_data, fitted_page

    catalogue = Catalogue(own)
    lines = []
    with working("reading") as display, TemporaryDirectory() as kept:
        paths = [*observations, *held_out]
        cases = _cases(paths, len(observations), like, Path(kept), catalogue, skip)
        fit = fit_service(cases, free, display.update)
        page = fitted_page(fit)
        data = fitted_data(fit)
        if out:
            files = dict(fitted_files(fit, paths, like, out, catalogue))
            files |= page_files(page, "calibrated")
            write_files(out, files)
            made = [out / name for name in scenario_files(len(cases))]
            lines = [f"specsim run {scenario}" for scenario in made]
            warm_up = f" --skip {skip}" if skip else ""
            tries = f"--like {made[0]}{warm_up} --try plain --try gamma=2,5"
            lines.append(f"specsim what-if {paths[0]} {tries}")
            data["written"] = [str(out / name) for name in files]
    answer(as_json, lambda: data, lambda: page, *lines, page_at=page_in(out, "calibrated"))


def _cases(
    paths: Sequence[Path],
    fitted: int,
    like: str,
    folder: Path,
    catalogue: Catalogue,
    skip: int = 0,
) -> list[ObservedCase]:
    """Return observations, of which the first ``fitted`` may be fitted, with scenarios in a
    folder; those of one name are told apart by numbers.
    """
    from simulator.evidence.live.cases import observed_case

    if len(set(paths)) < len(paths):
        raise BadInput.at("calibrate service", "expected each observation once")
    cases: list[ObservedCase] = []
    for place, path in enumerate(paths):
        own = folder / str(place)
        case = observed_case(path, like, own, catalogue, held_out=place >= fitted, skipped=skip)
        if case.name in {other.name for other in cases}:
            case = replace(case, name=f"{case.name} ({place + 1})")
        cases.append(case)
    return cases


@calibrate.command("replay")
@click.argument("observation", metavar="OBSERVED", type=options.FILE)
@click.option(
    "--like",
    metavar="NAME",
    required=True,
    help="Scenario that supplies models, device, engine and method, as one of calibrate service.",
)
@click.option(
    "--arrivals",
    is_flag=True,
    help="Requests come when they came, also where clients had a limit.",
)
@options.skip
@options.output("--out", type=options.FOLDER, help="Folder for a page, its picture and a CSV.")
@options.as_json
@options.long
@options.own
def replay(
    observation: Path,
    like: str,
    arrivals: bool,
    skip: int,
    out: Path | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Run an observed log through the simulation, request by request beside what was measured;
    nothing is fitted.
    """
    from simulator.evidence.live.cases import observed_case
    from simulator.evidence.live.replayed import replayed
    from simulator.report.page import page_files, write_files
    from simulator.report.services.replayed import (
        REQUESTS,
        replayed_data,
        replayed_page,
        requests_csv,
    )

    form: LoadForm = "arrivals" if arrivals else "as it was"
    words = ["--like", like, *(["--arrivals"] if arrivals else [])]
    command = command_line("calibrate replay", [str(observation)], (), options=words)
    with working("simulating"), TemporaryDirectory() as kept:
        case = observed_case(observation, like, Path(kept), Catalogue(own), form=form, skipped=skip)
        seen = replayed(case)
        page = replayed_page(seen, command)
        if out:
            files = dict(page_files(page, "replayed"))
            files[REQUESTS] = requests_csv(seen)
            write_files(out, files)
    answer(as_json, lambda: replayed_data(seen), lambda: page, page_at=page_in(out, "replayed"))


@calibrate.command(
    "paper", hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def paper(words: tuple[str, ...]) -> None:
    """Say what fits the free parameters of a paper, where the repository is at hand."""
    beside_the_package("calibrate paper", " ".join(["benchmarks.papers", *words[:1]]))


def _name(like: str) -> str:
    """Return the name of a catalogue entry that is named, or given as a file."""
    if "/" in like or like.endswith(".yaml"):
        return Path(like).stem
    return like


def _entry(kind: str, name: str, own: Paths) -> tuple[Document, Any]:
    """Read the file of a catalogue entry, as it is written and checked; a model gets its file's
    name.
    """
    from simulator.inputs.schema import validate

    catalogue = Catalogue(own)
    typed = (name, 0, 0)
    mention = Document({kind: name}, {(): typed, (kind,): typed})
    path = catalogue.path(kind, name, mention, (kind,))
    document = catalogue.content(kind, path)
    if kind == "model":
        document.data.setdefault("name", path.stem)
    return document, validate(class_of(kind), document)


def _listed(counts: list[int]) -> str:
    return ",".join(map(str, counts))


def _command(verb: str, tables: Paths, like: str, options: list[str]) -> str:
    names = [path.name for path in tables]
    return command_line(f"calibrate {verb}", names, (), options=["--like", like, *options])


def _write_results(
    name: str, fitted: FittedProfile, out: Path | None, report: Path | None, command: str
) -> list[str]:
    """Write the profile and the page that were asked for; return the paths of their files."""
    from simulator.evidence.calibrate import profile
    from simulator.inputs import writing
    from simulator.report.page import page_files
    from simulator.report.pages.calibrate import page

    texts: dict[Path, writing.Content] = {}
    if out:
        texts[out] = profile.text(fitted.data)
    if report:
        report_page = page(name, fitted, command)
        for file, text in page_files(report_page, name).items():
            texts[report / file] = text
    writing.write_all(texts)
    return [str(path) for path in texts]


def _print_fit(
    name: str, fitted: FittedProfile, command: str, written: list[str], as_json: bool
) -> None:
    from simulator.report.pages.calibrate import as_data, page

    lines = [f"written: {path}" for path in written]
    data = as_data(fitted)
    data["written"] = written
    answer(as_json, lambda: data, lambda: page(name, fitted, command), *lines)
