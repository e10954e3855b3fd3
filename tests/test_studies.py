"""One study, one page, one command of the same name; and one page as picture, Markdown, HTML and
text on a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import re
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from command_tree import children, every
from rich.console import Console

import simulator
from simulator.api.studies import PREPARED, study_names
from simulator.cli.main import main
from simulator.cli.options import SIZES
from simulator.report import WANTED, Wanted
from simulator.report.blocks import (
    Bullets,
    Code,
    Figure,
    Listing,
    Page,
    Paragraph,
    Section,
    Strong,
    Table,
)
from simulator.report.html import as_html
from simulator.report.terminal import print_page
from simulator.studies.of_papers import studies_of_papers

PACKAGE = Path(simulator.__file__).parent
PARTS = {
    *("window", "what_if", "measured_cards", "method_features", "of_papers", "parallel_methods"),
    "service",
}
"""Modules without a command of their name: parts of ``run``, of ``list method`` and of ``methods``;
what finds the studies of papers; what is tried on a service.
"""
NAMES = study_names()


def modules(folder: str) -> set[str]:
    """Names of the modules and packages in a folder."""
    paths = (PACKAGE / folder).iterdir()
    return {
        path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file()
    } - {"__init__"}


def computing(name: str) -> ModuleType:
    """The module that computes a study."""
    of_paper = studies_of_papers().get(name)
    return import_module(of_paper.module if of_paper else f"simulator.studies.{name}")


def showing(name: str) -> ModuleType:
    """The module that shows a study."""
    of_paper = studies_of_papers().get(name)
    return import_module(of_paper.page_module if of_paper else f"simulator.report.pages.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_its_page_and_its_command_have_one_name(name: str) -> None:
    assert callable(computing(name).study)
    assert callable(showing(name).page)
    assert name in children(main)


COMMON = {
    "scenarios",
    "overrides",
    "seed",
    "out",
    "as_json",
    "own",
    "long",
    "paper_columns",
    "style",
}
OF_INPUTS = {"models", "traffic", "only", "parallel"}
"""Options of which the input of a study is made."""


@pytest.mark.parametrize("name", NAMES)
def test_an_option_of_a_study_is_a_parameter_with_the_default_that_its_help_says(name: str) -> None:
    parameters = signature(computing(name).study).parameters
    for option in children(main)[name].params:
        if option.name in COMMON | OF_INPUTS:
            continue
        default = parameters[option.name].default
        assert default is not Parameter.empty
        said = re.search(r"\[default: ([\d,-]+)\]", option.help)
        if default is None or said is None:
            assert default is None and said is None
        elif option.type is SIZES:
            assert SIZES.convert(said[1], None, None) == list(default)
        else:
            assert said[1] == f"{default:,}"


def test_every_module_of_studies_is_a_command() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert modules("studies") - PARTS - {"plan", "sweep"} == set(PREPARED)


def test_no_page_is_without_a_study_or_a_command() -> None:
    """A page is called like its study, command or subcommand; a ledger is that of ``specsim
    validate --table``, measured cards those of ``list device --like``.

    Sliders are a part of the pages of runs, laws and plans, goodput of those of plans, and methods
    that draft beside the target of ``specsim methods --parallel``.
    """
    verbs = {word for words, _ in every() for word in words.split()}
    assert modules("report/pages") - verbs == {
        "brief",
        "decision",
        "fleets",
        "goodput",
        "ledger",
        "measured_cards",
        "parallel_methods",
        "what_if",
    }


PARTS_OF_PAGES = {"plot", "brief", "decision", "goodput", "what_if"}
"""A picture without a page, and parts of the pages of others."""


@pytest.mark.parametrize("name", sorted(modules("report/pages") - PARTS_OF_PAGES))
def test_every_page_is_a_page_and_nothing_prints_by_itself(name: str) -> None:
    module = import_module(f"simulator.report.pages.{name}")
    assert get_type_hints(module.page)["return"] is Page
    assert "rich" not in (PACKAGE / f"report/pages/{name}.py").read_text()


# ---- the same page everywhere


DURATIONS = """\
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 30, draft_ms: 10}
acceptance: {always: 3}
requests: {prompt_tokens: 8, output_tokens: 41, count: 2}
"""


def where(printed: str) -> str:
    """Where a page is, as it is printed last."""
    return " ".join(printed.rpartition("Report")[2].split())


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "mine.yaml").write_text(DURATIONS)
    return ["load", str(tmp_path / "mine.yaml"), "--sizes", "1-3,8"]


def test_a_study_is_one_html_page_with_everything_in_it(command: list[str], tmp_path: Path) -> None:
    page = tmp_path / "load.html"
    result = CliRunner().invoke(main, [*command, "--out", str(page)], catch_exceptions=False)
    assert where(result.stdout) == f"{page} (all tables here: --long)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["load.html", "mine.yaml"]
    text = page.read_text()
    assert "<svg" in text
    assert "<td" in text
    assert f"specsim {' '.join(command)} --out {page}" in text


def test_markdown_has_its_picture_beside_it_under_its_own_name(
    command: list[str], tmp_path: Path
) -> None:
    CliRunner().invoke(
        main, [*command, "--out", str(tmp_path / "other.md")], catch_exceptions=False
    )
    assert "](other.svg)" in (tmp_path / "other.md").read_text()
    ElementTree.parse(tmp_path / "other.svg")


@pytest.mark.parametrize("name", ["page", "x.html", "x.svg", "x.md"])
def test_a_comparison_goes_into_a_folder_or_a_file(
    name: str, command: list[str], tmp_path: Path
) -> None:
    out = tmp_path / name
    result = CliRunner().invoke(
        main, ["compare", command[1], command[1], "--out", str(out)], catch_exceptions=False
    )
    made = {path.name for path in (out if out.is_dir() else tmp_path).iterdir()} - {"mine.yaml"}
    expected = {
        "page": {"compare.md", "compare.html", "compare.svg", "compare.data.csv"},
        "x.md": {"x.md", "x.svg", "x.data.csv"},
    }
    expected["x.svg"] = {"x.svg", "x.data.csv"}
    assert made == expected.get(name, {name})
    page = out / "compare.html" if name == "page" else out
    assert where(result.stdout) == f"{page} (all tables here: --long)"


def test_a_comparison_is_not_written_over_a_file_that_is_no_page(
    command: list[str], tmp_path: Path
) -> None:
    before = (tmp_path / "mine.yaml").read_bytes()
    result = CliRunner().invoke(main, ["compare", command[1], command[1], "--out", command[1]])
    assert result.exit_code == 2
    assert "is an input of this command and stays as it is" in result.stderr
    assert (tmp_path / "mine.yaml").read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_made_of_what_the_study_returns(name: str) -> None:
    """What ``study`` returns, ``page`` takes: a frozen dataclass that is plain data without any
    page or picture.
    """
    result = get_type_hints(computing(name).study)["return"]
    assert get_type_hints(showing(name).page)["result"] == result
    for returned in get_args(result) or (result,):
        assert returned.__dataclass_params__.frozen
        assert get_type_hints(returned.as_data)["return"] == dict[str, Any]


def test_json_draws_nothing(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "simulator.report.pages.load.page", lambda result: pytest.fail("no page was asked for")
    )
    points = json.loads(
        CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False).stdout
    )["mine"]
    assert [point["clients"] for point in points] == [1, 2, 3, 8]


def test_a_terminal_shows_words_and_tables_and_draws_no_picture() -> None:
    def drawn() -> str:
        raise AssertionError("a terminal has no pictures")

    page = Page(
        title="A title",
        about="",
        answer="The answer.",
        opening=[
            Figure("a picture", "x.svg", drawn),
            Bullets([("a ", Strong("strong"), " word"), Code("code")]),
        ],
        sections=[
            Section(
                "Shown",
                [
                    Table(
                        ("a long head", "b"),
                        [("1", "2"), ("3", "4"), ("5", "6")],
                        "numbers",
                        terminal_rows=2,
                    )
                ],
            ),
            Section(
                "Read",
                [Paragraph("A sentence."), Listing("folded", title="more"), Listing("plain " * 12)],
            ),
            Section("On paper", [Paragraph("never seen")], terminal=False),
        ],
        command="specsim x",
    )
    shown = io.StringIO()
    print_page(page, Console(file=shown, width=60))
    lines = [
        re.sub("─+", "─", re.sub(" +", " ", line.rstrip()))
        for line in shown.getvalue().splitlines()
    ]
    assert lines == [  # how wide a gap is differs between versions of rich
        "A title",
        "The answer.",
        "- a strong word",
        "- code",
        "",
        "Shown",
        "a",
        "long",
        "head b",
        "─",
        "1 2",
        "3 4",
        "- 1 more rows: the page, as a file, has all of them",
        "",
        "Read",
        "A sentence.",
        ("plain " * 12).strip(),  # wider than the terminal: what is copied is not broken
    ]


def test_sections_of_the_same_title_have_anchors_of_their_own() -> None:
    titles = ("mine", "mine", "Mine 2", "mine: title", "Made by", "")
    page = Page(
        "t",
        "",
        "",
        [],
        [Section(title, [Paragraph(f"block {place}")]) for place, title in enumerate(titles)],
        "",
    )
    names = re.findall(r'id="([^"]*)"', text := as_html(page))
    assert len(names) == len(set(names)) > 2 * len(titles)
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(names)


def test_no_number_is_cut_on_a_narrow_terminal() -> None:
    """Blanks between columns give way first, then the name, which goes on in the next line."""
    head, row = ("name", *"abcdefgh"), ("a_long_name_of_a_scenario", *("1234.5" for _ in range(8)))
    shown = io.StringIO()
    print_page(
        Page("t", "", "", [Table(head, [row], "numbers")], [], ""), Console(file=shown, width=72)
    )
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 72
    assert sum(line.count("1234.5") for line in lines) == 8
    assert "".join(line.split()[0] for line in lines[3:]) == row[0]


def test_a_table_that_fits_no_terminal_is_a_list() -> None:
    head, rows = (
        [f"column {place}" for place in range(20)],
        [[f"{place}.{row}" for place in range(20)] for row in (1, 2)],
    )
    shown = io.StringIO()
    print_page(
        Page("t", "", "", [Table(head, rows, "numbers"), Table(head, [], "none")], [], ""),
        Console(file=shown, width=60),
    )
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(lines).split())
    assert all(
        f"{name}: {number}" in words for row in rows for name, number in zip(head, row, strict=True)
    )


def test_a_terminal_shows_the_columns_that_are_meant_for_it_and_bars() -> None:
    table = Table(
        ("a", "b", "share"),
        [("1", "2", "50.0 %"), ("3", "4", "10.0 %")],
        "t",
        bars=(2,),
        terminal_columns=(0, 2),
    )
    shown = io.StringIO()
    print_page(Page("t", "", "", [table], [], ""), Console(file=shown, width=60))
    assert [line.split() for line in shown.getvalue().splitlines()[1:4:2]] == [
        ["a", "share"],
        ["1", "50.0", "%", "#" * 15],
    ]


# ---- pictures


@pytest.mark.parametrize(
    ("ending", "begins"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")]
)
def test_a_picture_has_three_forms_and_its_data_beside_it(
    ending: str, begins: bytes, command: list[str], tmp_path: Path
) -> None:
    """The data are the points of every curve: three loads, or four, by panel and series."""
    out = tmp_path / f"load{ending}"
    result = CliRunner().invoke(main, [*command, "--out", str(out)], catch_exceptions=False)
    assert where(result.stdout) == f"{out} (all tables here: --long)"
    assert out.read_bytes().startswith(begins)
    rows = list(csv.DictReader((tmp_path / "load.data.csv").open()))
    assert list(rows[0]) == ["panel", "series", "x", "y", "value"]
    assert len(rows) == 12  # one curve of rates and two of tails, at four loads
    assert [row["series"] for row in rows] == ["mine"] * 4 + [""] * 8
    assert [row["x"] for row in rows[4:8]] == ["1", "2", "3", "8"]


def test_the_same_picture_twice_is_the_same_bytes(command: list[str], tmp_path: Path) -> None:
    for name in ("a.pdf", "b.pdf"):
        CliRunner().invoke(main, [*command, "--out", str(tmp_path / name)], catch_exceptions=False)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


@pytest.mark.full
def test_a_picture_takes_the_width_of_columns_and_a_style_file(
    command: list[str], tmp_path: Path
) -> None:
    """8.6 and 17.8 cm, as journals have them; a style says how letters look; the next picture is as
    ever.
    """
    # no program is started for the letters
    (tmp_path / "mine.mplstyle").write_text("font.size: 20\ntext.usetex: True\n")

    def drawn(*options: str) -> tuple[float, str]:
        CliRunner().invoke(
            main, [*command, *options, "--out", str(tmp_path / "x.svg")], catch_exceptions=False
        )
        root = ElementTree.parse(tmp_path / "x.svg").getroot()
        return float(root.get("width", "").removesuffix("pt")) / 72 * 2.54, (
            tmp_path / "x.svg"
        ).read_text()

    plain = drawn()
    assert drawn("--paper-columns", "1")[0] == pytest.approx(8.6, abs=0.01)
    assert drawn("--paper-columns", "2")[0] == pytest.approx(17.8, abs=0.01)
    assert "font-size: 20px" in drawn("--style", str(tmp_path / "mine.mplstyle"))[1]
    assert drawn() == plain


@pytest.mark.full
def test_a_style_file_that_never_ends_is_refused_and_forgotten(
    command: list[str], tmp_path: Path
) -> None:
    for style, why in (
        ("/dev/full", "is no regular file"),
        (str(tmp_path / "bytes"), "not UTF-8 text"),
    ):
        (tmp_path / "bytes").write_bytes(b"\xff")
        done = CliRunner().invoke(main, [*command, "--style", style])
        assert (done.exit_code, done.stdout, done.stderr) == (
            2,
            "",
            f"error: {style}: cannot be read: {why}\n",
        )
    plain, refused = ([*command, "--out", str(tmp_path / name)] for name in ("x.svg", "y.svg"))
    CliRunner().invoke(main, plain)
    assert (
        CliRunner()
        .invoke(main, [*refused, "--paper-columns", "1", "--style", str(tmp_path)])
        .exit_code
        == 2
    )
    CliRunner().invoke(main, refused)
    assert (tmp_path / "x.svg").read_bytes() == (tmp_path / "y.svg").read_bytes()
    assert Wanted() == WANTED
