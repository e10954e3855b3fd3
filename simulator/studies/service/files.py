"""What is written down of changes tried on a service: for each a prediction, a scenario to run, and
the command that serves it.
"""

import re

import yaml

from simulator.core.plain import PlainData
from simulator.inputs.services.prediction import PREDICTION, prediction_text
from simulator.scenario import Loaded
from simulator.scenario.live.accepted import replacing
from simulator.scenario.live.service import SCENARIO
from simulator.studies.service.changes import Change
from simulator.studies.service.tried import WhatIfService


def tried_files(result: WhatIfService, like: str) -> dict[str, str]:
    """Return the files of each change by name, in a folder of its own; ``like`` is what its
    scenario is like, as it is seen from there.
    """
    files = {}
    for folder, tried in zip(folders_of(result), result.tries, strict=True):
        files[f"{folder}/{PREDICTION}"] = prediction_text(result.prediction(tried))
        files[f"{folder}/{SCENARIO}"] = _scenario_text(result.base, tried.change, like)
        for name, text in tried.files.items():
            files[f"{folder}/{name}"] = text
    return files


def folders_of(result: WhatIfService) -> list[str]:
    """Return the folder of each change: what was typed, as a name of a file."""
    folders = []
    for tried in result.tries:
        name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", tried.change.typed).strip("._") or "change"
        number = 2
        folder = name
        while folder in folders:
            folder = f"{name}_{number}"
            number += 1
        folders.append(folder)
    return folders


def _scenario_text(base: Loaded, change: Change, like: str) -> str:
    """Return the scenario of a change: like another one, with the fields that it writes."""
    data: PlainData = {"like": like, "about": f"With {change.typed}"}
    document = change.loaded.document
    whole: list[tuple[str, ...]] = []
    for path in sorted((tuple(name.split(".")) for name in change.fields), key=len):
        if any(path[: len(outer)] == outer for outer in whole):
            continue  # within what is written whole
        whole.append(path)
        inner = data
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = document.get(path)
    if ("strategy",) in whole:
        before = base.document.get(("strategy",))
        if before["name"] == data["strategy"]["name"]:  # else it stands in its place anyway
            kind = type(change.loaded.scenario.strategy)
            data["strategy"] = replacing(kind, before, data["strategy"])
        data["method"] = document.get(("method",))
    return yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)
