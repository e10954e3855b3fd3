"""The version has one number in all its homes, and the changelog begins with what a user does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import yaml

import simulator
from simulator.cli.main import main
from tests.sentences import sentences

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
RELEASES = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
"""Of the changelog, newest first; the first is what no release has yet."""
MOST_LINES = 40
"""Of what changed for a user."""
MOST_WORDS = 35


def test_every_home_of_the_version_says_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    related = (ROOT / "docs" / "background" / "related.md").read_text("utf-8")
    artifact = (ROOT / "docs" / "background" / "artifact.md").read_text("utf-8")
    said = {
        project["version"],
        citation["version"],
        *re.findall(r"\*\*specsim\*\* ([\d.]+)", related),
        *re.findall(r"specdecode_sim-([\d.]+)-py3", artifact),
    }
    assert said == {simulator.__version__}


def test_the_newest_release_is_this_version_and_its_day() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert RELEASES[0].startswith("Unreleased\n")
    title = RELEASES[1].partition("\n")[0]
    assert title == f"{simulator.__version__} - {citation['date-released']}"


def test_a_release_begins_with_what_changed_for_a_user() -> None:
    sections = re.split(r"^### ", RELEASES[1], flags=re.MULTILINE)[1:]
    titles = [section.partition("\n")[0] for section in sections]
    assert titles[0] == "What changed for you"
    assert titles[1] == "What to write instead"
    assert len([line for line in sections[0].splitlines()[1:] if line.strip()]) <= MOST_LINES


def test_lines_of_a_release_are_read_once() -> None:
    assert [text for text in sentences(RELEASES[1]) if len(text.split()) > MOST_WORDS] == []


def test_commands_of_a_release_exist_but_for_those_that_went() -> None:
    """The first column of a table holds what was written before."""
    now = re.sub(r"^\|[^|]*\|", "|", RELEASES[1], flags=re.MULTILINE)
    for words in re.findall(r"`specsim ([a-z][a-z -]*)", now):
        command: click.Command = main
        for word in words.split():
            if not isinstance(command, click.Group) or word.startswith("-"):
                break
            inner = command.get_command(click.Context(command), word)
            assert inner is not None, f"specsim {words}"
            command = inner
