"""Write the plan that one line asks for: a model, devices, traffic and limits. Everything else is a
default that is said.

``defaults.yaml`` holds what is taken: degrees, methods and drafts; engines and links are the usual
ones (:mod:`simulator.inputs.usual`). A method is offered where it exists for the model: a smaller
model with its tokenizer, a draft head that is published for its shapes, layers that predict further
tokens. Its acceptance is borrowed from the nearest published mean, measured in a chain at least as
long. Nothing is taken over from another scenario: a draft writes one token a pass, and sits on the
GPUs of its target.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simulator.core.acceptance.tokenizers import share_tokenizer
from simulator.core.cost.degrees import working
from simulator.core.cost.model import ModelSpec
from simulator.core.cost.placement import Placement
from simulator.core.faults import BadInput, Fault, Path_, Place
from simulator.core.plain import PlainData, PlainMapping
from simulator.core.serving.requests import Requests
from simulator.inputs.catalogue import Catalogue, shown
from simulator.inputs.document import Document, read
from simulator.inputs.models.named import NamedModel, find_model, identified
from simulator.inputs.schema import validate
from simulator.inputs.usual import usual_engine, usual_link
from simulator.scenario.bank import Loan, nearest, published
from simulator.studies.plan.file import Plan, amended, combined, with_said

DEFAULTS: PlainData = yaml.safe_load(Path(__file__).with_name("defaults.yaml").read_text("utf-8"))
PROMPTS_ALONE = "no output has a second token that could be drafted"
NO_DRAFT = "no smaller model with its tokenizer is known"
NO_MTP = "the model has no layer that predicts further tokens"
NO_HEAD = "no such head is published for a model of these shapes"
"""Why a method is left out."""
ONE_PROMPT = re.compile(r"\bone\b.*\bprompt\b")
"""A mean over a single prompt is none to plan with."""
OF_A_CARD = {"memory_gb", "memory_bandwidth_gb_s", "peak_tflops"}
"""What a profile states that is of another card than the one that it starts from."""
MACHINE = "server"
"""Name of the machine that target and draft share."""


@dataclass(frozen=True)
class PlanQuestion:
    """States what a line says; ``places`` says with which option, by path of the plan's field."""

    model: str
    devices: tuple[str, ...]
    """Names of devices; ``owned`` says how many of one there are."""
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
    owned: Mapping[str, int] = field(default_factory=dict)
    """How many of a device are owned, by its name; of others as many as are needed are rented."""
    classes: Mapping[str, PlainData] = field(default_factory=dict)
    """Classes of requests, as a workload states them."""
    apart: str = "no"
    """Whether prefill and decode may be apart: no, try or only."""
    link: str | None = None
    """The link between them; by default that between the devices of a replica."""


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
    reaching_in = [one for one in overrides if one.startswith("scenario.requests.")]
    if reaching_in and isinstance(question.requests, str):
        question = replace(question, requests=workload_fields(question.requests, catalogue))
    document = amended(written(question, catalogue), overrides, seed)
    data = document.data
    plan = combined(document, catalogue)
    _leave_out_what_cannot_run(plan, data)
    names_left = {*data["hardware"], *data["strategies"]}
    kept = [left_out for left_out in plan.left_out if names_left.issuperset(left_out.family)]
    said = with_said(data["assumed"], plan)
    file = plan.file.model_copy(update={"assumed": said})
    return replace(plan, file=file, left_out=tuple(kept)), document


def _leave_out_what_cannot_run(plan: Plan, data: PlainData) -> None:
    """Leave hardware and methods that nothing can run out of the file of a plan, and say so in it.
    Raises the error of the first that is the only one of its kind.
    """
    able = (*plan.candidates, *plan.too_large)
    runnable = {name for candidate in able for name in candidate.family}
    for part, names in (("hardware", plan.file.hardware), ("strategies", plan.file.strategies)):
        for name in names:
            if name in runnable:
                continue
            ours = [combination for combination in plan.left_out if name in combination.family]
            # what lacks memory alone says less of a mistake than another refusal
            first = min(ours, key=lambda one: one.no_room)
            if len(names) == 1 or not runnable:
                raise first.error
            del data[part][name]
            data["assumed"].append(f"{name}: {_left_out(first.reason)}")


