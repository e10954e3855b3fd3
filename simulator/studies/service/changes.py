"""What is tried on a service, from what is typed: a method by its name, settings by the words of
engines or by fields of a scenario.

    eagle_3            a method: of the engine, as plans offer it, or of the catalogue
    gamma=2,4          a setting; each value is tried by itself
    ngram gamma=4      several of them at once

A method that the service does not use takes its acceptance from the nearest published mean, between
those that are published for it, half a token wide at least: nobody measured it here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from simulator.core.acceptance.retrieval import rate_of
from simulator.core.acceptance.spec import AcceptanceSpec, Rescale
from simulator.core.faults import BadInput, Fault, did_you_mean
from simulator.core.nearness import nearest_name
from simulator.core.plain import PlainData, PlainMapping
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.document import parse
from simulator.inputs.models.named import NamedModel, find_model
from simulator.inputs.usual import usual_link
from simulator.scenario import Loaded
from simulator.scenario.decision.decide import HALF
from simulator.scenario.live.accepted import PLAIN, replacing, window_fields
from simulator.scenario.loading import variant
from simulator.studies.plan.question import (
    DEFAULTS,
    NO_DRAFT,
    NO_HEAD,
    NO_MTP,
    head_words,
    lent_acceptance,
    methods_of,
    published_head,
    usual_draft,
)

PART = re.compile(r"(?:\[[^\]]*\]|\{[^}]*\}|[^\s\[{])+")
"""A word of a try; lists and mappings may have spaces in them."""
NOTHING = ("plain", "none", "off", "no_speculation", PLAIN)
"""What decoding without drafts may be called."""
ON = {"on": True, "off": False, "yes": True, "no": False}
MOST_TRIES = 24


@dataclass(frozen=True)
class Change:
    """A change that is tried, with the scenario of the service after it."""

    typed: str
    loaded: Loaded
    fields: Sequence[str] = ()
    """Dotted fields that it writes."""
    said: Sequence[str] = ()
    """What is assumed of it."""
    head: str = ""
    """Checkpoint of a draft head; empty for none."""
    another_method: bool = False
    """Whether drafts come about in another way than before."""


class Untried(NamedTuple):
    """A change that cannot be tried, and why."""

    typed: str
    reason: str


@dataclass
class _Tried:
    """A change that is being put together."""

    typed: str
    loaded: Loaded
    catalogue: Catalogue
    fields: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    head: str = ""
    another_method: bool = False

    @property
    def option(self) -> str:
        """Return how it is typed."""
        return f"--try '{self.typed}'"

    def write(self, changes: Mapping[str, object]) -> None:
        """Change fields of the scenario; raises :class:`BadInput` at what was typed."""
        try:
            self.loaded = variant(self.loaded, changes, self.catalogue)
        except BadInput as error:
            raise error.changed(self._at_option) from error
        self.fields += changes

    def _at_option(self, fault: Fault) -> Fault:
        if fault.place[0].startswith("--set "):
            return replace(fault, place=(self.option, 0, 0))
        return fault

    def get(self, *path: str) -> Any:
        """Return what the scenario states at a path; None where nothing."""
        return self.loaded.document.get(path)


def changes_of(
    base: Loaded, texts: Sequence[str], catalogue: Catalogue
) -> tuple[list[Change], list[Untried]]:
    """Return the changes that were typed, each value of a setting by itself, and those that cannot
    be.

    Raises :class:`BadInput` for a word that is neither method nor setting, and where no change can
    be tried.
    """
    typed = list(dict.fromkeys(single for text in texts for single in _singles(text)))
    if len(typed) > MOST_TRIES:
        raise BadInput.at("--try", f"asks for {len(typed)} changes; expected at most {MOST_TRIES}")
    for single in typed:
        _check_words(single, catalogue)
    changes = []
    untried = []
    refused = []
    for single in typed:
        try:
            changes.append(_change(base, single, catalogue))
        except BadInput as error:
            refused.append(error)
            untried.append(Untried(single, error.faults[0].message))
    if refused and not changes:
        raise refused[0]
    return changes, untried


def _singles(text: str) -> Iterator[str]:
    """Yield what was typed with one value for each setting."""
    choices = []
    for part in PART.findall(text):
        key, equals, values = part.partition("=")
        if not equals or values.startswith(("[", "{")):
            choices.append([part])
        else:
            choices.append([f"{key}={value}" for value in values.split(",")])
    if not choices:
        raise BadInput.at("--try", "expected a method or a setting, as in --try gamma=2,4")
    for chosen in product(*choices):
        yield " ".join(chosen)


def _check_words(typed: str, catalogue: Catalogue) -> None:
    """Raise :class:`BadInput` for a word that is neither a method nor a setting."""
    methods = _methods_by_word(catalogue)
    for part in PART.findall(typed):
        key, equals, value = part.partition("=")
        place = f"--try '{typed}'"
        if equals and not value:
            raise BadInput.at(place, f"states no value of {key}; expected {key}=VALUE")
        if equals and "." not in key and _word(key) not in SETTINGS:
            known = ", ".join(dict.fromkeys(setting.shown for setting in SETTINGS.values()))
            near = nearest_name(_word(key), SETTINGS)
            perhaps = f"; did you mean '{near}'?" if near else ""
            message = f"there is no setting '{key}'{perhaps}; expected one of {known}, or a field"
            raise BadInput.at(place, f"{message} of a scenario, as in strategy.gamma=4")
        if not equals and part not in methods:
            perhaps = did_you_mean(part, methods)
            message = f"there is no method '{part}'{perhaps}; specsim list method has all"
            raise BadInput.at(place, f"{message}; a setting has a value, as in gamma=4")
    _check_methods(typed)


def _check_methods(typed: str) -> None:
    """Raise :class:`BadInput` for two methods in one change, and for drafts beside none."""
    parts = PART.findall(typed)
    place = f"--try '{typed}'"
    methods = [part for part in parts if "=" not in part]
    if len(methods) > 1:
        each = " ".join(f"--try {name}" for name in methods)
        message = f"names {len(methods)} methods, of which a service has one; write {each}"
        raise BadInput.at(place, message)
    if not set(methods) & set(NOTHING):
        return
    for part in parts:
        key, equals, _ = part.partition("=")
        setting = SETTINGS.get(_word(key)) if equals else None
        if setting and setting.shown in OF_DRAFTS:
            method = OF_DRAFTS[setting.shown]
            other = " ".join(method if word in NOTHING else word for word in parts)
            message = (
                f"drafts nothing, and {key} is about drafts; write --try {methods[0]}, or name a "
                f"method that drafts, as in --try '{other}'"
            )
            raise BadInput.at(place, message)


def _methods_by_word(catalogue: Catalogue) -> set[str]:
    """Return all names of methods: of engines, of the catalogue, and of none."""
    names = {*NOTHING, *catalogue.names("method")}
    for methods in DEFAULTS["methods"].values():
        names |= methods.keys()
    return names


def _change(base: Loaded, typed: str, catalogue: Catalogue) -> Change:
    """Return one change; methods are taken over before settings."""
    tried = _Tried(typed, base, catalogue)
    parts = PART.findall(typed)
    settings = [part.partition("=") for part in parts if "=" in part]
    stated = {_word(key): value for key, _, value in settings}
    draft = stated.pop("draft", None)
    for name in [part for part in parts if "=" not in part]:
        _use_method(tried, name, draft)
    for key, _, value in settings:
        word = _word(key)
        if word == "draft" and tried.another_method:
            continue
        if word in SETTINGS:
            SETTINGS[word].apply(tried, _value(value, tried.option))
        else:
            tried.write({key: _value(value, tried.option)})
    return Change(
        typed,
        tried.loaded,
        tuple(dict.fromkeys(tried.fields)),
        tuple(tried.said),
        tried.head,
        tried.another_method,
    )


def _word(key: str) -> str:
    """Return the name of an option of an engine as a word."""
    return key.lstrip("-").replace("-", "_").lower()


def _value(text: str, option: str) -> Any:
    return ON.get(text, parse(text, option).data)


# ---- methods


def _use_method(tried: _Tried, name: str, draft: str | None) -> None:
    """Let a scenario draft in another way; what it has already stays as it is."""
    scenario = tried.loaded.scenario
    if name in NOTHING:
        if scenario.schedule.window:
            _drop_drafts(tried)
        return
    target = scenario.target
    engine = target.engine.name if target else ""
    method = _method_of(engine, name)
    same = (method["strategy"], name, method["kind"])
    if scenario.method_name in same and (draft is None or scenario.draft is None):
        return
    if target is None:
        message = "needs models and a device, and the scenario states durations alone"
        raise BadInput.at(tried.option, message)
    _draft_otherwise(tried, method, _target_of(tried), draft)


def _method_of(engine: str, name: str) -> PlainMapping:
    """Return a method as an engine offers it, by its name there or in the catalogue; of any other
    what a mean of it is called.
    """
    offered = methods_of(engine)
    for word, method in offered.items():
        if name in (word, method["strategy"]):
            return dict(method)
    return {"strategy": name, "kind": name, "shape": "any"}


def _drop_drafts(tried: _Tried) -> None:
    """Let a scenario decode without drafts."""
    before = tried.loaded.document.data.get("acceptance")
    nothing = replacing(AcceptanceSpec, before, {"always": 0})
    changes: dict[str, object] = {"strategy": {"name": PLAIN}, "acceptance": nothing}
    for role in ("draft", "channel", "shared_memory"):
        if tried.get(role) is not None:
            changes[role] = None
    tried.write(changes)
    tried.another_method = True


def _target_of(tried: _Tried) -> NamedModel:
    """Return the target of a scenario as a model that others may be published for."""
    target = tried.loaded.scenario.target
    assert target is not None  # noqa: S101  # asked by who calls it
    name = target.model.name or ""
    if name in tried.catalogue.names("model"):
        return find_model(name, tried.catalogue, tried.option)
    return NamedModel(name, target.model, next(iter(target.model.huggingface), ""))


def _draft_otherwise(
    tried: _Tried, method: PlainMapping, target: NamedModel, draft: str | None
) -> None:
    """Let a scenario draft by a method, with the acceptance that is published nearest to it."""
    changes: dict[str, object] = {"strategy": method["strategy"]}
    for role in ("draft", "channel", "shared_memory"):
        if tried.get(role) is not None:
            changes[role] = None
    drafter = None
    if method["shape"] == "draft":
        drafter = _add_draft(tried, changes, target, draft)
    if method["shape"] == "mtp" and not target.spec.mtp_layers:
        raise BadInput.at(tried.option, NO_MTP)
    if method["shape"] == "head":
        trained = published_head(tried.catalogue, target, method["kind"])
        if trained is None:
            tried.said.append(f"{NO_HEAD}: it would have to be trained")
        else:
            trained_for, tried.head = trained
            tried.said.append(head_words(tried.head, trained_for, target.published_as).rstrip(";"))
    changes["acceptance"] = _stated_acceptance(tried) or _lent(tried, method, target, drafter)
    tried.write(changes)
    tried.another_method = True


def _add_draft(
    tried: _Tried, changes: dict[str, object], target: NamedModel, draft: str | None
) -> str:
    """Add the place of a draft model beside its target; return the model's name."""
    name = draft or usual_draft(target)
    if name is None:
        message = f"{NO_DRAFT}; name one: --try '{tried.typed} draft=MODEL'"
        raise BadInput.at(tried.option, message)
    model = find_model(name, tried.catalogue, tried.option)
    placed = tried.loaded.document.data["target"]
    beside = {name: placed[name] for name in ("device", "engine", "machine") if name in placed}
    if "machine" not in beside:
        beside["machine"] = "server"
        changes["target.machine"] = "server"
    weights = DEFAULTS["weights"]["value"]
    changes["draft"] = {**model.placed(), "weights": weights, **beside}
    tried.said.append(f"draft {model.known_as} on the devices of its target")
    return model.known_as


