"""The studies as commands: each is computed and shown as :mod:`simulator.api.studies` says.

Those of papers are told in their folders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from simulator.api.studies import Asked, computed, page_of, with_standing
from simulator.cli import options
from simulator.cli.options import answer, is_brief, page_in, working
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.shell import command_line
from simulator.studies.of_papers import StudyOfPaper

Command = TypeVar("Command", bound=Callable[..., Any])
UNTYPED = ("workers",)
"""Options that change no result, so that the command on a page leaves them out."""

several = click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
single = click.argument("scenarios", metavar="SCENARIO")


def study(command: Command) -> Command:
    """Add the options that all studies have."""
    out = options.output(
        "--out",
        type=options.STUDY_FILE,
        help="File for the study: a picture (.svg, .pdf, .png), a page with its picture beside it "
        "(.md), or one page with everything (.html).",
    )
    rest = options.pictures(options.long(options.as_json(options.own(command))))
    return options.overrides(options.seed(out(rest)))


def lettered_study(command: Command) -> Command:
    """Add the options of a study whose scenarios have letters, and whose answer may be a folder."""
    overrides = click.option(
        "--set",
        "overrides",
        metavar="[A:]KEY=VALUE",
        multiple=True,
        help="Override a field of all scenarios, or of one by its letter: B:strategy.gamma=5.",
    )
    out = options.output(
        "--out",
        type=options.PATH,
        help="Folder for the page (.md, .html) and its picture, or a file: .svg, .pdf, .png, .md "
        "or .html.",
    )
    rest = options.pictures(options.long(options.as_json(options.own(command))))
    return overrides(options.seed(out(rest)))


only = click.option(
    "--only",
    "only",
    metavar="METHOD",
    multiple=True,
    help="A method to compare, repeatable [default: all].",
)


@click.command("compare")
@several
@lettered_study
def compare(**asked: Any) -> None:
    """Scenarios side by side: what they come to, and in what they differ.

    They are called A, B, C, ... in the order given, and compared with A. A SCENARIO is a name or a
    YAML file; a single one is changed letter by letter:
    specsim compare mine --set A:target.device=h100_sxm --set B:target.device=h200_sxm.
    """
    show("compare", "simulating", asked)


@click.command("capacity")
@several
@click.option(
    "--traffic",
    metavar="WORKLOAD|FORMAT:FILE",
    multiple=True,
    help="Instead of the scenario's own: a workload by name, or a traffic file as azure:FILE, "
    "mooncake:FILE, ... [repeatable]",
)
@click.option(
    "--search",
    type=click.IntRange(10, 10_000_000),
    help="First requests to search on [default: 2,000].",
)
@click.option(
    "--workers", type=click.IntRange(1, 4_096), help="Processes  [default: one for each core]."
)
@study
def capacity(**asked: Any) -> None:
    """Whether a SCENARIO is stable under its arrivals, and the highest rate that it carries within
    its SLO.
    """
    show("capacity", "reading", asked)


@click.command("load")
@several
@click.option("--sizes", type=options.SIZES, help="Clients at a time [default: 1,2,4,8,16,32].")
@study
def load(**asked: Any) -> None:
    """Tokens per second against the time per token, with 1, 2, 4, ... clients.

    The first SCENARIO is the one that the others are compared with.
    """
    show("load", "simulating", asked)


@click.command("batches")
@several
@click.option("--sizes", type=options.SIZES, help="Batch sizes for the law [default: 1-64].")
@click.option(
    "--simulate",
    "simulated",
    type=options.SIZES,
    help="Sizes to simulate [default: 1,2,4,8,16,32,64,128].",
)
@study
def batches(**asked: Any) -> None:
    """What speculation is worth in a batch of 1, 2, 3, ... requests: speed-up, passes, exposed
    draft time.

    The picture of several scenarios has their tokens per second, and their ratio to those of
    the first.
    """
    show("batches", "sweeping the batch", asked)


@click.command("methods")
@single
@only
@click.option(
    "--parallel",
    is_flag=True,
    default=None,
    help="Methods that draft beside the target: which pays in which batch, by law.",
)
@click.option(
    "--sizes",
    type=options.SIZES,
    help="Batch sizes with --parallel [default: 1,2,4,8,16,32,64,128].",
)
@study
def methods(**asked: Any) -> None:
    """All methods on SCENARIO's target, device, engine and trace: one table and one bar chart."""
    if asked["sizes"] and not asked["parallel"]:
        raise BadInput.at("--sizes", "is for --parallel; specsim crossovers takes it alone")
    show("methods", "simulating", asked)


