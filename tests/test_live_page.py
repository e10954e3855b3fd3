"""The page about a running server shows what its commands print, from the files that are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli.main import main

ROOT = Path(__file__).parent.parent
LIVE = ROOT / "tests/data/live_services"
PAGE = (ROOT / "docs/how-to/live.md").read_text()
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCENARIO = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
FILES = [
    str(LIVE / name)
    for name in (
        "vllm_bench.json",
        "vllm_bench_metrics_before.txt",
        "vllm_bench_metrics_after.txt",
    )
]


def printed(*arguments: str) -> list[str]:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


@pytest.mark.full
def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a server to an answer: observed, calibrated, changed, and held to what came of it."""
    monkeypatch.chdir(tmp_path)
    Path("my_scenario.yaml").write_text(SCENARIO)
    lines = printed("observe", *FILES, "--out", "seen")
    fitting = ["calibrate", "service", "seen/observed.yaml", "--like", "my_scenario.yaml"]
    printed(*fitting, "--out", "fitted")
    tries = ["--try", "plain", "--try", "gamma=2,5", "--out", "tried"]
    lines += printed("what-if", "seen/observed.yaml", "--like", "fitted/scenario.yaml", *tries)
    lines += printed("verify", "tried/gamma=2/prediction.yaml", *FILES)
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        assert [line for line in block.splitlines() if line not in lines] == []