def written(question: PlanQuestion, catalogue: Catalogue) -> Document:
    """Return the plan file of a question as a document whose places are options."""
    target = find_model(question.model, catalogue, f"--model {question.model}")
    placed = {
        **target.placed(),
        "machine": MACHINE,
        "weights": _format(question, target),
    }
    scenario: PlainData = {
        "target": placed,
        "requests": _classed(question, catalogue),
        "serving": {"policy": {"name": DEFAULTS["policy"]}},
    }
    hardware = _offered_hardware(question, catalogue, placed)
    methods = _offered_methods(question, catalogue, target, hardware.engines)
    assumed = [*question.said, *_said(question, target), *hardware.assumed, *methods.assumed]
    devices = " or ".join(hardware.devices)
    data = {
        "name": target.spec.name or target.reference,
        "about": f"{target.known_as} on {devices}, asked in one line",
        "assumed": list(dict.fromkeys(assumed)),
        "scenario": scenario,
        **({"slo": question.slo} if question.slo else {}),
        "devices": hardware.devices,
        "hardware": hardware.entries,
        "strategies": methods.entries,
    }
    if methods.heads:
        data["heads"] = methods.heads
    data["replicas"] = DEFAULTS["replicas"]["value"]
    if question.apart != "no":
        data["apart"] = question.apart
    if question.link:
        data["handover"] = {"link": question.link}
    return Document(data, dict(_places(data, question)))


def _classed(question: PlanQuestion, catalogue: Catalogue) -> str | PlainData:
    """Return the load with its classes; the fields of a workload where it is one by name."""
    requests = question.requests
    if not question.classes:
        return requests
    if isinstance(requests, str):
        requests = workload_fields(requests, catalogue)
    return requests | {"classes": dict(question.classes)}


def workload_fields(workload: str, catalogue: Catalogue) -> PlainData:
    """Return the load that a workload states, with the whole paths of its files."""
    option = Document({}, {(): (f"--traffic {workload}", 0, 0)})
    path = catalogue.path("workload", workload, option, ())
    requests: PlainData = deepcopy(catalogue.content("workload", path).data)
    for words in ("about", "source"):
        requests.pop(words, None)
    for load in ("arrivals", "sessions"):
        stated = requests.get(load)
        if isinstance(stated, dict) and "file" in stated:
            stated["file"] = str(path.parent / stated["file"])
    return requests


def refuse_prices_of_others(question: PlanQuestion) -> None:
    """Raise :class:`BadInput` for prices of devices that the question does not name."""
    devices = list(map(called, question.devices))
    unknown = question.prices.keys() - {*question.devices, *devices}
    if unknown:
        named = ", ".join(devices)
        message = f"is none of the devices {named}"
        places: list[Place] = [(f"--price {name}", 0, 0) for name in sorted(unknown)]
        raise BadInput([Fault(place, "", message) for place in places])


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
    refuse_prices_of_others(question)
    priced = any(price for _, price in offers.values())
    offered = OfferedHardware({}, {}, list(_same_cards(question, catalogue)))
    for name, (maker, price) in offers.items():
        if price is None and priced:
            offered.assumed.append(
                f"{name}: left out, as no price of it is known; state one, as in --price "
                f"{name}=2.50"
            )
            continue
        entry, offer, words = _hardware(question, name, maker, price or DEFAULTS["price"])
        if price is None:
            offer["priced"] = False
        whole = _with_whole_experts(target, entry, catalogue)
        if whole:
            entry["vary"]["target.experts"] = ["sliced", "whole"]
            words += (
                "; experts whole on their devices too (expert parallel), as sliced ones do not "
                f"start at {whole}"
            )
        offered.entries[name] = entry
        offered.devices[called(name)] = offer
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
        for name, method in methods_of(engine).items():
            entry, words, head = _strategy(question, catalogue, target, method)
            if entry:
                offered.entries.setdefault(name, entry)
            if head:
                offered.heads[name] = head
            offered.assumed.append(f"{name}: {words}")
    return offered


