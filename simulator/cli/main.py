"""The command ``specsim``. Every command imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator import __version__
from simulator.cli.calibrate import calibrate
from simulator.cli.options import SectionedGroup, catalogue_option, faults_as_lines, overrides_option, seed_option, typed
from simulator.cli.plan import plan
from simulator.cli.start import explain, new
from simulator.cli.studies import commands as study_commands
from simulator.cli.sweep import plot, sweep
from simulator.cli.trace import trace
from simulator.cli.validate import validate

if TYPE_CHECKING:
    from rich.status import Status

    from simulator.catalogue import Catalogue
    from simulator.scenario import Loaded
    from simulator.scenario.run import Result
    from simulator.scenario.uncertainty import Interval

KINDS = ("scenario", "sweep", "plan", "workload", "strategy", "method", "device", "link", "engine", "model", "trace")
PLURALS = {"strategies": "strategy", **{f"{kind}s": kind for kind in KINDS if kind != "strategy"}}


def scenario_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command over a scenario takes."""
    command = catalogue_option(command)
    command = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")(command)
    command = overrides_option(seed_option(command))
    return click.argument("scenario")(command)


SECTIONS = {
    "A scenario": {
        "list": "Names of all there is: scenarios, strategies, devices, ...",
        "show": "What a name stands for: its file, its numbers, their sources.",
        "new": "Copy a scenario to change; nothing is ever overwritten.",
        "explain": "What will be simulated, in words, with every default.",
        "law": "The closed form alone: durations, kinds of step, time a token.",
        "run": "Simulate beside the law, and write a report.",
        "compare": "Side by side: what they come to, and in what they differ.",
    },
    "Many at once": {
        "plan": "Which strategy on which hardware: the cheapest fleet.",
        "sweep": "Every point of a grid of settings, by law or simulation.",
        "plot": "Draw the points of a sweep: lines, maps, crossovers, Pareto.",
        "capacity": "Whether arrivals are carried, and how many more could be.",
        "load": "Throughput against time a token, with 1, 2, 4, ... clients.",
    },
    "What pays": {
        "batches": "What speculation is worth in a batch of 1, 2, 3, ...",
        "methods": "Every published method on one device: table and bars.",
        "crossovers": "The batch at which each method stops paying, by law.",
        "drafts": "How much of a draft of another size would have to be kept.",
        "budget": "How many tokens a draft on the CPU should write.",
        "streams": "Speculative Streaming over its tree factor, pruned or not.",
        "trees": "What a token costs with every draft tree of a recording.",
        "network": "What the network between servers costs SpecPipe.",
    },
    "What is known": {
        "trace": "Recorded acceptance: look into, convert, re-scale, record.",
        "measure": "This machine: its profile, and real decoding on it.",
        "calibrate": "Profiles from measured times, engines from published ones.",
        "validate": "Laws against simulation, published values against runs.",
        "schema": "JSON Schema of a kind of file, for editors.",
    },
}


