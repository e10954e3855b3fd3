"""Servers of vLLM, one configuration after the other, under the same loads.

The server's passes run on one core (``timed``), its API and the clients on another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.live.vllm.settings import (
    LOADS,
    OUTPUT_TOKENS,
    SERVER,
    Configuration,
    Load,
)

ROOT = Path(__file__).parents[3]
PORT = 8043
URL = f"http://127.0.0.1:{PORT}"
OTHER_CORE = "1"


class Turn:
    """One configuration served once: its server and its clients, and the files of both in
    ``folder``.
    """

    def __init__(self, python: Path, models: Path, folder: Path, how: Configuration) -> None:
        self.python, self.models, self.folder, self.how = python, models, folder, how
        folder.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SPECSIM_PASSES": str(folder / "passes.jsonl"),
        }

    def run(self, whole_answers: bool, loads: tuple[Load, ...] = LOADS) -> None:
        """Serve the loads in turn, then ask for ``whole_answers``, which tell tokens and what was
        accepted step by step.
        """
        with self._process("clients", self._client_command()) as clients, self._server():
            self._bench(clients, Load("warm", 16, clients=16))
            self._bench(clients, Load("warm", 4, clients=3))
            for load in loads:
                self._scrape(f"{load.name}_before")
                self._bench(clients, load)
                self._scrape(f"{load.name}_after")
            if whole_answers:
                self._answers()

    def _client_command(self) -> list[str]:
        return ["taskset", "-c", OTHER_CORE, str(self.python), "-m", "benchmarks.live.vllm.clients"]

    @contextmanager
    def _process(self, name: str, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.models,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name == "clients" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    @contextmanager
    def _server(self) -> Iterator[None]:
        command = ["taskset", "-c", OTHER_CORE, str(self.python.parent / "vllm"), "serve", "target"]
        command += ["--port", str(PORT), "--enforce-eager", "--no-enable-prefix-caching"]
        command += [
            "--no-async-scheduling",
            "--worker-cls",
            "benchmarks.live.vllm.timed.TimedWorker",
        ]
        for option, value in SERVER.items():
            command += [f"--{option}", str(value)]
        speculation = self.how.speculation(str(self.models / "draft"))
        if speculation:
            command += ["--speculative-config", json.dumps(speculation)]
            command += ["--per-request-spec-decode-metrics", "detailed"]
        with self._process("server", command) as process:
            deadline = time.monotonic() + 180
            while not answers(f"{URL}/health"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no server; see {self.folder / 'server.log'}")
                time.sleep(0.3)
            yield

    def _scrape(self, name: str) -> None:
        time.sleep(0.3)
        (self.folder / f"{name}.txt").write_bytes(fetch(f"{URL}/metrics"))

    def _bench(self, clients: subprocess.Popen[str], load: Load) -> None:
        arguments = ["--port", str(PORT), "--model", "target", "--tokenizer", "target"]
        arguments += ["--dataset-name", "sharegpt", "--dataset-path", "prompts.json"]
        arguments += ["--disable-shuffle"]
        arguments += [
            "--sharegpt-output-len",
            str(OUTPUT_TOKENS),
            "--num-prompts",
            str(load.requests),
        ]
        arguments += ["--ignore-eos", "--temperature", "0", "--ready-check-timeout-sec", "0"]
        arguments += ["--save-result", "--save-detailed", "--disable-tqdm"]
        arguments += ["--result-filename", str(self.folder / f"{load.name}.json")]
        if load.clients:
            arguments += ["--max-concurrency", str(load.clients)]
        else:
            arguments += ["--request-rate", str(load.rate_per_s)]
        assert clients.stdin and clients.stdout
        clients.stdin.write(json.dumps(arguments) + "\n")
        clients.stdin.flush()
        for line in clients.stdout:
            if line == "done\n":
                return
        raise RuntimeError(f"the clients ended; see {self.folder / 'clients.log'}")

    def _answers(self) -> None:
        conversations = json.loads((self.models / "prompts.json").read_text())
        asked = {"model": "target", "max_tokens": OUTPUT_TOKENS, "temperature": 0}

        def answer(asked_for: dict[str, Any]) -> str:
            body = {**asked, "ignore_eos": True, "prompt": asked_for["conversations"][0]["value"]}
            return fetch(f"{URL}/v1/completions", body).decode()

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(answer, conversations))
        (self.folder / "answers.jsonl").write_text("".join(f"{text}\n" for text in found))


def fetch(url: str, body: dict[str, Any] | None = None) -> bytes:
    """Return what an address of the own machine answers."""
    data = json.dumps(body).encode() if body else None
    request = Request(url, data, {"content-type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return bytes(answer.read())


def answers(url: str) -> bool:
    """Return whether an address answers."""
    try:
        fetch(url)
    except OSError:
        return False
    return True