def _places(data: Any, question: PlanQuestion) -> Iterator[tuple[Path_, Place]]:
    """Yield the option that every value comes from."""
    devices = f"--device {','.join(_typed_devices(question))}"
    of_options: dict[Path_, str] = {
        ("devices",): devices,
        ("hardware",): devices,
        ("scenario", "target", "model"): f"--model {question.model}",
        ("scenario", "target", "weights"): _weights_option(question),
        ("scenario", "requests"): _load_option(question),
        ("apart",): f"--apart {question.apart}",
        ("handover",): f"--link {question.link}",
    }
    if question.engine:
        for name in question.devices:
            of_options["hardware", name, "target", "engine"] = f"--engine {question.engine}"
    for path in _paths(data):
        option = "specsim plan"
        for end in range(1, len(path) + 1):
            option = of_options.get(path[:end], option)
        yield path, (option, 0, 0)


def _weights_option(question: PlanQuestion) -> str:
    """Return the option that states the format of the weights."""
    if question.weights:
        return f"--weights {question.weights}"
    return f"--model {question.model}"


def _typed_devices(question: PlanQuestion) -> Iterator[str]:
    """Yield the devices as they are typed: ``h100_sxm:8`` where eight are owned."""
    for name in question.devices:
        owned = question.owned.get(name)
        yield name if owned is None else f"{name}:{owned}"


def _load_option(question: PlanQuestion) -> str:
    """Return the option that names the load."""
    if isinstance(question.requests, dict) and "sessions" in question.requests:
        return "--sessions"
    return "--traffic"


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
        listed = ", ".join(map(str, values))
        yield f"{name}: {listed} ({why})"
    spec = target.spec
    if not question.weights:
        why = "as published" if _published_in(spec) else DEFAULTS["weights"]["why"]
        if target.weights:
            why = f"as {question.model} says"
        yield f"weights: {_format(question, target)} ({why})"
    if spec.cache_format:
        yield f"kv_cache: {spec.cache_format} (as published, with its scales)"
    described = spec.source.endswith(("(HF config.json)", "(GGUF header)"))
    if spec.about and not target.published_as and described:
        yield f"model: {spec.about}"


def _published_in(spec: ModelSpec) -> str | None:
    """Return the format of a model's checkpoint, that of its experts before the others'; None where
    it is not stated.
    """
    return spec.expert_format or spec.weight_format


def _format(question: PlanQuestion, target: NamedModel) -> str:
    """Return the format of the target's weights; raises :class:`BadInput` where the id of the
    model states another one than ``--weights`` does.
    """
    stated = question.weights
    if stated and target.weights and stated != target.weights:
        message = f"is beside --model {question.model}, which says {target.weights}"
        raise BadInput.at(f"--weights {stated}", f"{message}; leave one of them out")
    published = _published_in(target.spec)
    return stated or target.weights or published or str(DEFAULTS["weights"]["value"])


def called(device: str) -> str:
    """Return what a device is called: like its file."""
    return Path(device).stem if device.endswith(".yaml") else device


def _offer(
    question: PlanQuestion, catalogue: Catalogue, name: str
) -> tuple[str | None, PlainData | None]:
    """Return a device's maker, and its price with a source: that of the line before that of its
    file, None without either.
    """
    profile = catalogue.content("device", _profile(catalogue, name)).data
    prices = question.prices
    stated = prices.get(name, prices.get(called(name)))
    price = profile.get("price_usd_per_hour")
    if stated is not None:
        price = {"value": stated, "source": "stated with --price", "confidence": "assumed"}
    return profile.get("maker"), price


def _profile(catalogue: Catalogue, name: str) -> Path:
    """Return the file of a device."""
    option = Document({}, {(): (f"--device {name}", 0, 0)})
    return catalogue.path("device", name, option, ())


def _same_cards(question: PlanQuestion, catalogue: Catalogue) -> Iterator[str]:
    """Yield which devices of a question are one card by two profiles, in words: one starts from
    the other and has its year, memory and peaks.
    """
    profiles = {}
    for name in question.devices:
        path = _profile(catalogue, name)
        profiles[name] = read(path, shown(path)).data  # as it is written
    for name, profile in profiles.items():
        other = profile.get("like")
        if other not in profiles or OF_A_CARD & profile.keys():
            continue
        if profile.get("year") == profiles[other].get("year"):
            yield (
                f"{name}: the same card as {other} by another profile, yet planned as one of its "
                "own; of cards that are owned name one of both"
            )


