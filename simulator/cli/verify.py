"""The command ``specsim verify``: what was predicted of a service beside what was measured."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from simulator.cli import options
from simulator.cli.options import Paths, answer, working
from simulator.core.faults import BadInput
from simulator.inputs.shell import command_line


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
@options.output(
    "--out",
    type=options.PATH,
    help="A page (.md, .html), or a folder for both.",
)
@options.as_json
def verify(
    prediction: Path | None, after: Paths, pairs: tuple[Paths, ...], out: Path | None, as_json: bool
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

            write = stack.enter_context(page_file(out, "verified", pictured=False))
        if prediction is None and not pairs:
            message = "expected a prediction and files of the service after the change"
            raise BadInput.at("verify", f"{message}: specsim verify prediction.yaml after.json")
        if prediction is not None and not after:
            message = "expected files of the service after the change behind it"
            raise BadInput.at(prediction, message)
        words = []
        for each in pairs:
            words += ["--pair", *map(str, each)]
        named = [] if prediction is None else [prediction, *after]
        result = verified(*named, pairs=[(each[0], each[1]) for each in pairs])
        command = command_line("verify", list(map(str, named)), (), None, words)
        if write or not as_json:
            page = page_of(result.value, command)
        if write:
            write(page)
    lines = [f"page: {out}"] if out else []
    answer(as_json, result.to_dict, lambda: page, *lines)
