"""Write the plan that one line asks for: a model, devices, traffic and limits. Everything else is a
default that is said.

``defaults.yaml`` holds what is taken: engines, links, degrees, methods and drafts. A method is
offered where it exists for the model: a smaller model with its tokenizer, a draft head that is
published for its shapes, layers that predict further tokens. Its acceptance is borrowed from the
nearest published mean, measured in a chain at least as long. Nothing is taken over from another
scenario: a draft writes one token a pass, and sits on the GPUs of its target.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.cost.degrees import working
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput, Fault, Path_, Place, did_you_mean
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.serving.requests import Requests
from simulator.core.serving.traffic import TrafficFile
from simulator.inputs.catalogue import OF_MODELS, Catalogue, shown
from simulator.inputs.document import Document, read
from simulator.inputs.logs import RecordedLog, read_log
from simulator.inputs.models.huggingface import read_config
from simulator.inputs.schema import validate
from simulator.scenario.bank import Loan, nearest, published
from simulator.studies.method_features import read_named
from simulator.studies.plan.file import Plan, amended, combined, with_said

DEFAULTS: PlainData = yaml.safe_load(Path(__file__).with_name("defaults.yaml").read_text("utf-8"))
PROMPTS_ALONE = "left out, as no output has a second token that could be drafted"
NO_DRAFT = "left out, as no smaller model with its tokenizer is known; name one with --draft"
NO_MTP = "left out, as the model has no layer that predicts further tokens"
NO_HEAD = "left out, as no such head is published for a model of these shapes"
"""Why a method is left out."""
ONE_PROMPT = re.compile(r"\bone\b.*\bprompt\b")
"""A mean over a single prompt is none to plan with."""
MACHINE = "server"
"""Name of the machine that target and draft share."""


@dataclass(frozen=True)
class PlanQuestion:
    """States what a line says; ``places`` says with which option, by path of the plan's field."""

    model: str
    devices: tuple[str, ...]
    requests: str | PlainData
    """Name of a workload, or the fields of one."""
    slo: dict[str, dict[str, float]]
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price of a device (USD per hour), where it is not that of its file."""
    engine: str | None = None
    draft: str | None = None
    """Draft model; by default the first that ``defaults.yaml`` names for the model."""
    weights: str | None = None
    """Format of the weights; by default that in which the model was published."""
    said: tuple[str, ...] = ()
    """What else was taken by default, in words."""


@dataclass(frozen=True)
class NamedModel:
    """Is a model that a name led to: what a file calls it, its shapes and the id by which it is
    published.
    """

    reference: str
    spec: ModelSpec
    published_as: str


def planned(
    question: PlanQuestion,
    catalogue: Catalogue,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
) -> tuple[Plan, Document]:
    """Return the plan of a question, and the document of the file that states it.

    Methods and devices that nothing in it can run are left out of the file, and said. Raises
    :class:`BadInput` naming the option, and :class:`Infeasible` where nothing has room for the
    model.
    """
    document = amended(written(question, catalogue), overrides, seed)
    plan = combined(document, catalogue)
    for part, names in (("hardware", plan.file.hardware), ("strategies", plan.file.strategies)):
        for name in names:
            ours = [combination for combination in plan.left_out if name in combination.family]
            if not any(name in candidate.family for candidate in plan.candidates):
                if len(names) == 1 or not plan.candidates:
                    raise ours[0].error
                del document.data[part][name]
                document.data["assumed"].append(f"{name}: left out, as {ours[0].reason}")
    names_left = {*document.data["hardware"], *document.data["strategies"]}
    kept = [
        combination for combination in plan.left_out if names_left.issuperset(combination.family)
    ]
    file = plan.file.model_copy(
        update={"assumed": with_said(document.data["assumed"], plan.candidates)}
    )
    return replace(plan, file=file, left_out=tuple(kept)), document


def written(question: PlanQuestion, catalogue: Catalogue) -> Document:
    """Return the plan file of a question as a document whose places are options."""
    target = find_model(question.model, catalogue, f"--model {question.model}")
    scenario: PlainData = {
        "target": {
            "model": target.reference,
            "machine": MACHINE,
            "weights": _format(question, target),
        },
        "requests": question.requests,
        "serving": {"policy": {"name": DEFAULTS["policy"]}},
    }
    hardware = _offered_hardware(question, catalogue, scenario["target"])
    methods = _offered_methods(question, catalogue, target, hardware.engines)
    assumed = [*question.said, *_said(question, target), *hardware.assumed, *methods.assumed]
    published_as = target.published_as or target.reference
    data = {
        "name": target.spec.name or target.reference,
        "about": f"{published_as} on {' or '.join(hardware.devices)}, asked in one line",
        "assumed": list(dict.fromkeys(assumed)),
        "scenario": scenario,
        "slo": question.slo,
        "devices": hardware.devices,
        "hardware": hardware.entries,
        "strategies": methods.entries,
        **({"heads": methods.heads} if methods.heads else {}),
        "replicas": DEFAULTS["replicas"]["value"],
    }
    return Document(data, dict(_places(data, question)))


def _refuse_prices_of_others(question: PlanQuestion) -> None:
    """Raise :class:`BadInput` for prices of devices that the question does not name."""
    devices = list(map(_called, question.devices))
    unknown = question.prices.keys() - {*question.devices, *devices}
    if unknown:
        message = f"is none of the devices {', '.join(devices)}"
        raise BadInput([Fault((f"--price {name}", 0, 0), "", message) for name in sorted(unknown)])


class OfferedHardware(NamedTuple):
    """Holds the hardware of a plan, the devices to rent, and what was taken by default, in
    words.
    """

    entries: PlainData
    devices: PlainData
    assumed: list[str]

    @property
    def engines(self) -> list[str]:
        """Return the engines of all devices."""
        return sorted({entry["target"]["engine"] for entry in self.entries.values()})


def _offered_hardware(
    question: PlanQuestion, catalogue: Catalogue, target: PlainMapping
) -> OfferedHardware:
    """Return the devices of a question; beside one with a price, those without are left out."""
    offers = {name: _offer(question, catalogue, name) for name in question.devices}
    _refuse_prices_of_others(question)
    priced = any(price for _, price in offers.values())
    offered = OfferedHardware({}, {}, [])
    for name, (maker, price) in offers.items():
        if price is None and priced:
            offered.assumed.append(
                f"{name}: left out, as no price of it is known; state one, as in --price "
                f"{name}=2.50"
            )
            continue
        entry, offer, words = _hardware(question, name, maker, price or DEFAULTS["price"])
        whole = _with_whole_experts(target, entry, catalogue)
        if whole:
            entry["vary"]["target.experts"] = ["sliced", "whole"]
            words += (
                "; experts whole on their devices too (expert parallel), as sliced ones do not "
                f"start at {whole}"
            )
        offered.entries[name] = entry
        offered.devices[_called(name)] = offer
        offered.assumed.append(words)
    return offered


class OfferedMethods(NamedTuple):
    """Holds the strategies of a plan, checkpoints of their heads, and what was taken by default, in
    words.
    """

    entries: PlainData
    heads: dict[str, str]
    assumed: list[str]


def _offered_methods(
    question: PlanQuestion, catalogue: Catalogue, target: NamedModel, engines: Sequence[str]
) -> OfferedMethods:
    """Return plain decoding, and the methods of all engines that exist for the target."""
    plain = {"strategy": "autoregressive", "draft": None, "acceptance": {"always": 0}}
    offered = OfferedMethods({"plain": plain}, {}, [])
    for engine in engines:
        for name, method in _methods(engine).items():
            entry, words, head = _strategy(question, catalogue, target, method)
            if entry:
                offered.entries.setdefault(name, entry)
            if head:
                offered.heads[name] = head
            offered.assumed.append(f"{name}: {words}")
    return offered


def _places(data: Any, question: PlanQuestion) -> Iterator[tuple[Path_, Place]]:
    """Yield the option that every value comes from."""
    devices = f"--device {','.join(question.devices)}"
    of_options: dict[Path_, str] = {
        ("devices",): devices,
        ("hardware",): devices,
        ("scenario", "target", "model"): f"--model {question.model}",
        ("scenario", "target", "weights"): f"--weights {question.weights}",
        ("scenario", "requests"): "--traffic",
        **{
            ("hardware", name, "target", "engine"): f"--engine {question.engine}"
            for name in question.devices
            if question.engine
        },
    }
    for path in _paths(data):
        option = next(
            (of_options[path[:end]] for end in range(len(path), 0, -1) if path[:end] in of_options),
            "specsim plan",
        )
        yield path, (option, 0, 0)


def _paths(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of every value in plain data, those of mappings in the order of their keys."""
    yield path
    if isinstance(data, dict):
        for key in sorted(data):
            yield from _paths(data[key], (*path, key))
    elif isinstance(data, list):
        for position, value in enumerate(data):
            yield from _paths(value, (*path, position))