def _stated_acceptance(tried: _Tried) -> PlainData | None:
    """Return the acceptance that was typed for a method; None where none was."""
    stated: PlainData = {}
    for part in PART.findall(tried.typed):
        key, equals, value = part.partition("=")
        if equals and key.startswith("acceptance."):
            stated[key.removeprefix("acceptance.")] = _value(value, tried.option)
    if not stated:
        return None
    tried.said.append("acceptance as typed, of which no range is known")
    stated.setdefault("source", "stated with --try")
    stated.setdefault("confidence", "assumed")
    return replacing(AcceptanceSpec, tried.loaded.document.data.get("acceptance"), stated)


def _lent(
    tried: _Tried, method: PlainMapping, target: NamedModel, drafter: str | None
) -> PlainData:
    """Return the acceptance that is lent to a method, with a range; raises :class:`BadInput` where
    nothing is published.
    """
    lent = lent_acceptance(tried.catalogue, target, method, drafter)
    if lent is None:
        message = f"no acceptance of {method['kind']} is published; state it: --try "
        raise BadInput.at(tried.option, f"{message}'{tried.typed} acceptance.rate=0.6'")
    block = lent.block
    words = lent.words
    known = lent.alike
    tokens = float(block["tokens_per_step"])
    least = min([tokens - HALF, *known])
    most = max([tokens + HALF, *known])
    block["tokens_per_step_between"] = [round(max(1.0, least), 3), round(most, 3)]
    between = "{:g} to {:g}".format(*block["tokens_per_step_between"])
    tried.said.append(f"{words}; taken to lie within {between} here (90 %)")
    before = tried.loaded.document.data.get("acceptance")
    return replacing(AcceptanceSpec, before, block)