@click.group(
    cls=SectionedGroup,
    sections=SECTIONS,
    lazy={"measure": "simulator.cli.measure:measure"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="specsim")
def main() -> None:
    """Which way of speculative decoding pays, on which hardware, with which settings.

    Start with `specsim list scenario`, then `specsim run NAME`.
    """


for command in (new, explain, plan, sweep, plot, trace, calibrate, validate, *study_commands()):
    main.add_command(command)


def _catalogue(own: tuple[Path, ...]) -> Catalogue:
    from simulator.catalogue import Catalogue

    return Catalogue(own)


@main.command("list")
@click.argument("kind", type=click.Choice((*KINDS, *PLURALS)), required=False, metavar="[KIND]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@catalogue_option
def list_(kind: str | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """Names of everything in the catalogue, from scenarios to traces; of methods, their features."""
    kind = PLURALS.get(kind or "", kind)
    if kind == "method":
        _list_methods(as_json, own)
        return
    with faults_as_lines():
        catalogue = _catalogue(own)
        found = {one: catalogue.abouts(one) for one in ((kind,) if kind else KINDS)}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    width = max(len(name) for names in found.values() for name in names) + 2
    for one, names in found.items():
        click.secho(f"{one} ({len(names)})", bold=True)
        for name, about in names.items():
            click.echo(f"  {name:<{width}}{_shorten(about, 98 - width)}")


def _list_methods(as_json: bool, own: tuple[Path, ...]) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from simulator.report.pages.methods import print_features
    from simulator.studies.method_features import features

    with faults_as_lines():
        found = dict(features(_catalogue(own)))
    if as_json:
        click.echo(json.dumps({"method": {name: asdict(one) for name, one in found.items()}}, indent=2))
    else:
        print_features(found, Console())


def _shorten(text: str, width: int) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


@main.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@catalogue_option
def show(name: str, as_json: bool, own: tuple[Path, ...]) -> None:
    """What a name stands for: its file, its numbers and where they come from."""
    from simulator.cli.catalogue import details

    with faults_as_lines():
        found = details(name, _catalogue(own))
    click.echo(json.dumps(found.data, indent=2) if as_json else found.text)


@main.command()
@scenario_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report [default: reports/SCENARIO].")
@click.option("--iteration-log", type=click.Path(path_type=Path), help="CSV file: every iteration of the simulated batch.")
@click.option("--request-log", type=click.Path(path_type=Path), help="CSV file: every request and its times.")
@click.option("--replications", type=click.IntRange(2, 1_000), help="Seeds to simulate for confidence intervals.")
def run(
    scenario: str,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    own: tuple[Path, ...],
    out: Path | None,
    iteration_log: Path | None,
    request_log: Path | None,
    replications: int | None,
) -> None:
    """Simulate SCENARIO (a name or a YAML file) beside its law, and write a report.

    With --json the report is written only where --out names a folder.
    """
    from rich.console import Console

    from simulator.report.console import print_result
    from simulator.scenario import load
    from simulator.scenario.run import summary

    with faults_as_lines(), Console(stderr=True).status("reading") as status:
        loaded = load(scenario, overrides, _catalogue(own), seed)
        folder = out or (None if as_json else Path("reports") / loaded.scenario.name)
        if folder:
            from simulator.report.write import free

            free(folder)
        status.update("simulating")
        told = typed("run", [scenario], overrides, seed, ["--replications", str(replications)] if replications else [])
        result, span = _simulated(loaded, told, iteration_log, request_log)
        if replications:
            from simulator.scenario.replications import replicate

            status.update("replicating")
            found = replicate(lambda one: load(scenario, overrides, _catalogue(own), one), replications, result.scenario.seed)
            result = replace(result, replications=found, seeds=replications)
        if folder:
            _write_report(loaded, result, span, folder, status)
    if as_json:
        click.echo(json.dumps(summary(result) | {"speedup_interval": span._asdict()}, indent=2))
        return
    print_result(result, Console(), span)
    if folder:
        click.echo(f"report: {folder / 'report.html'}   {folder / 'report.md'}   (timeline.json opens in Perfetto)")


def _simulated(loaded: Loaded, told: str, iteration_log: Path | None, request_log: Path | None) -> tuple[Result, Interval]:
    """A run with its logs, and the interval that its speedup lies in."""
    from simulator.report import logs
    from simulator.scenario.run import run as run_scenario
    from simulator.scenario.run import tuned
    from simulator.scenario.uncertainty import Times, of_speedup

    with logs.iteration_log(iteration_log) as log, logs.request_log(request_log) as finished:
        times = Times(finished)
        result = run_scenario(loaded, told, log, times.note)
    return result, of_speedup(tuned(loaded), result.speedup, times.requests)


def _write_report(loaded: Loaded, result: Result, span: Interval, folder: Path, status: Status) -> None:
    """The report of a run, with what other windows would come to."""
    from simulator.report.write import write
    from simulator.studies.window import window_sweep

    status.update("sweeping the window")
    points = window_sweep(loaded, done=result)
    status.update("writing")
    write(result, points, folder, span)


@main.command()
@scenario_options
def law(scenario: str, overrides: tuple[str, ...], seed: int | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """The closed form alone: its durations, its step kinds and what they come to."""
    from rich.console import Console

    from simulator.report.console import print_law
    from simulator.scenario import load
    from simulator.scenario.run import law_details

    with faults_as_lines():
        found = law_details(load(scenario, overrides, _catalogue(own), seed))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_law(found, Console())


@main.command()
@click.argument(
    "kind",
    type=click.Choice(("scenario", "sweep", "plan", "workload", "device", "link", "engine", "model", "method")),
    default="scenario",
)
def schema(kind: str) -> None:
    """JSON Schema of a kind of file, for editors."""
    from simulator.cli.catalogue import json_schema

    click.echo(json.dumps(json_schema(kind), indent=2))
