"""The commands about a running service: ``specsim observe``, what it does, from its metrics and
files; ``what-if``, what a change would do to it; ``verify``, how good that prediction was.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from simulator.cli import options
from simulator.cli.options import Names, Paths, answer, page_in, working
from simulator.core.faults import BadInput
from simulator.inputs.shell import command_line, repeated, typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.cli.bars import Display
    from simulator.cli.display import Lines
    from simulator.inputs.services.measured import ServiceFile
    from simulator.inputs.services.observed import Observed
    from simulator.inputs.services.scraping import Server
    from simulator.report.blocks import Page

HEADER = "SPECSIM_HEADER"
CA_FILE = "SPECSIM_CA_FILE"


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
@options.skip
@options.output(
    "--out",
    type=options.FOLDER,
    help="Folder for a page, observed.yaml, and tables of requests and passes.",
)
@options.as_json
@options.long
def observe(
    sources: Names,
    seconds: float,
    headers: Names,
    ca_file: Path | None,
    skip: int,
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
        observations = [joined(run, skip) for run in runs]
        page = _page(observations, _command(sources, seconds, skip, out))
        if out:
            _write(out, page, observations, runs)

    def data() -> object:
        each = [observed.model_dump(mode="json") for observed in observations]
        return each[0] if len(each) == 1 else {"runs": each}

    answer(as_json, data, lambda: page, page_at=page_in(out, "observed"))


def _command(sources: Names, seconds: float, skip: int, out: Path | None) -> str:
    """Return the command as it can be typed again, without what is secret in an address."""
    from simulator.inputs.services.scraping import is_address, server_at

    names = [server_at(name, [], None).shown if is_address(name) else name for name in sources]
    words = []
    if any(map(is_address, sources)):
        words += ["--seconds", f"{seconds:g}"]
    if skip:
        words += ["--skip", str(skip)]
    if out:
        words += ["--out", str(out)]
    return typed("specsim", "observe", names=names, options=words)


def _page(observations: Sequence[Observed], command: str) -> Page:
    """Return the page of an observation, or of several."""
    from simulator.report.services.observed import observed_page, runs_page

    if len(observations) == 1:
        return observed_page(observations[0], command)
    return runs_page(observations, command)


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
    out: Path,
    page: Page,
    observations: Sequence[Observed],
    runs: Sequence[Sequence[ServiceFile]],
) -> None:
    """Write the page and an observation into a folder; several into folders within, by number."""
    from simulator.inputs.services.observation_files import observation_files
    from simulator.report.page import page_files, write_files

    contents = dict(page_files(page, "observed"))
    for number, (observed, services) in enumerate(zip(observations, runs, strict=True), 1):
        within = "" if len(runs) == 1 else f"run_{number:03}/"
        for name, content in observation_files(observed, services).items():
            contents[f"{within}{name}"] = content
    write_files(out, contents)


@click.command("what-if")
@click.argument("sources", metavar="OBSERVED...|SCENARIO", nargs=-1, required=True)
@click.option(
    "--like",
    metavar="SCENARIO",
    help="Models, devices, engine and method of the service that was observed, by the name or the "
    "path of a scenario.",
)
@click.option(
    "--try",
    "texts",
    metavar="CHANGE",
    multiple=True,
    required=True,
    help="A method (eagle_3, ngram, plain), a setting (gamma=2,4; tensor_parallel=2) or a field of "
    "a scenario; several at once with spaces between them. Repeatable.",
)
@options.skip
@options.own
@options.output(
    "--out",
    type=options.FOLDER,
    help="Folder for the page, and for each change its prediction.yaml, scenario.yaml and command.",
)
@options.as_json
@options.long
def what_if(
    sources: Names,
    like: str | None,
    texts: Names,
    skip: int,
    own: Paths,
    out: Path | None,
    as_json: bool,
) -> None:
    """What changes would do to a running service: helps, may hurt or hurts, by how much.

    OBSERVED is an observed.yaml of `specsim observe`, or files that it reads; each change stands
    beside what was measured and beside the simulation of the service as it is.
    """
    from simulator.api.services import tried_service, write_tried
    from simulator.inputs.catalogue import Catalogue
    from simulator.report.services.tried import page as page_of

    with working("simulating"):
        words = [*(["--like", like] if like else []), *repeated("--try", texts)]
        if skip:
            words += ["--skip", str(skip)]
        if out:
            words += ["--out", str(out)]
        command = typed("specsim", "what-if", names=sources, options=words)
        service, result = tried_service(sources, texts, like, Catalogue(own), skip)
        page = page_of(result, command)
        if out:
            write_tried(service, result, page, out)
    answer(as_json, result.as_data, lambda: page, page_at=page_in(out, "what_if"))


@click.command("verify")
@click.argument("prediction", type=options.PATH, required=False)
@click.argument("after", metavar="AFTER...", type=options.PATH, nargs=-1)
@click.option(
    "--pair",
    "pairs",
    metavar="PREDICTION AFTER",
    type=options.PATH,
    nargs=2,
    multiple=True,
    help="A prediction and what was measured after its change; repeatable, for a ledger.",
)
@options.skip
@options.output(
    "--out",
    type=options.PATH,
    help="A picture (.svg, .pdf, .png), a page (.md, .html), or a folder for all of them.",
)
@options.as_json
@options.long
def verify(
    prediction: Path | None,
    after: Paths,
    pairs: tuple[Paths, ...],
    skip: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """What was predicted of a service beside what was measured after the change.

    PREDICTION is a prediction.yaml of `specsim what-if`, or its folder. AFTER is an observed.yaml,
    or files that `specsim observe` reads.
    """
    from simulator.api.services import verify as verified
    from simulator.report.services.verified import page as page_of

    with working("reading"), ExitStack() as stack:
        write = None
        if out:
            from simulator.report.page import page_file

            write = stack.enter_context(page_file(out, "verified"))
        if prediction is None and not pairs:
            message = "expected a prediction and files of the service after the change"
            raise BadInput.at("verify", f"{message}: specsim verify prediction.yaml after.json")
        if prediction is not None and not after:
            message = "expected files of the service after the change behind it"
            raise BadInput.at(prediction, message)
        words = []
        for each in pairs:
            words += ["--pair", *map(str, each)]
        if skip:
            words += ["--skip", str(skip)]
        named = [] if prediction is None else [prediction, *after]
        result = verified(*named, pairs=[(each[0], each[1]) for each in pairs], skipped=skip)
        command = command_line("verify", list(map(str, named)), (), None, words)
        if write or not as_json:
            page = page_of(result.value, command)
        if write:
            write(page)
    answer(as_json, result.to_dict, lambda: page, page_at=page_in(out, "verified"))