# ---- settings


class TriedSetting(NamedTuple):
    """Something that an engine lets one set, and what it changes in a scenario."""

    shown: str
    """The word for it that faults name."""
    apply: Callable[[_Tried, Any], None]


def _set_window(tried: _Tried, value: Any) -> None:
    """Set the draft tokens of a step; where fewer were recorded, kept shares by position are
    continued.
    """
    if not tried.loaded.scenario.schedule.window:
        message = "sets draft tokens, and nothing is drafted; name a method too"
        raise BadInput.at(tried.option, f"{message}: --try 'ngram {tried.typed}'")
    if type(value) is not int or not 1 <= value <= 1_000:
        raise BadInput.at(tried.option, "expected a whole number of draft tokens from 1 on")
    before = tried.loaded
    changes: dict[str, object] = {}
    for name, fields in window_fields(tried.get("strategy"), value, tried.option):
        changes[f"strategy.{name}"] = fields
    if not changes:
        return
    try:
        tried.write(changes)
    except BadInput:
        window = before.scenario.schedule.window
        mean = before.scenario.acceptance.rescale
        if mean is not None and not isinstance(mean.tokens_per_step, dict):
            changes["acceptance"] = _at_rate(before, mean, mean.tokens_per_step, value)
            words = f"each draft token kept as often as makes the mean at {window}"
        elif before.trace is not None and value > window:
            changes["acceptance"] = _continued(before)
            words = f"recorded up to {window} draft tokens, and the last position continued"
        else:
            raise
        tried.loaded = before
        tried.said.append(f"acceptance at {value} draft tokens: {words}")
        tried.write(changes)


