"""What tables of measured runs call devices, engines, formats and methods, in the words of the
catalogue.

A name that leads to nothing, or to several files, is refused with the column that would say it.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

from simulator.core.cost.formats import format_name
from simulator.core.cost.model import ModelSpec
from simulator.core.plain import PlainData
from simulator.inputs.ages import of_month
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.models.named import NamedModel, find_model
from simulator.inputs.usual import usual_engine

LEFT_OUT = frozenset(
    (
        *("nvidia", "amd", "apple", "intel", "geforce", "radeon", "instinct", "tesla", "gpu"),
        *("hgx", "blackwell", "generation", "server", "workstation", "edition", "hbm3", "hbm3e"),
    )
)
"""Words of a device that its file's name leaves out: makers, generations, boards."""
SAME_MEMORY = 0.15
"""How far a stated size of memory may be from that of the file, as a share."""
CHIP = re.compile(r"m\d_")
"""Devices that are no other one with a word less: an M4 is no M4 Max."""
ANY_SIZE = "Apple"
"""Maker whose files have the largest memory of a chip, where people have less."""
SAME_SHAPES = {
    "qwen3.8-27b": "qwen3_5_27b",
    "r1-distill-qwen-1.5b": "qwen2_5_1_5b",
    "r1-distill-qwen-32b": "qwen2_5_32b",
}
"""Models whose configuration is not there, and the one whose shapes they have."""
MEANT = {
    "a100": "a100_80g_sxm",
    "a100 80g": "a100_80g_sxm",
    "h100": "h100_sxm",
    "80g h100": "h100_sxm",
    "m2 ultra": "m2_ultra_gpu",
    "4060 rtx ti": "rtx_4060_ti_16g",
    "dgx spark": "gb10",
    "halo strix": "ryzen_ai_max_395_8060s",
}
"""Device that is meant where a table says no more; the answer says so."""
FORMATS = {
    "8 bit": "int8_wo",
    "8-bit": "int8_wo",
    "4 bit": "int4",
    "4-bit": "int4",
    "q4_0": "mostly_q4_0",
}
"""Formats of weights that tables name otherwise, outside of MLX; all others are called as here."""
OF_MLX = re.compile(r"(\d)[ -]bits?")
"""What tables call a format of MLX."""
PCIE_H100 = "h100_pcie"
"""An H100 whose cards do not reach each other's memory."""
LENGTHS = {"instructcoder": (145, 200)}
"""Mean tokens of prompts and outputs by data set, where measured runs over it print them
(tomasruizt/vllm-scripts d94d714).
"""
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
"""Names of months, in which tables say how old an engine is."""
LLAMA_CPP = {"Apple": "llama_cpp_metal", "NVIDIA": "llama_cpp_cuda", "AMD": "llama_cpp_cuda"}
"""What llama.cpp is on a maker's devices; on AMD it runs the kernels of CUDA."""
LLAMA_CPP_ELSEWHERE = "llama_cpp_cpu"
SEVERAL = re.compile(r"\s*(\d+)\s*x\s*(?=[^\W\d]|\d{4}\b)", re.IGNORECASE)
"""Beginning of a device's name that says how many there are."""
ENGINES = {
    "hf": "hf_eager",
    "huggingface": "hf_eager",
    "transformers": "hf_eager",
    "llamacpp": "llama_cpp",
    "llama_server": "llama_cpp",
    "ollama": "llama_cpp",
    "mlx_lm": "mlx",
    "mlx_engine": "mlx",
    "trt_llm": "tensorrt_llm",
}
"""Engines that tables name otherwise, by their first word."""
PLAIN = frozenset(("", "none", "plain", "ar", "autoregressive", "baseline", "off", "no"))
"""What a row is called that drafts nothing, up to a comma."""
HEADS = {
    "eagle3": "vllm_eagle_3",
    "eagle2": "eagle_2",
    "eagle1": "eagle_1",
    "eagle": "eagle_1",
    "mtp": "mtp_3",
    "nextn": "mtp_3",
}
"""Method whose head drafts in passes, by the first word of a table's method."""
BEAMS = {"redrafter": "redrafter"}
"""Method whose head drafts beams, by the same word."""
BLOCKS = {"dflash": "dflash"}
"""Method whose head writes a block in one pass, by the same word."""
LOOK_UPS = {"ngram": "vllm_ngram"}
"""Method that copies a chain from the text before, by the same word."""
AS_RELEASED = {
    "hydra": "hydra",
    "lookahead": "lookahead_7",
    "medusa": "medusa_1",
    "pld": "pld",
    "prompt": "pld",
    "recycling": "token_recycling",
    "rest": "rest",
}
"""Method of which tables state no window, by the same word."""
DRAFT_MODELS = {
    "draft": "hf_assisted",
    "standalone": "hf_assisted",
    "sps": "hf_assisted",
    "assisted": "hf_assisted",
}
"""The same word where a model of its own drafts, and the method of a row that states no window."""
APART = {"pearl": "pearl"}
"""The same word where it drafts on a device of its own, at the same time as the target verifies."""
METHODS = {**HEADS, **BEAMS, **BLOCKS, **LOOK_UPS, **AS_RELEASED, **DRAFT_MODELS, **APART}
"""All of them."""
MEASURED = "as in the row"
"""Source of a window that a row states."""