def _hardware(
    question: PlanQuestion, name: str, maker: str | None, price: PlainData
) -> tuple[PlainData, PlainData, str]:
    """Return a device's entry of the plan, the offer to rent it, and what was taken by default, in
    words.
    """
    engine = question.engine or usual_engine(maker)
    place = {"device": name, "engine": engine}
    target = dict(place)
    ranks = [1]
    joined = "one device a replica"
    link = usual_link(name)
    if link:
        target["link"] = link
        ranks = list(DEFAULTS["ranks"]["value"])
        joined = f"joined by {link}"
    entry = {
        "target": target,
        "draft": {**place, "machine": MACHINE},
        "vary": {"target.tensor_parallel": ranks},
    }
    usd = f"{price['value']:g} USD an hour ({price['source']})"
    words = f"{name}: engine {engine}, {joined}, {usd}"
    offer = {"price_usd_per_hour": price, "count": DEFAULTS["count"]["value"]}
    owned = question.owned.get(name)
    if owned is not None:
        offer |= {"count": max(owned, offer["count"]), "owned": owned}
        words += f", {owned} owned"
    return entry, offer, words


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
    whole = place.model_copy(update={"experts": "whole"})
    whole_alone = {*working(whole)} - {*working(place)}
    degrees = entry["vary"]["target.tensor_parallel"]
    return ", ".join(str(ranks) for ranks in degrees if ranks in whole_alone)


def methods_of(engine: str) -> PlainData:
    """Return the methods of an engine, whose name may go on (llama_cpp_cuda)."""
    for name, methods in DEFAULTS["methods"].items():
        if engine.startswith(name):
            return dict(methods)
    return {}


def _strategy(
    question: PlanQuestion, catalogue: Catalogue, target: NamedModel, method: PlainMapping
) -> tuple[PlainData | None, str, str]:
    """Return a method's entry of the plan, what is to be said of it, and its head; no entry where
    it does not exist.
    """
    if _prompts_alone(question):
        return None, _left_out(PROMPTS_ALONE), ""
    entry: PlainData = {"strategy": method["strategy"], "draft": None}
    kind = method["kind"]
    shape = method["shape"]
    drafter = None
    head = ""
    words = ""
    if shape == "draft":
        name = question.draft or usual_draft(target)
        if name is None:
            return None, f"{_left_out(NO_DRAFT)}; name one with --draft", ""
        draft = find_model(name, catalogue, f"--draft {name}")
        drafter = draft.known_as
        weights = draft.weights or DEFAULTS["weights"]["value"]
        entry["draft"] = {**draft.placed(), "weights": weights}
        words = f"draft {drafter} on the GPUs of its target, one token a pass;"
    if shape == "mtp" and not target.spec.mtp_layers:
        return None, _left_out(NO_MTP), ""
    if shape == "head":
        trained = published_head(catalogue, target, kind)
        if trained is None:
            return None, _left_out(NO_HEAD), ""
        trained_for, head = trained
        words = head_words(head, trained_for, target.published_as)
    if "vary" in method:
        entry["vary"] = dict(method["vary"])
    lent = lent_acceptance(catalogue, target, method, drafter)
    if lent is None:
        return None, _left_out(f"no mean of {kind} in a chain is published"), ""
    entry["acceptance"] = lent.block
    return entry, f"{words} {lent.words}".lstrip(), head


def _left_out(why: str) -> str:
    """Return what is said of a device or a method that is left out."""
    return f"left out, as {why}"


def _prompts_alone(question: PlanQuestion) -> bool:
    """Return whether the requests end with the token that their prompt makes."""
    if not isinstance(question.requests, dict):
        return False
    return Requests.model_validate(question.requests).prompts_alone


def usual_draft(target: NamedModel) -> str | None:
    """Return the first draft that ``defaults.yaml`` names for a model; None without any."""
    drafts = DEFAULTS["drafts"].get(target.reference)
    if not drafts:
        return None
    return str(drafts[0])


class LentAcceptance(NamedTuple):
    """Holds acceptance that is borrowed for a method."""

    block: PlainData
    """As a scenario states it."""
    words: str
    """From whom it is."""
    alike: Sequence[float] = ()
    """All means that are published for the same target and window, in tokens a step."""


