"""The command ``specsim plan``: find the cheapest fleet that meets an SLO, of a plan file or of a
question in one line.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from simulator.cli import options
from simulator.cli.options import Names, Paths, answer, page_in, working
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.shell import command_line
from simulator.inputs.writing import write

if TYPE_CHECKING:
    from simulator.studies.plan.file import Plan
    from simulator.studies.plan.line.asked import PlanLine
    from simulator.studies.plan.stated import StatedFleets

DRAWS = 20
"""Resampled runs of the answer, unless stated."""
PLAN_FILES = (".yaml", ".yml")
PERCENTILES = (50, 90, 95, 99)
LIMITED = {
    "ttft": "At most so long to the first token (1s)",
    "tpot": "At most so long per token behind the first (40ms)",
    "e2e": "At most so long to the last token",
}
"""The times of a request that an SLO can bound, and how the help says it."""


LIMITS = [f"{time}_p{percentile}" for time in LIMITED for percentile in PERCENTILES]
"""Names of the options that limit a percentile of a time."""


def _joined(context: click.Context, option: click.Parameter, names: Names) -> str | None:
    """Return devices that were named one by one as one list."""
    return ",".join(names) or None


def limits(command: options.Command) -> options.Command:
    """Add an option for each limit: every percentile of every time of a request."""
    for time, words in reversed(LIMITED.items()):
        for percentile in reversed(PERCENTILES):
            limit = click.option(
                f"--{time}-p{percentile}",
                metavar="TIME",
                help=f"{words}, for {percentile} % of requests.",
            )
            command = limit(command)
    return command


@click.command("plan")
@click.argument("names", metavar="[PLAN]", nargs=-1)
@click.option(
    "--model",
    help="Instead of PLAN: a model of the catalogue, an id of Hugging Face, quantised or not "
    "(Qwen/Qwen3-32B-FP8, Qwen/Qwen3-32B-GGUF:Q4_K_M), or a folder with a config.json.",
)
@click.option(
    "--device",
    multiple=True,
    callback=_joined,
    metavar="NAME,NAME:N",
    help="Devices to choose among: h100_sxm,h200_sxm; with a number, so many are owned and no more "
    "are used: h100_sxm:8.",
)
@click.option(
    "--compare",
    "fleets",
    multiple=True,
    metavar="NAME:N+NAME:N...",
    help="Instead of --device: fleets beside each other, one word each: --compare h100_sxm:4 "
    "l40s:8 h100_sxm:4+l40s:8; which of them do, what each costs, serves and is limited by. + "
    "joins what serves side by side.",
)
@click.option(
    "--traffic",
    metavar="FILE|WORKLOAD",
    help="A log (.csv, .jsonl, .json, .parquet, .log) or a workload by name.",
)
@click.option(
    "--sessions",
    metavar="FILE",
    help="Instead of --traffic: conversations, a line for every turn, of AIPerf or ShareGPT.",
)
@click.option(
    "--columns",
    metavar="ROLE=COLUMN",
    help="Columns that are not recognised: arrival=ts,prompt=input_tokens,output=output_tokens.",
)
@click.option(
    "--rate",
    type=float,
    help="Requests, or sessions that begin, per second: times of a file are stretched to it, and "
    "drawn where it has none.",
)
@click.option(
    "--requests",
    type=click.IntRange(2, 10_000_000),
    help="So many requests are simulated, those that come closest together; of sessions the first "
    "turns [default: 400].",
)
@click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="LIMIT",
    help="A limit in words, any percentile of ttft, tbt, tpot or e2e: 'ttft_ms p95 < 500', 'tpot "
    "p99 < 40ms'; once for each, or several with commas.",
)
@limits
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME:KEY=VALUE,...",
    help="A class of requests with its share, or its tasks in the log, and its own limits: "
    "chat:share=0.7,ttft=1s,tpot=40ms (for 95 %; ttft_p99 is for 99 %), priority=1; once for each.",
)
@click.option(
    "--price",
    metavar="DEVICE=USD",
    help="USD an hour: h100_sxm=2.10 [default: that of the device].",
)
@click.option("--engine", help="Engine of all devices [default: that of each maker].")
@click.option("--draft", help="Draft model [default: the first known with the same tokenizer].")
@click.option(
    "--weights", help="Format of the weights: bf16, fp8, int4, ... [default: as published]."
)
@click.option(
    "--apart",
    type=click.Choice(["no", "try", "only"]),
    help="Whether prefill and decode may be apart, on replicas of their own: beside replicas that "
    "do both (try), or alone (only) [default: no].",
)
@click.option(
    "--link",
    metavar="NAME",
    help="Link between prefill and decode [default: that between the devices of a replica].",
)
@options.output(
    "--save", type=options.NEW_FILE, help="Write the plan file that this line stands for."
)
@options.overrides
@options.seed
@click.option(
    "--draws",
    type=click.IntRange(1, 10_000),
    default=DRAWS,
    show_default=True,
    help="Resampled runs.",
)
@click.option(
    "--least-chance",
    type=click.FloatRange(0.0, 1.0),
    help="Least chance that speculation is faster than plain decoding with which it is recommended "
    "[default: 0.8].",
)
@options.output(
    "--out",
    type=options.PATH,
    help="Folder for a page (.md, .html) and the exports; a name that ends in .yaml gets the plan "
    "file, as --save.",
)
@options.pictures
@options.as_json
@options.long
@options.own
def plan(
    names: Names,
    overrides: Names,
    seed: int | None,
    draws: int,
    least_chance: float | None,
    out: Path | None,
    as_json: bool,
    own: Paths,
    save: Path | None,
    **asked: Any,
) -> None:
    """Which strategy on which hardware, and how many: the cheapest fleet that meets an SLO.

    Either PLAN, a name or a YAML file, or a question in one line, every default of which is
    said in the answer: specsim plan --model Qwen/Qwen3-32B-FP8 --device h100_sxm,h200_sxm --traffic
    log.csv --slo 'ttft_ms p95 < 1000, tpot_ms p95 < 40'

    Exit code 3 with the nearest miss where no fleet meets it.
    """
    from simulator.studies.plan.line.asked import PlanLine

    given = {name: value for name, value in asked.items() if value is not None}
    by_option = {name: given.pop(name) for name in LIMITS if name in given}
    fleets = given.pop("fleets")
    if fleets:  # the names behind the first follow it without the option
        fleets, names = (*fleets, *names), ()
    line = PlanLine(**given, limits=by_option, fleets=fleets)
    words = line.words
    if least_chance is not None:
        words += ["--least-chance", str(least_chance)]
    if draws != DRAWS:
        words += ["--draws", str(draws)]
    if out:
        words += ["--out", str(out)]
    question = AskedPlan(names, line, overrides, least_chance, seed, draws, Catalogue(own))
    command = command_line("plan", names, overrides, seed, words)
    if fleets:
        _answer_fleets(question, command, out, save, as_json)
    else:
        _answer_plan(question, command, out, save, as_json)


class AskedPlan(NamedTuple):
    """Holds what a command was asked: a plan by name or a question in one line, and how to answer
    it.
    """

    names: Names
    line: "PlanLine"
    overrides: Names
    least_chance: float | None
    seed: int | None
    draws: int
    catalogue: Catalogue

    @property
    def changes(self) -> Names:
        """Return the fields of the plan to change."""
        if self.least_chance is None:
            return self.overrides
        return (*self.overrides, f"least_chance={self.least_chance}")


def _answer_fleets(
    asked: AskedPlan, command: str, out: Path | None, save: Path | None, as_json: bool
) -> None:
    """Answer which of the stated fleets do, and write the page where it is to be kept."""
    from simulator.report.pages.fleets import page, write_fleets
    from simulator.studies.plan.line.asked import asked_fleets
    from simulator.studies.plan.stated import stated_fleets

    with working("reading"):
        if save or (out and out.suffix in PLAN_FILES):
            option = f"--save {save}" if save else f"--out {out}"
            message = "is for one answer; name a folder with --out beside --compare"
            raise BadInput.at(option, message)
        question, fleets = asked_fleets(asked.line, asked.catalogue)
        compared = stated_fleets(
            question, fleets, asked.catalogue, asked.changes, asked.seed, asked.draws
        )
        if out:
            write_fleets(compared, out, command)
    answer(
        as_json,
        compared.as_data,
        lambda: page(compared, command),
        *_where_commands_are(compared, out),
        page_at=page_in(out, "fleets"),
    )


def _where_commands_are(compared: "StatedFleets", out: Path | None) -> Iterator[str]:
    """Yield where the commands of fleets that do were written."""
    if out and any(fleet.does for fleet in compared.fleets):
        yield f"commands of each fleet that does: in folders of {out}"


def _answer_plan(
    asked: AskedPlan, command: str, out: Path | None, save: Path | None, as_json: bool
) -> None:
    """Answer a plan, by its name or as it is asked in the line, and write what is to be kept."""
    from simulator.report.pages.plan import page, write_plan
    from simulator.studies.plan.study import study, summary

    with working("reading"):
        if out and out.suffix in PLAN_FILES:
            if save:
                message = f"is what --out {out} is, too; leave one of them out"
                raise BadInput.at(f"--save {save}", message)
            save, out = out, None
        answered = study(_plan(asked, save), command, asked.draws)
        if out:
            write_plan(answered, out)
    files = []
    if save:
        files.append(f"plan: {save}")
    if out:
        files.append(f"exports: {', '.join(answered.exports)}")
    answer(
        as_json,
        lambda: summary(answered),
        lambda: page(answered),
        *files,
        page_at=page_in(out, "plan"),
    )


def _plan(asked: AskedPlan, save: Path | None) -> "Plan":
    """Return the plan that is asked, and write it where it is to be kept."""
    from simulator.studies.plan.file import load_plan
    from simulator.studies.plan.line.asked import asked_question
    from simulator.studies.plan.question import planned, saved

    if len(asked.names) > 1:
        raise BadInput.at(asked.names[1], "expected one plan; fleets to compare follow --compare")
    if asked.names:
        (name,) = asked.names
        beside = [*asked.line.words, *(["--save", str(save)] if save else [])]
        if beside:
            raise _asked_beside(name, " ".join(beside[:2]), asked.catalogue)
        return load_plan(name, asked.changes, asked.catalogue, asked.seed)
    question = asked_question(asked.line, asked.catalogue)
    plan, document = planned(question, asked.catalogue, asked.changes, asked.seed)
    if save:
        write(save, saved(document, save.parent))
    return plan


def _asked_beside(name: str, option: str, catalogue: Catalogue) -> BadInput:
    """Return the error of a plan, or of a model that is named as if it were one, beside options of
    a question in one line.
    """
    if name in catalogue.names("model") and name not in catalogue.names("plan"):
        return BadInput.at(name, f"is a model, and no plan; write --model {name}")
    device = name.partition(":")[0]
    if device in catalogue.names("device"):
        message = f"is a device, and no plan; each has an option of its own: --device {name}"
        return BadInput.at(name, message)
    message = f"asks in one line, and the plan '{name}' says it itself; leave one of them out"
    return BadInput.at(option, message)