class UnknownName(ValueError):
    """A table's name leads to no file of the catalogue, or to several."""


class Windows(NamedTuple):
    """States what a step drafts and verifies."""

    steps: int
    """Passes of the draft, or tokens of a block."""
    top_k: int
    """Tokens that each pass continues with, or beams; 1 is a chain."""
    verified_rows: int
    """Rows of the target's pass, the last token among them."""


def device_of(text: str, catalogue: Catalogue) -> tuple[str, str]:
    """Return a device's name in the catalogue, and what was assumed of it in words, or nothing.

    A size of memory that the name in the catalogue leaves out has to be that of the file. Raises
    :class:`UnknownName` for a device that is not there, or could be several.
    """
    words = _words(text)
    names = catalogue.names("device")
    exact = _exact(words, catalogue)
    if exact:
        return exact, ""
    if lacks_p2p(text) and words == ["h100"]:
        return PCIE_H100, f"'{text}' is taken for {PCIE_H100}: cards with NVLink have peer access"
    meant = MEANT.get(" ".join(sorted(words)))
    if meant:
        return meant, f"'{text}' is taken for {meant}"
    could_be = [
        name
        for name in names
        if words and set(name.split("_")) >= set(words) and not CHIP.match(name)
    ]
    if len(could_be) == 1:
        return could_be[0], ""
    how = "there is no device"
    if could_be:
        how = f"could be {', '.join(could_be)}:"
    raise UnknownName(f"{how} '{text}'; name its file in a column target.device")


def _exact(words: Sequence[str], catalogue: Catalogue) -> str | None:
    """Return the device of exactly these words, or of all but the size of its memory; None without
    any.
    """
    sizes = [word for word in words if re.fullmatch(r"\d+g", word)]
    unsized = set(words) - set(sizes)
    for name, path in catalogue.names("device").items():
        of_name = set(name.split("_"))
        if of_name == set(words):
            return name
        if of_name == unsized and len(sizes) == 1:
            profile = catalogue.content("device", path).data
            larger = profile["memory_gb"]["value"] / int(sizes[0][:-1]) - 1.0
            if abs(larger) < SAME_MEMORY or (profile["maker"] == ANY_SIZE and larger > 0.0):
                return name
    return None


def cards_in(text: str) -> int:
    """Return how many cards the name of a device states: 2 of '2 x NVIDIA H100', else 1."""
    several = SEVERAL.match(text)
    if several is None:
        return 1
    return int(several[1])


def _words(text: str) -> list[str]:
    """Return the words of a device's name: '2 x NVIDIA H100 94 GB (SXM)' is h100, 94g."""
    name = re.sub(r"\(.*?\)|[,;].*| with .*|\bmac(book)? \w+\b", " ", text.lower())
    name = SEVERAL.sub("", name)
    name = re.sub(r"(\d+)\s*gb?\b", r"\1g", name)
    name = re.sub(r"\bsxm\d\b", "sxm", name)
    return [word for word in re.findall(r"[a-z0-9]+", name) if word not in LEFT_OUT]


def lacks_p2p(text: str) -> bool:
    """Return whether a table says of its hardware that devices do not reach each other's memory."""
    return "no peer-to-peer" in text.lower() or "custom all-reduce off" in text.lower()


def lengths_of(text: str) -> tuple[int, int] | None:
    """Return the tokens of prompts and outputs of a data set that a table names; None for any that
    is not known.
    """
    for name, lengths in LENGTHS.items():
        if name in text.lower():
            return lengths
    return None


def engine_of(text: str, maker: str | None, catalogue: Catalogue) -> str:
    """Return an engine's name in the catalogue; the usual one of the maker for an empty cell.

    Raises :class:`UnknownName` for an engine that is not there.
    """
    if not text:
        return usual_engine(maker)
    word = re.split(r"[\s(]", text.strip().lower())[0].replace(".", "_").replace("-", "_")
    word = ENGINES.get(word, word)
    if word == "llama_cpp":
        return LLAMA_CPP.get(maker or "", LLAMA_CPP_ELSEWHERE)
    names = catalogue.names("engine")
    if word in names:
        month = _month(text)
        if month:
            return of_month(word, month, names)
        return word
    listed = ", ".join(names)
    raise UnknownName(
        f"there is no engine '{text}' among {listed}; name one in a column target.engine"
    )


def _month(text: str) -> str | None:
    """Return the month that a text names, 'of July 2025' as 2025-07; None where it names none."""
    named = re.search(r"\bof ([A-Z][a-z]+) (\d{4})\b", text)
    if named is None or named.group(1) not in MONTHS:
        return None
    return f"{named.group(2)}-{MONTHS.index(named.group(1)) + 1:02d}"


