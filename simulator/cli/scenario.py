"""The commands about a single scenario: ``specsim new``, ``explain``, ``law`` and ``run``."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli import options
from simulator.cli.groups import INTERRUPTED
from simulator.cli.options import Names, Paths, answer, faults_as_lines, working
from simulator.cli.places import outside
from simulator.core.faults import BadInput
from simulator.core.parallel import stoppable
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.shell import Comment, command_line

if TYPE_CHECKING:
    from simulator.cli.bars import Display
    from simulator.cli.display import Lines
    from simulator.report.blocks import Page
    from simulator.scenario import Loaded
    from simulator.scenario.result.run_result import RunResult
    from simulator.scenario.uncertain.draws import Interval


LONG_RUN = 10_000
"""Requests of a run that Ctrl-C brings to its end, with a report of those that came; shorter ones
it ends at once.
"""


@click.command("new")
@click.argument("name", type=options.NEW_FILE)
@click.option(
    "--from",
    "example",
    metavar="SCENARIO",
    default="durations_only",
    show_default=True,
    help="Scenario to copy.",
)
@options.own
def new(name: Path, example: str, own: Paths) -> None:
    """Copy a scenario as NAME.yaml, to be changed; nothing is ever overwritten."""
    with faults_as_lines():
        if not name.name:
            raise BadInput.at("NAME", "expected the name of a file to write, got an empty one")
        if name.suffix == ".yaml":
            path = name
        else:
            path = name.with_name(f"{name.name}.yaml")
        text = Catalogue(own).file("scenario", example).read_text("utf-8")
        try:
            with path.open("x", encoding="utf-8") as file:
                try:
                    file.write(f"# Copied from {Comment(example)}.\n{text}")
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    path.unlink()
                    raise
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, FileExistsError):
                reason = "is there already; choose another name"
            raise BadInput.at(path, reason) from error
    if "/" in str(path):
        typed_path = str(path)
    else:
        typed_path = f"./{path}"
    click.echo(
        f"{path}, copied from {example}. Next: {command_line('explain', [typed_path], ())}, "
        f"{command_line('run', [typed_path], ())}"
    )


@click.command("explain")
@click.argument("scenario")
@options.overrides
@options.seed
@options.as_json
@options.own
def explain(scenario: str, overrides: Names, seed: int | None, as_json: bool, own: Paths) -> None:
    """Say in words what SCENARIO will simulate, every default that applies, and which numbers the
    answer rests on most.
    """
    from simulator.report.pages.explain import page
    from simulator.scenario import load
    from simulator.scenario.explain import explain as explanation_of

    with faults_as_lines():
        loaded = load(scenario, overrides, Catalogue(own), seed)
        explanation = explanation_of(loaded)
    name = loaded.scenario.name
    defaults = [default._asdict() for default in explanation.defaults]
    rests_on = [footing._asdict() for footing in explanation.rests_on]
    data = {"scenario": name, **explanation._asdict(), "defaults": defaults, "rests_on": rests_on}
    answer(as_json, lambda: data, lambda: page(name, explanation))


@click.command("law")
@click.argument("scenario")
@options.overrides
@options.seed
@options.as_json
@options.long
@options.own
@options.output(
    "--out",
    type=options.HTML,
    help="A page (.html) with sliders over acceptance, window, price and the parts of a step.",
)
def law(
    scenario: str, overrides: Names, seed: int | None, as_json: bool, own: Paths, out: Path | None
) -> None:
    """Evaluate the closed form alone: its durations, its step kinds and the time per token."""
    from simulator.report.blocks import FIRST, Remark
    from simulator.report.pages.brief import standing_of
    from simulator.report.pages.law import page
    from simulator.report.wording import as_sentence
    from simulator.scenario import load
    from simulator.scenario.decision.by_law import by_law, doubts_by_law
    from simulator.scenario.evaluate import tuned
    from simulator.scenario.result.data import law_details

    with faults_as_lines():
        loaded = tuned(load(scenario, overrides, Catalogue(own), seed))
        decided = by_law(loaded)
        details = law_details(loaded, decided)
        if out:
            from simulator.inputs.writing import write
            from simulator.report.html import as_html
            from simulator.studies.what_if import what_if

            write(
                out,
                as_html(
                    page(
                        details,
                        decided.decision,
                        command_line("law", [scenario], overrides, seed, ["--out", str(out)]),
                        what_if(loaded),
                    )
                ),
            )

    def shown() -> Page:
        whole = page(details, decided.decision)
        standing = standing_of(whole, loaded.scenario.name, decided, doubts_by_law(loaded))
        beware = [Remark("Beware", as_sentence(words), FIRST) for words in details["cautions"]]
        return replace(whole, standing=replace(standing, more=[*beware, *standing.more]))

    answer(as_json, lambda: details, shown, page_at=out)


@click.command("run")
@click.argument("scenario")
@options.overrides
@options.seed
@options.as_json
@options.own
@options.output(
    "--out", type=options.PATH, help="Folder for the report [default: reports/SCENARIO]."
)
@options.pictures
@options.output(
    "--iteration-log", type=options.PATH, help="CSV file: every iteration of the simulated batch."
)
@options.output("--request-log", type=options.PATH, help="CSV file: every request and its times.")
@click.option(
    "--replications",
    type=click.IntRange(2, 1_000),
    help="Seeds to simulate for confidence intervals.",
)
@options.long
@click.option(
    "--explain-gap",
    is_flag=True,
    help="Measure what each reason explains of the gap between law and simulation.",
)
def run(
    scenario: str,
    overrides: Names,
    seed: int | None,
    as_json: bool,
    own: Paths,
    out: Path | None,
    iteration_log: Path | None,
    request_log: Path | None,
    replications: int | None,
    explain_gap: bool,
) -> None:
    """Simulate SCENARIO (a name or a YAML file) beside its law, and write a report.

    With --json the report is written only where --out names a folder.
    """
    from simulator.report import logs
    from simulator.scenario import load
    from simulator.scenario.result.data import result_data
    from simulator.scenario.uncertain.intervals import run_with_interval

    file = ""
    with working("reading") as status:
        catalogue = Catalogue(own)
        loaded = load(scenario, overrides, catalogue, seed)
        folder = out or (None if as_json else Path("reports") / loaded.scenario.name)
        if folder:
            from simulator.report.write import free

            free(folder)
            outside(folder, {"--iteration-log": iteration_log, "--request-log": request_log})
        status.update("simulating")
        words = ["--replications", str(replications)] if replications else []
        if explain_gap:
            words.append("--explain-gap")
        command = command_line("run", [scenario], overrides, seed, words)
        until: AbstractContextManager[None]
        if folder and loaded.scenario.requests.count >= LONG_RUN:
            until = stoppable()
        else:
            until = nullcontext()
        with (
            logs.iteration_log(iteration_log) as log,
            logs.request_log(request_log) as finished,
            until,
        ):
            result, span = run_with_interval(loaded, command, log, finished)
        stopped = result.scenario.requests.count < loaded.scenario.requests.count
        result = replace(result, explain_gap=explain_gap)
        if replications and not stopped:
            from simulator.scenario.replications import replicate

            status.update("replicating")
            means = replicate(
                partial(load, scenario, overrides, catalogue), replications, result.scenario.seed
            )
            result = replace(result, replications=means, seeds=replications)
        if folder:
            page = _reported(loaded, result, span, folder, status)
            file = f"{folder}/report.html"
    answer(
        as_json,
        lambda: result_data(result) | {"speedup_interval": span._asdict()},
        lambda: page,
        page_at=file,
    )
    if stopped:
        sys.exit(INTERRUPTED)


def _reported(
    loaded: Loaded, result: RunResult, span: Interval, folder: Path, status: Display | Lines
) -> Page:
    """Write the report of a run, with the results of other windows; return its page."""
    from simulator.report.run.page import run_page
    from simulator.report.run.scaling import changes_as_csv
    from simulator.report.write import write
    from simulator.studies.what_if import of_run
    from simulator.studies.window import window_sweep

    status.update("sweeping the window")
    page = run_page(result, window_sweep(loaded, result), span, of_run(loaded, result))
    status.update("writing")
    write(page, result.spans, folder, changes_as_csv(result.simulated))
    return page