def _said(question: PlanQuestion, target: NamedModel) -> Iterator[str]:
    """Yield the defaults that hold for all candidates, in words."""
    for name in ("ranks", "replicas"):
        value, why = DEFAULTS[name].values()
        values = value if isinstance(value, list) else [value]
        yield f"{name}: {', '.join(map(str, values))} ({why})"
    if not question.weights:
        published_in = target.spec.expert_format or target.spec.weight_format
        why = "as published" if published_in else DEFAULTS["weights"]["why"]
        yield f"weights: {_format(question, target)} ({why})"
    if target.spec.cache_format:
        yield f"kv_cache: {target.spec.cache_format} (as published, with its scales)"
    described = target.spec.source.endswith(("(HF config.json)", "(GGUF header)"))
    if target.spec.about and not target.published_as and described:
        yield f"model: {target.spec.about}"


def _format(question: PlanQuestion, target: NamedModel) -> str:
    published_in = target.spec.expert_format or target.spec.weight_format
    return question.weights or published_in or str(DEFAULTS["weights"]["value"])


def _called(device: str) -> str:
    """Return what a device is called: like its file."""
    return Path(device).stem if device.endswith(".yaml") else device


def _offer(
    question: PlanQuestion, catalogue: Catalogue, name: str
) -> tuple[str | None, PlainData | None]:
    """Return a device's maker, and its price with a source: that of the line before that of its
    file, None without either.
    """
    option = Document({}, {(): (f"--device {name}", 0, 0)})
    profile = catalogue.content("device", catalogue.path("device", name, option, ())).data
    stated = question.prices.get(name, question.prices.get(_called(name)))
    price = (
        {"value": stated, "source": "stated with --price", "confidence": "assumed"}
        if stated is not None
        else None
    )
    return profile.get("maker"), price or profile.get("price_usd_per_hour")


