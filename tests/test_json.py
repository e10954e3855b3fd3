"""JSON that is written is JSON: no word of it is NaN or Infinity, and one function writes it
all.
"""

from __future__ import annotations

import ast
import json
import re
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

import simulator
from simulator.cli.main import main
from tests.parsed import parsed

HOMES = {"inputs/writing.py", "inputs/document.py", "studies/sweep/key.py"}
"""Where JSON is made: what is written; lines of YAML that are read again; the digest of a point,
which nobody reads.
"""
CODE = Path(simulator.__file__).parent


def test_one_function_writes_json() -> None:
    for folder in (CODE, CODE.parent / "benchmarks"):
        for file in sorted(folder.rglob("*.py")):
            for node in ast.walk(parsed(file)):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name in ("json.dumps", "json.dump", "DataFrame.to_json") or name.endswith(
                    ".to_json"
                ):
                    told = file.relative_to(
                        folder
                    ).as_posix() in HOMES or "allow_nan=False" in ast.unparse(node)
                    assert told, f"{file}:{node.lineno}: written without json_text"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.floats(width=32).map(np.float32),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


def plain(value: Any) -> Any:
    """What a reader of JSON gets back."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and isnan(value) else value


def infinite(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(infinite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float | np.floating) and abs(value) == float("inf")


@given(values)
def test_what_is_no_number_is_null_and_what_is_infinite_is_refused(value: Any) -> None:
    from simulator.core.faults import BadInput
    from simulator.inputs.writing import json_text

    if infinite(value):
        with pytest.raises(BadInput, match="beyond every number"):
            json_text(value)
    else:
        assert json.loads(json_text(value), parse_constant=pytest.fail) == plain(value)


COMMANDS = (
    "run durations_only",
    "law durations_only",
    "explain durations_only",
    "batches vanilla_llama_2_7b_a100 --sizes 1-4 --simulate 1",
    "sweep durations_only --axis acceptance.rate=0,0.5,1 --evaluate law",
    "sweep durations_only --axis strategy.gamma=1,400000000000 --evaluate law",
    "trace info six_flavours_greedy",
    "trace iid six_flavours_greedy --window 3",
    "compare durations_only durations_only",
    "list",
    "show a100_80g_sxm",
    "schema",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_prints_is_json(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main, [*command.split(), *(["--json"] if command != "schema" else [])]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit)
    json.loads(done.stdout, parse_constant=pytest.fail)


def test_json_inside_pages_and_files_is_json(tmp_path: Path) -> None:
    result = simulator.run("durations_only", {"requests.count": 2})
    folder = result.save(tmp_path / "report")
    done = CliRunner().invoke(main, ["law", "durations_only", "--out", str(tmp_path / "law.html")])
    assert done.exit_code == 0, done.output
    pages = [*folder.glob("*.html"), tmp_path / "law.html"]
    found = [
        text
        for page in pages
        for text in re.findall(r'application/json">(.*?)</script>', page.read_text("utf-8"), re.S)
    ]
    found += [
        file.read_text("utf-8")
        for file in (*folder.glob("*.json"), result.save(tmp_path / "run.json"))
    ]
    assert len(found) >= 3
    for text in found:
        json.loads(text, parse_constant=pytest.fail)
