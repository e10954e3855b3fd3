"""``python -m benchmarks.exports.served FOLDER``: serve exported commands word for word, on a CPU.

Runs in the environment of vLLM. The shipped family lies where the checkpoints of a command would
be: its target as that of the command, its draft as that of the draft. One request is answered by
each server; ``FOLDER/served.json`` has what came of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.live.vllm.exported import export, word

PORT = 8047
PATIENCE_S = 900.0
GRACE_S = 30.0
PROMPT = " ".join(word(token) for token in (5, 9, 5, 9, 5, 9, 5, 9))
OUTPUT_TOKENS = 16
"""Words of the family, and how many more are asked for."""


def main(folder: Path) -> None:
    """Serve the commands of ``FOLDER/to_serve.json``, and write what came of it."""
    family = export(folder / "family")
    served = {}
    for name, words in json.loads((folder / "to_serve.json").read_text()).items():
        here = folder / "served" / name
        shutil.rmtree(here, ignore_errors=True)
        place(family["target"], here / words[2])
        if "--speculative-config" in words:
            stated = json.loads(words[words.index("--speculative-config") + 1])
            if stated.get("model"):
                place(family["draft"], here / stated["model"])
        served[name] = answer(words, here)
        sys.stdout.write(f"{name}: {served[name]}\n")
    (folder / "served.json").write_text(json.dumps(served, indent=1, allow_nan=False))


def place(model: Path, where: Path) -> None:
    """Put a model where a command names its checkpoint."""
    where.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(model, where)


def answer(words: list[str], here: Path) -> dict[str, object]:
    """Return what a server that a command starts answers: the tokens of an answer, or why there is
    none.
    """
    command = [str(Path(sys.executable).parent / "vllm"), *words[1:], "--port", str(PORT)]
    with (here / "log").open("w") as log:
        own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        server = subprocess.Popen(
            command,
            cwd=here,
            env={**os.environ, **own},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            begin = time.monotonic()
            while time.monotonic() - begin < PATIENCE_S and server.poll() is None:
                found = asked(words[2])
                if found:
                    return found
                time.sleep(1.0)
        finally:
            end(server)
    last = (here / "log").read_text().strip().splitlines()[-1:]
    return {"refused": " ".join(last)}


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server and all processes that it began, whether or not it heeds being asked to."""
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def asked(model: str) -> dict[str, object]:
    """Return what one request is answered; empty as long as there is no server."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": OUTPUT_TOKENS, "temperature": 0}
    data = json.dumps({**body, "ignore_eos": True}, allow_nan=False).encode()
    url = f"http://127.0.0.1:{PORT}/v1/completions"
    request = Request(url, data, {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=PATIENCE_S) as answered:  # noqa: S310
            told = json.load(answered)
    except (URLError, ConnectionError, TimeoutError):
        return {}
    return {
        "prompt_tokens": told["usage"]["prompt_tokens"],
        "output_tokens": told["usage"]["completion_tokens"],
        "text": told["choices"][0]["text"].strip(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