def _hardware(
    question: PlanQuestion, name: str, maker: str | None, price: PlainData
) -> tuple[PlainData, PlainData, str]:
    """Return a device's entry of the plan, the offer to rent it, and what was taken by default, in
    words.
    """
    engine = question.engine or DEFAULTS["engines"].get(maker, "vllm")
    link = next((link for link, members in DEFAULTS["links"].items() if name in members), None)
    place = {"device": name, "engine": engine}
    ranks = DEFAULTS["ranks"]["value"] if link else [1]
    entry = {
        "target": {**place, **({"link": link} if link else {})},
        "draft": {**place, "machine": MACHINE},
    }
    entry["vary"] = {"target.tensor_parallel": list(ranks)}
    joined = f"joined by {link}" if link else "one device a replica"
    words = f"{name}: engine {engine}, {joined}, {price['value']:g} USD an hour ({price['source']})"
    return entry, {"price_usd_per_hour": price, "count": DEFAULTS["count"]["value"]}, words


def _with_whole_experts(target: PlainMapping, entry: PlainMapping, catalogue: Catalogue) -> str:
    """Return with which of an entry's degrees a mixture starts with whole experts alone, in words;
    empty without any.
    """
    document = Document({"target": {**target, **entry["target"]}})
    try:
        catalogue.expand(document)
        place = validate(Placement, Document(document.data["target"]))
    except BadInput:
        return ""  # told when candidates are made of it
    if place.model.experts is None:
        return ""
    more = {*working(place.model_copy(update={"experts": "whole"}))} - {*working(place)}
    return ", ".join(
        str(ranks) for ranks in entry["vary"]["target.tensor_parallel"] if ranks in more
    )


