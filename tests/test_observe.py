"""``specsim observe``: a server is asked for its metrics and for nothing else; what was observed is
written and read back.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli.main import main
from simulator.core.acceptance.trace import Trace
from simulator.core.faults import BadInput
from simulator.core.serving.load.sessions import SessionFile
from simulator.inputs.logs import read_log
from simulator.inputs.services import scraping
from simulator.inputs.services.joined import joined
from simulator.inputs.services.observation_files import observation_files, read_observed
from simulator.inputs.services.read import read_services
from simulator.inputs.services.scraping import scrape, server_at
from simulator.inputs.sessions import recorded
from simulator.inputs.traces.converters import TO_TRACE
from simulator.report.services.observed import _verdict

LIVE = Path(__file__).parent / "data" / "live_services"
BENCH = ("vllm_bench.json", "vllm_bench_metrics_before.txt", "vllm_bench_metrics_after.txt")
SCRAPES = [(LIVE / name).read_text() for name in BENCH[1:]]
Answer = Callable[[BaseHTTPRequestHandler], None]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["observe", *map(str, arguments)], env={"COLUMNS": "100"})


@contextmanager
def serving(*answers: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server that gives one answer behind the other, the last again and again; its address, and
    what was asked of it.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_all(self) -> None:
            asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            answers[min(len(asked), len(answers)) - 1](self)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "HEAD", "PUT"):
        setattr(Handler, f"do_{method}", Handler.handle_all)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def text(content: str, status: int = 200, **headers: str) -> Answer:
    """An answer of a text."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content.encode())

    return answer


def test_a_server_is_asked_twice_for_its_metrics_and_for_nothing_else(tmp_path: Path) -> None:
    """What two scrapes say is what they say as files; the secret is written nowhere."""
    out = tmp_path / "seen"
    with serving(*map(text, SCRAPES)) as (url, asked):
        result = run(
            url, "--seconds", 0.2, "--header", "Authorization: Bearer s3cret", "--out", out
        )
    assert result.exit_code == 0, result.output
    assert asked == ["GET /metrics Bearer s3cret"] * 2
    assert "2.27 tokens a step that drafted" in result.stdout
    observed = read_observed(out / "observed.yaml")
    assert observed.load.requests == 12
    assert 0.2 <= (observed.load.duration_s or 0.0) < 20.0
    assert observed.files[0].file == f"{url}/metrics"
    assert "s3cret" not in result.output
    assert "s3cret" not in "".join(path.read_text() for path in out.iterdir())


def test_requests_under_way_when_it_began_are_no_load_by_their_times() -> None:
    """Their times began before; how many are under way is what gauges say."""
    busy = [
        scrape.replace("vllm:num_requests_running{", 'vllm:num_requests_running{busy="",')
        for scrape in SCRAPES
    ]
    busy[0] += "vllm:num_requests_running 5.0\n"
    busy[1] += "vllm:num_requests_running 3.0\n"
    with serving(*map(text, busy)) as (url, _):
        data = json.loads(run(url, "--seconds", 0.2, "--json").stdout)
    assert data["load"]["in_flight_mean"] is None
    assert data["load"]["ended_rate_per_s"] == pytest.approx(12 / data["load"]["duration_s"])
    assert (data["state"]["running_mean"], data["state"]["running_most"]) == (4.0, 5.0)


def test_the_header_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSIM_HEADER", "Authorization: Bearer other")
    with serving(text(SCRAPES[0])) as (url, asked):
        assert run(f"{url}/engine/metrics?replica=1", "--seconds", 0.1).exit_code == 0
    assert asked == ["GET /engine/metrics?replica=1 Bearer other"] * 2


def test_a_redirect_is_not_followed() -> None:
    with (
        serving(text(SCRAPES[0])) as (other, asked_there),
        serving(text("", 302, Location=f"{other}/metrics")) as (url, asked),
    ):
        result = run(url, "--seconds", 0.1)
    assert result.exit_code == 2
    assert "sends on to another address, which is not followed" in result.stderr
    assert (len(asked), asked_there) == (1, [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (text("", 404), "answers 404; does the server show metrics"),
        (text("", 401), "refuses (401); is --header"),
        (text("\xff\xfe" * 3), "expected NAME{LABELS} VALUE"),
        (text("<html>"), "expected NAME{LABELS} VALUE, found '<html>'"),
        (text("other_total 3\n"), "holds metrics of no engine that is known"),
        (text(""), "holds metrics of no engine that is known"),
    ],
)
def test_an_answer_that_is_none_is_said_before_the_wait(answer: Answer, said: str) -> None:
    with serving(answer) as (url, asked):
        result = run(url, "--seconds", 60)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(asked) == 1


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "MOST_BYTES", 100_000)
    sent = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while len(sent) < 10_000:
                handler.wfile.write(b"x" * 10_000)
                sent.append(1)
        except OSError:
            pass

    with serving(endless) as (url, _), pytest.raises(BadInput, match="answers with more than"):
        scrape(server_at(url, (), None))
    assert len(sent) < 10_000


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_that_is_late_is_left(monkeypatch: pytest.MonkeyPatch, drips: bool) -> None:
    """Also one of which a byte comes now and then."""
    monkeypatch.setattr(scraping, "MOST_S", 0.4)
    left = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        try:
            for _ in range(300):
                if drips:
                    handler.wfile.write(b"H")
                    handler.wfile.flush()
                if left.wait(0.1):
                    return
        except OSError:
            pass

    begun = time.monotonic()
    with serving(slow) as (url, _):
        with pytest.raises(BadInput, match="does not answer within"):
            scrape(server_at(url, (), None))
        left.set()
    assert time.monotonic() - begun < 15.0


