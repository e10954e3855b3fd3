"""The commands ``specsim trace``: look at traces, convert other people's records, re-scale."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.options import LazyGroup, catalogue_option, faults_as_lines

if TYPE_CHECKING:
    from simulator.acceptance.trace import Trace

FORMATS = ("specdecode_bench_eagle", "specdecode_bench_ngram", "rest", "steps", "vllm_log", "golden_lengths", "mean_length")
"""Keys of ``converters.TO_TRACE`` and ``TO_RATES``, written out because those load numpy; a test compares them."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command that looks at traces takes."""
    text = "Only this kind of text; repeatable [default: all]."
    command = click.option("--flavour", "flavours", multiple=True, metavar="NAME", help=text)(command)
    text = "Draws the acceptance of sampled traces [default: 0]."
    command = click.option("--seed", type=int, default=0, help=text)(command)
    return catalogue_option(json_option(command))


@click.group(cls=LazyGroup, lazy={"record": "simulator.cli.record:record"})
def trace() -> None:
    """Recorded acceptance: what a trace says, converting from other formats, re-scaling."""


@trace.command()
@click.argument("name")
@reading_options
def info(name: str, flavours: tuple[str, ...], seed: int, as_json: bool, own: tuple[Path, ...]) -> None:
    """Numbers of a trace, NAME or file, beside the formulas; NAME:DRAFTER for another drafter of the same text.

    Header, acceptance by kind of text, accepted tokens by window (replayed, i.i.d., law), hits of draft and
    early exits, run lengths, repetition.
    """
    from dataclasses import asdict

    from rich.console import Console

    from simulator.acceptance.statistics import statistics
    from simulator.report.pages.trace import print_info

    with faults_as_lines():
        path, found = _open(name, own)
        numbers = statistics(found, flavours, seed)
    if as_json:
        data = {"trace": path.stem, "bytes": path.stat().st_size, **asdict(numbers), "header": dict(found.header)}
        click.echo(json.dumps(data, indent=2))
    else:
        print_info(name if ":" in name else path.stem, found, numbers, path.stat().st_size, Console())


@trace.command()
@click.argument("names", nargs=-1, required=True)
@reading_options
def compare(names: tuple[str, ...], flavours: tuple[str, ...], seed: int, as_json: bool, own: tuple[Path, ...]) -> None:
    """Several traces side by side."""
    from dataclasses import asdict

    from rich.console import Console

    from simulator.acceptance.statistics import statistics
    from simulator.report.pages.trace import print_comparison

    with faults_as_lines():
        opened = [_open(name, own) for name in names]
        found = [
            (name if ":" in name else path.stem, statistics(one, flavours, seed))
            for name, (path, one) in zip(names, opened, strict=True)
        ]
    if as_json:
        click.echo(json.dumps({"traces": [{"trace": name, **asdict(numbers)} for name, numbers in found]}, indent=2))
    else:
        print_comparison(found, Console())


@trace.command()
@click.argument("name")
@reading_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the SVG files.")
def plot(name: str, flavours: tuple[str, ...], seed: int, as_json: bool, own: tuple[Path, ...], out: Path) -> None:
    """What `info` says, as SVG files."""
    from simulator.acceptance.statistics import statistics
    from simulator.report.pages.trace_figures import figures

    with faults_as_lines():
        _, found = _open(name, own)
        drawn = figures(statistics(found, flavours, seed))
        written = [_write(out / f"{file}.svg", text) for file, text in drawn.items()]
    click.echo(json.dumps({"written": written}, indent=2) if as_json else "\n".join(written))


