"""What tables of measured runs call devices, engines, formats and methods, in the words of the
catalogue.

A name that leads to nothing, or to several files, is refused with the column that would say it.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple

from simulator.core.cost.model import ModelSpec
from simulator.core.plain import PlainData
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.usual import usual_engine

MAKERS = frozenset(("nvidia", "amd", "apple", "intel", "geforce", "instinct", "gpu"))
"""Words of a device that its file's name leaves out."""
MEANT = {"a100": "a100_80g_sxm", "a100 80g": "a100_80g_sxm", "h100": "h100_sxm"}
"""Device that is meant where a table says no more; the answer says so."""
FORMATS = {
    "8 bit": "int8_wo",
    "4 bit": "int4",
    "awq int4": "int4",
    "gptq int4": "int4",
    "q4_k_m": "q4_k",
    "q4_k_s": "q4_k",
}
"""Formats of weights that tables name otherwise; all others are called as here."""
LLAMA_CPP = {"Apple": "llama_cpp_metal", "NVIDIA": "llama_cpp_cuda"}
"""What llama.cpp is on a maker's devices."""
LLAMA_CPP_ELSEWHERE = "llama_cpp_cpu"
PLAIN = frozenset(("", "none", "plain", "ar", "autoregressive"))
"""What a row is called that drafts nothing."""
HEADS = {"eagle3": "vllm_eagle_3", "eagle1": "eagle_1", "eagle": "eagle_1", "mtp": "mtp_3"}
"""Method whose head drafts, by the first word of a table's method."""
DRAFT_MODELS = ("draft", "standalone", "sps")
"""The same word where a model of its own drafts."""
BLOCKS = {"dflash": "dflash"}
"""Method whose head writes a block in one pass, by the same word."""
MEASURED = "as in the row"
"""Source of a window that a row states."""


class UnknownName(ValueError):
    """A table's name leads to no file of the catalogue, or to several."""


class Windows(NamedTuple):
    """States what a step drafts and verifies."""

    steps: int
    """Passes of the draft, or tokens of a block."""
    top_k: int
    """Tokens that each pass continues with; 1 is a chain."""
    verified_rows: int
    """Rows of the target's pass, the last token among them."""


def device_of(text: str, catalogue: Catalogue) -> tuple[str, str]:
    """Return a device's name in the catalogue, and what was assumed of it in words, or nothing.

    Raises :class:`UnknownName` for a device that is not there, or could be several.
    """
    words = _words(text)
    names = catalogue.names("device")
    exact = [name for name in names if set(name.split("_")) == set(words)]
    if exact:
        return exact[0], ""
    meant = MEANT.get(" ".join(sorted(words)))
    if meant:
        return meant, f"'{text}' is taken for {meant}"
    could_be = [name for name in names if words and set(name.split("_")) >= set(words)]
    if len(could_be) == 1:
        return could_be[0], ""
    how = "there is no device"
    if could_be:
        how = f"could be {', '.join(could_be)}:"
    raise UnknownName(f"{how} '{text}'; name its file in a column target.device")


def _words(text: str) -> list[str]:
    """Return the words of a device's name: '2 x NVIDIA H100 94 GB (SXM)' is h100, 94g."""
    name = re.sub(r"\(.*?\)|[,;].*", " ", text.lower())
    name = re.sub(r"^\s*\d+\s*x\s+", "", name)
    name = re.sub(r"(\d+)\s*gb?\b", r"\1g", name)
    name = re.sub(r"\bsxm\d\b", "sxm", name)
    return [word for word in re.findall(r"[a-z0-9]+", name) if word not in MAKERS]


def engine_of(text: str, maker: str | None, catalogue: Catalogue) -> str:
    """Return an engine's name in the catalogue; the usual one of the maker for an empty cell.

    Raises :class:`UnknownName` for an engine that is not there.
    """
    if not text:
        return usual_engine(maker)
    word = re.split(r"[\s(]", text.strip().lower())[0].replace(".", "_").replace("-", "_")
    if word == "llama_cpp":
        return LLAMA_CPP.get(maker or "", LLAMA_CPP_ELSEWHERE)
    names = catalogue.names("engine")
    if word in names:
        return word
    listed = ", ".join(names)
    raise UnknownName(f"there is no engine '{text}' among {listed}")


def format_of(text: str, model: ModelSpec) -> str | None:
    """Return the format of a model's weights; None where nothing is stated.

    A format that the model was published in is taken as it was published: fp8 by blocks.
    """
    name = re.sub(r"\(.*?\)", " ", text).strip().lower()
    if not name:
        return None
    published = model.expert_format or model.weight_format
    if published and published.startswith(name):
        return published
    return FORMATS.get(name, name)


def drafts(method: str) -> bool:
    """Return whether a row of this method drafts anything."""
    return method.strip().lower() not in PLAIN


def uses_draft_model(method: str) -> bool:
    """Return whether a model of its own drafts."""
    return _first_word(method) in DRAFT_MODELS


def strategy_of(method: str, windows: Windows, catalogue: Catalogue) -> PlainData:
    """Return the fields of the strategy that runs a table's method.

    Raises :class:`UnknownName` for a method that tables cannot name.
    """
    word = _first_word(method)
    if uses_draft_model(method):
        return {"name": "vanilla_sd", "gamma": windows.steps}
    if word in BLOCKS:
        strategy = _strategy(BLOCKS[word], catalogue)
        rows = windows.verified_rows
        for draft_pass in strategy["passes"]:
            draft_pass["rows"] = [rows]
        return strategy | {"tree": _chain(rows - 1)}
    if word not in HEADS:
        known = ", ".join((*HEADS, *BLOCKS, *DRAFT_MODELS[:1]))
        raise UnknownName(f"there is no method '{method}' among {known}; name it in `strategy`")
    strategy = _strategy(HEADS[word], catalogue)
    later = [windows.top_k] * (windows.steps - 1)
    strategy["passes"][0]["rows"] = [windows.steps + 1, *later]
    if windows.top_k == 1:
        return strategy | {"tree": _chain(windows.steps)}
    tree = {
        "budget": windows.verified_rows - 1,
        "levels": windows.steps,
        "choices": windows.top_k,
        "source": MEASURED,
    }
    return strategy | {"tree": tree}


def _first_word(method: str) -> str:
    """Return the family of a method: 'EAGLE-3 chain' and 'EAGLE 3' are eagle3, 'MTP-1' is mtp."""
    found = re.match(r"\s*([a-z]+)[ -]?(\d*)", method.lower())
    if found is None:
        return ""
    word, version = found.groups()
    if word == "eagle":
        return word + version
    return str(word)


def _strategy(name: str, catalogue: Catalogue) -> PlainData:
    """Return the strategy of a method without its recording: a row states the mean, and bursts that
    another recording lends would make the law keep more than that.
    """
    path = catalogue.names("method")[name]
    strategy: PlainData = deepcopy(catalogue.content("method", path).data["strategy"])
    for of_recording in ("drafter", "borrowed"):
        strategy.pop(of_recording, None)
    return strategy


def _chain(steps: int) -> Mapping[str, object]:
    return {"branching": [1] * steps, "source": MEASURED}