def test_nobody_there() -> None:
    with serving(text("")) as (url, _):
        pass
    result = run(url)
    assert result.exit_code == 2
    assert "cannot be asked" in result.stderr


def test_a_server_that_began_anew_between_the_scrapes() -> None:
    with serving(text(SCRAPES[1]), text(SCRAPES[0].replace("1.79574345848e+09", "2e9"))) as (
        url,
        _,
    ):
        result = run(url, "--seconds", 0.1)
    assert result.exit_code == 2
    assert "started anew" in result.stderr


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (("http://user:pw@host/metrics",), "has a user or a password in it"),
        (("HTTP://user:pw@host/metrics",), "has a user or a password in it"),
        (("http://user:pw/metrics@host",), "is none; expected http://HOST:PORT"),
        (("http://user:pw@ho\u2100st",), "is none; expected http://HOST:PORT"),
        (("http://a..b:8000",), "is none; expected http://HOST:PORT"),
        (("ftp://user:pw@host",), "begins with none of http, https"),
        (("http://",), "names no host"),
        (("http://host:99999",), "is none"),
        (("http://a b",), "has letters that no address has"),
        (("http://a", "http://b"), "expected one URL at a time"),
        (("https://localhost:1", "--ca-file", LIVE / "vllm_answer.json"), "holds no certificates"),
        (("http://host", "--header", "no colon"), "expected 'NAME: VALUE' in one line"),
        (("http://host", "--header", "A: b\r\nC: d"), "expected 'NAME: VALUE' in one line"),
        (("missing.json",), "missing.json: cannot be read: No such file or directory"),
    ],
)
def test_what_is_typed_wrongly_is_said(sources: tuple[object, ...], said: str) -> None:
    result = run(*sources)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "pw" not in result.stderr


