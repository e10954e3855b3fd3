"""Processes that a command begins: they end with it, whatever ends it, and Ctrl-C ends it at any
moment without more words.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE_S = 2.0
SLEEPING = """
import sys, time
from simulator.core.parallel import spread
if __name__ == "__main__":
    with spread(2) as everywhere:
        print("begun", flush=True)
        everywhere(time.sleep, [60.0, 60.0, 60.0])
"""


def started(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # one thread here
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def group(leader: int) -> list[int]:
    """Processes of a group that are not dead."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(place.name))
    return found


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks for processes where Linux lists them"
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process_that_began_them(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "sleeping.py").write_text(SLEEPING)
    process = started("sleeping.py", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    begun = time.monotonic()
    # the workers and what tracks them
    while len(group(process.pid)) < 4 and time.monotonic() < begun + 60:
        time.sleep(0.05)
    time.sleep(1.0)  # until they sleep
    process.send_signal(number)
    process.wait(60)
    ended = time.monotonic()
    # the machine may be busy
    while group(process.pid) and time.monotonic() < ended + 10 * PATIENCE_S:
        time.sleep(0.05)
    assert group(process.pid) == []
    process.communicate()


def test_ctrl_c_ends_a_command_while_it_imports(tmp_path: Path) -> None:
    """From the first line on that is ours; what Python does before that is its own."""
    waits = (
        "import time, click; click.group = lambda *_, **__: (print('importing', flush=True), "
        "time.sleep(60))"
    )
    (tmp_path / "sitecustomize.py").write_text(waits)
    process = subprocess.Popen(
        [sys.executable, "-m", "simulator", "list", "scenario"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # one thread here
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGINT, "")  # a shell says 130


def test_ctrl_c_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    script = f"import signal; {ignored}; import simulator.__main__; print(signal.getsignal(2))"
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "SIG_IGN" in said or said.strip() == "1"


INTERRUPTED = """
import os, signal, threading, time
from concurrent.futures import ProcessPoolExecutor
from simulator.core.processes import Pool

threading.Thread(target=time.sleep, args=(2,), daemon=True).start()  # it may take the signal, too
signal.signal(signal.SIGINT, signal.default_int_handler)
submitted = []

def submit(self, task):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
    submitted.append(task)

ProcessPoolExecutor.submit = submit
try:
    Pool(1).submit(print)
    print("never heard")
except KeyboardInterrupt:
    print("heard behind it" if submitted else "heard in the middle")
"""


def test_ctrl_c_comes_behind_the_start_of_a_worker_whichever_thread_takes_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "heard behind it\n"
