"""A remedy that a message prints is followed as it stands, and then that fault is gone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main

VANILLA = {
    "strategy": {"name": "vanilla_sd", "gamma": 2},
    "durations": {"target_ms": 30, "draft_ms": 5},
    "acceptance": {"rate": 0.7},
}
POISSON = {"arrivals": {"name": "poisson", "rate_per_s": 1}, "count": 4, "output_tokens": 5}
TRAFFIC = [{"timestamp": at, "input_length": 512, "output_length": 5, "hash_ids": [1]} for at in (0, 100, 200)]
FILE = {"arrivals": {"name": "file", "format": "mooncake", "file": "traffic.jsonl"}}
SHARED = {"policy": {"name": "prefill_first", "max_requests": 2}, "replicas": 2, "router": "most_cached"}
ARRIVING = {"requests": POISSON}
FAULTS: dict[str, dict[str, Any]] = {
    "places where requests arrive": VANILLA | ARRIVING,
    "a router that looks into caches": VANILLA | {"requests": FILE, "serving": SHARED},
}
SET = re.compile(r"\bset ([\w.]+=[^\s,;]+)|\b((?:requests|acceptance|serving)\.[\w.]+=[^\s,;]+)")
BLOCK = re.compile(r"as in (\w+): (\{.*\})$")


def ran(*words: object) -> Any:
    done = CliRunner().invoke(main, ["run", *map(str, words), "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done


@pytest.mark.parametrize("what", FAULTS)
def test_a_setting_that_a_fault_names_mends_it(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic.jsonl").write_text("\n".join(map(json.dumps, TRAFFIC)))
    (tmp_path / "faulty.yaml").write_text(json.dumps(FAULTS[what]))
    done = ran("faulty.yaml")
    if done.exit_code == 0:
        pytest.skip("is no fault any more")
    message = done.stderr.strip()
    settings = [first or second for first, second in SET.findall(message)]
    settings += [f"{key}={block}" for key, block in BLOCK.findall(message)]
    assert settings, message
    for setting in settings:
        assert ran("faulty.yaml", "--set", setting).exit_code == 0, f"{message}: {setting}"


def test_a_field_of_the_default_policy_is_set_without_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arriving.yaml").write_text(json.dumps(VANILLA | ARRIVING))
    assert ran("arriving.yaml", "--set", "serving.policy.max_requests=2").exit_code == 0, "as 'set it' of the fault says"
