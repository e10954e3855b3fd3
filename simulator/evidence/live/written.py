"""The files of a fit to a running service: device, engine, and a scenario for each observation."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path

from simulator.core.plain import PlainData
from simulator.evidence.calibrate.profile import text
from simulator.evidence.calibrate.runs import home_of
from simulator.evidence.live.calibration import DEVIATIONS, ServiceFit
from simulator.evidence.live.terms import written
from simulator.inputs.catalogue import Catalogue
from simulator.scenario.live.service import SCENARIO, scenario_of

DEVICE = "device.yaml"
ENGINE = "engine.yaml"
NOT_OF_A_FIT = ("hull", "versions", "fit", "fitted_on")
"""Fields of an engine that belong to the runs that its numbers were fitted to."""


def fitted_files(
    fit: ServiceFit, paths: Sequence[Path], like: str, out: Path, catalogue: Catalogue
) -> Mapping[str, str | bytes]:
    """Return the content of the files of a fit by name, to be written into ``out``: the profiles,
    and the scenario of each of the observations at ``paths``, the first beside them and others in
    folders of their own.
    """
    base = catalogue.scenario(like)
    source = ", ".join(case.name for case in fit.cases if not case.held_out)
    device = deepcopy(base.data["target"]["device"])
    engine = deepcopy(base.data["target"]["engine"])
    for number in fit.terms:
        if number.is_identified:
            data = device if number.term.part == "device" else engine
            written(number.term, data, number.at, DEVIATIONS * number.at_error, source)
    names = device["name"], engine["name"]
    device["name"], engine["name"] = (f"{name}_as_observed" for name in names)
    files: dict[str, str | bytes] = {
        DEVICE: text(device),
        ENGINE: text(_with_home(engine, fit, source, device["name"])),
    }
    for number_of_case, (case, path) in enumerate(zip(fit.cases, paths, strict=True), 1):
        folder = "" if number_of_case == 1 else f"observation_{number_of_case}/"
        changes = _changes(base.data, names, "./" if not folder else "../")
        if not case.scenario.schedule.window:
            changes.pop("draft", None)
        made = scenario_of(
            case.made.observed,
            path.parent,
            like,
            catalogue,
            out=out / folder,
            changes=changes,
            outside_ms=fit.fitted.engine.outside_ms.value,
        )
        files |= {f"{folder}{name}": content for name, content in made.files.items()}
    return files


def _with_home(engine: PlainData, fit: ServiceFit, source: str, card: str) -> PlainData:
    """Return an engine with what its numbers were fitted to, and how far they are from it."""
    kept = {name: value for name, value in engine.items() if name not in NOT_OF_A_FIT}
    home = home_of([case.scenario for case in fit.cases if not case.held_out])
    home["fitted_on"]["card"] = card
    errors = {}
    for part in ("fitted", "held out"):
        off = [
            abs(score.tpot_error)
            for score in fit.scores
            if score.part == part and score.tpot_error is not None
        ]
        if off:
            errors[part] = round(sum(off) / len(off), 4)
    free = sum(number.is_identified for number in fit.terms)
    words = {"source": source, "rows": fit.rows, "free": free, "errors": errors}
    return kept | home | {"fit": words}


def _changes(base: PlainData, names: tuple[str, str], folder: str) -> PlainData:
    """Return the fields of a scenario that name the fitted profiles where those were that the fit
    started from.
    """
    changes: PlainData = {}
    for role in ("target", "draft"):
        place = base.get(role)
        if not isinstance(place, dict):
            continue
        fields = {}
        for field, file, name in zip(("device", "engine"), (DEVICE, ENGINE), names, strict=True):
            if (place.get(field) or {}).get("name") == name:
                fields[field] = f"{folder}{file}"
        if fields:
            changes[role] = fields
    return changes


def scenario_files(cases: int) -> Sequence[str]:
    """Return the names of the scenarios of so many observations."""
    later = [f"observation_{number}/{SCENARIO}" for number in range(2, cases + 1)]
    return [SCENARIO, *later][:cases]
