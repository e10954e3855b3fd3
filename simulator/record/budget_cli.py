"""``specsim measure``. Imports torch when it runs, so that its ``--help`` does not need it."""

from __future__ import annotations

import json

import click

from simulator.cli_options import Sizes, faults_as_lines
from simulator.record.cli import EXTRA, INSTALL
from simulator.schema import BadInput, Fault

COUNT = click.IntRange(min=1)
HEAD = " gamma  tokens/s  slowest  fastest  tokens  iteration  target   draft  beyond both (ms)"


@click.command()
@click.option("--budgets", type=Sizes(), help="Budgets to try [default: 1, 2, those around c, and twice c].")
@click.option("--tokens", type=click.IntRange(min=2), default=64, show_default=True, help="Tokens that each request writes.")
@click.option(
    "--requests", type=click.IntRange(1, 120), default=6, show_default=True, help="Requests in a round, flavours in turn."
)
@click.option(
    "--rounds", type=COUNT, default=5, show_default=True, help="Every budget once a round; the spread is over rounds."
)
@click.option("--sequences", type=COUNT, help="A fixed number of sequences [default: dynamic].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else there.")
def measure(budgets: list[int] | None, tokens: int, requests: int, rounds: int, sequences: int | None, as_json: bool) -> None:
    """DuoDecoding's c on this machine, and gamma = c tried live against its neighbours.

    The shipped small target decodes on one core, its draft writes on another.
    """
    from dataclasses import asdict

    from rich.console import Console

    with faults_as_lines(), Console(stderr=True).status("decoding"):
        try:
            from simulator.record.live_budget import measure as measured
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise BadInput([Fault(("measure", 0, 0), "", f"needs {error.name}; install it with {INSTALL}")]) from error
        found = measured(budgets or (), tokens, rounds, requests, sequences)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    click.echo(
        f"c = T_target / T_draft = {found.target_ms:.2f} ms / {found.draft_ms:.2f} ms = {found.cost_coefficient:.2f}, "
        f"gamma = {found.budget}; most tokens per second at gamma = {found.best}"
    )
    click.echo(
        f"verified tokens per second, median of {found.rounds} rounds and their spread, {found.requests} requests a round"
    )
    click.echo(HEAD)
    for one in found.budgets:
        rates = f"{one.tokens_per_s:>9.1f} {one.slowest_per_s:>8.1f} {one.fastest_per_s:>8.1f} {one.tokens_per_iteration:>7.2f}"
        times = f"{one.iteration_ms:>10.2f} {one.target_ms:>7.2f} {one.draft_ms:>7.2f} {one.overhead_ms:>7.2f}"
        click.echo(f"{one.budget:>6} {rates} {times}")
    click.echo(f" alone {found.autoregressive_per_s:>9.1f}")
