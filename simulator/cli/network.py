"""The command ``specsim network``: what the links between servers cost a pipeline."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from simulator.cli.options import Asked, faults_as_lines, study_options


@click.command()
@study_options
def network(asked: Asked) -> None:
    """What the network between servers costs a SpecPipe SCENARIO, with sending beside pruning and after it.

    With --out, the link between the servers of the last SCENARIO is swept over latencies and rates.
    """
    from rich.console import Console

    from simulator.report.page import study_file
    from simulator.report.pages.network import print_network, sections
    from simulator.studies.network import breaking, latency_sweep, link_between_servers, network_rows, rate_sweep, spans_of

    with faults_as_lines(), Console(stderr=True).status("simulating") as status:
        loaded = asked.loaded()
        with study_file(asked.out, asked.typed("network")) as write:
            last = loaded[-1]
            link = link_between_servers(last) if write else 0
            found = network_rows(loaded)
            if write:
                from simulator.report.pages.network_figures import network_figure

                status.update("sweeping the network")
                exchanges = [spans_of(last, overlapped) for overlapped in (True, False)]
                picture = network_figure(exchanges, link, latency_sweep(last), rate_sweep(last))
                status.update("looking for where the network breaks it")
                write("What the network between servers costs", picture, sections(found, breaking(last)))
    if asked.as_json:
        shares = ("added_share", "speedup")
        data = [asdict(row) | {name: getattr(row, name) for name in shares} for row in found]
        click.echo(json.dumps({"rows": data}, indent=2))
    else:
        print_network(found, Console())
