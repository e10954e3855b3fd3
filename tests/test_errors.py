"""Every mistake in the input: one line that names file, line, field and remedy; exit code 2 or 3;
nothing written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.acceptance.trace import Trace
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces import file as trace_file

DURATIONS = """\
strategy:
  name: mirror_sd
  gamma: 7
durations:
  prefix_ms: 18
  suffix_ms: 18
  draft_ms: 12
acceptance:
  rate: 0.8
"""
A100 = "like: mirror_qwen3_32b_a100\nacceptance: {trace: null, stand_in: false, rate: 0.7}\n"

FAULTS = [
    (
        DURATIONS.replace("gamma", "gama"),
        "x.yaml:3:3: strategy.gama: unknown field; did you mean 'gamma'?",
    ),
    (
        DURATIONS.replace("durations", "durtions"),
        "x.yaml:4:1: durtions: unknown field; did you mean 'durations'?",
    ),
    (
        DURATIONS.replace("mirror_sd", "miror_sd"),
        "x.yaml:1:1: strategy: there is no strategy 'miror_sd'; did you mean 'mirror_sd'?",
    ),
    (
        DURATIONS.replace("18\n  s", "-18\n  s"),
        "x.yaml:5:3: durations.prefix_ms: expected 0 or more, got -18",
    ),
    (DURATIONS.replace("12", "fast"), "x.yaml:7:3: durations.draft_ms: expected a number"),
    (
        DURATIONS.replace("  draft_ms: 12\n", ""),
        "x.yaml:4:1: durations: mirror_sd needs draft_ms (a window) or draft_step_ms",
    ),
    (
        DURATIONS + "  always: 3\n",
        (
            "x.yaml:8:1: acceptance: expected exactly one of trace, tokens_per_step, "
            "accepted_share, rate, per_position, lengths, always, cycle; found rate and always"
        ),
    ),
    (DURATIONS + "strategy: {name: x}\n", "x.yaml:10:1: strategy: written twice; first on line 1"),
    (
        DURATIONS + "serving: {policy: {name: prefil_first}}\n",
        (
            "x.yaml:10:11: serving.policy: there is no policy 'prefil_first'; did you mean "
            "'prefill_first'?"
        ),
    ),
    (
        DURATIONS + "serving: {policy: {name: chunked_prefill, chunk: 9}}\n",
        "x.yaml:10:43: serving.policy.chunk: unknown field; did you mean 'chunk_tokens'?",
    ),
    (
        DURATIONS + "serving: {policy: prefil_first}\n",
        (
            "x.yaml:10:11: serving.policy: expected a mapping of fields, as in {name: "
            "prefil_first}, got 'prefil_first'"
        ),
    ),
    (DURATIONS + "seed: null\n", "x.yaml:10:1: seed: expected a whole number, got null"),
    (DURATIONS + "seed: 1.5\n", "x.yaml:10:1: seed: expected a whole number, got 1.5"),
    (
        DURATIONS + "slo:\n\tttft_ms: 3\n",
        "x.yaml:11:1: not valid YAML: a tab, where YAML takes spaces alone",
    ),
    (
        DURATIONS + "serving: {memory: {utilisation: 2}}\n",
        "x.yaml:10:20: serving.memory.utilisation: expected at most 1, got 2",
    ),
    (
        DURATIONS + "requests: {output_tokens: 1}\n",
        "x.yaml:10:12: requests.output_tokens: expected a number above 1, got 1",
    ),
    (
        DURATIONS + "requests: {prompt_tokens: {name: unifrom}}\n",
        (
            "x.yaml:10:12: requests.prompt_tokens: there is no prompt_tokens 'unifrom'; did you "
            "mean 'uniform'?"
        ),
    ),
    (
        DURATIONS + "requests: {prompt_tokens: {name: uniform}}\n",
        "x.yaml:10:12: requests.prompt_tokens.most_tokens: is required and missing",
    ),
    (
        DURATIONS + "requests: {output_tokens: {name: uniform, least_tokens: 1, most_tokens: 9}}\n",
        (
            "x.yaml:10:1: requests: output_tokens.least_tokens: expected 2 or more, as time per "
            "token needs two tokens"
        ),
    ),
    (
        DURATIONS.replace(
            "  gamma: 7\n", "  gamma: 7\n  adaptive: {name: table, windows: {8: 9}}\n"
        ),
        (
            "x.yaml:4:27: strategy.adaptive.windows: a window of 9 is longer than gamma = 7, which "
            "is the longest"
        ),
    ),
    (DURATIONS + "seed: [1,\n", "x.yaml:11:1: not valid YAML"),
    (
        DURATIONS + "seed: !!python/object:os.system x\n",
        "x.yaml:10:7: seed: a tag that is not allowed here",
    ),
    ("- a\n", "x.yaml:1:1: expected a mapping of fields to values"),
    ("like: ./x.yaml\n", "x.yaml:1:1: like: comes back to x.yaml"),
    (
        "like: mirror_qwen3_32b\n",
        (
            "x.yaml:1:1: like: there is no scenario 'mirror_qwen3_32b'; did you mean "
            "'mirror_qwen3_32b_a100'?"
        ),
    ),
    (
        A100 + "target: {device: ./none.yaml}\n",
        "x.yaml:3:10: target.device: there is no file none.yaml",
    ),
    (
        A100 + "target: {device: a100}\n",
        "x.yaml:3:10: target.device: there is no device 'a100'; did you mean 'a100_80g_sxm'?",
    ),
    (
        A100 + "target: {device: {memory_bandwidth_gb_s: -3}}\n",
        "x.yaml:3:19: target.device.memory_bandwidth_gb_s: expected a number above 0, got -3",
    ),
    (
        A100 + "target: {link: null}\n",
        "x.yaml:3:1: target: tensor_parallel above 1 needs a link between the devices",
    ),
    (
        A100 + "target: {link: ultrafusion}\n",
        (
            "x.yaml:3:1: target: link 'ultrafusion' has no all_reduce in form 'vllm_graph' or "
            "'nccl' or 'ring'; it has none"
        ),
    ),
    (
        A100 + "draft: null\n",
        (
            "strategy: as mirror_qwen3_32b_m2_ultra.yaml:2 has it, mirror_sd needs a draft, and "
            "the scenario has none"
        ),
    ),
    (
        A100 + "target: {model: llama_3_1_70b}\n",
        (
            "x.yaml:3:10: draft.model: as mirror_qwen3_32b_m2_ultra.yaml:17 has it, mirror_sd "
            "needs a draft, and spd_qwen_0_6b has another vocabulary; models with the target's "
            "vocabulary of 128,256: llama_3_1_8b, llama_3_2_1b"
        ),
    ),
    (
        A100 + "target: {model: llama_3_1_70b}\ndraft: {model: qwen3_0_6b}\n",
        "x.yaml:4:9: draft.model: the draft's vocabulary of 151,936 is not the target's of 128,256",
    ),
    (
        A100 + "draft: {model: llama_68m}\n",
        "x.yaml:3:9: draft.model: the draft's vocabulary of 32,000 is not the target's of 151,936",
    ),
    (
        A100 + "strategy: {exit_layer: 65}\n",
        "x.yaml:3:12: strategy.exit_layer: the target has 64 layers, got 65",
    ),
    (
        A100 + "strategy: {exit_layer: 0}\n",
        "x.yaml:3:12: strategy.exit_layer: expected a layer number from 1 or a share of the depth",
    ),
    (
        A100 + "strategy: {drafter: {name: stream}}\n",
        "x.yaml:3:12: strategy.drafter: there is no drafter 'stream'; did you mean 'streaming'?",
    ),
    (
        A100 + "strategy: {exit_layer: 1.0}\n",
        (
            "x.yaml:3:12: strategy.exit_layer: expected a layer number from 1 or a share of the "
            "depth between 0 and 1"
        ),
    ),
    (
        A100 + "strategy: {exit_layer: 0.001}\n",
        "x.yaml:3:12: strategy.exit_layer: 0.001 of 64 layers is less than one layer",
    ),
    (
        A100 + "strategy: {exit_layer: half}\n",
        "x.yaml:3:12: strategy.exit_layer: expected a whole number",
    ),
    (
        A100 + "strategy: {gamma: 100000000000}\n",
        "x.yaml:3:12: strategy.gamma: expected at most 1024",
    ),
    (
        A100 + "requests: {concurrency: 300}\n",
        "requests: concurrency 300 needs at least as many requests, and count is 120; "
        "state a requests.count of 300 or more",
    ),
    (
        A100 + "target: {tensor_parallel: 3}\n",
        "target: tensor_parallel 3 does not divide the 64 attention heads of qwen3_32b",
    ),
    (A100 + "acceptance: {overlap: 0.5}\n", "written twice"),
    (
        DURATIONS + "  overlap: 0.5\n",
        "x.yaml:8:1: acceptance: overlap 0.5 must be at least the acceptance rate 0.8",
    ),
    (
        DURATIONS.replace("  gamma: 7", "  gamma: &g {x: *g}"),
        "is nested too deeply, or contains itself",
    ),
    (
        DURATIONS + "seed: " + "[" * 3000 + "\n",
        "x.yaml:10:70: not valid YAML: is nested too deeply",
    ),
    (DURATIONS + "? [a, b]\n: 1\n", "x.yaml:10:3: expected a word as key"),
    (DURATIONS + "seed: -1\n", "x.yaml:10:1: seed: expected 0 or more, got -1"),
    (
        A100 + "durations: {target_ms: 3, draft_ms: 1}\n",
        "expected either target (a model on hardware) or durations",
    ),
]


def fail(
    folder: Path, text: str, *arguments: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, list[str]]:
    """Exit code and error lines of a run that must not leave anything behind."""
    (folder / "x.yaml").write_text(text)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    result = CliRunner().invoke(main, ["run", "./x.yaml", *arguments])
    assert result.stdout == ""
    assert sorted(folder.rglob("*")) == before
    return result.exit_code, result.stderr.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"), FAULTS, ids=lambda value: value.splitlines()[-1][-50:]
)
def test_one_line_that_helps(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert expected in lines[0]


def test_several_faults_come_one_per_line_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        DURATIONS.replace("  gamma", "  kapa: 1\n  gamma")
        .replace("gamma: 7", "gamma: seven")
        .replace("rate: 0.8", "rate: 1.8")
    )
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 2
    assert [line.split(": ")[1] for line in lines] == ["x.yaml:3:3", "x.yaml:4:3", "x.yaml:10:3"]


def test_what_has_nothing_to_do_with_a_fault_is_not_blamed_for_it() -> None:
    words = [
        "law",
        "duodecoding_llama_2_7b_a800",
        "--set",
        "seed=3",
        "--set",
        "acceptance={trace: null, stand_in: false, rate: 0.7}",
    ]
    assert "duodecoding_llama_2_7b_a800.yaml:5:" in CliRunner().invoke(main, words).stderr


def test_a_model_that_cannot_be_read_is_no_draft_and_no_fault(tmp_path: Path) -> None:
    (tmp_path / "hardware_profiles/models").mkdir(parents=True)
    (tmp_path / "hardware_profiles/models/broken.yaml").write_text("about: nothing\n")
    done = CliRunner().invoke(
        main, ["law", "vanilla_qwen3_32b_a100", "--catalogue", str(tmp_path), "--set", "draft=null"]
    )
    assert (done.exit_code, "vanilla_sd needs a draft" in done.stderr, "broken" in done.stderr) == (
        2,
        True,
        False,
    )


def test_a_draft_that_was_typed_is_not_called_taken_over(tmp_path: Path) -> None:
    shape = Catalogue().names("model")["llama_68m"].read_text()
    (tmp_path / "d.yaml").write_text(shape)
    done = CliRunner().invoke(
        main, ["law", "vanilla_qwen3_32b_a100", "--set", f"draft.model={tmp_path}/d.yaml"]
    )
    assert "the draft's vocabulary of 32,000 is not the target's of 151,936" in done.stderr


def test_what_is_set_on_a_shipped_scenario_is_to_blame_not_the_scenario() -> None:
    done = CliRunner().invoke(
        main,
        ["law", "vanilla_qwen3_32b_a100", "--set", "target.model=llama_3_1_70b", "--set", "seed=3"],
    )
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: --set target.model=llama_3_1_70b: draft.model: as "
        "mirror_qwen3_32b_m2_ultra.yaml:17 has it, "
    )


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("strategy.gamma=-1", "strategy.gamma: expected 1 or more, got -1"),
        ("strategy.gama=1", "strategy.gama: unknown field; did you mean 'gamma'?"),
        ("strategy", "expected key=value"),
        ("STRATEGY.gamma=3", "STRATEGY: unknown field; did you mean 'strategy'?"),
        ("name=../evil", "name: "),
        ("seed.x=1", "seed: holds 3, which has no fields of its own"),
        ("durations.draft_ms=[", "not valid YAML"),
    ],
)
def test_overrides_are_checked_like_the_file(
    assignment: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = fail(
        tmp_path, DURATIONS + "seed: 3\n", "--set", assignment, monkeypatch=monkeypatch
    )
    assert code == 2
    assert lines[0].startswith(f"error: --set {assignment}:")
    assert expected in lines[0]


def test_a_model_that_does_not_fit_says_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "like: mirror_opt_66b_m2_ultra\ntarget: {device: a100_80g_sxm, weights: fp16, "
        "tensor_parallel: 1}\n"
    )
    code, lines = fail(tmp_path, text, "--set", "shared_memory=null", monkeypatch=monkeypatch)
    assert code == 3
    assert lines == [
        "error: x.yaml:2:47: target.tensor_parallel: target opt_66b 133.2 GB does not fit "
        "a100_80g_sxm with 85.9 GB, of which 77.31 may be used; set target.tensor_parallel=2"
    ]


@pytest.mark.parametrize(
    ("command", "name", "hint"),
    [
        ("run", "mine", "; did you mean the file ./mine.yaml?"),
        ("sweep", "mine", "; did you mean the file ./mine.yaml?"),
        ("run", "chat_qwen3_32b", "; it is the name of a plan"),
        ("sweep", "chat_qwen3_32b", "; it is the name of a plan"),
        ("plan", "durations_only", "; it is the name of a scenario"),
        ("show", "A100", "; did you mean 'a100_80g_sxm'?"),
        ("run", "qqq", " more"),
    ],
)
def test_a_name_of_something_else(
    command: str, name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(DURATIONS)
    done = CliRunner().invoke(main, [command, name])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.endswith(f"{hint}\n")


@pytest.mark.parametrize("command", ["budget", "batches", "streams", "methods", "crossovers"])
def test_a_picture_under_another_name_is_refused(command: str) -> None:
    done = CliRunner().invoke(main, [command, "durations_only", "--out", "out.gif"])
    assert done.exit_code == 2
    assert (
        "expected a name that ends in .svg or .pdf or .png or .md or .html, got 'out.gif'"
        in done.stderr
    )


def test_a_cache_without_room_for_one_request_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "like: vanilla_llama_2_7b_a100\nserving: {memory: {kv_tokens: 100}}\n"
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 3
    assert lines[0].endswith("requests of up to 93 fit")  # and that they do: test_feasible.py


def test_an_unknown_scenario_and_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, expected in (
        ("mirror", "there is no scenario of this name"),
        ("./none.yaml", "cannot be read: No such file"),
    ):
        result = CliRunner().invoke(main, ["run", name])
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
        assert expected in result.stderr


# ---- traces


def trace(**changes: Any) -> Trace:
    """Two requests of four positions, one early exit."""
    shape = {"layers": 4, "vocabulary": 100}
    header = {
        "format": 1,
        "temperature": 0.0,
        "vocabulary": 100,
        "flavours": ["code", "prose"],
        "exit_layers": [2],
        "models": {role: {"shape": shape, "parameters": 1} for role in ("target", "draft")},
    }
    arrays: dict[str, Any] = {
        "offsets": np.array([0, 4, 8]),
        "flavour": np.array([0, 1], dtype=np.uint8),
        "token": np.arange(8, dtype=np.uint16),
        "draft_rank": np.array([0, 0, 1, 0, 0, 3, 0, 0], dtype=np.uint16),
        "p": np.ones(8, dtype=np.float16),
        "q": np.ones(8, dtype=np.float16),
        "exit_rank": np.array([[0, 0, 9, 0, 0, 1, 0, 0]], dtype=np.uint16),
        "run": None,
    }
    for name, value in changes.items():
        (arrays if name in arrays else header)[name] = value
    return Trace(header, **arrays)


QWEN = 151_936
SHAPED = {
    role: {"shape": {"layers": 4, "vocabulary": QWEN}, "parameters": 1}
    for role in ("target", "draft")
}
CONVERTED = {
    "format": 2,
    "run": np.ones(8, dtype=np.uint16),
    "draft_rank": np.empty(0, dtype=np.uint16),
}

TRACES = [
    (
        CONVERTED | {"vocabulary": None, "models": {"target": {"shape": None}, "draft": {}}},
        "was recorded with an unknown vocabulary, the target has 151,936",
    ),
    (
        CONVERTED | {"run": None},
        "does not say what is accepted: it holds neither run nor draft_rank",
    ),
    (CONVERTED | {"run": np.ones(7, dtype=np.uint16)}, "holds arrays of different lengths"),
    (
        {},
        (
            "was recorded with a vocabulary of 100, the target has 151,936; record one from your "
            "models, or set acceptance.stand_in=true"
        ),
    ),
    ({"token": np.full(8, 200, dtype=np.uint16)}, "holds token 200, outside its vocabulary of 100"),
    (
        {
            "models": {
                "target": {"shape": {"vocabulary": 100}},
                "draft": {"shape": {"vocabulary": 900}},
            }
        },
        "mixes vocabularies (target 100, draft 900",
    ),
    ({"format": 9}, "has format 9; this version reads formats 1 and 2"),
    ({"p": np.ones(7, dtype=np.float16)}, "holds arrays of different lengths"),
    (
        {
            "vocabulary": QWEN,
            "models": SHAPED,
            "exit_layers": [],
            "exit_rank": np.zeros((0, 8), dtype=np.uint16),
        },
        "mirror_sd needs early exits, and own.npz was recorded without",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), TRACES)
def test_a_trace_that_cannot_be_replayed(
    changes: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace_file.write(trace(**changes), tmp_path / "own.npz")
    text = "like: mirror_qwen3_32b_a100\nacceptance: {trace: ./own.npz, stand_in: false}\n"
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith("error: x.yaml:2:14: acceptance.trace: ")
    assert "own.npz" in lines[0]
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"PK\x03\x04rubbish", "is not a trace"), (b"", "is not a trace"), (None, "there is no file")],
)
def test_a_file_that_is_no_trace(
    content: bytes | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "own.npz").write_bytes(content)
    text = "like: mirror_qwen3_32b_a100\nacceptance: {trace: ./own.npz}\n"
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert (code, len(lines)) == (2, 1)
    assert expected in lines[0]


def test_what_a_trace_cannot_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No early exits recorded for Mirror-SD, a window beyond the recorded one: both at once."""
    trace_file.write(
        trace(**CONVERTED, exit_layers=[], exit_rank=np.empty((0, 8), dtype=np.uint16), window=5),
        tmp_path / "own.npz",
    )
    text = "like: mirror_qwen3_32b_a100\nstrategy: {gamma: 7}\nacceptance: {trace: ./own.npz}\n"
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 2
    assert lines == [
        (
            "error: x.yaml:3:14: acceptance.trace: mirror_sd needs early exits, and own.npz was "
            "recorded without; record it with --exits, or choose another"
        ),
        (
            "error: x.yaml:2:12: strategy.gamma: own.npz knows windows of up to 5 draft tokens, "
            "got 7; set strategy.gamma=5"
        ),
    ]


def test_an_unknown_flavour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_file.write(trace(), tmp_path / "own.npz")
    text = "like: mirror_qwen3_32b_a100\nacceptance: {trace: ./own.npz, flavours: [cod]}\n"
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 2
    assert (
        "x.yaml:2:32: acceptance.flavours: the trace has no flavour 'cod'; did you mean 'code'?"
        in lines[0]
    )


@pytest.mark.parametrize("out", ["file/report", "file"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(
        "simulator.scenario.evaluate.run",
        lambda *_: pytest.fail("simulated before asking where to write"),
    )
    code, lines = fail(tmp_path, DURATIONS, "--out", out, monkeypatch=monkeypatch)
    assert (code, len(lines)) == (2, 1)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_can_never_be_served_is_infeasible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = DURATIONS + (
        "requests: {prompt_tokens: 600}\nserving: {memory: {kv_tokens: 640}, policy: {name: "
        "unified_budget}}\n"
    )
    code, lines = fail(tmp_path, text, monkeypatch=monkeypatch)
    assert code == 3
    assert lines == [
        "error: x.yaml:10:1: requests: a request of 728 tokens needs room for 734 in the KV "
        "cache, which holds 640; requests of up to 634 fit"
    ]