def _methods(engine: str) -> PlainData:
    """Return the methods of an engine, whose name may go on (llama_cpp_cuda)."""
    return next(
        (methods for name, methods in DEFAULTS["methods"].items() if engine.startswith(name)), {}
    )


def _strategy(
    question: PlanQuestion, catalogue: Catalogue, target: NamedModel, method: PlainMapping
) -> tuple[PlainData | None, str, str]:
    """Return a method's entry of the plan, what is to be said of it, and its head; no entry where
    it does not exist.
    """
    if (
        isinstance(question.requests, dict)
        and Requests.model_validate(question.requests).prompts_alone
    ):
        return None, PROMPTS_ALONE, ""
    entry: PlainData = {"strategy": method["strategy"], "draft": None}
    kind, head, words, drafter = method["kind"], "", "", None
    if method["shape"] == "draft":
        name = question.draft or next(iter(DEFAULTS["drafts"].get(target.reference, ())), None)
        if name is None:
            return None, NO_DRAFT, ""
        draft = find_model(name, catalogue, f"--draft {name}")
        drafter = draft.published_as or draft.reference
        entry["draft"] = {"model": draft.reference, "weights": DEFAULTS["weights"]["value"]}
        words = f"draft {drafter} on the GPUs of its target, one token a pass;"
    if method["shape"] == "mtp" and not target.spec.mtp_layers:
        return None, NO_MTP, ""
    if method["shape"] == "head":
        trained = _head(catalogue, target, kind)
        if trained is None:
            return None, NO_HEAD, ""
        of, head = trained
        words = head_words(head, of, target.published_as)
    entry |= {"vary": dict(method["vary"])} if "vary" in method else {}
    acceptance = _acceptance(catalogue, target, method, drafter)
    if acceptance is None:
        return None, f"left out, as no mean of {kind} in a chain is published", ""
    entry["acceptance"], lent = acceptance
    return entry, f"{words} {lent}".lstrip(), head


def _acceptance(
    catalogue: Catalogue, target: NamedModel, method: PlainMapping, draft: str | None
) -> tuple[PlainData, str] | None:
    """Return the acceptance that is borrowed for a method, and from whom in words; None where
    nothing is published.
    """
    chain = method.get("chain", DEFAULTS["chain"])
    wanted = {"method": method["kind"], "draft": draft, "window": chain, "temperature": 0}
    loans = [
        loan
        for loan in nearest(catalogue, target.published_as or target.reference, wanted, 10_000)
        if _usable(loan, method)
    ]
    if not loans:
        return _of_method(catalogue, method)
    loan = loans[0]
    same = [
        other.mean.tokens_per_step
        for other in loans
        if (other.target, other.mean.window) == (loan.target, loan.mean.window)
    ]
    return dict(loan.block), borrowed(loan, [value for value in same if value])


def head_words(head: str, trained_for: str, target: str) -> str:
    """Return which head drafts, and for which model it was trained where that is another one."""
    other = f", which was trained for {trained_for}" if trained_for != target else ""
    return f"head {head}{other};"