def lent_acceptance(
    catalogue: Catalogue, target: NamedModel, method: PlainMapping, draft: str | None
) -> LentAcceptance | None:
    """Return the acceptance that is borrowed for a method; None where nothing is published.

    ``method`` says the ``strategy``, of what ``kind`` a mean is, for models of what ``shape``, and
    of what ``chain``, as ``defaults.yaml`` does.
    """
    chain = _chain(method)
    wanted = {"method": method["kind"], "draft": draft, "window": chain, "temperature": 0}
    ranked = nearest(catalogue, target.known_as, wanted, 10_000)
    loans = [loan for loan in ranked if _usable(loan, method)]
    if not loans:
        return _of_method(catalogue, method)
    loan = loans[0]
    same = []
    for other in loans:
        tokens = other.mean.tokens_per_step
        alike = other.target == loan.target and other.mean.window == loan.mean.window
        if alike and tokens:
            same.append(tokens)
    return LentAcceptance(dict(loan.block), borrowed(loan, same), same)


def _chain(method: PlainMapping) -> int:
    """Return the draft tokens of the chain at which a method's mean is looked for."""
    return int(method.get("chain", DEFAULTS["chain"]))


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
        least = min(same)
        most = max(same)
        words += f"; {least:g} to {most:g} are published for it"
    return words


def _usable(loan: Loan, method: PlainMapping) -> bool:
    """Return whether a mean is of this kind, of several prompts, and of a chain as long as the
    method's, a head's exactly.
    """
    mean = loan.mean
    chain = _chain(method)
    if mean.method != method["kind"] or mean.window is None:
        return False
    if method["shape"] == "head":
        fits = mean.window == chain
    else:
        fits = mean.window >= chain
    in_a_chain = "chain" in mean.setting
    single_prompt = ONE_PROMPT.search(mean.task)
    return fits and in_a_chain and not single_prompt


def _of_method(catalogue: Catalogue, method: PlainMapping) -> LentAcceptance | None:
    """Return the first mean that the method's own file states, in the same form."""
    strategy = method["strategy"]
    path = catalogue.names("method").get(strategy)
    if path is None:
        return None
    means = read(path, shown(path)).data.get("published")
    if not means:
        return None
    mean = means[0]
    stated = ("tokens_per_step", "source", "confidence")
    block = {name: mean[name] for name in stated if name in mean}
    block["method"] = strategy
    words = (
        f"acceptance borrowed from {mean['target']}: {mean['tokens_per_step']:g} tokens a step, as "
        "the method's file says"
    )
    return LentAcceptance(block, words)


def published_head(catalogue: Catalogue, target: NamedModel, kind: str) -> tuple[str, str] | None:
    """Return for which model, and as what, a head is published that fits the target's shapes; None
    without any.
    """
    fitting = []
    for name, mean in published(catalogue):
        if mean.method != kind or "/" not in mean.draft:
            continue
        trained_for = identified(name, catalogue)
        if trained_for is None:
            continue
        _, shapes = trained_for
        if _of_one_shape(shapes, target.spec):
            of_another = name != target.published_as
            fitting.append((of_another, name, mean.draft))
    if not fitting:
        return None
    _, model, head = min(fitting)
    return model, head


def _of_one_shape(target: ModelSpec, other: ModelSpec) -> bool:
    """Return whether a head of one model fits the other: as wide, as many layers, tokens that mean
    the same.
    """
    as_wide = target.hidden_size == other.hidden_size
    as_deep = target.num_hidden_layers == other.num_hidden_layers
    return as_wide and as_deep and share_tokenizer(target.vocab_size, other.vocab_size)


def saved(document: Document, folder: Path) -> str:
    """Return the text of a plan file in ``folder``, with a line that says what it is."""
    data = deepcopy(document.data)
    data.pop("name", None)
    scenario = data["scenario"]
    for load in ("arrivals", "sessions"):
        stated = document.get(("scenario", "requests", load))
        if isinstance(stated, dict) and "file" in stated:
            scenario["requests"][load]["file"] = os.path.relpath(stated["file"], folder)
    drafts = [entry.get("draft") or {} for entry in data["strategies"].values()]
    for place in (scenario["target"], *drafts):
        model = place.get("model", "")
        if "/" in model:
            relative = os.path.relpath(model, folder)
            place["model"] = os.path.join(os.path.curdir, relative)
    text = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return (
        "# Made by specsim plan from one line; change what you know better and run it by its "
        f"path.\n{text}"
    )
