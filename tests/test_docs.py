"""The README and docs/: commands exist, scenarios load, figures quoted beside a command are printed
by it; what a page has the reader write is written, and its commands and Python run with it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.inputs.catalogue import shipped
from simulator.scenario import load
from tests.apart import kept
from tests.packages import python_with, specsim_with
from tests.sentences import paragraphs, sentences

ROOT = Path(__file__).parent.parent
BOOKS = [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "reference"
]  # that one quotes usage
PAGES = [ROOT / "README.md", *BOOKS]
BLOCK = re.compile(r"^(?:    .*\n|\n(?=    ))+|^```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?=x?(?!\w))")
SAVED = re.compile(
    r"[Ss]ave[^`]*\sas\s`(\w+\.(?:yaml|json))`:\n\n```(?:yaml)?\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
"""A file that the reader is told to save."""
QUICK = ("run", "law", "list", "show", "schema", "explain", "compare")
"""Commands that are carried out; sweeps, live decoding and recordings are only read."""
MOST_WORDS = 35
"""Of a sentence that is read once."""
OWN_STRATEGY = "docs/how-to/own_strategy.md"
"""The page whose commands want the reader's own package."""
HOW_TO = [page for page in BOOKS if page.parent.name == "how-to"]
READ_FIRST = [
    ROOT / "README.md",
    *(page for page in BOOKS if page.parent.name == "tutorial"),
    *HOW_TO,
]


class Quoted(NamedTuple):
    """A command of a page with the words behind its ``#``."""

    page: str
    command: str
    words: str

    @property
    def args(self) -> list[str]:
        return shlex.split(self.command)[1:]


def quoted() -> list[Quoted]:
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            joined = re.sub(r"\s*\\\n\s*", " ", block)
            for line in re.findall(r"^\s*(?:\$ )?(specsim .*)$", joined, re.MULTILINE):
                command, _, words = line.partition(" #")
                found.append(
                    Quoted(
                        str(page.relative_to(ROOT)),
                        command.partition(" > ")[0].strip(),
                        words.strip(),
                    )
                )
    return found


QUOTED = quoted()
QUOTED_ONCE = list({(command.command, command.words): command for command in QUOTED}.values())


def test_the_pages_quote_commands() -> None:
    assert len(QUOTED) >= 30
    assert {command.page for command in QUOTED} >= {"README.md", "docs/how-to/pipelines.md"}


@pytest.mark.parametrize("one", QUOTED_ONCE, ids=lambda one: one.command)
def test_a_quoted_command_is_one(one: Quoted) -> None:
    command: click.Command = main
    args, context = one.args, click.Context(main)
    while isinstance(command, click.Group):
        inner = command.get_command(context, args[0])
        assert inner is not None, f"{one.page}: specsim has no command '{args[0]}'"
        command, args = inner, args[1:]
        context = click.Context(command, parent=context)
    own = [
        arg
        for arg in args
        if Path(arg).suffix not in (".csv", ".npz", ".jsonl", ".yaml") and not arg.isupper()
    ]
    if own == args:  # no file of the reader's
        command.make_context(command.name, list(args))


