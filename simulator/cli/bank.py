"""The commands ``specsim trace list`` and ``advise``: what acceptance can be borrowed, and what is
nearest.
"""

import re
from pathlib import Path
from typing import Any

import click
import yaml

from simulator.cli import options
from simulator.cli.options import Paths, answer, faults_as_lines
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import in_a_line
from simulator.inputs.shell import named_file, quoted

OWN: dict[str, str] = yaml.safe_load(
    Path(__file__).with_name("measure_own.yaml").read_text("utf-8")
)
"""How to measure one's own, by engine."""


@click.command("list")
@options.as_json
@options.long
@options.own
def list_(as_json: bool, own: Paths) -> None:
    """List what is recorded; --long: of which text and models, and how many scenarios replay it."""
    from simulator.report.bank import list_page
    from simulator.scenario.bank import published, recordings

    with faults_as_lines():
        recorded = list(recordings(Catalogue(own)))
        means = list(published(Catalogue(own)))
    targets = len({target for target, _ in means})
    data = {"recordings": recorded, "published": {"means": len(means), "targets": targets}}
    answer(as_json, lambda: data, lambda: list_page(recorded, len(means), targets))


@click.command("advise")
@click.option(
    "--target", required=True, help="Target, as Hugging Face calls it or in part, e.g. Qwen3-8B."
)
@click.option("--draft", help="Draft model or head.")
@click.option("--method", help="Method, e.g. eagle_3, mtp or draft_model.")
@click.option("--temperature", type=float, help="Temperature of your requests.")
@click.option("--window", type=click.IntRange(1, 1_000), help="Draft tokens in a row.")
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang", "llama_cpp", "hugging_face"]),
    default="vllm",
    help="Program to measure with [default: vllm].",
)
@options.as_json
@options.long
@options.own
def advise(as_json: bool, own: Paths, target: str, engine: str, **wanted: Any) -> None:
    """Name the published mean and the recording nearest to a pair, how far they are, and how to
    measure your own.
    """
    from simulator.report.bank import advice_page
    from simulator.scenario.bank import lender, nearest

    with faults_as_lines():
        loans = nearest(Catalogue(own), target, wanted)
        recorded = lender(
            Catalogue(own), wanted["method"] or loans[0].mean.method, wanted["temperature"] or 0.0
        )
    measure = measured_with(engine, target, wanted["draft"], wanted["window"])
    published_means = [{**loan._asdict(), "mean": loan.mean.model_dump()} for loan in loans]
    data = {
        "published": published_means,
        "recording": recorded,
        "acceptance": loans[0].block,
        "measure": measure,
    }
    answer(as_json, lambda: data, lambda: advice_page(target, recorded, loans, measure))


def measured_with(engine: str, target: str, draft: str | None, window: int | None) -> str:
    """Return the commands that measure acceptance with an engine; what was not named stays a word
    in capitals.
    """
    config = (
        f'{{"model": {in_a_line(draft or "DRAFT")}, "num_speculative_tokens": {window or "K"}}}'
    )
    words = {
        "TARGET": named_file(target),
        "DRAFT": named_file(draft or "DRAFT"),
        "K": window or "K",
        "CONFIG": config,
    }
    return re.sub(r"\b(TARGET|DRAFT|K|CONFIG)\b", lambda word: quoted(words[word[1]]), OWN[engine])