@click.command("crossovers")
@single
@only
@click.option("--sizes", type=options.SIZES, help="Batch sizes for the law [default: 1-128].")
@study
def crossovers(**asked: Any) -> None:
    """The batch at which methods stop paying on SCENARIO's hardware, by law."""
    show("crossovers", "sweeping the batch", asked)


@click.command("drafts")
@several
@click.option(
    "--model",
    "models",
    metavar="MODEL",
    multiple=True,
    required=True,
    help="Another draft, repeatable.",
)
@study
def drafts(**asked: Any) -> None:
    """What drafts of other sizes would have to be kept in a SCENARIO to come level with its own, by
    law; each with the best window of the scenario's strategy.
    """
    show("drafts", "pricing drafts", asked)


def of_paper(study_: StudyOfPaper) -> click.Command:
    """Return the command of a paper's study."""

    def command(**asked: Any) -> None:
        show(study_.name, study_.status, asked)

    callback = study(command)
    for option in reversed(study_.options):
        sizes = click.option(option.flag, option.parameter, type=options.SIZES, help=option.help)
        callback = sizes(callback)
    callback = several(callback) if study_.several else single(callback)
    return click.command(study_.name, help=study_.help)(callback)


class Shown(NamedTuple):
    """Where a study is shown, beside the terminal."""

    out: Path | None
    as_json: bool


def show(name: str, status: str, given: PlainData) -> None:
    """Compute a study and show it: on the terminal, as JSON, and in a file where one is asked
    for.
    """
    scenarios = given.pop("scenarios")
    if isinstance(scenarios, str):
        scenarios = (scenarios,)
    shown = Shown(given.pop("out"), given.pop("as_json"))
    overrides = given.pop("overrides")
    seed = given.pop("seed")
    own = given.pop("own")
    asked = Asked(scenarios, overrides, seed, own, pictured=shown.out is not None)
    command = _typed(name, asked, given, shown.out)
    stated = {option: value for option, value in given.items() if value not in (None, ())}
    with working(status), ExitStack() as stack:
        write = None
        if shown.out:
            from simulator.report.page import page_file

            write = stack.enter_context(page_file(shown.out, name))
        result = computed(name, asked, stated)
        if write or not shown.as_json:
            page = page_of(name, result, command)
        if write:
            write(page)
        if not shown.as_json and is_brief():
            page = with_standing(page, asked)
    answer(shown.as_json, result.as_data, lambda: page, page_at=page_in(shown.out, name))


def _typed(name: str, asked: Asked, given: PlainData, out: Path | None) -> str:
    """Return the command as it can be typed again, with the options that were typed."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        key = option.name or ""
        if key not in given or key in UNTYPED:
            continue
        if context.get_parameter_source(key) is not ParameterSource.COMMANDLINE:
            continue
        for value in given[key] if option.multiple else [given[key]]:
            words += [option.opts[0], _text(value)]
    if out:
        words += ["--out", str(out)]
    return command_line(name, asked.scenarios, asked.overrides, asked.seed, words)


def _text(value: Any) -> str:
    """Return the value of an option as it can be typed; of sizes in a row, the first and the
    last.
    """
    if not isinstance(value, list):
        return str(value)
    parts = list[str]()
    for _, placed in groupby(enumerate(value), lambda at: at[1] - at[0]):
        row = [size for _, size in placed]
        parts += [f"{row[0]}-{row[-1]}"] if len(row) > 2 else map(str, row)
    return ",".join(parts)
