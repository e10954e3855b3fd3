"""The command ``specsim plan``: find the cheapest fleet that meets an SLO, of a plan file or of a
question in one line.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli import options
from simulator.cli.options import Names, Paths, answer, page_in, working
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.logs import ROLES
from simulator.inputs.shell import command_line, repeated

if TYPE_CHECKING:
    from simulator.report.blocks import Page
    from simulator.studies.plan.file import Plan
    from simulator.studies.plan.question import PlanQuestion
    from simulator.studies.plan.stated import StatedFleets

LIMIT = re.compile(r"(ttft|tpot|e2e)_(p\d+)")
"""Names of the options that limit a percentile of a time."""
CLASS_LIMIT = re.compile(r"(ttft|tpot|e2e)(?:_(p\d+))?")
"""The same of a class, whose percentile may be left out."""
DRAWS = 20
"""Resampled runs of the answer, unless stated."""
FLEET = re.compile(r"(?P<device>[\w./@-]+):(?P<count>[1-9]\d{0,5})")
"""A fleet as it is stated: a device, and how many of it."""
PLAN_FILES = (".yaml", ".yml")
REPEATED = {"classes": "--class", "slos": "--slo"}
"""Options that may be given several times, by what they are called here."""
OF_LOGS = ("rate", "requests", "columns")
"""Options about a file of requests, which a workload by name has itself."""
PERCENTILES = (50, 90, 95, 99)
TIMES = {
    "ttft": "At most so long to the first token (1s)",
    "tpot": "At most so long per token behind the first (40ms)",
    "e2e": "At most so long to the last token",
}
"""The times of a request that an SLO can bound, and how the help says it."""


def limits(command: options.Command) -> options.Command:
    """Add an option for each limit: every percentile of every time of a request."""
    for time, words in reversed(TIMES.items()):
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
    metavar="NAME,NAME:N",
    help="Devices to choose among: h100_sxm,h200_sxm; with a number, so many are owned and no more "
    "are used: h100_sxm:8.",
)
@click.option(
    "--compare",
    "fleets",
    multiple=True,
    metavar="NAME:N...",
    help="Instead of --device: fleets beside each other, one word each: --compare h100_sxm:4 "
    "l40s:8 b200:1; which of them do, what each costs, serves and is limited by.",
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
    asked = {option: value for option, value in asked.items() if value not in (None, ())}
    fleets = asked.pop("fleets", ())
    words = _words(asked, least_chance, draws, out)
    if least_chance is not None:
        changes = (*overrides, f"least_chance={least_chance}")
    else:
        changes = overrides
    if fleets:
        fleets = (*fleets, *names)
        words = [*repeated("--compare", fleets), *words]
        command = command_line("plan", [], overrides, seed, words)
        with working("reading"):
            if save or (out and out.suffix in PLAN_FILES):
                option, file = ("save", save) if save else ("out", out)
                message = "is for one answer; name a folder with --out beside --compare"
                raise _fault(option, file, message)
            question = _compared_question(asked, fleets, Catalogue(own))
            compared = _compared(question, fleets, Catalogue(own), changes, seed, draws)
            page = _fleets_page(compared, command, out)
        answer(as_json, compared.as_data, lambda: page, page_at=page_in(out, "fleets"))
        return
    _answer_plan(
        names,
        asked,
        command_line("plan", names, overrides, seed, words),
        changes=changes,
        seed=seed,
        draws=draws,
        out=out,
        save=save,
        own=own,
        as_json=as_json,
    )


def _answer_plan(
    names: Names,
    asked: PlainData,
    command: str,
    *,
    changes: Names,
    seed: int | None,
    draws: int,
    out: Path | None,
    save: Path | None,
    own: Paths,
    as_json: bool,
) -> None:
    """Answer a plan, by its name or as it is asked in the line, and write what is to be kept."""
    from simulator.report.pages.plan import page, write_plan
    from simulator.studies.plan.file import load_plan
    from simulator.studies.plan.study import study, summary

    with working("reading"):
        if len(names) > 1:
            raise BadInput.at(names[1], "expected one plan; fleets to compare follow --compare")
        if out and out.suffix in PLAN_FILES:
            if save:
                raise _fault("save", save, f"is what --out {out} is, too; leave one of them out")
            save, out = out, None
        if not names:
            read = _planned_line(asked, changes, seed, Catalogue(own), save)
        elif asked or save:
            raise _asked_beside(names[0], next(iter(asked), "save"), Catalogue(own))
        else:
            read = load_plan(names[0], changes, Catalogue(own), seed)
        answered = study(read, command, draws)
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


def _words(asked: PlainData, least_chance: float | None, draws: int, out: Path | None) -> list[str]:
    """Return the options of a line as they can be typed again."""
    words = []
    for option, value in asked.items():
        if option in REPEATED:
            words += repeated(_typed(option), value)
        else:
            words += [_typed(option), str(value)]
    if least_chance is not None:
        words += ["--least-chance", str(least_chance)]
    if draws != DRAWS:
        words += ["--draws", str(draws)]
    if out:
        words += ["--out", str(out)]
    return words


def _compared_question(asked: PlainData, fleets: Names, catalogue: Catalogue) -> "PlanQuestion":
    """Return the question that fleets are to answer; raises :class:`BadInput` beside ``--device``
    and for a fleet without a number.
    """
    if "device" in asked:
        message = "says what is owned beside --compare, which does; leave one of them out"
        raise _fault("device", asked["device"], message)
    for fleet in fleets:
        if not FLEET.fullmatch(fleet):
            message = "expected NAME:N, a device and how many of it, as in h100_sxm:4"
            raise _fault("compare", fleet, message)
    return _question(asked | {"device": ",".join(_devices_of(fleets))}, catalogue)


def _devices_of(fleets: Names) -> list[str]:
    """Return the devices of stated fleets, each once."""
    return list(dict.fromkeys(fleet.rpartition(":")[0] for fleet in fleets))


def _compared(
    question: "PlanQuestion",
    fleets: Names,
    catalogue: Catalogue,
    changes: Names,
    seed: int | None,
    draws: int,
) -> "StatedFleets":
    """Return how stated fleets do."""
    from simulator.studies.plan.stated import stated_fleets

    counts = []
    for fleet in fleets:
        name, _, count = fleet.rpartition(":")
        counts.append((_called(name, catalogue), int(count)))
    return stated_fleets(question, counts, catalogue, changes, seed, draws)


def _fleets_page(compared: "StatedFleets", command: str, out: Path | None) -> "Page":
    """Return the page of stated fleets, written where there is a folder for it."""
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.fleets import page

    shown = page(compared, command)
    if out:
        write_files(out, page_files(shown, "fleets"))
    return shown


def _typed(option: str) -> str:
    """Return an option as it is typed: ``--ttft-p95`` of ``ttft_p95``."""
    if option in REPEATED:
        return REPEATED[option]
    return f"--{option.replace('_', '-')}"


def _asked_beside(name: str, option: str, catalogue: Catalogue) -> BadInput:
    """Return the error of a plan, or of a model that is named as if it were one, beside options of
    a question in one line.
    """
    if name in catalogue.names("model") and name not in catalogue.names("plan"):
        return BadInput.at(name, f"is a model, and no plan; write --model {name}")
    message = f"asks in one line, and the plan '{name}' says it itself"
    return _fault(option, name, f"{message}; leave one of them out")


def _fault(option: str, value: object, message: str) -> BadInput:
    return BadInput.at(f"{_typed(option)} {value}", message)


def _planned_line(
    asked: PlainData,
    overrides: Names,
    seed: int | None,
    catalogue: Catalogue,
    save: Path | None,
) -> "Plan":
    """Return the plan of a question, and write it where it is to be kept."""
    from simulator.inputs.writing import write
    from simulator.studies.plan.question import planned, saved

    read, document = planned(_question(asked, catalogue), catalogue, overrides, seed)
    if save:
        write(save, saved(document, save.parent))
    return read


def _question(asked: PlainData, catalogue: Catalogue) -> "PlanQuestion":
    """Return the question of a line; raises :class:`BadInput` for what it lacks, and for options
    that say nothing.
    """
    from simulator.studies.plan.question import PlanQuestion

    slo = _slo(asked)
    classes = _classes(asked)
    load = "sessions" if "sessions" in asked else "traffic"
    _check_complete(asked, load, slo, classes)
    requests, said = _asked_load(asked, load, catalogue)
    devices, taken = _asked_devices(asked, catalogue)
    prices = {}
    for device, price in _pairs("price", asked.get("price")):
        prices[_called(device, catalogue)] = _price(device, price)
    return PlanQuestion(
        model=asked["model"],
        devices=tuple(devices),
        requests=requests,
        slo=slo,
        prices=prices,
        engine=asked.get("engine"),
        draft=asked.get("draft"),
        weights=asked.get("weights"),
        said=(*said, *taken),
        classes=classes,
        apart=asked.get("apart", "no"),
        link=_link(asked),
        owned={device: count for device, count in devices.items() if count is not None},
    )


def _classes(asked: PlainData) -> dict[str, PlainData]:
    """Return the fields of the classes of requests, by name."""
    classes: dict[str, PlainData] = {}
    for text in asked.get("classes", ()):
        name, fields = _class(text)
        if name in classes:
            raise _fault("class", text, f"'{name}' is named twice; state it once")
        classes[name] = fields
    return classes


def _check_complete(
    asked: PlainData, load: str, slo: PlainData, classes: Mapping[str, PlainData]
) -> None:
    """Raise :class:`BadInput` where a question lacks something: a model, a device, its ``load``, or
    a limit on the wait, which classes may have instead of all requests.
    """
    missing = [f"--{option}" for option in ("model", "device", load) if option not in asked]
    limits_of_classes = bool(classes) and all("slo" in fields for fields in classes.values())
    if not (slo.keys() & {"ttft_ms", "e2e_ms"} or (limits_of_classes and not slo)):
        missing.append("a limit on the wait (--ttft-p95 1s)")
    if missing:
        message = f"needs a PLAN, or a question; it lacks {', '.join(missing)}"
        if "--device" in missing:
            message += "; specsim list device names them, as in --device a100_80g_sxm,h100_sxm"
        raise BadInput.at("specsim plan", message)


def _asked_devices(
    asked: PlainData, catalogue: Catalogue
) -> tuple[dict[str, int | None], tuple[str, ...]]:
    """Return how many of each device are owned, None being any number, and what is said of names
    that were begun alone.
    """
    owned: dict[str, int | None] = {}
    said = []
    for typed, count in _devices(asked["device"]).items():
        name = _called(typed, catalogue)
        owned[name] = count
        if name != typed:
            said.append(f"{typed}: taken as {name}, the only device that begins so")
    return owned, tuple(said)


def _called(device: str, catalogue: Catalogue) -> str:
    """Return the name of a device; of the beginning of a single one (``b200``) the whole."""
    names = catalogue.names("device")
    begun = [name for name in names if name.startswith(f"{device}_")]
    if device in names or len(begun) != 1:
        return device
    return begun[0]


def _slo(asked: PlainData) -> dict[str, dict[str, float]]:
    """Return the limits of a line, in words and by options, as a plan file has them."""
    from simulator.studies.plan.limits import read_limit

    slo: dict[str, dict[str, float]] = {}
    for limit in filter(None, map(LIMIT.fullmatch, asked)):
        option = limit.string
        time, percentile = limit.groups()
        of_time = slo.setdefault(f"{time}_ms", {})
        of_time[percentile] = _milliseconds(option, asked[option])
    for text in asked.get("slos", ()):
        for part in text.split(","):
            read = read_limit(part)
            if read is None:
                message = f"expected 'ttft_ms p95 < 500' or 'tpot p99 < 40ms', got '{part.strip()}'"
                raise _fault("slo", text, message)
            of_time = slo.setdefault(read.field, {})
            known = of_time.setdefault(read.percentile, read.milliseconds)
            if known != read.milliseconds:
                name = f"{read.field} {read.percentile}"
                raise _fault("slo", text, f"{name} is limited twice; state it once")
    return slo


def _class(text: str) -> tuple[str, PlainData]:
    """Return the name and the fields of a class of requests, of ``NAME:KEY=VALUE,...``."""
    name, colon, rest = text.partition(":")
    given: PlainData = {}
    slo: dict[str, dict[str, float]] = {}
    if not colon or not name:
        raise _fault("class", text, "expected NAME:share=0.7,ttft=1s,tpot=40ms")
    for key, value in _pairs("class", rest):
        limit = CLASS_LIMIT.fullmatch(key)
        if limit:
            time, percentile = limit.groups()
            of_time = slo.setdefault(f"{time}_ms", {})
            of_time[percentile or "p95"] = _milliseconds("class", value)
        elif key == "tasks":
            given["tasks"] = value.split("+")
        elif key == "share" and re.fullmatch(r"-?\d*\.?\d+", value):
            given["share"] = float(value)
        elif key == "priority" and re.fullmatch(r"-?\d+", value):
            given["priority"] = int(value)
        else:
            known = "share=0.7, tasks=a+b, priority=1 (a whole number) or a limit (ttft=1s)"
            message = f"expected {known}, got '{key}={value}'"
            raise _fault("class", text, message)
    if slo:
        given["slo"] = slo
    return name, given


def _link(asked: PlainData) -> str | None:
    """Return the link between prefill and decode; raises :class:`BadInput` where they stay
    together.
    """
    link = asked.get("link")
    if link is None:
        return None
    if asked.get("apart", "no") == "no":
        raise _fault("link", link, "is between prefill and decode; add --apart try")
    return str(link)


def _devices(text: str) -> dict[str, int | None]:
    """Return the devices of ``NAME,NAME:N``, each with how many of it are owned; None: any."""
    owned: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not colon:
            owned.setdefault(count, None)
            continue
        if not re.fullmatch(r"[1-9]\d{0,5}", count) or not name:
            message = f"expected NAME, or NAME:N with how many are owned, got '{part.strip()}'"
            raise _fault("device", text, message)
        if owned.setdefault(name, int(count)) != int(count):
            raise _fault("device", text, f"'{name}' is named twice; state it once")
    return owned


def _asked_load(asked: PlainData, load: str, catalogue: Catalogue) -> tuple[Any, tuple[str, ...]]:
    """Return the requests of a question, ``load`` being ``sessions`` or ``traffic``, and what is
    said of how they were read; the name of a workload stays as it is.
    """
    from simulator.inputs.models.named import find_model
    from simulator.studies.plan.question import DEFAULTS, busiest, talked

    requests: Any = asked[load]
    if load == "traffic" and not (Path(requests).suffix or "/" in requests):
        _refuse_beside_workload(asked, requests, catalogue)
        return requests, ()
    count = asked.get("requests", DEFAULTS["requests"]["value"])
    rate = asked.get("rate")
    if load == "sessions":
        for option in ("traffic", "columns"):
            if option in asked:
                message = "is for a log of requests; leave it out beside --sessions"
                raise _fault(option, asked[option], message)
        if rate is not None and not 0.0 < rate < inf:
            raise _fault("rate", rate, "expected sessions per second above 0")
    model = asked["model"]
    most_tokens = find_model(model, catalogue, f"--model {model}").spec.context_tokens
    if load == "sessions":
        requests, said = talked(requests, count, rate, most_tokens)
    else:
        columns = dict(_pairs("columns", asked.get("columns"), ROLES))
        requests, said = busiest(requests, columns, count, rate, most_tokens)
    return requests, tuple(said)


def _refuse_beside_workload(asked: PlainData, workload: str, catalogue: Catalogue) -> None:
    """Raise :class:`BadInput` for options about a log beside a workload, which has them itself."""
    from simulator.studies.plan.question import workload_fields

    for option in OF_LOGS:
        if option not in asked:
            continue
        value = asked[option]
        arrivals = workload_fields(workload, catalogue).get("arrivals") or {}
        if option == "requests":
            remedy = f"write --set scenario.requests.count={value}"
        elif option == "columns":
            remedy = "leave it out"
        elif "rate_per_s" in arrivals:
            remedy = f"write --set scenario.requests.arrivals.rate_per_s={value:g}"
        else:
            remedy = (
                "write --set scenario.requests.arrivals.rate_scale=2 for twice as many a second"
            )
        message = f"is for a file, and the workload '{workload}' states it itself; {remedy}"
        raise _fault(option, value, message)


def _milliseconds(option: str, text: str) -> float:
    """Return a time with its unit in milliseconds."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(us|ms|s|min)\s*", text)
    if not match or not float(match[1]):
        raise _fault(option, text, "expected a time with its unit, as in 1s or 40ms")
    from simulator.studies.plan.limits import MILLISECONDS

    milliseconds = float(match[1]) * MILLISECONDS[match[2]]
    return float(f"{milliseconds:.12g}")


def _pairs(option: str, text: str | None, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield names and values of ``NAME=VALUE,NAME=VALUE``."""
    if not text:
        return
    names = "=...,".join(keys) or "NAME"
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if not value or (keys and key not in keys):
            raise _fault(option, text, f"expected {names}=..., got '{part}'")
        yield key, value


def _price(device: str, text: str) -> float:
    if not re.fullmatch(r"\d+\.?\d*|\.\d+", text) or not float(text):
        raise _fault("price", f"{device}={text}", "expected USD an hour above 0")
    return float(text)