@trace.command()
@click.argument("names", nargs=-1, required=True)
@reading_options
@click.option(
    "--window", "windows", type=click.IntRange(2, 64), multiple=True, help="Draft tokens; repeatable [default: 3, 5, 8]."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for a page and its figure.")
def iid(
    names: tuple[str, ...],
    flavours: tuple[str, ...],
    seed: int,
    as_json: bool,
    own: tuple[Path, ...],
    windows: tuple[int, ...],
    out: Path | None,
) -> None:
    """How wrong the i.i.d. formula is, fitted to one draft token and asked about more.

    All drafters of a trace, or one with NAME:DRAFTER; a trace with one drafter also by kind of text.
    """
    from rich.console import Console

    from simulator.acceptance.iid import WINDOWS, every_drafter
    from simulator.report.pages.iid import FIGURE, PAGE, page, print_independence
    from simulator.report.pages.iid_figures import figure

    with faults_as_lines():
        found = []
        for name in names:
            path, opened = _open(name, own)
            label = name if ":" in name else path.stem
            found += every_drafter(opened, label, flavours, windows or WINDOWS, seed)
        text = {PAGE: page(found, _iid_command(names, flavours, windows, seed)), FIGURE: figure(found)} if out else {}
        written = [_write(out / file, content) for file, content in text.items()] if out else []
    if as_json:
        data = [{**one._asdict(), "errors": [error._asdict() for error in one.errors]} for one in found]
        click.echo(json.dumps({"traces": data, "written": written}, indent=2))
        return
    print_independence(found, Console())
    click.echo("".join(f"written: {path}\n" for path in written), nl=False)


def _iid_command(names: tuple[str, ...], flavours: tuple[str, ...], windows: tuple[int, ...], seed: int) -> str:
    options = [("--flavour", flavour) for flavour in flavours] + [("--window", str(gamma)) for gamma in windows]
    options += [("--seed", str(seed))] if seed else []
    return shlex.join(["specsim", "trace", "iid", *names, *(word for option in options for word in option)])


@trace.command()
@click.argument("source", metavar="IN")
@click.option("--from", "form", type=click.Choice(FORMATS), required=True, help="What IN is.")
@click.option("--window", type=click.IntRange(1), help="Draft tokens per window of the record, where it does not say.")
@click.option("--out", type=click.Path(path_type=Path), help="Trace (.npz) or acceptance block (.yaml) to write.")
@json_option
def convert(source: str, form: str, window: int | None, out: Path | None, as_json: bool) -> None:
    """Other people's records as a trace or as rates.

    IN is a file; for a summary it may also be the numbers themselves.

    \b
    Records of what happened, to a trace:
      specdecode_bench_eagle, specdecode_bench_ngram   JSONL, lengths by position
      rest     JSONL of REST's answers, lengths by step
      steps    JSONL, {"accepted": [2, 0, 3], "flavour": "code"} per request;
               draft tokens kept by each step, correction not counted
    Summaries, to an acceptance block of a scenario:
      vllm_log         lines "SpecDecoding metrics", or per-position rates
      golden_lengths   mean accepted lengths at windows 1, 2, 3, ...
      mean_length      one mean accepted length, with --window
    Lengths count correction or bonus.
    """  # noqa: D301 (click reads the backspace)
    import yaml

    from simulator.acceptance.converters import TO_RATES, TO_TRACE

    with faults_as_lines():
        lines = _lines(source, form in TO_RATES)
        if form in TO_TRACE:
            found = _placed(source, lambda: TO_TRACE[form](lines, window))
            _save(found, out, as_json)
            return
        block = {"acceptance": dict(_placed(source, lambda: TO_RATES[form](lines, window)))}
        text = yaml.safe_dump(block, sort_keys=False)
        written = [_write(out, text)] if out else []
    if as_json:
        click.echo(json.dumps({**block, "written": written}, indent=2))
    else:
        click.echo(text + "".join(f"written: {path}\n" for path in written), nl=False)


@trace.command()
@click.argument("source", metavar="IN")
@click.option("--mean", type=float, required=True, help="Tokens per step wanted, correction or bonus included.")
@click.option("--window", type=click.IntRange(1), required=True, help="Draft tokens per window at which that holds.")
@click.option("--seed", type=int, default=0, help="Fixed draws of a sampled trace [default: 0].")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Trace (.npz) to write.")
@json_option
@catalogue_option
def rescale(source: str, mean: float, window: int, seed: int, out: Path, as_json: bool, own: tuple[Path, ...]) -> None:
    """A trace made easier or harder to a published mean.

    Bursts stay where they are; `derived_from` in the header says how it was done.
    """
    from simulator.acceptance.rescale import rescale as rescaled

    with faults_as_lines():
        path, found = _open(source, own)
        _save(_placed(source, lambda: rescaled(found, mean, window, seed, path.stem)), out, as_json)


def _open(name: str, own: tuple[Path, ...]) -> tuple[Path, Trace]:
    """A trace by name or file; ``NAME:DRAFTER`` for another drafter than its first."""
    from simulator.acceptance.trace import read
    from simulator.catalogue import Catalogue
    from simulator.files.schema import BadInput, Fault, did_you_mean

    name, _, drafter = name.partition(":")
    path = Path(name)
    if "/" not in name and path.suffix != ".npz":
        names = Catalogue(own).names("trace")
        if name not in names:
            raise BadInput([Fault((name, 0, 0), "", f"there is no trace of this name{did_you_mean(name, names)}")])
        path = names[name]
    found = read(path)
    if drafter and drafter not in found.drafters:
        message = f"this trace has no drafter '{drafter}'{did_you_mean(drafter, found.drafters)}"
        raise BadInput([Fault((name, 0, 0), "", message)])
    return path, found.drafted_by(drafter or "draft")


def _lines(source: str, may_be_numbers: bool) -> list[str]:
    """Lines of a file, or the numbers that stand in its place."""
    from simulator.files import reading
    from simulator.files.schema import BadInput, Fault

    if may_be_numbers and not source.strip("0123456789.,e+- "):
        return [source]
    try:
        with open(source, encoding="utf-8-sig") as file:
            return list(reading.lines(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput([Fault((source, 0, 0), "", f"cannot be read: {reading.reason(error)}")]) from error


def _placed(source: str, work: Callable[[], Any]) -> Any:
    """Do it; faults of a converter, which knows lines but no file, get the file's name."""
    from simulator.files.schema import BadInput, Fault

    try:
        return work()
    except BadInput as error:
        faults = [Fault((source, fault.place[1], 1), fault.field, fault.message) for fault in error.faults]
        raise BadInput(faults) from error


def _save(found: Trace, out: Path | None, as_json: bool) -> None:
    from simulator.files.schema import BadInput, Fault

    if out is None or out.suffix != ".npz":
        raise BadInput([Fault(("--out", 0, 0), "", f"expected a file that ends in .npz, got {out or 'none'}")])
    _write(out, found)
    data = {"written": [str(out)], "requests": len(found.flavour), "tokens": found.positions, "header": dict(found.header)}
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(f"{out}: {data['requests']:,} requests, {data['tokens']:,} tokens; {found.header['replay']}")
    for key, value in found.header.get("derived_from", {}).items():
        click.echo(f"  {key}: {value}")


def _write(path: Path, content: Trace | str) -> str:
    """Write a file; its name."""
    from simulator.files import writing

    if isinstance(content, str):
        writing.write(path, content)
    else:
        content.write(path)
    return str(path)