def borrowed(loan: Loan, same: Sequence[float]) -> str:
    """Return from whom acceptance is borrowed; ``same``: all means that are published for it."""
    mean = loan.mean
    tokens = "" if mean.tokens_per_step is None else f"{mean.tokens_per_step:g}"
    words = (
        f"acceptance borrowed from {loan.target} with {mean.draft}: {tokens} tokens a step in a "
        f"chain of {mean.window} on {mean.task}"
    )
    if len(set(same)) > 1:
        words += f"; {min(same):g} to {max(same):g} are published for it"
    return words


def _usable(loan: Loan, method: PlainMapping) -> bool:
    """Return whether a mean is of this kind, of several prompts, and of a chain as long as the
    method's, a head's exactly.
    """
    mean, chain = loan.mean, method.get("chain", DEFAULTS["chain"])
    fits = mean.window is not None and (
        mean.window == chain if method["shape"] == "head" else mean.window >= chain
    )
    return (
        mean.method == method["kind"]
        and fits
        and "chain" in mean.setting
        and not ONE_PROMPT.search(mean.task)
    )


def _of_method(catalogue: Catalogue, method: PlainMapping) -> tuple[PlainData, str] | None:
    """Return the first mean that the method's own file states, in the same form."""
    path = catalogue.names("method").get(method["strategy"])
    facts = read(path, shown(path)).data if path else {}
    for mean in facts.get("published", ()):
        block = {
            name: mean[name] for name in ("tokens_per_step", "source", "confidence") if name in mean
        }
        words = (
            f"acceptance borrowed from {mean['target']}: {mean['tokens_per_step']:g} tokens a "
            "step, as the method's file says"
        )
        return block | {"method": method["strategy"]}, words
    return None


def _head(catalogue: Catalogue, target: NamedModel, kind: str) -> tuple[str, str] | None:
    """Return for which model, and as what, a head is published that fits the target's shapes; None
    without any.
    """
    fitting = []
    for name, mean in published(catalogue):
        trained_for = identified(name, catalogue)
        if (
            mean.method == kind
            and "/" in mean.draft
            and trained_for
            and _of_one_shape(trained_for[1], target.spec)
        ):
            fitting.append((name != target.published_as, name, mean.draft))
    return min(fitting)[1:] if fitting else None


def _of_one_shape(target: ModelSpec, other: ModelSpec) -> bool:
    """Return whether a head of one model fits the other: as wide, as many layers, tokens that mean
    the same.
    """
    same = (target.hidden_size, target.num_hidden_layers) == (
        other.hidden_size,
        other.num_hidden_layers,
    )
    return same and share_tokenizer(target.vocab_size, other.vocab_size)


def find_model(name: str, catalogue: Catalogue, option: str) -> NamedModel:
    """Return the model of a name of the catalogue, an id of Hugging Face, a folder with a
    ``config.json`` or a GGUF file.

    Raises :class:`BadInput` that says how to get one.
    """
    names = catalogue.names("model")
    if name in names:
        spec = _spec(names[name])
        return NamedModel(name, spec, next(iter(spec.huggingface), ""))
    if known := identified(name, catalogue):
        return NamedModel(*known, name)
    folder = Path(name)
    if (folder / "config.json").is_file() or (folder.is_file() and folder.suffix in OF_MODELS):
        return NamedModel(
            os.path.relpath(folder) if "/" in os.path.relpath(folder) else f"./{folder}",
            read_config(folder),
            "",
        )
    if folder.suffix in OF_MODELS or folder.exists() or name.startswith((".", "/", "~")):
        raise BadInput.at(option, no_file(name, folder.exists()))
    ids = [id_ for path in names.values() for id_ in _spec(path).huggingface]
    raise BadInput.at(option, unknown_model(name, did_you_mean(name, [*ids, *names])))


def no_file(name: str, there: bool) -> str:
    """Return what is wrong with the path of a model, and what a model may be."""
    if there:
        fault = "is neither a folder with a config.json nor a .json or .gguf file"
    else:
        fault = f"there is no file {name}"
    return (
        f"{fault}; a model is a name of the catalogue, an id of Hugging Face that it knows, a "
        "folder with a config.json, or a .gguf file"
    )


