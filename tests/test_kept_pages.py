"""Blocks of the how-to on plans, and kept reports, are what their commands print today."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main

ROOT = Path(__file__).parent.parent
PLAN = ROOT / "docs/how-to/plan.md"
BUDGETS = sorted((ROOT / "reports/budgets").glob("*.md"))
LABEL = re.compile(r"^(?=[A-Z][\w ]+: )", re.MULTILINE)


def quoted(beginning: str) -> list[str]:
    """The sentences of the how-to's block that begins so; what it leaves out ends one."""
    (block,) = re.findall(
        rf"^    ({beginning}.*\n(?:    .*\n)*)", PLAN.read_text("utf-8"), re.MULTILINE
    )
    sentences = []
    for labelled in LABEL.split(re.sub("^    ", "", block, flags=re.MULTILINE)):
        sentences += [part.strip() for part in " ".join(labelled.split()).split(" ...")]
    return [sentence for sentence in sentences if sentence]


def printed(command: list[str]) -> str:
    done = CliRunner().invoke(main, command, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_a_block_is_read_label_by_label() -> None:
    at_loads = quoted("At other loads: ")
    assert len(at_loads) == 1
    assert at_loads[0].endswith("8 x coupled on H200, gamma 5;")
    split, costs = quoted("Split or not: ")
    assert split.startswith("Split or not: split. ")
    assert costs.startswith("What a split costs: prompts are ")


@pytest.mark.full(minutes=3)
@pytest.mark.parametrize(
    ("plan", "beginning"),
    [
        ("decoupled_qwen3_32b_8xh200", "At other loads: "),
        ("apart_qwen3_32b_8xh100", "Split or not: "),
    ],
)
def test_the_page_on_plans_says_what_its_plans_come_to(plan: str, beginning: str) -> None:
    assert plan in PLAN.read_text("utf-8")
    answer = printed(["plan", plan, "--long"])
    for sentence in quoted(beginning):
        assert sentence in answer


@pytest.mark.full
@pytest.mark.parametrize("kept", BUDGETS, ids=[page.stem for page in BUDGETS])
def test_a_kept_budget_is_what_the_command_at_its_end_makes(kept: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"^specsim (budget .*) --out \S+$", kept.read_text(), re.MULTILINE)
    made = tmp_path / kept.name
    printed([*shlex.split(command), "--out", str(made)])
    said = made.read_text().replace(str(made), str(kept.relative_to(ROOT)))
    assert said == kept.read_text()
