"""An exception in a package is told to who wrote its code; one of ours keeps its traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packages import python_with, specsim_with

ROOT = Path(__file__).parent.parent
TOY = ROOT / "tests/toy_strategy"
LAW = "return t.half + np.maximum(t.half, t.rv) + t.rv + t.target"
STATED = ["strategy=chunked_sd", "durations={target_ms: 30, draft_step_ms: 5, rv_fv_ms: 2}"]
SET = [word for field in STATED for word in ("--set", field)]
ENTRY = (
    "error: package toy-chunked-sd 1.0: specsim.strategies: chunked_sd (toy_chunked_sd:ChunkedSD)"
)
WHOLE = "SPECSIM_TRACEBACK=1 shows the whole traceback"


def spoiled(tmp_path: Path, package: str, right: str, wrong: str) -> tuple[Path, int]:
    """A copy of a toy with one statement of it replaced, and the line that this is in."""
    folder = tmp_path / package
    shutil.copytree(ROOT / "tests" / package, folder)
    (module,) = folder.glob("*.py")
    text = module.read_text("utf-8")
    assert text.count(right) == 1
    module.write_text(text.replace(right, wrong), "utf-8")
    return folder, text[: text.index(right)].count("\n") + 1


@pytest.mark.parametrize(
    "words",
    [
        ["run", "durations_only", *SET],
        ["compare", "durations_only", "durations_only", *SET],
        ["law", "durations_only", *SET],
    ],
    ids=["run", "compare", "law"],
)
def test_what_a_strategy_raises_is_told_with_its_line(tmp_path: Path, words: list[str]) -> None:
    folder, line = spoiled(tmp_path, "toy_strategy", LAW, "return {}['no\\nsuch']")
    done = specsim_with(folder, *words)
    assert done.returncode == 2, done.stderr
    (told,) = [text for text in done.stderr.splitlines() if text.startswith("error: ")]
    assert told == (
        f"{ENTRY} raised KeyError: 'no\\nsuch' in ChunkedSD.step_seconds at "
        f"{folder}/toy_chunked_sd.py:{line}; specsim validate --law chunked_sd tries it by itself; "
        f"{WHOLE}"
    )
    assert "Traceback" not in done.stderr


def test_validate_does_not_send_back_to_itself(tmp_path: Path) -> None:
    folder, line = spoiled(tmp_path, "toy_strategy", LAW, "return np.linalg.inv(np.zeros((2, 2)))")
    done = specsim_with(folder, "validate", "--law", "chunked_sd")
    assert done.returncode == 2, done.stderr
    (told,) = done.stderr.splitlines()
    assert told == (
        f"{ENTRY} raised LinAlgError: Singular matrix in ChunkedSD.step_seconds at "
        f"{folder}/toy_chunked_sd.py:{line}; {WHOLE}"
    )


def test_the_whole_traceback_is_there_for_the_asking(tmp_path: Path) -> None:
    folder, _ = spoiled(tmp_path, "toy_strategy", LAW, "return 1 / 0")
    done = specsim_with(folder, "run", "durations_only", *SET, SPECSIM_TRACEBACK="1")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("returned", "last"),
    [
        ("return cost.target(None)", "ChunkedSD.phases called this at {place}"),
        (
            "return 'phases'",
            "chunked_sd (toy_chunked_sd:ChunkedSD) was at work here: what one of its methods "
            "returned may be of another kind than is expected",
        ),
    ],
)
def test_an_exception_of_ours_keeps_its_traceback(tmp_path: Path, returned: str, last: str) -> None:
    """The note behind it says what the package had to do with it."""
    right = "requests, gamma = step.kind.verifying, self._window_of(step.kind)"
    folder, line = spoiled(tmp_path, "toy_strategy", right, returned)
    done = specsim_with(folder, "run", "vanilla_llama_2_7b_a100", *SET[:2])
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    note = done.stderr.splitlines()[-1]
    assert note.startswith("specsim.strategies: chunked_sd")
    assert note.endswith(last.format(place=f"{folder}/toy_chunked_sd.py:{line}"))


def test_a_point_of_a_sweep_names_the_package(tmp_path: Path) -> None:
    folder, line = spoiled(tmp_path, "toy_strategy", LAW, "return 1 / 0")
    words = [
        "--axis",
        "strategy.gamma=1,2",
        "--evaluate",
        "law",
        "--workers",
        "2",
        "--store",
        str(tmp_path / "points.sqlite"),
    ]
    done = specsim_with(folder, "sweep", "durations_only", *SET, *words)
    assert f"ChunkedSD.step_seconds at {folder}/toy_chunked_sd.py:{line}" in "".join(
        (done.stdout + done.stderr).split("\n")
    )


def test_a_policy_is_named_also_where_a_file_is_missing(tmp_path: Path) -> None:
    right = "        entering = []\n"
    folder, line = spoiled(tmp_path, "toy_policy", right, "        entering = open('/no/such')\n")
    policy = ["--set", "serving={policy: {name: shortest_first, max_requests: 1}}"]
    words = ["run", "durations_only", "--set", "strategy=autoregressive", *policy]
    done = specsim_with(folder, *words)
    assert done.returncode == 2, done.stderr
    (told,) = done.stderr.splitlines()
    assert told == (
        "error: package toy-shortest-first 1.0: specsim.policies: shortest_first "
        "(toy_shortest_first:ShortestFirst) raised FileNotFoundError: [Errno 2] No such file or "
        f"directory: '/no/such' in ShortestFirst.plan at {folder}/toy_shortest_first.py:{line}; "
        f"{WHOLE}"
    )


@pytest.mark.full
def test_a_worker_tells_it_with_its_place(tmp_path: Path) -> None:
    """A traceback stays in its process, the sentence does not."""
    folder, line = spoiled(tmp_path, "toy_strategy", LAW, "return 1 / 0")
    program = f"""
import simulator
from simulator.core.parallel import spread
from toy_chunked_sd import ChunkedSD

if __name__ == "__main__":
    stated = simulator.load("durations_only", {STATED[1:]!r})
    with spread(2) as each:
        each(simulator.law, [stated.replace(strategy=ChunkedSD(gamma=4))] * 2)
"""
    file = tmp_path / "program.py"
    file.write_text(program, "utf-8")
    done = python_with(folder, str(file))
    assert f"ChunkedSD.step_seconds at {folder}/toy_chunked_sd.py:{line}" in done.stderr
