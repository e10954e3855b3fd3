"""The page of the house: its drawing is made from the imports, and every room has its question."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import simulator
from docs.write_house import PAGE, floors, imported_rooms, imports, necessary, page
from tests.apart import gone

ROOMS = {path.parent.name for path in Path(simulator.__file__).parent.glob("*/__init__.py")}


@pytest.mark.skipif(bool(gone()), reason="arrows of a paper that was taken away are missing")
def test_the_committed_drawing_is_made_from_the_imports() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run `python3 dev.py reference`"
    assert len(floors(imports())) == 7


def test_every_room_has_a_question_and_no_other_is_named() -> None:
    table, _, _ = PAGE.read_text("utf-8").partition("Inside of `core`")
    questions = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert questions.keys() == ROOMS
    assert all("?" in question for question in questions.values())


def test_imports_are_read_wherever_they_stand() -> None:
    source = (
        "import simulator.core.cost.device\nfrom simulator import record\ndef f():\n    from "
        "simulator.inputs.schema import Frozen\n"
    )
    assert imported_rooms(f"{source}import numpy\nfrom simulation.other import x\n") == {
        "core",
        "inputs",
        "record",
    }


def test_a_room_lies_above_what_it_imports_and_implied_arrows_are_left_out() -> None:
    arrows = {"roof": {"wall", "ground"}, "wall": {"ground"}, "ground": set(), "shed": set()}
    assert floors(arrows) == [["ground", "shed"], ["wall"], ["roof"]]
    assert necessary(arrows) == [("roof", "wall"), ("wall", "ground")]


def test_a_circle_has_no_floors() -> None:
    with pytest.raises(ValueError, match=r"a circle among \['egg', 'hen'\]"):
        floors({"hen": {"egg"}, "egg": {"hen"}, "yard": set()})