def unknown_model(name: str, perhaps: str) -> str:
    """Return that a name leads to no model, and how to get its shapes."""
    local = name.rpartition("/")[2]
    return (
        "is neither a model of the catalogue, nor an id that it knows, nor a folder with a "
        f"config.json{perhaps}; get its config.json: hf download {name} config.json --local-dir "
        f"{local}, then --model ./{local}"
    )


def identified(name: str, catalogue: Catalogue) -> tuple[str, ModelSpec] | None:
    """Return the catalogue's name and the shapes of an id of Hugging Face; None for an unknown
    one.
    """
    for ours, path in catalogue.names("model").items():
        spec = _spec(path)
        if name.lower() in map(str.lower, spec.huggingface):
            return ours, spec
    return None


@cache
def _spec(path: Path) -> ModelSpec:
    return read_named(ModelSpec, path)


def busiest(
    file: str, columns: Mapping[str, str], count: int, rate_per_s: float | None, context: int | None
) -> tuple[PlainData, list[str]]:
    """Return the workload of the ``count`` requests of a log that come closest together, and what
    was read, in words.

    Requests of more than ``context`` tokens are left out. Raises :class:`BadInput` for a log that
    cannot be read.
    """
    arrivals: PlainData = {"name": "file", "format": "log", "file": file}
    arrivals |= {"columns": dict(columns)} if columns else {}
    arrivals |= {"rate_per_s": rate_per_s} if rate_per_s else {}
    log = read_log(file, columns)
    said = [f"{Path(file).name}: {words}" for words in log.words]
    limited = TrafficFile.model_validate(arrivals | {"drop_above_tokens": context})
    if dropped := limited.dropped:
        arrivals["drop_above_tokens"] = context
        said.append(
            f"{dropped:,} requests of more than {context:,} tokens left out: the context of the "
            "model is no longer"
        )
    at = [line.arrival_s for line in limited.lines()]
    if not at:
        raise limited.all_too_long(context, "the model's context") if context else limited.empty()
    said += _rate_said(Path(file).name, log, rate_per_s)
    if len(at) <= count:
        return {"arrivals": arrivals}, said
    span, begin = min(
        (at[index + count - 1] - at[index], index) for index in range(len(at) - count + 1)
    )
    said.append(
        f"planned for the busiest {count:,} requests in a row, from {at[begin]:,.0f} s on, within "
        f"{span:,.0f} s"
    )
    return {"arrivals": arrivals | {"from_s": at[begin]}, "count": count}, said


def _rate_said(file: str, log: RecordedLog, rate_per_s: float | None) -> list[str]:
    """Return what a stated rate does to a log, in words; nothing without one, and for a single
    request.
    """
    if rate_per_s is None:
        return []
    if not log.timed:
        return [f"{file} has no times: Poisson arrivals at {rate_per_s:g} a second, as stated"]
    return (
        [f"{file}: its times are stretched to {rate_per_s:g} a second in the mean, as stated"]
        if len(log.requests) > 1
        else []
    )


def saved(document: Document, folder: Path) -> str:
    """Return the text of a plan file in ``folder``, with a line that says what it is."""
    data = {key: value for key, value in deepcopy(document.data).items() if key != "name"}
    arrivals = document.get(("scenario", "requests", "arrivals"))
    if isinstance(arrivals, dict) and "file" in arrivals:
        data["scenario"]["requests"]["arrivals"]["file"] = os.path.relpath(arrivals["file"], folder)
    for place in (
        data["scenario"]["target"],
        *(entry.get("draft") or {} for entry in data["strategies"].values()),
    ):
        if "/" in place.get("model", ""):
            place["model"] = os.path.join(os.path.curdir, os.path.relpath(place["model"], folder))
    text = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return (
        "# Made by specsim plan from one line; change what you know better and run it by its "
        f"path.\n{text}"
    )