def _at_rate(loaded: Loaded, mean: Rescale, tokens: float, window: int) -> PlainData:
    """Return the mean of a scenario as one chance of every draft token, and its range at another
    window.
    """
    spec = loaded.scenario.acceptance
    known = mean.window or loaded.scenario.schedule.window
    stated: PlainData = {"source": mean.source, "confidence": mean.confidence}
    stated["rate"] = round(rate_of(tokens - 1.0, known), 6)
    if spec.tokens_per_step_between:
        ends = [rate_of(end - 1.0, known) for end in spec.tokens_per_step_between]
        stated["tokens_per_step_between"] = [round(tokens_at(rate, window), 3) for rate in ends]
        stated["window"] = window
    return replacing(AcceptanceSpec, loaded.document.data.get("acceptance"), stated)


def tokens_at(rate: float, window: int) -> float:
    """Return the tokens of a step in which each of ``window`` draft tokens is kept as often."""
    return sum(rate**kept for kept in range(window + 1))


def _continued(loaded: Loaded) -> PlainData:
    """Return the chances by position of a recording, to be continued."""
    scenario = loaded.scenario
    odds = loaded.acceptance().odds(scenario.schedule.window, scenario.exit)
    rates = []
    reached = 1.0
    for position in range(1, scenario.schedule.window + 1):
        kept = float(sum(odds.accepted[position:]))
        rates.append(round(min(1.0, kept / reached), 6) if reached else 0.0)
        reached = kept
    stated = {"per_position": rates, "source": "computed: from its recording"}
    stated |= {"confidence": "measured"}
    return replacing(AcceptanceSpec, loaded.document.data.get("acceptance"), stated)


def _set_ranks(tried: _Tried, value: Any) -> None:
    """Set the devices that share the target; they are joined by the usual link where none is
    stated.
    """
    changes: dict[str, object] = {"target.tensor_parallel": value}
    target = tried.loaded.scenario.target
    if target is not None and target.link is None and value != 1:
        link = usual_link(target.device.name)
        if link is None:
            message = f"no link joins {target.device.name} devices by itself; name one"
            example = f"--try '{tried.typed} target.link=pcie_4_x16'"
            if "target.link=" not in tried.typed:
                raise BadInput.at(tried.option, f"{message}: {example}")
        else:
            changes["target.link"] = link
            tried.said.append(f"devices joined by {link}")
        for part in PART.findall(tried.typed):
            key, _, named = part.partition("=")
            if key == "target.link":
                changes["target.link"] = named
    _with_room(tried, changes)


