"""The studies as commands: ``specsim NAME`` computes ``studies/NAME.py`` and shows
``report/pages/NAME.py``; a row each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from simulator.cli.options import COMMANDS, answer, parameter, stated, typed, working
from simulator.files.document import BadInput, in_a_line
from simulator.names import Catalogue
from simulator.report.blocks import PICTURES

if TYPE_CHECKING:
    from simulator.scenario import Loaded

LETTERED = re.compile(r"([A-Z]):(.*)", re.DOTALL)
"""A ``--set`` for one of the scenarios of a comparison."""
UNTYPED = ("workers",)
"""Options that change no result, so that the command on a page leaves them out."""


class Asked(NamedTuple):
    """Holds what all studies can be asked: scenarios, changes to them, and where the answer
    goes.
    """

    scenarios: tuple[str, ...]
    overrides: tuple[str, ...]
    seed: int | None
    out: Path | None
    as_json: bool
    own: tuple[Path, ...]

    def loaded(self, *overrides: str) -> list[Loaded]:
        """Return the loaded scenarios, with further overrides. Raises :class:`BadInput` for a
        faulty one.
        """
        from simulator.scenario import load

        return [
            load(name, (*self.overrides, *overrides), Catalogue(self.own), self.seed)
            for name in self.scenarios
        ]


Options = dict[str, Any]
Prepare = Callable[[Asked, Options], tuple[Sequence[Any], Options]]
"""A function that makes of what was asked, and of the study's options, what its ``study`` function
takes.
"""


def scenarios(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios, and the options as they are."""
    return asked.loaded(), options


def drafts(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return a scenario, and the same with the drafts that were named."""
    if len(asked.scenarios) > 1:
        raise BadInput.at(asked.scenarios[1], "expected one scenario; its drafts are compared")
    models = options.pop("models") or ()
    return [
        *asked.loaded(),
        *(loaded for name in models for loaded in asked.loaded(f"draft.model={name}")),
    ], options


def traffic(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios with the name of their workload, under the traffic that was named or
    their own.
    """
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
    return (
        f"{{arrivals: {{name: file, format: {kind}, file: {in_a_line(file)}}}}}" if colon else text
    )


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
        alone = [
            match[2]
            for match in map(LETTERED.fullmatch, asked.overrides)
            if match and match[1] == letter
        ]
        command = typed("run", [name], overrides, asked.seed)
        runs.append(Contestant(letter, ", ".join([loaded.scenario.name, *alone]), command, loaded))
    return runs, options


def by_letter(asked: Asked) -> dict[str, list[str]]:
    """Return the overrides of all scenarios by letter; a single scenario is taken once for each
    letter up to the last.

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
            raise click.UsageError(
                f"--set {text}: there are scenarios A to {ascii_uppercase[count - 1]}"
            )
        for letter in match[1] if match else overrides:
            overrides[letter].append(match[2] if match else text)
    return overrides


@dataclass(frozen=True)
class StudyCommand:
    """Describes a study as ``commands.yaml`` states it: its help, what is shown while it works, the
    options of its own.
    """

    name: str
    help: str
    status: str
    options: Sequence[click.Parameter]
    prepare: Prepare
    metavar: str = "SCENARIO..."
    lettered: bool = False
    """Whether ``--set`` may name one of the scenarios by its letter, and ``--out`` a folder."""

    def defaults(self) -> Options:
        """Return the values of all options that are not given."""
        command = click.Command(self.name, params=[*self.options])
        return dict(command.make_context(self.name, [], resilient_parsing=True).params)


def _study(
    name: str, prepare: str = "scenarios", options: Mapping[str, Any] | None = None, **stated: Any
) -> StudyCommand:
    own = [
        parameter(flag, show_default="default" in facts, **facts)
        for flag, facts in (options or {}).items()
    ]
    return StudyCommand(name, options=own, prepare=PREPARED[prepare], **stated)


PREPARED = {
    function.__name__: function
    for function in (scenarios, drafts, traffic, methods, network, contestants)
}
STUDIES = tuple(_study(name, **stated) for name, stated in COMMANDS["studies"].items())


def commands() -> Iterator[click.Command]:
    """Yield the commands of all studies."""
    for study in STUDIES:
        several = study.metavar != "SCENARIO"
        argument = click.Argument(
            ["scenarios"], nargs=-1 if several else 1, required=True, metavar=study.metavar
        )
        params = [
            argument,
            *study.options,
            *stated("lettered study" if study.lettered else "study")["params"],
        ]
        yield click.Command(
            study.name, params=params, help=study.help, callback=partial(run, study)
        )


def run(study: StudyCommand, **options: Any) -> None:
    """Compute a study and show it: on the terminal, as JSON, and in a file where one is asked
    for.
    """
    asked = Asked(*(options.pop(name) for name in Asked._fields))
    if isinstance(asked.scenarios, str):
        asked = asked._replace(scenarios=(asked.scenarios,))
    command = _typed(study, asked, options)
    with working(study.status), ExitStack() as stack:
        inputs, arguments = study.prepare(asked, options)
        write = None
        if asked.out:
            from simulator.report.page import page_file

            write = stack.enter_context(page_file(asked.out, study.name))
        result = import_module(f"simulator.studies.{study.name}").study(inputs, **arguments)
        if write or not asked.as_json:
            page = replace(
                import_module(f"simulator.report.pages.{study.name}").page(result), command=command
            )
        if write:
            write(page)
    answer(
        asked.as_json,
        result.as_data,
        lambda: page,
        *([_written(study, asked.out)] if asked.out else []),
    )


def _written(study: StudyCommand, out: Path) -> str:
    """Return the line that says where the study was written to."""
    if out.is_dir():
        return f"page: {out / f'{study.name}.html'}   {out / f'{study.name}.md'}"
    return f"{'figure' if out.suffix in PICTURES else 'page'}: {out}"


def _typed(study: StudyCommand, asked: Asked, options: Options) -> str:
    """Return the command as it can be typed again, with the options that were typed."""
    context, words = click.get_current_context(), list[str]()
    for option in study.options:
        name = option.name or ""
        if (
            name not in UNTYPED
            and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ):
            values = options[name] if option.multiple else [options[name]]
            words += [word for value in values for word in (option.opts[0], _text(value))]
    if asked.out:
        words += ["--out", str(asked.out)]
    return typed(study.name, asked.scenarios, asked.overrides, asked.seed, words)


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
