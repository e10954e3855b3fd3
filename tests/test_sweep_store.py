"""What a sweep does to files: stores of its own, SQLite files and locks of others, and files that
an interruption finds.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

from simulator.cli.main import main
from simulator.core.faults import BadInput
from simulator.report.forms import as_data
from simulator.studies.sweep.store import LOCK_SUFFIX, Store, reading, writing

WORLD = """
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 10, draft_step_ms: 1}
acceptance: {always: 3}
requests: {count: 2, prompt_tokens: 8, output_tokens: 61}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(WORLD)
    return tmp_path


def specsim(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def sweep(*words: object) -> Result:
    return specsim(
        "sweep",
        "tiny.yaml",
        "--workers",
        1,
        "--evaluate",
        "law",
        "--axis",
        "strategy.gamma=1,2",
        *words,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, links by what they lead to."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(result: Result) -> None:
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is no store of a sweep" in result.stderr


# ---- files of others


def rolled_back(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(
        "CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('precious');"
    )
    return database


def written_ahead(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(
        "CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('precious');"
    )
    return database


def same_tables(path: Path) -> sqlite3.Connection:
    """Another program's, with a table of the same name."""
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("CREATE TABLE facts (name TEXT, value TEXT); PRAGMA application_id=1;")
    return database


@pytest.mark.parametrize("made", [rolled_back, written_ahead, same_tables])
@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_a_sqlite_file_of_others_is_refused_and_stays_as_it_is(
    made: Callable[[Path], sqlite3.Connection], in_use: bool, link: bool, folder: Path
) -> None:
    with closing(made(folder / "others.sqlite")) as database:
        if not in_use:
            database.close()
        path = folder / ("link.sqlite" if link else "others.sqlite")
        if link:
            path.symlink_to("others.sqlite")
        before = contents(folder)
        refused(specsim("plot", path, "--out", folder / "pictures"))
        refused(specsim("sweep", "tiny.yaml", "--store", path, "--status"))
        refused(sweep("--store", path))
        refused(sweep("--store", path, "--resume"))
        assert contents(folder) == before


def test_a_text_and_a_folder_are_refused(folder: Path) -> None:
    (folder / "notes.txt").write_text("not a database, whatever it is\n" * 100)
    before = contents(folder)
    refused(sweep("--store", "notes.txt"))
    with pytest.raises(BadInput, match="is no file"), writing(folder):
        pass
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["n" * 300, "tiny.yaml/s.sqlite"])
def test_a_name_that_can_be_no_file_is_one_line(name: str, folder: Path) -> None:
    for result in (
        sweep("--store", name),
        sweep("--store", name, "--status"),
        specsim("plot", name, "--out", folder / "p"),
    ):
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert sorted(contents(folder)) == ["tiny.yaml"]


def test_an_empty_file_becomes_a_store(folder: Path) -> None:
    (folder / "new.sqlite").touch()
    assert sweep("--store", "new.sqlite").exit_code == 0
    assert sorted(contents(folder)) == ["new.sqlite", "tiny.yaml"]
    assert (
        "2 of 2 points" in specsim("sweep", "tiny.yaml", "--store", "new.sqlite", "--status").stdout
    )


def test_reading_a_store_writes_nothing(folder: Path) -> None:
    assert sweep("--store", "ours.sqlite").exit_code == 0
    before = contents(folder)
    picture = ("--kind", "line", "--x", "gamma", "--y", "tpot_ms", "--out", "picture.svg")
    assert specsim("plot", "ours.sqlite", *picture).exit_code == 0
    for path in folder.glob("picture*"):
        path.unlink()
    assert specsim("sweep", "tiny.yaml", "--store", "ours.sqlite", "--status").exit_code == 0
    with pytest.raises(BadInput, match="readonly"), reading(folder / "ours.sqlite") as store:
        store.begin({}, "another")
    assert contents(folder) == before


def test_a_store_is_read_while_it_is_written_and_whole_afterwards(folder: Path) -> None:
    path = folder / "ours.sqlite"
    with writing(path) as store:
        store.begin({"name": "x"}, "x")
        with reading(path) as reader:
            assert reader.fact("definition") == {"name": "x"}
        store.begin({"name": "y"}, "y")
        assert (folder / "ours.sqlite-wal").exists()
    assert sorted(contents(folder)) == ["ours.sqlite", "tiny.yaml"]
    with reading(path) as reader:
        assert reader.fact("definition") == {"name": "y"}


def test_a_store_of_another_version_is_refused(folder: Path) -> None:
    with writing(folder / "ours.sqlite") as store:
        store._database.execute("INSERT INTO facts VALUES ('format', '99')")
    with pytest.raises(BadInput, match="of another version of specsim, 99"):
        Store(folder / "ours.sqlite")


# ---- locks


def lock_of(path: str) -> Path:
    return Path(path + LOCK_SUFFIX)


@pytest.fixture(params=["file", "link", "dangling link"])
def precious(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    """``s.sqlite.lock`` of another program, and nothing changed in the folder but the store
    afterwards.
    """
    lock = folder / "s.sqlite.lock"
    if request.param == "file":
        lock.write_text("precious")
    else:
        lock.symlink_to("treasure")
        if request.param == "link":
            (folder / "treasure").write_text("precious")
    before = contents(folder)
    yield lock
    assert {name: text for name, text in contents(folder).items() if name != "s.sqlite"} == before
    assert lock.is_symlink() == (request.param != "file")


def test_a_lock_of_others_is_neither_written_nor_followed(precious: Path) -> None:
    assert sweep("--store", precious.with_suffix("")).exit_code == 0


def test_a_file_of_the_name_of_our_lock_keeps_what_it_holds(folder: Path) -> None:
    lock_of("s.sqlite").write_text("precious")
    assert sweep("--store", "s.sqlite").exit_code == 0
    assert lock_of("s.sqlite").read_text() == "precious"


def test_a_link_of_the_name_of_our_lock_is_not_followed(folder: Path) -> None:
    (folder / "treasure").write_text("precious")
    lock_of("s.sqlite").symlink_to("treasure")
    before = contents(folder)
    result = sweep("--store", "s.sqlite")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert f"s.sqlite{LOCK_SUFFIX}" in result.stderr
    assert contents(folder) == before


def test_a_lock_is_there_while_a_store_is_written_and_gone_afterwards(folder: Path) -> None:
    (folder / "link.sqlite").symlink_to("s.sqlite")
    lock_of("s.sqlite").touch()  # as a killed process leaves it
    for name in ("s.sqlite", "link.sqlite"):
        with pytest.raises(ZeroDivisionError), writing(Path(name)):
            assert lock_of("s.sqlite").exists()
            raise ZeroDivisionError
        assert not lock_of("s.sqlite").exists()
    assert not lock_of("link.sqlite").exists()


# ---- damage


def changed(statement: str, *values: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.executescript(statement) if not values else database.execute(statement, values)

    return change


def flipped(path: Path) -> None:
    """The page of results is written over; the one of the schema is sound."""
    held = bytearray(path.read_bytes())
    held[8_192:12_288] = b"\xff" * 4_096
    path.write_bytes(held)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "page": (flipped, "damaged|cannot be read"),
    "cut": (
        lambda path: path.write_bytes(path.read_bytes()[:10_000]),
        "damaged|cannot be read|no store",
    ),
    "metric_in_words": (
        changed("UPDATE results SET tpot_ms = ?", "x"),
        "results that are no numbers",
    ),
    "metric_infinite": (
        changed("UPDATE results SET tpot_ms = ?", float("inf")),
        "results that are no numbers",
    ),
    "metric_bytes": (
        changed("UPDATE results SET step_ms = ?", b"\x00\xff"),
        "results that are no numbers",
    ),
    "fault_a_number": (
        changed("UPDATE results SET fault = ?", b"\xff"),
        "results that are no numbers",
    ),
    "number_in_words": (
        changed("UPDATE points SET number = 'x' || number"),
        "points that are none of its sweep's 2",
    ),
    "number_too_large": (
        changed("UPDATE points SET number = number + 2"),
        "points that are none of its sweep's 2",
    ),
    "number_negative": (
        changed("UPDATE points SET number = number - 2"),
        "points that are none of its sweep's 2",
    ),
    "column_dropped": (
        changed("ALTER TABLE results DROP COLUMN tpot_ms"),
        "no such column: tpot_ms",
    ),
    "column_renamed": (
        changed("ALTER TABLE points RENAME COLUMN number TO n"),
        "no such column: number",
    ),
    "table_dropped": (changed("DROP TABLE points"), "no such table: points"),
    "a_view": (
        changed("DROP TABLE points; CREATE VIEW points AS SELECT 1 AS number"),
        "it holds more than tables",
    ),
    "no_json": (
        changed("UPDATE facts SET value = '{' WHERE name = 'definition'"),
        "what it says of its definition is no JSON",
    ),
    "not_text": (changed("UPDATE facts SET value = x'ff'"), "is no JSON"),
    "null": (changed("UPDATE facts SET value = NULL"), "is no JSON"),
    "a_list": (
        changed("UPDATE facts SET value = '[1]' WHERE name = 'definition'"),
        "store: expected a mapping",
    ),
    "name_nan": (
        changed("""UPDATE facts SET value = replace(value, '"tiny"', 'NaN')"""),
        "name: expected text",
    ),
    "name_a_path": (
        changed("""UPDATE facts SET value = replace(value, '"tiny"', '"../tiny"')"""),
        "store: name: ",
    ),
    "axis_nan": (
        changed("UPDATE facts SET value = replace(value, '[1, 2]', '[1, NaN]')"),
        "store: strategy.gamma: expected finite numbers, got nan",
    ),
    "axis_endless": (
        changed("""UPDATE facts SET value = replace(value, '[1, 2]', '"0:1:99999999"')"""),
        "at most 1,000,000",
    ),
    "another_version": (
        changed("UPDATE facts SET value = '9' WHERE name = 'format'"),
        "of another version of specsim, 9",
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_store_is_refused_in_a_line(name: str, folder: Path) -> None:
    damage, said = DAMAGE[name]
    assert sweep("--store", "s.sqlite").exit_code == 0
    damage(folder / "s.sqlite")
    results = [
        specsim(
            "plot",
            "s.sqlite",
            "--kind",
            "line",
            "--x",
            "gamma",
            "--y",
            "tpot_ms",
            "--out",
            "picture.svg",
        )
    ]
    if name not in (
        "metric_in_words",
        "metric_infinite",
        "metric_bytes",
        "fault_a_number",
        "column_dropped",
    ):
        # it counts, and reads no metric
        results.append(specsim("sweep", "tiny.yaml", "--store", "s.sqlite", "--status", "--json"))
    for result in results:
        assert (result.exit_code, result.stdout) == (2, ""), (result.output, result.exception)
        assert len(result.stderr.splitlines()) == 1
        assert re.search(said, result.stderr), result.stderr
    resumed = sweep("--store", "s.sqlite", "--resume")
    assert isinstance(resumed.exception, SystemExit | None), repr(resumed.exception)
    assert resumed.exit_code in (0, 2)
    assert not (folder / "picture.svg").exists()


def test_what_a_store_says_does_not_steer_a_terminal(folder: Path) -> None:
    assert sweep("--store", "s.sqlite").exit_code == 0
    changed("""UPDATE facts SET value = replace(value, '"tiny"', '"a\\u001b[2Jb"')""")(
        folder / "s.sqlite"
    )
    said = specsim("sweep", "tiny.yaml", "--store", "s.sqlite", "--status").stdout
    assert "a\ufffd[2Jb: tiny.yaml over strategy.gamma" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be written to by root")
@pytest.mark.parametrize("ahead", [False, True])
def test_a_store_where_nothing_can_be_written_is_read(ahead: bool, folder: Path) -> None:
    """Written ahead, and closed by another program: SQLite would want files of its own beside
    it.
    """
    assert sweep("--store", "s.sqlite").exit_code == 0
    if ahead:
        changed("PRAGMA journal_mode=WAL")(folder / "s.sqlite")
    folder.chmod(0o555)
    try:
        result = specsim("sweep", "tiny.yaml", "--store", "s.sqlite", "--status")
    finally:
        folder.chmod(0o755)
    assert "2 of 2 points" in result.stdout, result.output


def test_a_table_that_a_spreadsheet_opens_holds_no_formula(folder: Path) -> None:
    words = ["'=cmd|calc'", "'-5'", "'-x'", "'@x'", "'+nan'", "plain"]
    assert (
        sweep(
            "--axis", f"about={','.join(words)}", "--store", "s.sqlite", "--export", "t.csv"
        ).exit_code
        == 0
    )
    cells = {line.split(",")[2] for line in (folder / "t.csv").read_text().splitlines()[1:]}
    assert cells == {"'=cmd|calc", "-5", "'-x", "'@x", "'+nan", "plain"}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--axis", "a=0:1:900000", "--axis", "b=0:1:900000"],
            "at most 1,000,000 values on all axes together",
        ),
        (
            ["--axis", "requests.count=1:99", "--latin-hypercube", "100000000"],
            "expected low:high:count",
        ),
        (
            ["--axis", "requests.count=1:99:9", "--latin-hypercube", "100000000"],
            "expected at most 10,000,000 points on 1 axes",
        ),
        (["--axis", "strategy.gamma=1e999,2"], "expected a number up to 1e+18"),
        (["--axis", "strategy.gamma=1:1e999:3"], "expected low below high"),
        (
            ["--axis", "strategy.gamma=1,2", "--keep", "speedup >= e"],
            "expected 'best 10% of tpot_ms'",
        ),
        (
            ["--axis", "strategy.gamma=1,2", "--keep", f"best {'9' * 400}% of tpot_ms"],
            "expected 'best 10% of tpot_ms'",
        ),
    ],
)
def test_a_sweep_without_measure_is_refused(words: list[str], said: str, folder: Path) -> None:
    result = specsim("sweep", "tiny.yaml", "--workers", 1, "--store", "s.sqlite", *words)
    assert result.exit_code == 2
    assert said in result.stderr, result.output


def test_data_beside_a_picture_hold_no_formula() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1], [-2], label="=cmd|calc")
    axes.set_title("@panel")
    assert as_data(figure) == "panel,series,x,y,value\n'@panel,'=cmd|calc,1,-2,\n"


def test_a_store_whose_very_damage_is_no_text_is_refused(folder: Path) -> None:
    """SQLite's words quote what it cannot read."""
    assert sweep("--store", "s.sqlite").exit_code == 0
    content = (folder / "s.sqlite").read_bytes()
    for old, new in (
        (b"tableresults", b"tableres\xc4lts"),
        (b"CREATE TABLE results (", b"CREATE TABLE res\xc4lts \xc4"),
    ):
        assert old in content
        (folder / "s.sqlite").write_bytes(content.replace(old, new))
        for words in (("--status",), ("--resume",)):
            result = sweep("--store", "s.sqlite", *words)
            assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
            assert "s.sqlite" in result.stderr