def _set_target(name: str) -> Callable[[_Tried, Any], None]:
    """Return what sets a field of the target that changes the room for caches."""

    def apply(tried: _Tried, value: Any) -> None:
        _with_room(tried, {f"target.{name}": value})

    return apply


def _with_room(tried: _Tried, changes: dict[str, object]) -> None:
    """Change where the target runs; a room for caches that is stated grows as that of the memory
    does.
    """
    stated = tried.get("serving", "memory", "kv_tokens")
    before = _room(tried.loaded, tried.catalogue) if stated else None
    tried.write(changes)
    after = _room(tried.loaded, tried.catalogue) if before else None
    if stated and before and after and before != after:
        tried.write({"serving.memory.kv_tokens": max(1, round(stated * after / before))})
        room = tried.get("serving", "memory", "kv_tokens")
        words = "scaled by the memory beside the weights"
        tried.said.append(f"room for {room:,} tokens in the KV cache, {words}")


def _room(loaded: Loaded, catalogue: Catalogue) -> int | None:
    """Return for how many tokens the memory beside the weights has room."""
    free = variant(loaded, {"serving.memory.kv_tokens": None}, catalogue)
    return free.scenario.kv_tokens


def _set_memory_share(tried: _Tried, value: Any) -> None:
    _with_room(tried, {"serving.memory.utilisation": value})


BUDGETS = ("budget_tokens", "chunk_tokens", "batch_tokens")
"""What policies call the most tokens of a pass."""


def _set_budget(tried: _Tried, value: Any) -> None:
    """Set the most tokens of a pass, whatever the policy calls them."""
    policy = tried.loaded.scenario.serving.policy.model_dump(mode="json")
    for name in BUDGETS:
        if name in policy:
            tried.write({"serving.policy": {**policy, name: value}})
            return
    message = f"policy {policy['name']} has no limit of tokens in a pass; name another"
    raise BadInput.at(tried.option, f"{message}: --try 'serving.policy.name=unified_budget'")


def _set_field(path: str) -> Callable[[_Tried, Any], None]:
    """Return what sets one field."""

    def apply(tried: _Tried, value: Any) -> None:
        tried.write({path: value})

    return apply


def _set_draft(tried: _Tried, value: Any) -> None:
    """Set another draft model, whose acceptance is that of before: nobody measured it."""
    if tried.loaded.scenario.draft is None:
        message = "names a draft model, and none drafts; name the method too"
        raise BadInput.at(tried.option, f"{message}: --try 'draft_model {tried.typed}'")
    tried.write({"draft.model": value})
    tried.said.append("acceptance as with the draft before, which nobody measured")


_WORDS = (
    (
        "gamma num_speculative_tokens num_draft_tokens speculative_num_steps spec_draft_n_max "
        "draft_max max_draft_len",
        _set_window,
    ),
    ("tensor_parallel tensor_parallel_size tp_size tp", _set_ranks),
    (
        "max_num_seqs max_running_requests max_batch_size np",
        _set_field("serving.policy.max_requests"),
    ),
    ("max_num_batched_tokens chunked_prefill_size max_num_tokens", _set_budget),
    (
        "prefix_caching enable_prefix_caching",
        _set_field("serving.memory.prefix_caching"),
    ),
    ("gpu_memory_utilization mem_fraction_static", _set_memory_share),
    ("kv_cache_dtype", _set_target("kv_cache")),
    ("weights quantization dtype", _set_target("weights")),
    ("device", _set_target("device")),
    ("replicas data_parallel data_parallel_size", _set_field("serving.replicas")),
    ("concurrency max_concurrency clients", _set_field("requests.concurrency")),
    ("draft", _set_draft),
)
"""Words of engines for a setting, the first of which faults name."""
OF_DRAFTS = {"gamma": "ngram", "draft": "draft_model"}
"""Settings that say nothing where nothing is drafted, each with a method that has it."""
SETTINGS: Mapping[str, TriedSetting] = {
    word: TriedSetting(words.split()[0], apply) for words, apply in _WORDS for word in words.split()
}
