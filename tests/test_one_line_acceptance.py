"""What somebody with a paper's mean, a log or nothing types: each a single line of the command."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.core.acceptance.sequences import RecordedSequences
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace
from simulator.core.acceptance.window_replay import WindowReplay
from simulator.core.faults import BadInput
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.traces import file
from simulator.inputs.traces.file import read_once
from simulator.scenario import load
from simulator.scenario.evaluate import law, run
from simulator.scenario.loading import variant
from simulator.scenario.recording import nearest_recording
from simulator.scenario.result.run_result import RunResult
from simulator.studies.plan.robustness import fewer_accepted

SMALL = "requests={count: 6, prompt_tokens: 64, output_tokens: 40}"
MANY = "requests={count: 120, prompt_tokens: 64, output_tokens: 120}"
RUN = ("run", "vanilla_llama_2_7b_a100", "--set", SMALL)


def printed(*words: str) -> dict[str, Any]:
    """Run a command and return what it prints as one object."""
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert isinstance(made, dict)
    return made


STATED = {
    "EAGLE-3 on a 70B, which nobody recorded": (
        ["strategy=eagle_3", "target.model=llama_3_1_70b", "target.device=b200_sxm"],
        "{tokens_per_step: 3.1, window: 5, method: eagle_3, source: a paper}",
        3.1,
    ),
    "Token Recycling": (
        ["strategy=token_recycling"],
        "{tokens_per_step: 2.73, method: token_recycling}",
        2.73,
    ),
    "a chain, bonus not counted": (
        ["strategy.gamma=5"],
        "{tokens_per_step: 2.1, bonus: false, window: 5}",
        3.1,
    ),
    "accepted over drafted": (["strategy.gamma=5"], "{accepted_share: 0.42, window: 5}", 3.1),
    "three lengths, continued": (["strategy.gamma=8"], "{lengths: [1.84, 2.50, 2.99]}", 4.07),
    "three conditional rates, the last repeats": (
        ["strategy.gamma=4"],
        "{per_position: [0.8, 0.7, 0.5]}",
        2.78,
    ),
}


@pytest.mark.parametrize("case", STATED)
def test_a_mean_is_stated_in_one_line(case: str) -> None:
    settings, acceptance, tokens = STATED[case]
    words = [
        word for one in (*settings, f"acceptance={acceptance}", MANY) for word in ("--set", one)
    ]
    made = printed("run", "vanilla_llama_2_7b_a100", *words)
    assert made["replay"]["verified_per_step"] == pytest.approx(tokens, rel=0.05)


def test_a_chain_runs_with_the_mean_of_its_own_method_file() -> None:
    """`at window 1 it lies between 1 and 2` was said of every such run."""
    mean = "{tokens_per_step: 2.28, window: 5, method: hf_assisted, source: Spec-Bench}"
    words = [
        word
        for one in ("strategy=hf_assisted", SMALL, f"acceptance={mean}")
        for word in ("--set", one)
    ]
    made = printed("run", "methods_vicuna_7b_a100", *words)
    assert 1.5 < made["simulated"]["tokens_per_step"] < 4.0


ONE_LINE = {
    "lengths by context": [
        "acceptance.by_context={tokens_per_step: {2000: 2.295, 4000: 2.040, 8000: 1.687}}"
    ],
    "oracle": ["strategy.gamma=oracle"],
    "best of two at every position": [
        "strategy.gamma=8",
        "strategy.adaptive=oracle",
        "acceptance.drafter=best_of",
        "acceptance.best_of=[eagle, ngram]",
    ],
    "a request's own recording": ["requests.recordings=[code/3, maths/1]"],
}


@pytest.mark.parametrize("case", ONE_LINE)
def test_a_question_about_acceptance_is_one_line(case: str) -> None:
    made = printed(*RUN, *(word for one in ONE_LINE[case] for word in ("--set", one)))
    assert made["replay"]["tpot_ms"] == pytest.approx(made["simulated"]["tpot_ms"], rel=1e-9)


def test_a_sweep_over_windows_finds_the_best_one_of_the_recording() -> None:
    """The mean is imposed once, at window 4; the best window is that of the recording as it is."""
    mean = 1.0 + WindowReplay.of(
        Replay(read_once(Catalogue().names("trace")["six_flavours_greedy"]))
    ).mean(4)
    best = []
    for acceptance in (
        "{trace: six_flavours_greedy, stand_in: true}",
        f"{{tokens_per_step: {mean}, window: 4, method: vanilla_sd}}",
    ):
        words = ("law", "vanilla_llama_2_7b_a100", "--set", f"acceptance={acceptance}")
        times = {
            gamma: printed(*words, "--set", f"strategy.gamma={gamma}")["law"]["tpot_ms"]
            for gamma in (1, 2, 4, 6, 8, 12)
        }
        best.append(min(times, key=times.__getitem__))
    assert best[0] == best[1] > 1


@pytest.mark.parametrize(
    ("form", "text", "options"),
    [
        ("specdecode_bench_eagle", '{"acc_eagle": {"acc_len": [3, 1, 1, 2]}}\n', ()),
        ("sglang", '{"accept_length": 2.5}\n', ("--window", "4")),
        ("llama_cpp", "n_drafted = 180\nn_accept = 120\nn_predict = 200\n", ("--window", "16")),
        ("golden_lengths", "1.84, 2.50, 2.99\n", ("--window", "8")),
    ],
)
def test_a_log_is_read_in_one_line(
    tmp_path: Path, form: str, text: str, options: tuple[str, ...]
) -> None:
    log, ending = tmp_path / "log", ".npz" if "bench" in form else ".yaml"
    log.write_text(text)
    done = CliRunner().invoke(
        main,
        [
            "trace",
            "convert",
            str(log),
            "--from",
            form,
            *options,
            "--out",
            str(tmp_path / f"mine{ending}"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / f"mine{ending}").stat().st_size > 0


def test_costs_are_a_formula_in_one_line() -> None:
    """Passes of 28 + 0.4 ms a row over five rows, four draft tokens of 1.9 ms: 37.6 ms a step."""
    formula = "durations={target_ms: {base_ms: 28, row_ms: 0.4}, draft_step_ms: 1.9}"
    words = [
        word
        for one in ("strategy={name: vanilla_sd, gamma: 4}", formula)
        for word in ("--set", one)
    ]
    assert printed("law", "durations_only", *words)["law"]["step_ms"] == pytest.approx(37.6)


def test_costs_of_the_host_are_a_formula_of_their_own() -> None:
    """40 ms of target, 1 ms of host and 0.5 for each of five rows, four draft tokens of 2 ms: 51.5
    ms a step, 41.5 without.
    """
    words = ("law", "durations_only", "--set", "strategy={name: vanilla_sd, gamma: 4}", "--set")
    costs = "host_ms: {base_ms: 1, row_ms: 0.5}"
    made = printed(*words, f"durations={{target_ms: 40, draft_step_ms: 2, {costs}}}")
    assert (made["law"]["step_ms"], made["baseline"]["tpot_ms"]) == (
        pytest.approx(51.5),
        pytest.approx(41.5),
    )
    done = CliRunner().invoke(
        main, [*words, f"durations={{prefix_ms: 20, suffix_ms: 20, draft_step_ms: 2, {costs}}}"]
    )
    assert done.exit_code == 2
    assert "host_ms stands beside target_ms" in done.output


# ---- lengths by category


@pytest.fixture(scope="module")
def by_category(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two kinds of text of which every step keeps as many tokens as every other: 3 of 4 of code, 1
    of 4 of chat.
    """
    folder = tmp_path_factory.mktemp("categories")
    lines = [
        json.dumps({"accepted": [kept] * 30, "flavour": flavour})
        for flavour, kept in (("code", 3), ("chat", 1)) * 3
    ]
    (folder / "log").write_text("\n".join(lines))
    words = [
        "trace",
        "convert",
        str(folder / "log"),
        "--from",
        "steps",
        "--window",
        "4",
        "--out",
        str(folder / "mine.npz"),
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return str(folder / "mine.npz")


def of_categories(trace: str, means: str, requests: str, *more: str) -> RunResult:
    acceptance = (
        f"acceptance={{trace: {trace}, stand_in: true, rescale: {{tokens_per_step: {means}, "
        f"window: 4}}}}"
    )
    costs = "durations={target_ms: 30, draft_step_ms: 5}"
    return run(
        load(
            "durations_only",
            ["strategy={name: vanilla_sd, gamma: 4}", costs, acceptance, requests, *more],
        )
    )


@pytest.mark.parametrize(
    ("recordings", "tokens"),
    [("{code: 3, chat: 1}", 3.2), ("[code, chat]", 8 / 3), ("[chat]", 2.0)],
)
def test_law_replay_and_events_of_two_categories_agree(
    by_category: str, recordings: str, tokens: float
) -> None:
    """Steps of 50 ms; 40 tokens are ten steps of code, of four tokens, or twenty of chat, of
    two.
    """
    requests = (
        f"requests={{count: 8, prompt_tokens: 8, output_tokens: 41, recordings: {recordings}}}"
    )
    made = of_categories(by_category, "{code: 4, chat: 2}", requests)
    for tpot_s in (made.law.tpot_s, made.replay.tpot_s, made.simulated.tpot_s):
        assert tpot_s == pytest.approx(0.050 / tokens, rel=1e-9)
    assert made.law.tokens_per_step == pytest.approx(tokens, rel=1e-9)
    assert made.agreement.gap == pytest.approx(0.0, abs=1e-9)


def test_every_category_reaches_its_own_mean_and_keeps_its_requests() -> None:
    shares = (
        "requests={count: 200, prompt_tokens: 64, output_tokens: 41, recordings: {code: 7, "
        "dialogue: 3}}"
    )
    for drafter in ("eagle", "draft"):  # by start, by position
        means = (
            f"acceptance={{tokens_per_step: {{code: 3.4, dialogue: 2.1}}, window: 5, drafter: "
            f"{drafter}}}"
        )
        loaded = load("vanilla_llama_2_7b_a100", [means, shares, "strategy.gamma=5"])
        found = loaded.acceptance()
        assert isinstance(found, Replay)
        assert {
            name: WindowReplay.of(found.only(name)).mean(5) + 1.0 for name in ("code", "dialogue")
        } == pytest.approx({"code": 3.4, "dialogue": 2.1}, abs=0.02)
        assert found.weights == {"code": 140 * 40, "dialogue": 60 * 40}
        apart = [found.only(name).odds(5, None).committed() for name in ("code", "dialogue")]
        assert found.odds(5, None).committed() == pytest.approx(
            1.0 / (0.7 / apart[0] + 0.3 / apart[1]), rel=1e-9
        )
        assert found.odds(5, None).accepted.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "settings",
    [
        ("strategy=token_recycling",),  # a tree
        ("strategy=pld",),  # look-up, with steps that propose nothing
        ("strategy.adaptive={name: confidence, p_min: 0.6}", "strategy.gamma=6"),
        ("acceptance.by_context={tokens_per_step: {100: 2.3, 200: 1.7}}",),
    ],
)
def test_categories_reach_every_reading_of_a_recording(settings: tuple[str, ...]) -> None:
    words = [
        "acceptance={tokens_per_step: {code: 2.4, dialogue: 1.6}, window: 4}",
        *settings,
        SMALL,
    ]
    made = run(load("methods_vicuna_7b_a100", ["strategy={name: vanilla_sd, gamma: 4}", *words]))
    assert made.replay.tpot_s == pytest.approx(made.simulated.tpot_s, rel=1e-9)
    assert "by kind of text" in made.law.source
    assert (
        "acceptance is re-scaled by kind of text to code 2.4, dialogue 1.6 tokens a step"
        in " ".join(made.caveats)
    )


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        (
            "{tokens_per_step: {code: 3.4, chat: 2.1}}",
            "acceptance.tokens_per_step: the trace has no flavour 'chat'",
        ),
        (
            "{tokens_per_step: {code: 3.4, docs: 0.9}}",
            "tokens_per_step 0.9: a correction or bonus makes it more than 1",
        ),
        (
            "{tokens_per_step: {code: 3.4, docs: 7}, window: 5}",
            "a mean accepted length of 7 cannot be",
        ),
        ("{tokens_per_step: {}}", "acceptance.tokens_per_step: expected"),
        (
            "{tokens_per_step: {code: 3, code/1: 2}}",
            "acceptance.tokens_per_step: the trace has no flavour 'code/1'",
        ),
        (
            "{tokens_per_step: {code: 3, docs: 2}, flavours: [code]}",
            "flavours: expected the kinds that have means: code, docs",
        ),
        (
            "{tokens_per_step: {code: 3}, flavours: [code, docs]}",
            "flavours: expected the kinds that have means: code",
        ),
    ],
)
def test_means_of_categories_that_cannot_be(stated: str, fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        load("vanilla_llama_2_7b_a100", [f"acceptance={stated}"])
    assert fault in str(caught.value)


def test_what_if_fewer_are_accepted_and_other_windows_keep_the_categories(tmp_path: Path) -> None:
    """Tasks of a traffic file are categories too; a sweep changes the window, never the window of
    the means.
    """
    lines = [
        json.dumps({"timestamp": at, "input_length": 8, "output_length": 41, "task": task})
        for at, task in LOG
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    means = "acceptance={tokens_per_step: {code: 3.0, dialogue: 2.0}, window: 5, drafter: eagle}"
    tasks = "task_flavours: {chat: [dialogue], complete: [code]}"
    traffic = (
        f"requests={{arrivals: {{name: file, format: log, file: {tmp_path}/log.jsonl}}, {tasks}}}"
    )
    policy = "serving.policy={name: prefill_first, max_requests: 4}"
    base = load("vanilla_llama_2_7b_a100", [means, traffic, policy, "strategy.gamma=5"])
    assert base.acceptance().weights == {"code": 3 * 40, "dialogue": 40}
    assert fewer_accepted(base).scenario.acceptance.rescale.tokens_per_step == pytest.approx(
        {"code": 2.8, "dialogue": 1.9}
    )
    narrow = variant(base, {"strategy.gamma": 2}).acceptance()
    assert isinstance(narrow, Replay)
    assert WindowReplay.of(narrow.only("code")).mean(5) + 1.0 == pytest.approx(3.0, abs=0.02)


LOG = [(0, "complete"), (100, "chat"), (200, "complete"), (300, "complete")]


def test_several_sequences_are_drafted_by_category() -> None:
    means = "acceptance={tokens_per_step: {code: 3.0, dialogue: 2.0}, window: 5}"
    acceptance = load(
        "duodecoding_llama_2_7b_a800", [means, "strategy.sequences=2", "requests.count=4"]
    ).acceptance()
    assert isinstance(acceptance, RecordedSequences)
    assert WindowReplay.of(acceptance.replay.only("dialogue")).mean(5) + 1.0 == pytest.approx(
        2.0, abs=0.02
    )


APART = (
    "{trace: six_flavours_greedy, stand_in: true, rescale: {tokens_per_step: {code: 4.5, "
    "dialogue: 1.6}, window: 5}}"
)


@pytest.mark.parametrize("name", ["duodecoding_llama_2_7b_a800", "vanilla_qwen3_32b_a100"])
def test_points_that_differ_in_their_requests_alone_have_laws_of_their_own(name: str) -> None:
    """However many share a recording: each has the law that it has alone, and the first keeps its
    own.
    """
    split = ["strategy.sequences=2"] if name.startswith("duo") else []
    words = [f"acceptance={APART}", *split, "requests.count=20"]
    first = variant(load(name, words), {"requests.recordings": {"code": 9, "dialogue": 1}})
    deals = ("{code: 9, dialogue: 1}", "{code: 1, dialogue: 9}")
    alone = [load(name, [*words, f"requests.recordings={deal}"]) for deal in deals]
    second = variant(first, {"requests.recordings": {"code": 1, "dialogue": 9}})
    found = [
        law(loaded.scenario, loaded.acceptance()).tokens_per_step for loaded in (second, first)
    ]
    assert found == [
        law(loaded.scenario, loaded.acceptance()).tokens_per_step for loaded in reversed(alone)
    ]
    assert found[0] < 0.8 * found[1]


def test_a_gate_takes_the_kinds_apart_too() -> None:
    gate = [
        "strategy={name: vanilla_sd, gamma: 8, adaptive: {name: confidence, p_min: 0.6}}",
        "requests.count=20",
    ]
    found = load(
        "vanilla_qwen3_32b_a100",
        [f"acceptance={APART}", *gate, "requests.recordings={code: 9, dialogue: 1}"],
    ).acceptance()
    assert isinstance(found, Replay)

    def tokens(replay: Replay) -> float:
        return 1.0 + sum(share * kept for share, kept in replay.odds(8, None).gated.values())

    assert sum(share for share, _ in found.odds(8, None).gated.values()) == pytest.approx(1.0)
    code, dialogue = tokens(found.only("code")), tokens(found.only("dialogue"))
    assert tokens(found) == pytest.approx(1.0 / (0.9 / code + 0.1 / dialogue), rel=1e-9)
    assert code != pytest.approx(dialogue, rel=0.05)


def test_looking_for_the_nearest_recording_reads_each_file_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many are shipped: what is kept of them is more than those."""
    read = Counter[Path]()
    kept = file.read

    def counted(path: Path) -> Trace:
        read[path] += 1
        return kept(path)

    monkeypatch.setattr(file, "read", counted)
    file._kept.cache_clear()
    for temperature in (0.0, 0.5, 1.0):
        assert nearest_recording(Catalogue(), "draft", temperature)
    assert read == dict.fromkeys(Catalogue().names("trace").values(), 1)


POSITIONS = """
strategy: {name: vanilla_sd, gamma: 3}
durations: {target_ms: 30, draft_step_ms: 5}
acceptance: {per_position: [0.8, 0.6, 0.5], source: ours}
"""


@pytest.mark.parametrize(
    ("stated", "tokens"),
    [
        ("per_position: [1, 1, 0]", 3.0),  # the same form: only what differs is replaced
        ("rate: 0.5", 1.875),  # 1 + 1/2 + 1/4 + 1/8
        ("always: 2", 3.0),
    ],
)
def test_another_source_takes_the_place_of_the_one_before(
    tmp_path: Path, stated: str, tokens: float
) -> None:
    """In a file that is like another, and typed."""
    (tmp_path / "base.yaml").write_text(POSITIONS)
    own = tmp_path / "own.yaml"
    own.write_text(f"like: ./base.yaml\nacceptance: {{{stated}}}\n")
    name, _, value = stated.partition(": ")
    typed = load(str(tmp_path / "base.yaml"), [f"acceptance.{name}={value}"])
    for loaded in (load(str(own)), typed):
        done = law(loaded.scenario, loaded.acceptance())
        assert float(done.verified_per_step) == pytest.approx(tokens)
    same = name == "per_position"
    assert load(str(own)).scenario.acceptance.source == ("ours" if same else None)


def test_a_mean_takes_the_place_of_a_recording_and_of_positions(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(POSITIONS)
    own = tmp_path / "own.yaml"
    for like in ("./base.yaml", "vanilla_llama_2_7b_a100"):
        own.write_text(f"like: {like}\nacceptance: {{tokens_per_step: 2.5}}\n")
        loaded = load(str(own))
        rescale = loaded.scenario.acceptance.rescale
        assert rescale is not None
        assert rescale.tokens_per_step == 2.5
        done = law(loaded.scenario, loaded.acceptance())
        assert float(done.verified_per_step) == pytest.approx(2.5, rel=0.02)


def test_two_sources_of_one_writer_are_refused(tmp_path: Path) -> None:
    """Also where what was there before has a third."""
    (tmp_path / "base.yaml").write_text(POSITIONS)
    own = tmp_path / "own.yaml"
    own.write_text("like: ./base.yaml\nacceptance: {rate: 0.5, always: 2}\n")
    with pytest.raises(BadInput, match="found rate and always"):
        load(str(own))
    with pytest.raises(BadInput, match="found rate and always"):
        load(str(tmp_path / "base.yaml"), ["acceptance.rate=0.5", "acceptance.always=2"])
