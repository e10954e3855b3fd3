"""The page of a record: how many commands are accepted, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.exports.record import ACCEPTED, APART, REFUSED, ExportRecord
from simulator.report.blocks import Block, Bullets, Page, Paragraph, Table, sections

COMMAND = "python3 dev.py exports"
ENGINES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llama_cpp": "llama.cpp",
    "tensorrt_llm": "TensorRT-LLM",
}
UNASKED = ("llama_cpp", "tensorrt_llm")
"""Engines whose commands are held to what they document."""
HOW = (
    "vLLM: the parser of vllm serve, then the engine's configuration as a server makes it before "
    "it loads weights, from folders with the config.json of each checkpoint; degree of a draft and "
    "schedule by batch size as its worker checks them. Weights and kernels are not asked.",
    "SGLang: its parser alone; what follows asks for a GPU.",
    "llama.cpp: the options, and the values of some, that its documentation lists.",
    "TensorRT-LLM: the options of trtllm-serve, and the fields of its file with their types, their "
    "values and what a way to draft needs, as its documentation lists them "
    "(benchmarks/exports/documented.yaml). Its package is not imported: PyPI has no wheel of it.",
    "Routers and dynamo.yaml are held to documented options and fields by the tests "
    "(benchmarks/exports/documented.yaml).",
)


def page(record: ExportRecord) -> Page:
    """Return the page of a record."""
    return Page(
        title="Are exported commands accepted?",
        about=f"Asked on {record.date}.",
        answer=" ".join(_counts(record)),
        opening=[Table(HEAD, list(_table(record)), "Commands by engine")],
        sections=sections(
            ("Not accepted", list(_others(record))),
            ("Served", list(_served(record))),
            ("How", [Bullets(HOW)]),
            ("All commands", [Paragraph("In record.json, with their words.")]),
        ),
        command=COMMAND,
    )


HEAD = ("engine", "version", "commands", ACCEPTED, REFUSED, "counted apart")


def _counts(record: ExportRecord) -> Iterator[str]:
    for engine, called in ENGINES.items():
        of_all = sum(one.engine == engine for one in record.judged)
        accepted = record.came_to(engine, ACCEPTED)
        words = f"{called} accepts {accepted} of {of_all} commands"
        if engine in UNASKED:
            words = f"{called} documents the options of {accepted} of {of_all} commands"
        apart = record.came_to(engine, APART)
        yield f"{words}, {apart} counted apart." if apart else f"{words}."


def _table(record: ExportRecord) -> Iterator[tuple[str, ...]]:
    for engine, called in ENGINES.items():
        counts = [record.came_to(engine, verdict) for verdict in (ACCEPTED, REFUSED, APART)]
        yield called, record.versions[engine], str(sum(counts)), *map(str, counts)


def _others(record: ExportRecord) -> Iterator[Block]:
    rows = []
    for one in record.judged:
        if one.verdict != ACCEPTED:
            rows.append((ENGINES[one.engine], one.fleet, one.verdict, one.said))
    if rows:
        yield Table(
            ("engine", "fleet", "verdict", "in the engine's words"),
            rows,
            "Commands that are not accepted",
        )
    else:
        yield Paragraph("None.")


def _served(record: ExportRecord) -> Iterator[Block]:
    yield Paragraph(
        "Word for word by vLLM on a CPU, the shipped family lying where the checkpoints would be; "
        "a port was added."
    )
    rows = []
    for name, served in record.served.items():
        if "refused" in served:
            rows.append((name, "-", "-", str(served["refused"])))
        else:
            asked, came = str(served["prompt_tokens"]), str(served["output_tokens"])
            rows.append((name, asked, came, str(served["text"])))
    yield Table(("command", "prompt tokens", "output tokens", "answer"), rows, "One request each")
