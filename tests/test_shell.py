"""Commands that are written or shown: whatever a file calls a thing, it arrives as one word, and
nothing else runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from simulator.cli.main import main
from simulator.scenario import Loaded, load
from simulator.studies.plan.commands.engines import ENGINES
from simulator.studies.plan.export import exports

PROGRAMS = (
    "vllm",
    "python",
    "python3",
    "llama-server",
    "sglang",
    "trtllm-serve",
    "docker",
    "kubectl",
    "curl",
    "specsim",
)
"""Programs that exported scripts and shown commands may name."""
HARMLESS = "harmless"
HOSTILE = (
    "two words",
    "a'b",
    'a"b',
    "$(touch ran)",
    "`touch ran`",
    "a;touch ran",
    "a\ntouch ran",
    "a&touch ran&",
    "a|touch ran",
    "a>ran",
    "${HOME}",
    "~",
    "*",
    "a#b",
    "\\",
    "!!",
    "-rf",
    "--help",
    "naïve 模型 ",
    "a\tb",
    "a\rb",
    "{{ 7 * 7 }}",
    '", "method": "x',
    "[1, 2]",
    "007",
)


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder of programs that do nothing but write down the words that they were called with."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in PROGRAMS:
        stub = folder / name
        stub.write_text(
            '#!/bin/sh\nfor word in "$0" "$@"; do printf "%s\\0" "$word" >> "$CALLED"; '
            'done\nprintf "\\1\\0" >> "$CALLED"\n'
        )
        stub.chmod(0o755)
    return folder


def called(script: str, stubs: Path) -> list[list[str]]:
    """The words of every program that a script calls; it may make no file beside those that ``>``
    makes in it.
    """
    place, log = stubs.parent / "place", stubs.parent / "called"
    place.mkdir(exist_ok=True)
    log.write_text("")
    environment = {
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "CALLED": str(log),
        "HOME": "/nowhere",
        "LC_ALL": "C.UTF-8",
    }
    subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=place,
        env=environment,
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert not (place / "ran").exists(), script
    calls: list[list[str]] = [[]]
    for word in log.read_bytes().decode().split("\0")[:-1]:
        if word == "\1":
            calls.append([])
        else:
            calls[-1].append(word if calls[-1] else Path(word).name)
    return calls[:-1]


def with_names(loaded: Loaded, name: str, published: bool) -> Any:
    """A plan's answer whose models, machines and devices have a name that no loader has looked
    at.
    """

    def placed(place: Any) -> Any:
        model = place.model.model_copy(
            update={"name": name, "huggingface": (name,) if published else ()}
        )
        return place.model_copy(
            update={
                "model": model,
                "machine": name,
                "device": place.device.model_copy(update={"name": name}),
            }
        )

    scenario = loaded.scenario
    changed = {
        part: placed(place) for part in ("target", "draft") if (place := getattr(scenario, part))
    }
    named = loaded.replace(**changed, about=name)
    return SimpleNamespace(candidate=SimpleNamespace(loaded=named), replicas=2)


def expected(word: str, name: str) -> str:
    """A word of a command for a harmless name, for another one: no name is an option."""
    shown = f"./{name}" if name.startswith("-") else name
    if word.startswith('{"'):
        return json.dumps(
            {key: shown if value == HARMLESS else value for key, value in json.loads(word).items()}
        )
    if word == f"{HARMLESS}.gguf":
        file = f"{name.rpartition('/')[2]}.gguf"
        return f"./{file}" if file.startswith("-") else file
    return shown if word == HARMLESS else word


SERVED = [
    ("vllm_chain", "vllm"),
    ("vllm_eagle_3", "vllm"),
    ("sglang_chain", "sglang"),
    ("sglang_eagle", "sglang"),
    ("sglang_chain", "llama_cpp_cuda"),
    ("autoregressive", "vllm"),
    ("vllm_chain", "tensorrt_llm"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("published", [True, False], ids=["an id", "a name"])
@pytest.mark.parametrize(("strategy", "engine"), SERVED)
def test_every_exported_script_calls_one_program_with_whole_words(
    strategy: str, engine: str, published: bool, stubs: Path
) -> None:
    place = f"{{machine: server, device: a100_80g_sxm, engine: {engine}, weights: bf16, model: "
    settings = [
        f"strategy={strategy}",
        f"target={place}vicuna_7b}}",
        f"draft={place}tiny_vicuna_1b}}",
        "acceptance={rate: 0.7}",
        (
            "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 100, "
            "output_tokens: 20}"
        ),
        "serving={policy: {name: prefill_first, max_requests: 8}}",
    ]
    loaded = load("vanilla_llama_2_7b_a100", settings)
    file = next(entry.file for name, entry in ENGINES.items() if engine.startswith(name))
    (plain,) = called(
        exports(with_names(loaded, HARMLESS, published), None, {}, HARMLESS)[file], stubs
    )
    assert any(HARMLESS in word for word in plain)
    for name in HOSTILE if published else (*HOSTILE[::5], "-rf"):
        # heads are checked where a plan is read
        head = name if not name.startswith("-") else f"./{name}"
        written = exports(
            with_names(loaded, name, published and not name.startswith("-")), None, {}, head
        )
        assert called(written[file], stubs) == [[expected(word, name) for word in plain]], name
        for other in written.keys() - {file}:
            assert not other.endswith(".sh"), f"{other} is run by no test"


def faults_of(words: list[str]) -> list[str]:
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    return done.stderr.splitlines()


MODEL = """hidden_size: 64
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 4
head_dim: 16
intermediate_size: 128
vocab_size: 1000
huggingface:
  - {}
