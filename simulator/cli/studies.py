"""The studies as commands: ``specsim NAME`` computes ``studies/NAME.py`` and shows ``report/pages/NAME.py``; a row each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from simulator.cli.options import (
    Ending,
    Sizes,
    answer,
    catalogue_option,
    json_option,
    overrides_option,
    seed_option,
    typed,
    working,
)
from simulator.files.document import BadInput, Fault
from simulator.names import Catalogue

if TYPE_CHECKING:
    from simulator.scenario import Loaded

LETTERED = re.compile(r"([A-Z]):(.*)", re.DOTALL)
"""A ``--set`` for one of the scenarios of a comparison."""
OUT = "File for the study: a picture (.svg), a page with its picture beside it (.md), or one page with everything (.html)."
FOLDER_OUT = "Folder for the page (.md, .html) and its picture, or a file: .svg, .md or .html."
UNTYPED = ("workers",)
"""Options that change no result, so that the command on a page leaves them out."""


class Asked(NamedTuple):
    """Holds what all studies can be asked: scenarios, changes to them, and where the answer goes."""

    scenarios: tuple[str, ...]
    overrides: tuple[str, ...]
    seed: int | None
    out: Path | None
    as_json: bool
    own: tuple[Path, ...]

    def loaded(self, *overrides: str) -> list[Loaded]:
        """Return the loaded scenarios, with further overrides. Raises :class:`BadInput` for a faulty one."""
        from simulator.scenario import load

        return [load(name, (*self.overrides, *overrides), Catalogue(self.own), self.seed) for name in self.scenarios]


Options = dict[str, Any]
Prepare = Callable[[Asked, Options], tuple[Sequence[Any], Options]]
"""A function that makes of what was asked, and of the study's options, what its ``study`` function takes."""


