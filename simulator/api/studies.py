"""The studies of scenarios: a study computes ``studies/NAME.py`` and is shown by
``report/pages/NAME.py``; those of a paper lie in its folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from simulator.api.asked import Folder, Overrides, lines, name_of
from simulator.api.result import Result
from simulator.core.faults import BadInput
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import in_a_line
from simulator.inputs.shell import command_line
from simulator.studies.of_papers import studies_of_papers

if TYPE_CHECKING:
    import pandas as pd

    from simulator.report.blocks import Page
    from simulator.scenario import Loaded
    from simulator.studies.compare import Comparison

LETTERED = re.compile(r"([A-Z]):(.*)", re.DOTALL)
"""A ``--set`` for one of the scenarios of a comparison."""


class Asked(NamedTuple):
    """Holds what all studies can be asked: scenarios, changes to them, whether a picture is."""

    scenarios: tuple[str, ...]
    overrides: tuple[str, ...]
    seed: int | None
    own: tuple[Path, ...]
    pictured: bool = False

    def loaded(self, *overrides: str) -> list[Loaded]:
        """Return the loaded scenarios, with further overrides. Raises :class:`BadInput` for a
        faulty one.
        """
        from simulator.scenario import load

        return [
            load(name, (*self.overrides, *overrides), Catalogue(self.own), self.seed)
            for name in self.scenarios
        ]


Options: TypeAlias = PlainData
Prepare: TypeAlias = Callable[[Asked, Options], tuple[Sequence[Any], Options]]
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
    models = options.pop("models", ())
    loaded = asked.loaded()
    for name in models:
        loaded += asked.loaded(f"draft.model={name}")
    return loaded, options


def traffic(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios with the name of their workload, under the traffic that was named or
    their own.
    """
    named = options.pop("traffic", ())
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
    if not colon:
        return text
    return f"{{arrivals: {{name: file, format: {kind}, file: {in_a_line(file)}}}}}"


