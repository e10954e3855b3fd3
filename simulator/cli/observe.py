"""The command ``specsim observe``: what a running service does, from its metrics and from files."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from simulator.cli import options
from simulator.cli.options import Names, print_json, working
from simulator.core.faults import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.cli.bars import Display
    from simulator.cli.display import Lines
    from simulator.inputs.services.measured import ServiceFile
    from simulator.inputs.services.observed import Observed
    from simulator.inputs.services.scraping import Server

HEADER = "SPECSIM_HEADER"
CA_FILE = "SPECSIM_CA_FILE"
MOST_RUNS_SHOWN = 18


@click.command("observe")
@click.argument("sources", metavar="URL|FILE...", nargs=-1, required=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400),
    default=60.0,
    help="From the first scrape of a URL to the second [default: 60].",
)
@click.option(
    "--header",
    "headers",
    metavar="NAME: VALUE",
    multiple=True,
    help=f"Sent with each scrape and kept nowhere; also in {HEADER}.",
)
@click.option(
    "--ca-file",
    type=options.FILE,
    envvar=CA_FILE,
    help=f"Certificates that a https URL is trusted by; also in {CA_FILE}.",
)
@options.output(
    "--out", type=options.FOLDER, help="Folder for observed.yaml and tables of requests and passes."
)
@options.as_json
def observe(
    sources: Names,
    seconds: float,
    headers: Names,
    ca_file: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say what a running service does: load, times, acceptance, and what holds it back.

    A URL is asked twice for /metrics, nothing else is sent. Files are those of vLLM, SGLang,
    TensorRT-LLM, vllm bench serve, AIPerf and GuideLLM; those of one run are named together.
    """
    from simulator.inputs.services.joined import joined
    from simulator.inputs.services.read import read_services
    from simulator.inputs.services.scraping import is_address, server_at

    with working("reading") as display:
        addresses = [source for source in sources if is_address(source)]
        if len(addresses) > 1:
            message = "expected one URL at a time; name its load balancer, or one replica"
            raise BadInput.at("observe", message)
        files = [Path(source) for source in sources if not is_address(source)]
        runs = read_services(files) if files else [[]]
        if addresses and len(runs) > 1:
            raise BadInput.at(files[0], "holds several runs; expected those of one beside a URL")
        for address in addresses:
            stated = [*headers, *os.environ.get(HEADER, "").splitlines()]
            server = server_at(address, stated, ca_file)
            runs[0].append(_scraped(server, seconds, display))
        observations = [joined(run) for run in runs]
        if out:
            _write(out, observations, runs)
    if as_json:
        data = [each.model_dump(mode="json") for each in observations]
        print_json(data[0] if len(data) == 1 else {"runs": data})
        return
    _print(observations, out)


def _scraped(server: Server, seconds: float, display: Display | Lines) -> ServiceFile:
    """Return what passed at a server between two scrapes."""
    from simulator.inputs.services.scrapes import ScrapeText, read_scrapes
    from simulator.inputs.services.scraping import scrape

    display.update(f"first scrape of {server.shown}")
    first = ScrapeText(server.shown, scrape(server))
    begun_s = monotonic()
    read_scrapes([first])  # what cannot be read is said before the wait
    display.update("between two scrapes")
    with display.watch("seconds", max(1, round(seconds)), 0) as advance:
        done = 0
        while (passed_s := monotonic() - begun_s) < seconds:
            sleep(min(1.0, seconds - passed_s))
            whole_s = int(monotonic() - begun_s)
            advance(whole_s - done)
            done = whole_s
    display.update("second scrape")
    second = ScrapeText(server.shown, scrape(server))
    return read_scrapes([first, second], monotonic() - begun_s)


def _write(
    out: Path, observations: Sequence[Observed], runs: Sequence[Sequence[ServiceFile]]
) -> None:
    """Write an observation into a folder; several into folders within, by number."""
    from simulator.inputs.services.observation_files import observation_files
    from simulator.report.page import write_files

    contents: dict[str, str | bytes] = {}
    for number, (observed, services) in enumerate(zip(observations, runs, strict=True), 1):
        within = "" if len(runs) == 1 else f"run_{number:03}/"
        for name, content in observation_files(observed, services).items():
            contents[f"{within}{name}"] = content
    write_files(out, contents)


def _print(observations: Sequence[Observed], out: Path | None) -> None:
    """Print an observation, or a line for each of several."""
    from simulator.core.faults import CONTROLS
    from simulator.report.services.observed import observed_lines, run_line

    if len(observations) == 1:
        lines = observed_lines(observations[0])
    else:
        lines = [run_line(observed) for observed in observations[:MOST_RUNS_SHOWN]]
        if len(observations) > MOST_RUNS_SHOWN:
            lines.append(f"... and {len(observations) - MOST_RUNS_SHOWN:,} more runs")
    if out:
        lines.append(f"Written to {out}")
    for line in lines:
        click.echo(line.translate(CONTROLS))
