"""Servers of vLLM, one for each configuration, that serve the same loads in turns.

All servers are up from the begin; one at a time has something to do. A load goes round all of them
before the next one, so that what drifts on a shared machine meets every configuration alike. A
server's passes run on one core (``timed``), its API and the clients on another, before other
programs; what those had of the machine meanwhile is noted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.live.vllm.settings import (
    CONFIGURATIONS,
    LOADS,
    OUTPUT_TOKENS,
    SERVER,
    Configuration,
    Load,
)

ROOT = Path(__file__).parents[3]
PORT = 8043
"""Of the first server; the others have the next ones."""
OTHER_CORE = "1"
FIRST = ["nice", "-n", "-10", "taskset", "-c", OTHER_CORE]
"""Before other programs, on the other core."""
DISTURBED, TRIES, PAUSE_S = 0.1, 3, 2.0
"""Cores that other programs may have while a load is served; beyond, it is served again, and the
least disturbed time is kept, whatever it says.
"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """One configuration: its address, its processes, and what it is told."""

    how: Configuration
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"


class Servers:
    """All servers, and the clients that go round them; files of each cell in ``folder``."""

    def __init__(self, python: Path, models: Path, folder: Path) -> None:
        self.python, self.models, self.folder = python, models, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.open = ExitStack()
        self.servers: list[Server] = []
        self.clients = self._start("clients", [str(python), "-m", "benchmarks.live.vllm.clients"])

    def start(self) -> None:
        """Start a server for every configuration, one after the other."""
        for number, how in enumerate(CONFIGURATIONS):
            self.servers.append(self._server(how, PORT + number))

    def turn(self, folder: Path, number: int, loads: Sequence[Load] = LOADS) -> None:
        """Serve every load by every configuration, in another order in each turn; what each cell
        leaves is in ``folder``.
        """
        begin = number * 3 % len(self.servers)
        order = [*self.servers[begin:], *self.servers[:begin]]
        for load in loads:
            for server in order:
                self._cell(server, load, folder / server.how.name)

    def answers(self) -> None:
        """Ask for whole answers, which tell tokens and what was accepted step by step."""
        conversations = json.loads((self.models / "prompts.json").read_text())
        asked = {"model": "target", "max_tokens": OUTPUT_TOKENS, "temperature": 0}
        for server in self.servers:
            bodies = [
                {**asked, "ignore_eos": True, "prompt": each["conversations"][0]["value"]}
                for each in conversations
            ]
            url = f"{server.url}/v1/completions"
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda body, url=url: fetch(url, body).decode(), bodies))
            text = "".join(f"{answer}\n" for answer in found)
            (self.folder / f"answers_{server.how.name}.jsonl").write_text(text)

    def close(self) -> None:
        """End clients and servers."""
        self.open.close()

    def _cell(self, server: Server, load: Load, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        tries: list[float] = []
        for attempt in range(TRIES):
            name = f"{load.name}_try_{attempt}"
            self._bench(server, warm_up(load), folder / "warm.json")
            self._scrape(server, folder / f"{name}_before.txt")
            begin, busy, own = time.monotonic(), busy_s(), self._own_s()
            self._bench(server, load, folder / f"{name}.json")
            end = time.monotonic()
            others = (busy_s() - busy - self._own_s() + own) / (end - begin)
            self._scrape(server, folder / f"{name}_after.txt")
            tries.append(round(others, 3))
            if others <= DISTURBED:
                break
            time.sleep(PAUSE_S)
        kept = tries.index(min(tries))
        for ending in (".json", "_before.txt", "_after.txt"):
            os.replace(folder / f"{load.name}_try_{kept}{ending}", folder / f"{load.name}{ending}")
        (folder / f"{load.name}_others.json").write_text(json.dumps(tries, allow_nan=False))

    def _own_s(self) -> float:
        """Return the seconds of processors that servers and clients have had."""
        groups = {server.process.pid for server in self.servers} | {self.clients.pid}
        return groups_s(groups)

    def _server(self, how: Configuration, port: int) -> Server:
        command = [str(self.python.parent / "vllm"), "serve", "target", "--port", str(port)]
        command += ["--enforce-eager", "--no-enable-prefix-caching", "--no-async-scheduling"]
        command += ["--worker-cls", "benchmarks.live.vllm.timed.TimedWorker"]
        for option, value in SERVER.items():
            command += [f"--{option}", str(value)]
        speculation = how.speculation(str(self.models / "draft"))
        if speculation:
            command += ["--speculative-config", json.dumps(speculation, allow_nan=False)]
            command += ["--per-request-spec-decode-metrics", "detailed"]
        server = Server(how, port, self._start(how.name, command))
        deadline = time.monotonic() + 240
        while not answers(f"{server.url}/health"):
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no server; see {self.folder / how.name}.log")
            time.sleep(0.3)
        return server

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[str]:
        return self.open.enter_context(self._process(name, [*FIRST, *command]))

    @contextmanager
    def _process(self, name: str, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        own = {
            "PYTHONPATH": str(ROOT),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SPECSIM_PASSES": str(self.folder / f"{name}_passes.jsonl"),
        }
        Path(own["SPECSIM_PASSES"]).unlink(missing_ok=True)
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=self.models,
                env={**os.environ, **own},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name == "clients" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            with suppress(OSError):  # sessions share the processors, whatever the nice of a process
                Path(f"/proc/{process.pid}/autogroup").write_text("-20")
            try:
                yield process
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _scrape(self, server: Server, path: Path) -> None:
        time.sleep(0.2)
        path.write_bytes(fetch(f"{server.url}/metrics"))

    def _bench(self, server: Server, load: Load, path: Path) -> None:
        arguments = ["--port", str(server.port), "--model", "target", "--tokenizer", "target"]
        arguments += ["--dataset-name", "sharegpt", "--dataset-path", "prompts.json"]
        arguments += ["--disable-shuffle", "--num-prompts", str(load.requests)]
        arguments += ["--sharegpt-output-len", str(load.output_tokens)]
        arguments += ["--ignore-eos", "--temperature", "0", "--ready-check-timeout-sec", "0"]
        arguments += ["--save-result", "--save-detailed", "--disable-tqdm"]
        arguments += ["--result-filename", str(path)]
        if load.clients:
            arguments += ["--max-concurrency", str(load.clients)]
        else:
            arguments += ["--request-rate", str(load.rate_per_s)]
        if not (self.clients.stdin and self.clients.stdout):
            raise RuntimeError("the clients have no pipes")
        self.clients.stdin.write(json.dumps(arguments, allow_nan=False) + "\n")
        self.clients.stdin.flush()
        for line in self.clients.stdout:
            if line == "done\n":
                return
        raise RuntimeError(f"the clients ended; see {self.folder / 'clients.log'}")


def warm_up(load: Load) -> Load:
    """Return what a server is asked before a load: the first request behind a pause of a minute
    takes several times as long, as its pages come back.
    """
    clients = load.clients or 4
    return Load("warm", max(2, clients), clients, output_tokens=8)


def busy_s() -> float:
    """Return the seconds that all processors have been busy since the machine was started."""
    user, nice, system, _idle, _wait, *rest = map(int, _first_line("/proc/stat").split()[1:9])
    return (user + nice + system + sum(rest)) / TICKS


def groups_s(groups: set[int]) -> float:
    """Return the seconds of processors that the living processes of some groups have had."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = _first_line(folder / "stat").rpartition(") ")[2].split()
            if int(fields[2]) in groups:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def _first_line(path: str | Path) -> str:
    with Path(path).open() as file:
        return file.readline()


def fetch(url: str, body: dict[str, Any] | None = None) -> bytes:
    """Return what an address of the own machine answers."""
    data = json.dumps(body, allow_nan=False).encode() if body else None
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