def methods(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the methods that can be compared on a scenario; with ``parallel`` those that draft
    beside the target.
    """
    from simulator.studies import parallel_methods
    from simulator.studies.methods import candidates

    (scenario,) = asked.scenarios
    only = options.pop("only", ())
    if options.pop("parallel", False):
        catalogue = Catalogue(asked.own)
        beside = parallel_methods.candidates(scenario, asked.overrides, catalogue, asked.seed, only)
        return beside, options | {"scenario": scenario}
    tried = candidates(scenario, asked.overrides, Catalogue(asked.own), asked.seed, only)
    return list(tried), options | {"scenario": scenario}


def contestants(asked: Asked, options: Options) -> tuple[Sequence[Any], Options]:
    """Return the scenarios under their letters, with what is set in each of them."""
    from simulator.studies.compare import Contestant

    runs = []
    changes = by_letter(asked)
    names = asked.scenarios * (len(changes) if len(asked.scenarios) == 1 else 1)
    for name, (letter, overrides) in zip(names, changes.items(), strict=True):
        (loaded,) = asked._replace(scenarios=(name,), overrides=tuple(overrides)).loaded()
        alone = []
        for match in map(LETTERED.fullmatch, asked.overrides):
            if match and match[1] == letter:
                alone.append(match[2])
        command = command_line("run", [name], overrides, asked.seed)
        runs.append(Contestant(letter, ", ".join([loaded.scenario.name, *alone]), command, loaded))
    return runs, options


def by_letter(asked: Asked) -> dict[str, list[str]]:
    """Return the overrides of all scenarios by letter; a single scenario is taken once for each
    letter up to the last.

    Raises :class:`BadInput` for too few or too many scenarios or letters.
    """
    count = len(asked.scenarios)
    most = len(ascii_uppercase)
    if count == 1:
        letters = [match[1] for match in map(LETTERED.fullmatch, asked.overrides) if match]
        count = ascii_uppercase.index(max(letters, default="A")) + 1
    if not 2 <= count <= most:
        alone = "or one with --set A:KEY=VALUE --set B:KEY=VALUE"
        message = f"expected 2 to {most} scenarios, {alone}, got {len(asked.scenarios)}"
        raise BadInput.at("SCENARIO...", message)
    overrides: dict[str, list[str]] = {letter: [] for letter in ascii_uppercase[:count]}
    for text in asked.overrides:
        match = LETTERED.fullmatch(text)
        if match and match[1] not in overrides:
            last = ascii_uppercase[count - 1]
            raise BadInput.at(f"--set {text}", f"there are scenarios A to {last}")
        for letter in match[1] if match else overrides:
            overrides[letter].append(match[2] if match else text)
    return overrides


PREPARED: dict[str, Prepare] = {
    "batches": scenarios,
    "capacity": traffic,
    "compare": contestants,
    "crossovers": methods,
    "drafts": drafts,
    "load": scenarios,
    "methods": methods,
}
"""How the input of each study is made, but for those of papers, which take scenarios."""


def study_names() -> list[str]:
    """Return the names of all studies, those of papers among them, in order."""
    return sorted([*PREPARED, *studies_of_papers()])


def computed(name: str, asked: Asked, options: Options) -> Any:
    """Return the result of a study; options that are not given have the defaults of its ``study``
    function. Raises as it does.
    """
    of_paper = studies_of_papers().get(name)
    if of_paper is None:
        inputs, arguments = PREPARED[name](asked, dict(options))
        return import_module(f"simulator.studies.{name}").study(inputs, **arguments)
    pictured = {of_paper.if_pictured: asked.pictured} if of_paper.if_pictured else {}
    return import_module(of_paper.module).study(asked.loaded(), **options, **pictured)


def page_of(name: str, result: Any, command: str) -> Page:
    """Return the page of a study's result, with the command that makes it again."""
    of_paper = studies_of_papers().get(name)
    module = of_paper.page_module if of_paper else f"simulator.report.pages.{name}"
    page: Page = import_module(module).page(result)
    return replace(page, command=command)


def with_standing(page: Page, asked: Asked) -> Page:
    """Return the page of a study with what its answer is worth: where it does not say so itself,
    what the speed-up of its first scenario is by law; nothing where that has none.
    """
    from simulator.report.blocks import Standing
    from simulator.report.pages.brief import standing_of
    from simulator.scenario.decision.by_law import by_law, doubts_by_law
    from simulator.scenario.evaluate import tuned

    if page.standing:
        return page
    first, *_ = asked._replace(scenarios=asked.scenarios[:1]).loaded()
    loaded = tuned(first)
    try:
        law = by_law(loaded)
    except BadInput:  # it has none
        return replace(page, standing=Standing())
    standing = standing_of(page, loaded.scenario.name, law, doubts_by_law(loaded))
    return replace(page, standing=standing)


def study(
    name: str,
    *scenarios: str | Path,
    overrides: Overrides = (),
    seed: int | None = None,
    catalogue: Folder = None,
    **options: Any,
) -> Result[Any]:
    """Do a study of scenarios and return it: ``study("trees", "specpipe_llama_3_1_70b_8x3090")``.

    ``name`` is the command of a study (``batches``, ``load``, ... of :func:`study_names`, those of
    papers among them); ``options`` are those of the command, with underscores. Raises ValueError
    for an unknown study, which names all there are, TypeError for a scenario that is loaded
    already, and as :func:`load`.
    """
    names = study_names()
    if name not in names:
        raise ValueError(f"there is no study '{name}'; there are {', '.join(names)}")
    folders = (Path(catalogue),) if catalogue else ()
    asked = Asked(tuple(map(name_of, scenarios)), lines(overrides), seed, folders)
    value = computed(name, asked, options)
    if options or catalogue:
        command = ""
    else:
        command = command_line(name, asked.scenarios, asked.overrides, seed)

    def page() -> Page:
        return page_of(name, value, command)

    def frame() -> pd.DataFrame:
        import pandas as pd

        return pd.json_normalize(_rows(value.as_data()))

    def write(folder: Path) -> None:
        from simulator.report.page import page_files, write_files

        write_files(folder, page_files(page(), name))

    return Result(
        value,
        value.as_data,
        frame,
        page,
        write,
    )


def _rows(data: Any) -> list[PlainData]:
    """Return the rows of nested plain data: its innermost list of mappings, with the names of what
    holds it.
    """
    if isinstance(data, dict):
        lists = {
            key: value
            for key, value in data.items()
            if isinstance(value, list) and value and isinstance(value[0], dict)
        }
        plain = {key: value for key, value in data.items() if not isinstance(value, list | dict)}
        for value in lists.values():
            return [plain | row for entry in value for row in _rows(entry)]
        return [{key: value for key, value in data.items() if not isinstance(value, list)}]
    return [row for entry in data for row in _rows(entry)]


def compare(
    *scenarios: str | Path,
    overrides: Overrides = (),
    seed: int | None = None,
    catalogue: Folder = None,
) -> Result[Comparison]:
    """Run scenarios and return them side by side: A, B, C, ... in the order given, the others
    compared with A.

    An override may name a single scenario by its letter: ``["B:strategy.gamma=5"]``. Raises as
    :func:`study`.
    """
    result = study("compare", *scenarios, overrides=overrides, seed=seed, catalogue=catalogue)
    comparison: Comparison = result.value

    def frame() -> pd.DataFrame:
        import pandas as pd

        from simulator.studies.compare import measured

        columns = [f"{contestant.letter}: {contestant.name}" for contestant in comparison.runs]
        return pd.DataFrame.from_dict(
            {measure.key: values for measure, values in measured(comparison)},
            orient="index",
            columns=columns,
        )

    return result.with_frame(frame)