def quick(one: Quoted) -> bool:
    """Those of the README are carried out by ``test_readme.py``; files that a reader recorded or
    that an earlier command wrote are not here.
    """
    tutorial = one.page.startswith("docs/tutorial/")
    if one.page == OWN_STRATEGY or re.search(r"[./\w]/\w+\.(csv|jsonl|yaml|npz)", one.command):
        return False
    return one.page != "README.md" and (
        one.args[0] in QUICK or (tutorial and one.args[0] == "plan")
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "one", kept([command for command in QUOTED_ONCE if quick(command)]), ids=lambda one: one.command
)
def test_what_is_said_of_a_command_is_what_it_prints(
    one: Quoted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in SAVED.findall((ROOT / one.page).read_text()):
        Path(name).write_text(text)
    result = CliRunner().invoke(main, one.args, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    missing = [
        number
        for number in NUMBER.findall(one.words)
        if number not in NUMBER.findall(result.stdout)
    ]
    assert missing == [], f"{one.page}: {one.command}\n{result.stdout}"


def class_of_the_notebook() -> str:
    """Return the module that the page has the reader copy: the notebook up to its first use,
    without the line that the notebook says a file of one's own does without.
    """
    notebook = (ROOT / "notebooks" / "6_your_own_strategy.py").read_text()
    own = notebook.partition("class WrongLaw")[0]
    return re.sub(r"^.*# .*its own file does without$", "", own, flags=re.MULTILINE)


def announced(package: Path) -> None:
    """Announce the module as CONTRIBUTING.md writes it."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    (group,) = re.findall(r'\[project\.entry-points\."(specsim\.strategies)"\]', contributing)
    (target,) = re.findall(r'^ +eager_drafting = "(.*)"$', contributing, re.MULTILINE)
    information = package / "eager_drafting-0.1.dist-info"
    information.mkdir()
    metadata = "Metadata-Version: 2.1\nName: eager-drafting\nVersion: 0.1\n"
    (information / "METADATA").write_text(metadata)
    (information / "entry_points.txt").write_text(f"[{group}]\neager_drafting = {target}\n")


@pytest.mark.full
def test_the_page_of_ones_own_strategy_runs_with_the_class_of_the_notebook(tmp_path: Path) -> None:
    (tmp_path / "eager_drafting.py").write_text(class_of_the_notebook())
    announced(tmp_path)
    commands = [one for one in QUOTED_ONCE if one.page == OWN_STRATEGY]
    assert {one.args[0] for one in commands} == {"validate", "run", "compare"}
    for one in commands:
        done = specsim_with(tmp_path, *one.args)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / OWN_STRATEGY).read_text(), re.M | re.S)
    done = python_with(tmp_path, "-c", block, MPLBACKEND="agg")
    assert done.returncode == 0, done.stderr


SCENARIOS = [
    (str(page.relative_to(ROOT)), text) for page in PAGES for text in YAML.findall(page.read_text())
]


@pytest.mark.parametrize(("page", "text"), SCENARIOS)
def test_a_quoted_scenario_loads(page: str, text: str, tmp_path: Path) -> None:
    """A file of real traffic that it names is stood in for by the shipped sample; others are the
    page's own.
    """
    for name, other in SAVED.findall((ROOT / page).read_text()):
        (tmp_path / name).write_text(other)
    sample = (shipped() / "scenarios" / "workloads" / "azure_sample.csv").read_bytes()
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_bytes(sample)
    path = tmp_path / "quoted.yaml"
    path.write_text(text)
    load(str(path))


MIXED = """# A title of a page that has very many words indeed

One `name of seven words in back quotes` and
[two words](and/a/target.md). What follows: it goes on.

* An item
  that goes on. Another one: `names` begin it.

1. A step

| a table | of words |
| --- | --- |

    $ specsim run anything

```yaml
a: block. Of words.
```
"""


def test_sentences_are_told_from_code_tables_and_titles() -> None:
    assert sentences(MIXED) == [
        "One CODE and two words.",
        "What follows: it goes on.",
        "An item that goes on.",
        "Another one:",
        "CODE begin it.",
        "A step",
    ]


@pytest.mark.parametrize("page", READ_FIRST, ids=lambda page: page.stem)
def test_no_sentence_has_to_be_read_twice(page: Path) -> None:
    long = [text for text in sentences(page.read_text("utf-8")) if len(text.split()) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_begins_with_what_its_reader_can_do(page: Path) -> None:
    assert "fter this page you can " in next(paragraphs(page.read_text("utf-8")))


@pytest.mark.full
def test_the_answer_for_one_card_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands and the block of the page, typed one after the other."""
    page = (ROOT / "docs/how-to/one_card.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    for name, text in SAVED.findall(page):
        Path(name).write_text(text)
    asked = [one for one in QUOTED if one.page.endswith("one_card.md") and one.args[0] == "batches"]
    printed = []
    for one in asked:
        result = CliRunner().invoke(main, one.args, env={"COLUMNS": "80"})
        assert result.exit_code == 0, result.stderr
        printed.append(result.stdout)
    on_l4, on_h100, guessed = printed
    assert f"```\n{on_h100}```" in page
    (said,) = re.findall(r"line is `(.*?)`", page)
    assert f"Simulated  {said}." in on_l4
    for worth in re.findall(r"\d\.\d\dx", asked[-1].words):
        assert worth in guessed
