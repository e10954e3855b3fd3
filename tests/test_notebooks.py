"""Every notebook begins with a question, runs from its first cell to its last, and ends with a
picture.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))
INDEX = NOTEBOOKS[0].parent / "README.md"


def test_the_index_lists_every_notebook_with_the_question_that_it_begins_with() -> None:
    listed = dict(
        re.findall(r"^\| \[.*?\]\((.*?)\) \| (.*?\?)", INDEX.read_text("utf-8"), re.MULTILINE)
    )
    asked = {path.name: question(path.read_text("utf-8")) for path in NOTEBOOKS}
    assert asked == listed


def question(notebook: str) -> str:
    """The question in bold under the title, as one line; empty where there is none."""
    match = re.search(r"^# # .*\n#\n# \*\*([^*]*\?)\*\*$", notebook, re.MULTILINE)
    return " ".join(match[1].replace("\n#", "").split()) if match else ""


@pytest.mark.full
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jupytext, nbclient = pytest.importorskip("jupytext"), pytest.importorskip("nbclient")
    if "import torch" in notebook.read_text():
        pytest.importorskip("torch")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    read = jupytext.read(notebook)
    nbclient.NotebookClient(
        read, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    pictures = [
        kind
        for output in read.cells[-1].outputs
        for kind in output.get("data", {})
        if kind.startswith("image/")
    ]
    assert pictures, "its last cell shows none"
    assert [
        cell for cell in read.cells if cell.cell_type == "code" and cell.execution_count is None
    ] == []