def test_an_untrusted_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that speaks no TLS, which is told apart."""
    with serving(text(SCRAPES[0])) as (url, asked):
        secure = url.replace("http:", "https:")
        result = run(secure, "--seconds", 0.1)
        assert result.exit_code == 2
        assert "speaks no TLS" in result.stderr
        assert "is it a http:// server?" in result.stderr

        def untrusted(_: HTTPSConnection) -> None:
            error = ssl.SSLCertVerificationError(1, "failed")
            error.verify_message = "self-signed certificate"
            raise error

        monkeypatch.setattr(HTTPSConnection, "connect", untrusted)
        result = run(secure, "--seconds", 0.1)
    assert result.exit_code == 2
    assert "is not trusted (self-signed certificate)" in result.stderr
    assert "--ca-file FILE" in result.stderr
    assert asked == []


def test_an_answer_that_is_cut_is_none() -> None:
    """Shorter than the server has said, it could lack any counter."""
    cut = text(SCRAPES[0], 200, **{"Content-Length": "1000000"})
    with serving(cut) as (url, _):
        result = run(url, "--seconds", 0.1)
    assert result.exit_code == 2
    assert f"answers with {len(SCRAPES[0].encode()):,} of 1,000,000 bytes" in result.stderr


def test_json_at_metrics_names_the_path_of_the_text() -> None:
    with serving(text('[{"iterLatencyMS": 3.0}]')) as (url, _):
        result = run(url, "--seconds", 0.1)
    assert result.exit_code == 2
    assert f"answers with JSON; expected text, which TensorRT-LLM shows at {url}" in result.stderr
    assert "/prometheus/metrics" in result.stderr


# ---- files


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "names",
    [
        BENCH,
        ("profile_export.jsonl", "profile_export_aiperf.json"),
        ("guidellm.json", "guidellm_metrics_before.txt", "guidellm_metrics_after.txt"),
        ("vllm_answer.json",),
        ("vllm_bench.json",),
    ],
)
def test_an_answer_is_short_and_an_observation_is_read_back_as_it_was(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    files = [LIVE / name for name in names]
    result = run(*files, "--out", tmp_path / "seen")
    assert result.exit_code == 0, result.output
    lines = run(*files).stdout.splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 100
    told = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert (told[1], told[-1]) == ("Answer", "Report")
    (services,) = read_services(files)
    observed = joined(services)
    again = read_observed(tmp_path / "seen" / "observed.yaml")
    tables = dict.fromkeys(("requests_file", "passes_file", "steps_file"))
    assert again.model_copy(update=tables) == observed
    data = json.loads(run(*files, "--json").stdout)
    assert data["load"]["requests"] == observed.load.requests
    pages = {f"observed.{ending}" for ending in ("html", "md", "svg", "data.csv")}
    assert {path.name for path in (tmp_path / "seen").iterdir()} - pages == (
        set(observation_files(observed, services))
    )


def test_the_order_of_two_scrapes_of_one_process_is_seen() -> None:
    files = [LIVE / name for name in BENCH]
    assert run(*files).stdout == run(*reversed(files)).stdout


def test_turns_follow_each_other_where_one_failed(tmp_path: Path) -> None:
    """Of turns 0, 1 and 2 the second failed; our own reader takes the two others."""
    record = json.loads((LIVE / "profile_export.jsonl").read_text().splitlines()[0])
    lines = ""
    for turn in range(3):
        record["metadata"]["turn_index"] = turn
        record["metadata"]["request_start_ns"] += 10**9
        record["metadata"]["request_end_ns"] += 10**9
        record["metrics"]["input_sequence_length"]["value"] = 100 + 200 * turn
        record["error"] = {"code": 500} if turn == 1 else None
        lines += json.dumps(record) + "\n"
    path = tmp_path / "profile_export.jsonl"
    path.write_text(lines)
    assert run(path, "--out", tmp_path).exit_code == 0
    (session,) = recorded(SessionFile(file=str(tmp_path / "observed_requests.csv")))
    assert len(session.turns) == 2


def test_packed_files_are_read(tmp_path: Path) -> None:
    files = []
    for name in BENCH:
        files.append(tmp_path / f"{name}.gz")
        files[-1].write_bytes(gzip.compress((LIVE / name).read_bytes()))
    plain = run(*(LIVE / name for name in BENCH)).stdout
    assert run(*files).stdout == plain
    files[0].write_bytes(files[0].read_bytes()[:300])
    result = run(files[0])
    assert result.exit_code == 2
    assert "cannot be unpacked; is it cut?" in result.stderr


def test_a_single_scrape_says_since_when() -> None:
    assert "12 requests since the server began" in run(LIVE / BENCH[2]).stdout


def test_tables_beside_an_observation_are_read_by_what_reads_logs_and_steps(tmp_path: Path) -> None:
    assert run(LIVE / "guidellm.json", "--out", tmp_path).exit_code == 0
    log = read_log(str(tmp_path / "observed_requests.csv"), {})
    assert [(prompt, output) for _, _, prompt, output, _ in log.requests] == [(40, 64)] * 6
    sessions = recorded(SessionFile(file=str(tmp_path / "observed_requests.csv")))
    assert [session.turns[0].output_tokens for session in sessions] == [64] * 6
    lines = (tmp_path / "observed_steps.jsonl").read_text().splitlines()
    trace: Trace = TO_TRACE["steps"](lines, 3)
    assert trace.header["window"] == 3
    assert len(trace.offsets) - 1 == 6


def test_the_page_quotes_what_is_printed() -> None:
    page = Path(__file__).parent.parent / "docs/how-to/live.md"
    assert f"```text\n{run(*(LIVE / name for name in BENCH)).stdout}```" in page.read_text()


def test_several_runs_are_a_line_and_a_folder_each(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    for place in range(2):
        (sweep / f"run={place}.json").write_text((LIVE / "vllm_bench.json").read_text())
    result = run(sweep, "--out", tmp_path / "seen")
    assert result.exit_code == 0, result.output
    title, answer, *_ = result.stdout.splitlines()
    assert title == "Observed: 2 runs"
    assert answer.startswith("Answer  Most output tokens a second: 156, in run=0.json.")
    assert "run=0.json 156 tokens/s TTFT 546 ms TPOT 7.6 ms; run=1.json" in result.stdout
    (page,) = (tmp_path / "seen").glob("*.html")
    assert page.name == "observed.html"
    assert read_observed(tmp_path / "seen" / "run_002" / "observed.yaml").load.requests == 12


def test_what_is_wrong_in_an_observation_is_said_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "observed.yaml"
    path.write_text("observed: 1\nbottleneck: none\nload:\n  requests: many\n  wait: 3\n")
    with pytest.raises(BadInput) as raised:
        read_observed(path)
    assert [fault.place[1] for fault in raised.value.faults] == [4, 5]
    path.write_text("observed: 2\nbottleneck: none\n")
    with pytest.raises(BadInput, match=r"observed: .*1"):
        read_observed(path)


@pytest.mark.parametrize(("tokens", "told"), [(1.0, True), (1.02, False), (None, False)])
def test_drafts_of_which_none_was_kept_are_told(tokens: float | None, told: bool) -> None:
    acceptance: Any = SimpleNamespace(tokens_per_draft=tokens)
    assert bool(_verdict(acceptance)) is told
    assert not _verdict(None)
