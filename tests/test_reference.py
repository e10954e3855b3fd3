"""The reference book: what is committed is what the classes and commands say, no field is without a
meaning, links arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from docs import write_api
from docs.write_reference import ABOUT, FOLDER, Book, commands, pages, slug
from simulator.cli.catalogue import json_schema
from simulator.cli.main import main
from simulator.core.quantities import Frozen
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.descriptions import field_descriptions
from simulator.inputs.traces.header import ARRAYS
from simulator.papers.specpipe.specpipe_tandem import SpecPipeTandem
from tests.apart import kept
from tests.pins import as_pinned

PAGES = pages()


@pytest.mark.skipif(
    not as_pinned("click", "pydantic"),
    reason="other versions of click and pydantic word it otherwise",
)
def test_what_is_committed_is_what_would_be_written() -> None:
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    assert (
        set(committed) - {"results.md", "api.md"}
        == set(PAGES)
        == {"cli.md", *(f"{page}.md" for page in ABOUT)}
    )
    known = dict(kept(committed.items()))  # a paper that was taken away is on the others still
    stale = [name for name in PAGES.keys() & known if known[name] != PAGES[name]]
    assert stale == [], "run `python3 dev.py reference`"


def test_the_page_of_the_python_face_is_what_its_docstrings_say() -> None:
    assert (FOLDER / "api.md").read_text("utf-8") == write_api.page(), (
        "run `python3 dev.py reference`"
    )


SMALL = ["requests.count=4", "requests.output_tokens=9", "slo={ttft_ms: {p90: 9000}}"]
WAITING = ["requests.concurrency=2", "serving.memory.kv_tokens=540"]
SPREAD, LEVEL = {"mean", "p50", "p90", "p95", "p99", "most"}, {"mean", "p95", "most"}
NAMED = (
    "choices",
    "lanes",
    "scenario",
    "replications",
    "speedup_interval",
    "intervals",
    "littles_law",
    "slo",
    "provenance",
    "replicas",
    "measures",
    "setting",
    "flips",
    "rests_on",
    "half_a_token_less",
    "measurement",
    "closed_loop",
)
"""Their keys are names, or stand in one line of the page."""


def keys(found: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Title of a section of the page, and a key in it."""
    for key, value in found.items():
        yield path, key
        inner = (
            value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        )
        if isinstance(inner, dict) and key not in NAMED and set(inner) not in (SPREAD, LEVEL):
            yield from keys(inner, f"{path}.{key}".strip(".") + ".*" * (inner is not value))


def test_results_have_the_keys_that_the_page_names_and_no_others() -> None:
    told = set()
    for section in (FOLDER / "results.md").read_text("utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for place in re.findall("`([^`]+)`", title) or [""]:
            told |= {(place, key) for key in re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)}
    printed = set()
    runs = {
        "mirror_qwen3_32b_a100": SMALL,
        "specpipe_llama_3_1_70b_8x3090": SMALL,
        "durations_only": SMALL + WAITING,
    }
    for name, settings in runs.items():
        words = [word for setting in settings for word in ("--set", setting)]
        result = CliRunner().invoke(main, ["run", name, *words, "--json"])
        printed |= set(keys(json.loads(result.stdout)))
    several = {("simulated", "replicas"), ("replay", "replicas")}
    # of a run whose replicas come and go (test_scaling)
    several |= {(place, key) for place, key in told if place.startswith("simulated.scaling")}
    assert printed | several == told


def test_every_command_stands_in_it_with_all_its_options() -> None:
    for name, command in commands(main, "specsim"):
        section = PAGES["cli.md"].split(f"\n### {name}\n")[1].split("\n### ")[0]
        offered = (param for param in command.params if not getattr(param, "hidden", False))
        options = [option for one in offered for option in one.opts if option.startswith("--")]
        assert [option for option in options if option not in section] == [], name


def test_every_field_of_every_kind_of_file_has_a_meaning() -> None:
    """That is, a row whose last cell says something."""
    for name, one in Book().sections.items():
        section = PAGES[f"{one.page}.md"].split(f"\n## {one.title}\n")[1].split("\n## ")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", section, re.MULTILINE))
        assert {field for field in one.schema["properties"] if field != "name"} <= set(rows), name
        assert all(len(words) > 5 for words in rows.values()), name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_titles(page: str) -> None:
    for file, place in re.findall(r"\]\((\w*\.md)?#([\w.-]+)\)", PAGES[page]):
        titles = re.findall(r"^##+ (.*)$", PAGES[file or page], re.MULTILINE)
        assert place in map(slug, titles), f"{file}#{place}"


def test_a_field_means_what_its_class_or_the_one_above_says() -> None:
    class Mine(Frozen):
        plain: int
        told: int
        """So and
        so."""

    Mine.__module__ = "tests"
    assert field_descriptions(Mine) == {}
    held = field_descriptions(SpecPipeTandem)
    assert held["width"] == "Nodes of a level."
    assert held["stages"] == "Filled in from the placement."


def test_an_editor_is_told_the_same() -> None:
    schema = json_schema("scenario")
    assert schema["properties"]["seed"]["description"] == "Of everything that is drawn by chance."
    assert schema["$defs"]["Roofline"]["properties"]["p_norm"]["description"].startswith(
        "How sharp the knee is"
    )


def test_every_array_of_a_shipped_trace_is_described() -> None:
    page = (Path(FOLDER) / "trace.md").read_text("utf-8")
    assert [
        name for name in (*ARRAYS["own"], *ARRAYS["further"]) if f"| `{name}` |" not in page
    ] == []
    for path in Catalogue().names("trace").values():
        with np.load(path) as file:
            named = {name for name in file.files if "." in name}
            assert {*file.files} - named <= {"header", *ARRAYS["own"]}
        endings = {name.partition(".")[2] for name in named}
        assert endings <= {name.partition(".")[2] for name in ARRAYS["further"]} | {
            "rollout.token",
            "rollout.sequences",
            "rollout.p",
            "rollout.entropy",
        }


def test_the_page_can_be_found_from_the_map() -> None:
    linked = (Path(FOLDER).parent / "README.md").read_text("utf-8")
    assert [name for name in (*PAGES, "results.md") if f"reference/{name}" not in linked] == []