"""
REFUSED = (
    *(name for name in HOSTILE if name not in ("007",)),
    "../x",
    "a/b/c",
    "a/",
    "/a",
    "",
    "a" * 97,
    "a//b",
)


@pytest.mark.parametrize("name", REFUSED)
def test_an_id_that_is_none_is_refused_where_it_stands(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_text(MODEL.format(json.dumps(name)))
    (line,) = faults_of(["law", "vanilla_llama_2_7b_a100", "--set", "target.model=./odd.yaml"])
    assert line.startswith("error: odd.yaml:9:5: target.model.huggingface.0: ")
    assert "expected an id of Hugging Face, as in Qwen/Qwen3-8B" in line


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-8B", "gpt2", "a_b/C-d.e_1", "01-ai/Yi-6B", "JackFram/llama-68m"]
)
def test_ids_of_hugging_face_are_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_text(MODEL.format(json.dumps(name)))
    done = CliRunner().invoke(
        main, ["law", "vanilla_llama_2_7b_a100", "--set", "target.model=./odd.yaml", "--json"]
    )
    assert "huggingface" not in done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_a_checkpoint_that_is_no_id_is_refused_where_it_stands(name: str) -> None:
    settings = ["--set", f"target.checkpoint={json.dumps(name)}"]
    lines = faults_of(["law", "vanilla_llama_2_7b_a100", *settings])
    assert any("target.checkpoint" in line for line in lines)


@pytest.mark.parametrize("head", ["some/head", "/models/my head", "./head"])
def test_a_head_is_an_id_or_a_path(head: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        f"heads: {{x: {json.dumps(head)}, y: '$(touch ran)', z: -rf}}\n"
    )
    lines = faults_of(["plan", str(tmp_path / "plan.yaml")])
    assert [line for line in lines if "heads.x" in line] == []
    assert len([line for line in lines if "heads.y" in line or "heads.z" in line]) == 2


def test_a_text_with_a_character_of_code_zero_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text('about: "a\\0b"\n')
    (line,) = faults_of(["law", str(tmp_path / "odd.yaml")])
    assert line.endswith(
        "odd.yaml:1:8: about: holds a character of code 0, which is no character of a text"
    )


# ---- commands that are shown

DURATIONS = (
    "strategy: {name: vanilla_sd, gamma: 3}\ndurations: {target_ms: 18, draft_ms: "
    "2}\nacceptance: {rate: 0.8}\n"
    "requests: {count: 2, prompt_tokens: 8, output_tokens: 8}\n"
)
FILES = (
    "two words",
    "a'b",
    "$(touch ran)",
    "`touch ran`",
    "a;touch ran",
    "a\ntouch ran",
    "-rf",
    "naïve 模型 ",
)


def command_on(page: Path) -> str:
    """The command at the end of a page, as a reader sees it."""
    if page.suffix == ".html":
        (text,) = re.findall(
            r'id="made-by-title".*?<code>(.*?)</code>', page.read_text("utf-8"), re.DOTALL
        )
        return unescape(text)
    text = page.read_bytes().decode().partition("## Made by\n\n")[2]
    fence = re.match("`+", text)
    assert fence
    return text[len(fence[0]) + 1 : text.rindex(fence[0]) - 1]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", FILES)
def test_the_command_of_a_page_is_the_one_that_was_typed(
    name: str, stubs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = f"{name}.yaml" if name.startswith("-") else f"{name}/mine.yaml"
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(DURATIONS)
    for out, words in {
        "law.html": ["law", "--set", "strategy.gamma=2", "--out", "law.html", "--", file],
        "batches.md": [
            "batches",
            "--sizes",
            "1-2",
            "--simulate",
            "1",
            "--out",
            "batches.md",
            "--",
            file,
        ],
        "compare.html": ["compare", "--out", "compare.html", "--", file, file],
        "report/report.md": ["run", "--out", "report", "--", file],
    }.items():
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, (words, done.output)
        (argv,) = called(command_on(Path(out)), stubs)
        assert argv[:2] == ["specsim", words[0]]
        assert argv.count(file) == words.count(file)
        if name.startswith("-"):
            assert argv.index("--") < argv.index(file)


@pytest.mark.parametrize("name", FILES)
def test_other_commands_that_are_shown_are_whole(
    name: str, stubs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["new", "--", name])
    assert done.exit_code == 0, done.output
    following = done.stdout.partition("Next: ")[2].removesuffix("\n")
    made = f"./{name}.yaml"
    assert following == f"specsim explain {shlex.quote(made)}, specsim run {shlex.quote(made)}"
    assert called(following.replace(", specsim run", "; specsim run"), stubs) == [
        ["specsim", verb, made] for verb in ("explain", "run")
    ]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama_cpp", "hugging_face"])
@pytest.mark.parametrize("name", ["$(touch ran)", "a'b\ntouch ran", "-rf"])
def test_commands_that_measure_take_names_whole(engine: str, name: str, stubs: Path) -> None:
    def commands(target: str, draft: str) -> list[list[str]]:
        words = [
            "trace",
            "advise",
            "--engine",
            engine,
            "--window",
            "3",
            "--json",
            f"--target={target}",
            f"--draft={draft}",
        ]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return called(json.loads(done.stdout)["measure"], stubs)

    plain, odd = commands(f"{HARMLESS}", f"{HARMLESS}"), commands(name, name)
    shown = f"./{name}" if name.startswith("-") else name
    in_json = f'{{"model": {json.dumps(name)}, "num_speculative_tokens": 3}}'
    wanted = [
        [in_json if word.startswith('{"') else word.replace(HARMLESS, shown) for word in call]
        for call in plain
    ]
    assert odd == wanted