def format_of(text: str, model: ModelSpec, engine: str = "") -> str | None:
    """Return the format of a model's weights under an engine; None where nothing is stated.

    A format that the model was published in is taken as it was published: fp8 by blocks.
    """
    name = re.sub(r"\(.*?\)", " ", text).strip().lower()
    if not name:
        return None
    published = model.expert_format or model.weight_format
    if published and published.startswith(name):
        return published
    of_mlx = OF_MLX.fullmatch(name)
    if of_mlx and engine.startswith("mlx"):
        return f"mlx_{of_mlx[1]}"
    return FORMATS.get(name) or str(format_name(name))


def model_of(text: str, catalogue: Catalogue, option: str) -> tuple[NamedModel, str]:
    """Return a model of the catalogue, and what was assumed of it in words, or nothing; what
    stands in brackets is for the reader.

    Raises :class:`~simulator.core.faults.BadInput` that says how to get one.
    """
    name = re.sub(r"\(.*?\)", " ", text).strip()
    same = SAME_SHAPES.get(name.lower())
    if same:
        return find_model(same, catalogue, option), f"'{name}' has the shapes of {same}"
    return find_model(name, catalogue, option), ""


def draft_of(method: str, target: str) -> str | None:
    """Return the draft that a method names by its size, of the family of its target: Qwen2.5-0.5B
    of 'draft model 0.5B' beside Qwen2.5-72B; None where either has no size.
    """
    size = re.search(r"\d+(?:\.\d+)?B\b", method, re.IGNORECASE)
    of_target = re.search(r"\d+(?:\.\d+)?B\b", target, re.IGNORECASE)
    if size is None or of_target is None:
        return None
    return target.replace(of_target[0], size[0])


def drafts(method: str) -> bool:
    """Return whether a row of this method drafts anything."""
    return method.partition(",")[0].strip().lower() not in PLAIN


def uses_draft_model(method: str) -> bool:
    """Return whether a model of its own drafts."""
    return _first_word(method) in {*DRAFT_MODELS, *APART}


def drafts_apart(method: str) -> bool:
    """Return whether the draft has a device of its own."""
    return _first_word(method) in APART


def released(method: str) -> str:
    """Return the method of the catalogue that a table's method is called, with the window it was
    released with.

    Raises :class:`UnknownName` for a method that tables cannot name.
    """
    word = _first_word(method)
    if word not in METHODS:
        raise UnknownName(
            f"there is no method '{method}' among {', '.join(METHODS)}; name it in `strategy`"
        )
    return METHODS[word]


def strategy_of(method: str, windows: Windows | None, catalogue: Catalogue) -> PlainData:
    """Return the fields of the strategy that runs a table's method; without windows as it was
    released.

    Raises :class:`UnknownName` for a method that tables cannot name.
    """
    name = released(method)
    word = _first_word(method)
    if windows is None or word in AS_RELEASED:
        return _strategy(name, catalogue)
    if word in DRAFT_MODELS:
        return {"name": "vanilla_sd", "gamma": windows.steps}
    return _strategy(name, catalogue) | _stated(word, name, windows, catalogue)


def _stated(word: str, name: str, windows: Windows, catalogue: Catalogue) -> PlainData:
    """Return the fields of a method's strategy that follow from the windows of a row."""
    if word in APART:
        return {"gamma": windows.steps}
    if word in LOOK_UPS:
        return {"tree": _chains(1, windows.steps)}
    passes = _strategy(name, catalogue)["passes"]
    if word in BLOCKS:
        rows = windows.verified_rows
        for draft_pass in passes:
            draft_pass["rows"] = [rows]
        return {"passes": passes, "tree": _chains(1, rows - 1)}
    if word in BEAMS:
        passes[0]["rows"] = [windows.top_k] * windows.steps
        return {"passes": passes, "tree": _chains(windows.top_k, windows.steps)}
    later = [windows.top_k] * (windows.steps - 1)
    passes[0]["rows"] = [windows.steps + 1, *later]
    tree: Mapping[str, object] = {
        "budget": windows.verified_rows - 1,
        "levels": windows.steps,
        "choices": windows.top_k,
        "source": MEASURED,
    }
    if windows.top_k == 1:
        tree = _chains(1, windows.steps)
    return {"passes": passes, "tree": tree}


def _first_word(method: str) -> str:
    """Return the family of a method: 'EAGLE-3 chain' and 'EAGLE 3' are eagle3, 'MTP-1' is mtp."""
    plain = method.lower().replace("n-gram", "ngram").replace("draft-mtp", "mtp")
    found = re.match(r"\s*([a-z]+)[ -]?(\d*)", plain)
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


def _chains(width: int, steps: int) -> Mapping[str, object]:
    return {"branching": [width] + [1] * (steps - 1), "source": MEASURED}
