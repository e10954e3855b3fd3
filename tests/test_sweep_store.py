"""What a sweep does to files: stores of its own, SQLite files and locks of others, and files that an interruption finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.files.schema import BadInput
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
    return specsim("sweep", "tiny.yaml", "--workers", 1, "--evaluate", "law", "--axis", "strategy.gamma=1,2", *words)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, links by what they lead to."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(result: Result) -> None:
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert "is no store of a sweep" in result.stderr


# ---- files of others


def rolled_back(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('precious');")
    return database


def written_ahead(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript("CREATE TABLE accounts (name TEXT); INSERT INTO accounts VALUES ('precious');")
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
    for result in (sweep("--store", name), sweep("--store", name, "--status"), specsim("plot", name, "--out", folder / "p")):
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert sorted(contents(folder)) == ["tiny.yaml"]


def test_an_empty_file_becomes_a_store(folder: Path) -> None:
    (folder / "new.sqlite").touch()
    assert sweep("--store", "new.sqlite").exit_code == 0
    assert sorted(contents(folder)) == ["new.sqlite", "tiny.yaml"]
    assert "2 of 2 points" in specsim("sweep", "tiny.yaml", "--store", "new.sqlite", "--status").stdout


def test_reading_a_store_writes_nothing(folder: Path) -> None:
    assert sweep("--store", "ours.sqlite").exit_code == 0
    before = contents(folder)
    picture = ("--kind", "line", "--x", "gamma", "--y", "tpot_ms", "--out", "picture.svg")
    assert specsim("plot", "ours.sqlite", *picture).exit_code == 0
    (folder / "picture.svg").unlink()
    (folder / "picture.data.csv").unlink()
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
    """``s.sqlite.lock`` of another program, and nothing changed in the folder but the store afterwards."""
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