def scenarios(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios, and the options as they are."""
    return asked.loaded(), options


def drafts(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return a scenario, and the same with the drafts that were named."""
    if len(asked.scenarios) > 1:
        raise BadInput([Fault((asked.scenarios[1], 0, 0), "", "expected one scenario; its drafts are compared")])
    models = options.pop("models")
    return [*asked.loaded(), *(loaded for name in models for loaded in asked.loaded(f"draft.model={name}"))], options


def traffic(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios with the name of their workload, under the traffic that was named or their own."""
    named = options.pop("traffic")
    if not named:
        return [("its own workload", loaded) for loaded in asked.loaded()], options
    pairs = []
    for text in named:
        name = Path(text.partition(":")[2] or text).stem
        pairs += [(name, loaded) for loaded in asked.loaded(f"requests={workload(text)}")]
    return pairs, options


def workload(text: str) -> str:
    """Return what ``requests`` is set to: a name, or a mapping for FORMAT:FILE."""
    kind, colon, file = text.partition(":")
    return f"{{arrivals: {{name: file, format: {kind}, file: {json.dumps(file)}}}}}" if colon else text


def methods(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the methods that can be compared on a scenario."""
    from simulator.studies.methods import candidates

    (scenario,), only = asked.scenarios, options.pop("only")
    tried = candidates(scenario, asked.overrides, Catalogue(asked.own), asked.seed, only)
    return list(tried), options | {"scenario": scenario}


def network(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios, and to sweep a link where a picture is asked for."""
    return asked.loaded(), options | {"swept": asked.out is not None}


def contestants(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios under their letters, with what is set in each of them."""
    from simulator.studies.compare import Contestant

    runs, changes = [], by_letter(asked)
    names = asked.scenarios * (len(changes) if len(asked.scenarios) == 1 else 1)
    for name, (letter, overrides) in zip(names, changes.items(), strict=True):
        (loaded,) = asked._replace(scenarios=(name,), overrides=tuple(overrides)).loaded()
        alone = [match[2] for match in map(LETTERED.fullmatch, asked.overrides) if match and match[1] == letter]
        command = typed("run", [name], overrides, asked.seed)
        runs.append(Contestant(letter, ", ".join([loaded.scenario.name, *alone]), command, loaded))
    return runs, options


def by_letter(asked: Asked) -> dict[str, list[str]]:
    """Return the overrides of all scenarios by letter; a single scenario is taken once for each letter up to the last.

    Raises :class:`click.UsageError` for too few or too many scenarios or letters.
    """
    count, most = len(asked.scenarios), len(ascii_uppercase)
    if count == 1:
        letters = [match[1] for match in map(LETTERED.fullmatch, asked.overrides) if match]
        count = ascii_uppercase.index(max(letters, default="A")) + 1
    if not 2 <= count <= most:
        alone = ", or one with --set A:KEY=VALUE --set B:KEY=VALUE"
        raise click.UsageError(f"expected 2 to {most} scenarios{alone}, got {len(asked.scenarios)}")
    overrides: dict[str, list[str]] = {letter: [] for letter in ascii_uppercase[:count]}
    for text in asked.overrides:
        match = LETTERED.fullmatch(text)
        if match and match[1] not in overrides:
            raise click.UsageError(f"--set {text}: there are scenarios A to {ascii_uppercase[count - 1]}")
        for letter in match[1] if match else overrides:
            overrides[letter].append(match[2] if match else text)
    return overrides


@dataclass(frozen=True)
class StudyCommand:
    """Describes a study: its name, its help, what is shown while it works, and the options that it has besides those of all."""

    name: str
    help: str
    status: str
    options: tuple[click.Option, ...] = ()
    prepare: Prepare = scenarios
    metavar: str = "SCENARIO..."
    progress: bool = False
    """Whether its ``study`` function says what it is at."""
    lettered: bool = False
    """Whether ``--set`` may name one of the scenarios by its letter, and ``--out`` a folder."""

    def defaults(self) -> Options:
        """Return the values of all options that are not given."""
        context = click.Context(click.Command(self.name))
        return {option.name or "": option.type_cast_value(context, option.get_default(context)) for option in self.options}


def sizes(flag: str, text: str, default: str | None = None) -> click.Option:
    """Return an option for sizes like ``1,2,4-8``."""
    name = "simulated" if flag == "--simulate" else flag.removeprefix("--")
    return click.Option([flag, name], type=Sizes(), default=default, show_default=default is not None, help=text)


ONLY = click.Option(["--only"], multiple=True, metavar="METHOD", help="A method to compare, repeatable [default: all].")

STUDIES = (
    StudyCommand(
        "compare",
        "Scenarios side by side: what they come to, and in what they differ.\n\n"
        "They are called A, B, C, ... in the order given, and compared with A. A SCENARIO is a name or a YAML file;\n"
        "a single one is changed letter by letter:\n"
        "specsim compare mine --set A:target.device=h100_sxm --set B:target.device=h200_sxm.",
        "simulating",
        prepare=contestants,
        metavar="SCENARIO...",
        lettered=True,
    ),
    StudyCommand(
        "capacity",
        "Whether a SCENARIO is stable under its arrivals, and the highest rate that it carries within its SLO.",
        "reading",
        (
            click.Option(
                ["--traffic"],
                multiple=True,
                metavar="WORKLOAD|FORMAT:FILE",
                help="Instead of the scenario's own: a workload by name, or a traffic file as azure:FILE, mooncake:FILE, ... "
                "[repeatable]",
            ),
            click.Option(
                ["--search"],
                type=click.IntRange(min=10),
                default=2_000,
                show_default=True,
                help="First requests to search on.",
            ),
            click.Option(["--workers"], type=click.IntRange(min=1), help="Processes  [default: one for each core]."),
        ),
        traffic,
        progress=True,
    ),
    StudyCommand(
        "load",
        "Tokens per second against the time per token, with 1, 2, 4, ... clients.\n\n"
        "The first SCENARIO is the one that the others are compared with.",
        "simulating",
        (sizes("--sizes", "Clients at a time.", "1,2,4,8,16,32"),),
    ),
    StudyCommand(
        "batches",
        "What speculation is worth in a batch of 1, 2, 3, ... requests: speed-up, passes, exposed draft time.\n\n"
        "The picture of several scenarios has their tokens per second, and their ratio to those of the first.",
        "sweeping the batch",
        (
            sizes("--sizes", "Batch sizes for the law.", "1-64"),
            sizes("--simulate", "Sizes to simulate.", "1,2,4,8,16,32,64,128"),
        ),
    ),
    StudyCommand(
        "methods",
        "All methods on SCENARIO's target, device, engine and trace: one table and one bar chart.",
        "simulating",
        (ONLY,),
        methods,
        "SCENARIO",
    ),
    StudyCommand(
        "crossovers",
        "The batch at which methods stop paying on SCENARIO's hardware, by law.",
        "sweeping the batch",
        (ONLY, sizes("--sizes", "Batch sizes for the law.", "1-128")),
        methods,
        "SCENARIO",
    ),
    StudyCommand(
        "drafts",
        "What drafts of other sizes would have to be kept in a vanilla_sd SCENARIO to come level with its own, by law.",
        "pricing drafts",
        (
            click.Option(
                ["--model", "models"], multiple=True, required=True, metavar="MODEL", help="Another draft, repeatable."
            ),
        ),
        drafts,
    ),
    StudyCommand(
        "budget",
        "The budget of a DuoDecoding SCENARIO: c, gamma = c, the true optimum, numbers of sequences.\n\n"
        "By law, replay and simulation, with verified tokens counted and with shown ones.",
        "sweeping the budget",
        (
            sizes("--budgets", "Budgets for the law [default: 1 to well past c]."),
            sizes("--simulate", "Budgets to simulate [default: a dozen, and those around c]."),
        ),
    ),
    StudyCommand(
        "streams",
        "Speculative Streaming SCENARIO over its tree factor k, pruned or not, and against decoding with a draft.",
        "sweeping the tree",
        metavar="SCENARIO",
    ),
    StudyCommand(
        "trees", "What a token costs with all draft trees that the trace of a SpecPipe SCENARIO holds.", "sweeping the tree"
    ),
    StudyCommand(
        "network",
        "What the network between servers costs a SpecPipe SCENARIO, with sending beside pruning and after it.\n\n"
        "With --out, the link between the servers of the last SCENARIO is swept over latencies and rates.",
        "simulating",
        prepare=network,
    ),
)


def commands() -> Iterator[click.Command]:
    """Yield the commands of all studies."""
    for study in STUDIES:
        several = study.metavar != "SCENARIO"
        argument = click.Argument(["scenarios"], nargs=-1 if several else 1, required=True, metavar=study.metavar)
        command = click.Command(study.name, params=[argument], help=study.help, callback=partial(run, study))
        if study.lettered:
            text = "Override a field of all scenarios, or of one by its letter: B:strategy.gamma=5."
            click.option("--set", "overrides", multiple=True, metavar="[A:]KEY=VALUE", help=text)(command)
        else:
            overrides_option(command)
        seed_option(command)
        command.params += study.options
        kind = click.Path(path_type=Path) if study.lettered else Ending(".svg", ".md", ".html")
        click.option("--out", type=kind, help=FOLDER_OUT if study.lettered else OUT)(command)
        json_option(command)
        catalogue_option(command)
        yield command


def run(study: StudyCommand, **options: Any) -> None:
    """Compute a study and show it: on the terminal, as JSON, and in a file where one is asked for."""
    asked = Asked(*(options.pop(name) for name in Asked._fields))
    if isinstance(asked.scenarios, str):
        asked = asked._replace(scenarios=(asked.scenarios,))
    command = _typed(study, asked, options)
    with working(study.status) as status, ExitStack() as stack:
        inputs, arguments = study.prepare(asked, options)
        if study.progress:
            arguments["progress"] = status.update
        write = None
        if asked.out:
            from simulator.report.page import page_file

            write = stack.enter_context(page_file(asked.out, study.name))
        result = import_module(f"simulator.studies.{study.name}").study(inputs, **arguments)
        if write or not asked.as_json:
            page = replace(import_module(f"simulator.report.pages.{study.name}").page(result), command=command)
        if write:
            write(page)
    answer(asked.as_json, result.as_data, lambda: page, *([_written(study, asked.out)] if asked.out else []))


def _written(study: StudyCommand, out: Path) -> str:
    """Return the line that says where the study was written to."""
    if out.is_dir():
        return f"page: {out / f'{study.name}.html'}   {out / f'{study.name}.md'}"
    return f"{'figure' if out.suffix == '.svg' else 'page'}: {out}"


def _typed(study: StudyCommand, asked: Asked, options: Options) -> str:
    """Return the command as it can be typed again, with the options that were typed."""
    context, words = click.get_current_context(), list[str]()
    for option in study.options:
        name = option.name or ""
        if name not in UNTYPED and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values = options[name] if option.multiple else [options[name]]
            words += [word for value in values for word in (option.opts[0], _text(value))]
    if asked.out:
        words += ["--out", str(asked.out)]
    return typed(study.name, asked.scenarios, asked.overrides, asked.seed, words)


def _text(value: Any) -> str:
    """Return the value of an option as it can be typed; of sizes in a row, the first and the last."""
    if not isinstance(value, list):
        return str(value)
    parts, begin = list[str](), 0
    ends = [place for place, (size, following) in enumerate(pairwise(value), start=1) if following != size + 1]
    for end in [*ends, len(value)]:
        row = value[begin:end]
        parts += [f"{row[0]}-{row[-1]}"] if len(row) > 2 else map(str, row)
        begin = end
    return ",".join(parts)
