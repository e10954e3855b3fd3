"""A program that serves: what it is told of the answer of a plan, and the script that calls it.

Commands are lists of words, which a shell takes as they are: no name in a file can end a word or
begin a command, as every word is quoted.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from simulator.core.acceptance.lossy.rules import LossyRule
from simulator.core.cost.placement import Placement
from simulator.core.plain import PlainData
from simulator.core.serving.policies import ChunkedPrefill, Policy, PrefillFirst, UnifiedBudget
from simulator.core.strategies.common.capabilities import DraftsChain, drafting_of
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.shell import Comment
from simulator.scenario import Scenario
from simulator.studies.plan.commands.checkpoints import (
    KnownHead,
    ServedCheckpoint,
    known_head,
    served_checkpoint,
)

SIXTEEN_BITS = ("bf16", "fp16")
"""Formats of a cache that need no option."""
HEADS = ("eagle", "eagle_1", "eagle_2", "eagle_3", "p_eagle", "dflash", "dspark")
"""Ways to draft with weights of their own, which are not in the checkpoint of the target."""
CONTEXT_STEP = 1024
"""A server's longest context is the plan's longest request, rounded up to a multiple of so many
tokens.
"""
Words = list[str]
Options = Mapping[str, Sequence[str]]
LOOKED_UP = "suffix"
"""Drafts that are copied from the text, verified where matches are long."""
Ranges = Sequence[Sequence[int]]
"""First and last batch, and draft tokens, of ranges of batch sizes."""


@dataclass(frozen=True)
class Served:
    """Holds what is served: the answer's scenario with what its engine calls things."""

    scenario: Scenario
    target: Placement
    drafted: Placement | None
    """The draft model; None where another way of drafting is used."""
    head: KnownHead
    """The checkpoint of a draft head, and that of the target whose published mean names it; an
    empty name for none, an empty target where the head was stated.
    """
    kind: str
    """The way to draft, among those that the program knows; empty for plain decoding."""
    method: str
    """The engine's name of the way to draft; empty for plain decoding."""
    loaded: ServedCheckpoint
    """The checkpoint of the target."""
    loaded_draft: ServedCheckpoint | None
    """The checkpoint of the draft model."""
    cache: Sequence[str]
    """Options for the format of the cache."""
    ranges: Ranges | None
    """Draft tokens by batch size, where they are to depend on it."""

    @property
    def model(self) -> str:
        """Return the checkpoint of the target."""
        return self.loaded.name

    @property
    def form(self) -> Sequence[str]:
        """Return the options for the format of the weights."""
        return self.loaded.options

    @property
    def draft(self) -> str:
        """Return the checkpoint of the draft model or head; empty for none."""
        if self.loaded_draft:
            return self.loaded_draft.name
        return self.head.name

    @property
    def places(self) -> int:
        """Return the requests at a time of each rank that has the whole attention of its own."""
        return -(-self.scenario.batch // self.shared_requests)

    @property
    def context(self) -> int:
        """Return the tokens of the longest request, rounded up, within what the model can read."""
        tokens = self.scenario.lengths[2] + self.scenario.schedule.window
        rounded = -(-tokens // CONTEXT_STEP) * CONTEXT_STEP
        return min(rounded, self.target.model.context_tokens or rounded)

    @property
    def shared_requests(self) -> int:
        """Return among how many ranks requests are dealt, each with the whole attention."""
        if self.target.attention == "data_parallel":
            return self.target.tensor_parallel
        return 1

    @property
    def sliced(self) -> int:
        """Return among how many devices a request's attention is sliced."""
        return self.target.tensor_parallel // self.shared_requests

    @property
    def tokens(self) -> int:
        """Return the most draft tokens of a step."""
        most = max((tokens for _, _, tokens in self.ranges or ()), default=0)
        return most or self.scenario.schedule.window

    @property
    def tree(self) -> tuple[int, int]:
        """Return choices a level, and tokens of the tree that is verified; of a chain, 1 and its
        window.
        """
        strategy = self.scenario.schedule
        tree = strategy.model_dump(mode="json").get("tree") or {}
        return tree.get("choices") or 1, tree.get("budget") or strategy.window

    @property
    def stages(self) -> int:
        """Return the stages of a pipeline; 0 without one."""
        if self.target.pipeline:
            return len(self.target.pipeline.stages)
        return 0

    @property
    def whole_experts(self) -> bool:
        """Return whether every device has whole experts of a mixture."""
        return bool(self.target.model.experts) and self.target.experts != "sliced"


def shell_command(lines: Sequence[Words]) -> str:
    """Return a command that is written in so many lines."""
    return " \\\n    ".join(map(shlex.join, lines)) + "\n"


def no_options(rule: LossyRule) -> Words:
    """Return no words: the program has no such rule."""
    return []


def no_notes(served: Served) -> Sequence[str]:
    """Return none: the command is what was simulated."""
    return ()


def no_refusal(scenario: Scenario) -> str:
    """Return no words: the program serves whatever it has options for."""
    return ""


class Configuration(NamedTuple):
    """States the file that a program reads beside its command."""

    file: str
    fields: Callable[[Served], PlainData]
    """Returns what stands in it."""


@dataclass(frozen=True)
class ServingProgram:
    """States a program that serves: the script that calls it, the documentation that names of
    options are from, and what it calls formats and ways to draft.
    """

    file: str
    version: str
    """Its name and the version that the options are of."""
    source: str
    formats: Options
    cache: Options
    methods: Mapping[str, str | None]
    """Ways to draft, as names of methods contain them, the first that fits; None for one that the
    program has no options for.
    """
    affinity: str
    """How turns of a session come back to their replica."""
    lines: Callable[[Served], list[Words]]
    """Returns the words of the command, by the lines that it is written in."""
    notes: Callable[[Served], Iterable[str]] = no_notes
    """Returns where the command is not what was simulated."""
    loads: Callable[[Placement, Options], ServedCheckpoint] = served_checkpoint
    """Returns what is loaded of a placement."""
    rule: Callable[[LossyRule], Words] = no_options
    """Returns the options of a rule by which outputs change; none where the program has none."""
    refuses: Callable[[Scenario], str] = no_refusal
    """Returns why the program does not serve a scenario, in words; empty where it does."""
    configuration: Configuration | None = None
    """The file that the command reads; None where it has all in its options."""

    def files(
        self,
        scenario: Scenario,
        ranges: Ranges | None = None,
        head: str = "",
        catalogue: Catalogue | None = None,
    ) -> dict[str, str]:
        """Return the script that serves a scenario, and the configuration that it reads, by their
        files' names; none where :meth:`unserved` says why. ``catalogue``: whose means may name a
        head.
        """
        served = self.served(scenario, ranges, head, catalogue)
        if served is None:
            return {}
        script = self._script(served, (), self.file)
        if self.configuration is None:
            return {self.file: script}
        fields = yaml.safe_dump(self.configuration.fields(served), sort_keys=False, width=100)
        said = f"# read by {self.file}; for {self.version}\n# field names: {self.source}\n"
        return {self.file: script, self.configuration.file: said + fields}

    @property
    def names(self) -> list[str]:
        """Return the names of all files that it may write."""
        if self.configuration is None:
            return [self.file]
        return [self.file, self.configuration.file]

    def script(
        self,
        scenario: Scenario,
        ranges: Ranges | None = None,
        head: str = "",
        behind: Sequence[Words] = (),
        catalogue: Catalogue | None = None,
        file: str = "",
    ) -> str | None:
        """Return the script that serves a scenario, with further lines ``behind`` its command; None
        where the program does not serve it. ``file`` is what it is called, where that is not as
        always.
        """
        served = self.served(scenario, ranges, head, catalogue)
        if served is None:
            return None
        return self._script(served, behind, file or self.file)

    def _script(self, served: Served, behind: Sequence[Words], file: str) -> str:
        lossy = served.scenario.acceptance.rule
        options = self.rule(lossy) if lossy and lossy.lossy else []
        lines = [*self.lines(served), *([options] if options else [])]
        command = shell_command([*lines, *behind])
        comments = self._comments(served, file)
        return "".join(f"# {line}\n" for line in comments) + command

    def unserved(self, scenario: Scenario) -> str:
        """Return why no command is written for a scenario, in words; empty where one is."""
        if scenario.target is None:
            return "no device is stated"
        kind = kind_of(scenario, self.methods)
        if kind is None or (kind and self.methods[kind] is None):
            return f"{self.version} has no options for {scenario.method_name}"
        return self.refuses(scenario)

    def served(
        self,
        scenario: Scenario,
        ranges: Ranges | None,
        head: str,
        catalogue: Catalogue | None = None,
    ) -> Served | None:
        """Return a scenario with what the program calls things; None where it does not serve it."""
        target = scenario.target
        if target is None or self.unserved(scenario):
            return None
        kind = kind_of(scenario, self.methods) or ""
        drafted = scenario.draft if kind == "draft_model" else None
        known = KnownHead(head, "")
        if kind in HEADS and not head:
            named = (target.checkpoint,) if target.checkpoint else ()
            checkpoints = (*named, *target.model.huggingface)
            known = known_head(checkpoints, kind, catalogue or Catalogue())
        return Served(
            scenario=scenario,
            target=target,
            drafted=drafted,
            head=known,
            kind=kind,
            method=self.methods[kind] or "" if kind else "",
            loaded=self.loads(target, self.formats),
            loaded_draft=self.loads(drafted, self.formats) if drafted else None,
            cache=self.cache.get(target.kv_cache or "", ()),
            ranges=ranges,
        )

    def _comments(self, served: Served, file: str) -> Iterator[str]:
        replicas = served.scenario.serving.replicas
        which = "for 1 replica" if replicas == 1 else f"for each of {replicas} replicas"
        yield f"{which}, on {machine_words(served.target)} with {self.version}: sh {file}"
        yield f"option names: {Comment(self.source)}"
        yield f"checkpoint: {served.loaded.words}"
        if served.loaded_draft:
            yield f"draft: {served.loaded_draft.words}"
        elif served.head.target:
            yield f"head: {served.head.name}, which a published mean names for {served.head.target}"
        elif served.method and served.kind in HEADS and not served.head.name:
            yield "state the checkpoint of a head (heads of the plan file): without it none drafts"
        if not served.cache and served.target.kv_cache not in SIXTEEN_BITS:
            yield f"no option for a cache in {served.target.kv_cache}; it stays in 16 bits"
        rule = served.scenario.acceptance.rule
        if rule is not None and rule.lossy:
            yield f"outputs are not the target's alone: {rule.words}"
            if not self.rule(rule):
                yield "this program has no option for that rule, and keeps fewer tokens"
        yield from self.notes(served)
        scenario = served.scenario
        if scenario.requests.sessions is not None and scenario.serving.replicas > 1:
            router = scenario.serving.router.name
            yield f"turns were dealt to replicas by {router}; {self.affinity}"


def machine_words(target: Placement) -> str:
    """Return the devices of a replica, as in ``4 x h100_sxm``."""
    counts: Counter[str] = Counter()
    if target.pipeline:
        for stage in target.pipeline.stages:
            counts[(stage.device or target.device).name] += target.tensor_parallel
    else:
        counts[target.device.name] = target.tensor_parallel
    return " and ".join(f"{count} x {Comment(name)}" for name, count in counts.items())


def chunk_of(policy: Policy) -> int | None:
    """Return the tokens of a pass of a policy that cuts prompts to them; None where prompts are
    whole.
    """
    if isinstance(policy, ChunkedPrefill):
        return policy.chunk_tokens
    if isinstance(policy, UnifiedBudget):
        return policy.budget_tokens
    if isinstance(policy, PrefillFirst) and policy.splits_prompts:
        return policy.batch_tokens
    return None


def kind_of(scenario: Scenario, known: Mapping[str, str | None]) -> str | None:
    """Return how drafts come about, of the ``known`` ways; empty where there are none, None where
    it is another way.
    """
    strategy = scenario.schedule
    if not strategy.window:
        return ""
    if isinstance(strategy, DraftsChain) and strategy.serial and scenario.draft:
        return "draft_model"
    if strategy.traits.shared_budget and drafting_of(strategy) == "look_up":
        return LOOKED_UP if LOOKED_UP in known else None
    return next((kind for kind in known if kind in scenario.method_name), None)
