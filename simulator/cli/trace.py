"""The commands ``specsim trace``: look at traces, convert records of other programs, re-scale."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli import options
from simulator.cli.bank import advise, list_
from simulator.cli.options import Names, Paths, answer, faults_as_lines, page_in
from simulator.cli.record import record
from simulator.core.faults import BadInput, Fault
from simulator.inputs import reading, writing
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import readable
from simulator.inputs.shell import command_line, repeated

if TYPE_CHECKING:
    from simulator.core.acceptance.trace import Trace


@click.group()
def trace() -> None:
    """Inspect, convert, re-scale, record and borrow traces of acceptance."""


@trace.command("info")
@click.argument("name")
@options.own
@options.as_json
@options.long
@options.draws_seed
@options.flavours
def info(name: str, flavours: Names, seed: int, as_json: bool, own: Paths) -> None:
    """Print the numbers of a trace, NAME or file, and of the formulas; NAME:DRAFTER for another
    drafter of the same text.

    Header, acceptance by kind of text, accepted tokens by window (replayed, i.i.d., law), hits
    of draft and early exits, run lengths, repetition.
    """
    from dataclasses import asdict

    from simulator.core.acceptance.statistics import statistics
    from simulator.report.pages.trace import page

    with faults_as_lines():
        path, opened = _open(name, own)
        numbers = statistics(opened, flavours, seed)
    size = path.stat().st_size
    label = _label(name, path)
    data = {"trace": path.stem, "bytes": size, **asdict(numbers), "header": dict(opened.header)}
    answer(as_json, lambda: data, lambda: page(label, opened, numbers, size))


@trace.command("compare")
@click.argument("names", nargs=-1, required=True)
@options.own
@options.as_json
@options.long
@options.draws_seed
@options.flavours
def compare(names: Names, flavours: Names, seed: int, as_json: bool, own: Paths) -> None:
    """Compare several traces."""
    from dataclasses import asdict

    from simulator.core.acceptance.statistics import statistics
    from simulator.report.pages.trace import comparison_page

    with faults_as_lines():
        traces = []
        for name in names:
            path, opened = _open(name, own)
            numbers = statistics(opened, flavours, seed)
            traces.append((_label(name, path), numbers))
    data = {"traces": [{"trace": label, **asdict(numbers)} for label, numbers in traces]}
    answer(as_json, lambda: data, lambda: comparison_page(traces))


@trace.command("plot")
@click.argument("name")
@options.own
@options.as_json
@options.draws_seed
@options.flavours
@options.output("--out", type=options.PATH, required=True, help="Folder for the pictures.")
@click.option(
    "--form",
    type=click.Choice(["svg", "pdf", "png"]),
    default="svg",
    show_default=True,
    help="Form of the pictures.",
)
@options.pictures
def plot(
    name: str, flavours: Names, seed: int, as_json: bool, own: Paths, out: Path, form: str
) -> None:
    """Draw what `info` prints, each picture with its data beside it."""
    from simulator.core.acceptance.statistics import statistics
    from simulator.report.page import write_pictures
    from simulator.report.pages.trace import figures

    with faults_as_lines():
        _, opened = _open(name, own)
        drawings = figures(statistics(opened, flavours, seed))
        pictures = {out / f"{file}.{form}": drawing for file, drawing in drawings.items()}
        written = write_pictures(pictures)
    answer(as_json, lambda: {"written": written}, None, *written)


@trace.command("iid")
@click.argument("names", nargs=-1, required=True)
@options.own
@options.as_json
@options.long
@options.draws_seed
@options.flavours
@click.option(
    "--window",
    "windows",
    type=click.IntRange(2, 64),
    multiple=True,
    help="Draft tokens; repeatable [default: 3, 5, 8].",
)
@options.output("--out", type=options.PATH, help="Folder for a page and its figure.")
def iid(
    names: Names,
    flavours: Names,
    seed: int,
    as_json: bool,
    own: Paths,
    windows: tuple[int, ...],
    out: Path | None,
) -> None:
    """Compute how wrong the i.i.d. formula is, fitted at one draft token and applied to more.

    All drafters of a trace, or one with NAME:DRAFTER; a trace with one drafter also by kind of
    text.
    """
    from simulator.core.acceptance.iid import WINDOWS, every_drafter
    from simulator.report.page import page_files, write_files
    from simulator.report.pages.iid import NAME, page

    with faults_as_lines():
        drafters = []
        for name in names:
            path, opened = _open(name, own)
            label = _label(name, path)
            drafters += every_drafter(opened, label, flavours, windows or WINDOWS, seed)
        options = [*repeated("--flavour", flavours), *repeated("--window", windows)]
        if seed:
            options += ["--seed", str(seed)]
        command = command_line("trace iid", names, (), options=options)
        written = []
        answered = page(drafters, command)
        if out:
            files = page_files(answered, NAME)
            write_files(out, files)
            written = [str(out / file) for file in files]
    traces = []
    for drafter in drafters:
        errors = [error._asdict() for error in drafter.errors]
        traces.append({**drafter._asdict(), "errors": errors})
    data = {"traces": traces, "written": written}
    answer(as_json, lambda: data, lambda: answered, page_at=page_in(out, NAME))


@trace.command("convert")
@click.argument("source", metavar="IN")
@click.option(
    "--from",
    "form",
    type=click.Choice(
        [
            "specdecode_bench",
            "specdecode_bench_eagle",
            "specdecode_bench_ngram",
            "rest",
            "steps",
            "vllm_answers",
            "vllm_log",
            "vllm_metrics",
            "vllm_bench",
            "sglang",
            "trtllm",
            "llama_cpp",
            "llama_batched_bench",
            "golden_lengths",
            "mean_length",
        ]
    ),
    required=True,
    help="What IN is.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 1_000),
    help="Draft tokens per window, where IN does not say, or to continue to.",
)
@click.option("--series", help="Which of several curves of a golden file, e.g. thinking_on.")
@click.option(
    "--target",
    metavar="MODEL",
    help="Of a record: the model whose tokens it holds, by name, id or folder, so that scenarios "
    "of it replay it as their own.",
)
@click.option(
    "--draft",
    metavar="MODEL",
    help="Beside --target: the model that drafted, or the id of a head.",
)
@options.output(
    "--out", type=options.PATH, help="Trace (.npz) or acceptance block (.yaml) to write."
)
@options.as_json
@options.own
def convert(
    source: str,
    form: str,
    window: int | None,
    series: str | None,
    target: str | None,
    draft: str | None,
    out: Path | None,
    as_json: bool,
    own: Paths,
) -> None:
    """Convert records of other programs to a trace or to rates.

    IN is a file; for a summary it may also be the numbers themselves.

    \b
    Records of what happened, to a trace:
      specdecode_bench   JSONL, lengths by position of EAGLE (draft) and ngram;
               specdecode_bench_eagle, specdecode_bench_ngram: of one alone
      rest     JSONL of REST's answers, lengths by step
      steps    JSONL, {"accepted": [2, 0, 3], "flavour": "code"} per request;
               draft tokens kept by each step, correction not counted
      vllm_answers     JSONL of answers of a vLLM served with
               --per-request-spec-decode-metrics detailed
    Summaries, to an acceptance block of a scenario:
      vllm_log         lines "SpecDecoding metrics", or per-position rates
      vllm_metrics     text of /metrics, one scrape or two (their difference)
      vllm_bench       JSON of vllm bench serve --save-result
      sglang           log, /get_server_info, /metrics or benchmark, with --window
      trtllm           TensorRT-LLM's /metrics or iteration statistics
      llama_cpp        log of llama-server or llama-speculative; with --window
                       where it has no rates by position
      llama_batched_bench   its table, to a durations block: costs by batch
      golden_lengths   mean accepted lengths at windows 1, 2, 3, ..., bare or
                       as InferenceX writes them; continued up to --window
      mean_length      one mean accepted length, with --window
    Lengths count correction or bonus.
    """
    import yaml

    from simulator.inputs.traces.converters import TO_TRACE
    from simulator.inputs.traces.summaries import TO_RATES

    with faults_as_lines():
        lines = _lines(source, form in TO_RATES)
        if form in TO_TRACE:
            converted = _with_file_name(source, lambda: TO_TRACE[form](lines, window))
            _save(_with_models(converted, target, draft, Catalogue(own)), out, as_json)
            return
        if target or draft:
            option = f"--target {target}" if target else f"--draft {draft}"
            message = f"is said of a record of steps, and --from {form} is a summary"
            raise BadInput.at(option, f"{message}; leave it out")
        rates = _with_file_name(source, lambda: TO_RATES[form](lines, window, series))
        what = "acceptance"
        if form == "llama_batched_bench":
            what = "durations"
        block = {what: dict(rates)}
        text = yaml.safe_dump(block, sort_keys=False)
        written = []
        if out:
            written.append(_write(out, text))
    data = {**block, "written": written}
    answer(as_json, lambda: data, None, text.rstrip("\n"), *map(_written, written))


def _with_models(
    converted: Trace, target: str | None, draft: str | None, catalogue: Catalogue
) -> Trace:
    """Return a trace with the models that it is said to be from; a head that drafts has a name
    alone.
    """
    from simulator.inputs.models.named import find_model
    from simulator.inputs.traces.converters import RecordedModel, recorded_from

    def recorded(name: str, option: str) -> RecordedModel:
        model = find_model(name, catalogue, f"{option} {name}")
        return RecordedModel(model.known_as, model.spec.num_hidden_layers, model.spec.vocab_size)

    if target is None:
        if draft is not None:
            message = "is the draft of a target; add --target MODEL, whose tokens the record holds"
            raise BadInput.at(f"--draft {draft}", message)
        return converted
    drafter = None
    if draft is not None:
        try:
            drafter = recorded(draft, "--draft")
        except BadInput:
            if not re.fullmatch(r"[\w.-]+/[\w.-]+", draft):
                raise
            drafter = RecordedModel(draft)
    return recorded_from(converted, recorded(target, "--target"), drafter)


@trace.command("rescale")
@click.argument("source", metavar="IN")
@click.option(
    "--mean",
    type=float,
    required=True,
    help="Tokens per step wanted, correction or bonus included.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 1_000),
    required=True,
    help="Draft tokens per window at which that holds.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 1_000_000_000_000_000_000),
    default=0,
    help="Seed of the draws of a sampled trace [default: 0].",
)
@options.output("--out", type=options.PATH, required=True, help="Trace (.npz) to write.")
@options.as_json
@options.own
def rescale(
    source: str, mean: float, window: int, seed: int, out: Path, as_json: bool, own: Paths
) -> None:
    """Make a trace easier or harder, to a published mean.

    Bursts stay where they are; `derived_from` in the header says how it was done.
    """
    from simulator.core.acceptance.rescale import rescale as rescaled

    with faults_as_lines():
        path, opened = _open(source, own)
        made = _with_file_name(source, lambda: rescaled(opened, mean, window, seed, path.stem))
        _save(made, out, as_json)


def _label(name: str, path: Path) -> str:
    """Return what a trace is called: its file, or as it was typed where that names a drafter."""
    if ":" in name:
        return name
    return path.stem


def _written(path: str) -> str:
    return f"written: {path}"


def _open(name: str, own: Paths) -> tuple[Path, Trace]:
    from simulator.inputs.traces.named import named

    return named(name, Catalogue(own))


def _lines(source: str, may_be_numbers: bool) -> list[str]:
    """Return the lines of a file, or the numbers that are given instead of its name."""
    if may_be_numbers and not source.strip("0123456789.,e+- "):
        return [source]
    with readable(source), reading.lines(source) as lines:
        return [line.replace("\r\n", "\n") for line in lines]


def _with_file_name(source: str, work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns; faults of a converter, which knows lines but no file, get the
    file's name.
    """
    try:
        return work()
    except BadInput as error:

        def in_file(fault: Fault) -> Fault:
            _, line, column = fault.place
            return replace(fault, place=(source, line, column or 1))

        raise error.changed(in_file) from error


def _save(made: Trace, out: Path | None, as_json: bool) -> None:
    """Write a trace and print its size; raise :class:`BadInput` unless ``out`` ends in ``.npz``."""
    if out is None or out.suffix != ".npz":
        raise BadInput.at("--out", f"expected a file that ends in .npz, got {out or 'none'}")
    _write(out, made)
    requests = len(made.flavour)
    tokens = made.positions
    header = dict(made.header)
    data = {"written": [str(out)], "requests": requests, "tokens": tokens, "header": header}
    lines = [f"{out}: {requests:,} requests, {tokens:,} tokens; {header['replay']}"]
    for key, value in header.get("derived_from", {}).items():
        lines.append(f"  {key}: {value}")
    answer(as_json, lambda: data, None, *lines)


def _write(path: Path, content: Trace | str | bytes) -> str:
    """Write a file and return its name."""
    if isinstance(content, str | bytes):
        writing.write(path, content)
    else:
        from simulator.inputs.traces import file as trace_file

        trace_file.write(content, path)
    return str(path)


for command in (record, list_, advise):
    trace.add_command(command)
