"""Commands that serve the answer of a plan, by engine: lists of words, which a shell takes as they
are.

Options are those of the documentation that an engine's ``source`` names. No name in a file can end
a word or begin a command, as every word is quoted.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from simulator.core.acceptance.lossy.rules import LossyRule, ThresholdRule
from simulator.core.cost.placement import Placement
from simulator.core.serving.policies import ChunkedPrefill, Policy, PrefillFirst, UnifiedBudget
from simulator.core.strategies.common.capabilities import DraftsChain, drafting_of
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.shell import Comment
from simulator.inputs.writing import json_text
from simulator.scenario import Scenario
from simulator.studies.plan.commands.checkpoints import (
    ServedCheckpoint,
    gguf_checkpoint,
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
    head: str
    """Checkpoint of a draft head; empty for none."""
    head_found: bool
    """Whether nobody named it, and a published mean does."""
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
        return self.head

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


@dataclass(frozen=True)
class ServingProgram:
    """States a program that serves: the script that calls it, the documentation that names of
    options are from, and what it calls formats and ways to draft.
    """

    file: str
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

    def script(
        self,
        scenario: Scenario,
        ranges: Ranges | None = None,
        head: str = "",
        behind: Sequence[Words] = (),
        catalogue: Catalogue | None = None,
    ) -> str | None:
        """Return the script that serves a scenario, with further lines ``behind`` its command; None
        for a way to draft that the program has no options for. ``catalogue``: whose means may name
        a head.
        """
        served = self.served(scenario, ranges, head, catalogue)
        if served is None:
            return None
        lossy = scenario.acceptance.rule
        options = self.rule(lossy) if lossy and lossy.lossy else []
        lines = [*self.lines(served), *([options] if options else [])]
        command = shell_command([*lines, *behind])
        return "".join(f"# {line}\n" for line in self._comments(served)) + command

    def served(
        self,
        scenario: Scenario,
        ranges: Ranges | None,
        head: str,
        catalogue: Catalogue | None = None,
    ) -> Served | None:
        """Return a scenario with what the program calls things; None for a way to draft that it has
        no options for.
        """
        target = scenario.target
        kind = kind_of(scenario, self.methods)
        if target is None or kind is None:
            return None
        method = self.methods[kind] if kind else ""
        if method is None:
            return None
        drafted = scenario.draft if kind == "draft_model" else None
        named = head
        if kind in HEADS and not named:
            head = known_head(target.model.huggingface, kind, catalogue or Catalogue())
        return Served(
            scenario=scenario,
            target=target,
            drafted=drafted,
            head=head,
            head_found=head != named,
            kind=kind,
            method=method,
            loaded=self.loads(target, self.formats),
            loaded_draft=self.loads(drafted, self.formats) if drafted else None,
            cache=self.cache.get(target.kv_cache or "", ()),
            ranges=ranges,
        )

    def _comments(self, served: Served) -> Iterator[str]:
        rule = served.scenario.acceptance.rule
        if rule is not None and rule.lossy:
            yield f"outputs are not the target's alone: {rule.words}"
            if not self.rule(rule):
                yield "this program has no option for that rule, and keeps fewer tokens"
        replicas = served.scenario.serving.replicas
        which = "1 replica" if replicas == 1 else f"each of {replicas} replicas"
        yield f"{which}; option names: {Comment(self.source)}"
        yield f"checkpoint: {served.loaded.words}"
        if served.loaded_draft:
            yield f"draft: {served.loaded_draft.words}"
        elif served.head_found:
            yield f"head: {served.head}, which a published mean names for this checkpoint"
        elif served.method and served.kind in HEADS and not served.head:
            yield "state the checkpoint of a head (heads of the plan file): without it none drafts"
        if not served.cache and served.target.kv_cache not in SIXTEEN_BITS:
            yield f"no option for a cache in {served.target.kv_cache}; it stays in 16 bits"
        yield from self.notes(served)
        scenario = served.scenario
        if scenario.schedule.traits.shared_budget:
            rules = served.target.engine.windows
            yield f"adaptive verification as of {Comment(rules.source)}"
        if scenario.requests.sessions is not None and scenario.serving.replicas > 1:
            router = scenario.serving.router.name
            yield f"turns were dealt to replicas by {router}; {self.affinity}"


def _vllm(served: Served) -> list[Words]:
    scenario = served.scenario
    serve = ["vllm", "serve", served.model]
    serve += ["--tensor-parallel-size", str(served.sliced)]
    ranks = served.shared_requests
    if ranks > 1:
        serve += ["--data-parallel-size", str(ranks)]
    if served.stages:
        serve += ["--pipeline-parallel-size", str(served.stages)]
    if served.whole_experts:
        serve.append("--enable-expert-parallel")
    chunk = chunk_of(scenario.serving.policy)
    places = -(-scenario.batch // ranks)
    if chunk:
        tokens = -(-chunk // ranks)
        places = min(places, tokens)
        prompts = ["--enable-chunked-prefill"]
    else:
        tokens = max(served.context, places)
        prompts = ["--no-enable-chunked-prefill"]
    prompts += ["--max-num-batched-tokens", str(tokens)]
    room = ["--max-num-seqs", str(places), "--max-model-len", str(served.context)]
    room += ["--gpu-memory-utilization", str(scenario.serving.memory.utilisation)]
    room += [*served.form, *served.cache]
    keeps = scenario.serving.memory.prefix_caching
    if keeps is not None:
        prompts.append("--enable-prefix-caching" if keeps else "--no-enable-prefix-caching")
    lines = [serve, room, prompts]
    if served.method:
        lines.append(["--speculative-config", _vllm_config(served)])
    return lines


def _vllm_notes(served: Served) -> Iterator[str]:
    scenario = served.scenario
    chunk = chunk_of(scenario.serving.policy)
    if chunk and scenario.batch > chunk:
        yield "no more requests at a time than tokens of a pass, as vLLM refuses them"
    drafted = served.drafted
    if drafted and drafted.tensor_parallel != served.sliced:
        yield (
            f"the draft was simulated on {drafted.tensor_parallel} of {served.sliced} devices; "
            "vLLM wants the target's degree for it"
        )
    if served.method and served.tree != (1, served.scenario.schedule.window):
        yield f"vLLM drafts chains: it keeps less than the tree of {served.tree[1]} tokens does"


def _vllm_config(served: Served) -> str:
    """Return how to speculate, as vLLM takes it; what is empty is left out."""
    drafted = served.drafted
    adaptive = served.scenario.schedule.traits.shared_budget
    config = {
        "method": served.method,
        "model": served.draft,
        "draft_tensor_parallel_size": drafted and served.sliced,
        "quantization": _vllm_quantisation(served.loaded_draft),
        "use_heterogeneous_vocab": _other_vocabulary(served) or None,
        "num_speculative_tokens": served.tokens,
        "num_speculative_tokens_per_batch_size": served.ranges,
        "parallel_drafting": served.kind == "p_eagle" or None,
        "enable_adaptive_verification": adaptive or None,
    }
    stated = {name: value for name, value in config.items() if value not in ("", None)}
    return json_text(stated, indent=None)


def _vllm_quantisation(drafted: ServedCheckpoint | None) -> str | None:
    """Return how a draft model is quantised while it is loaded; None where it is not."""
    if drafted and "--quantization" in drafted.options:
        return drafted.options[drafted.options.index("--quantization") + 1]
    return None


def _other_vocabulary(served: Served) -> bool:
    """Return whether the draft model counts other tokens than its target, as where one of two
    tables is padded.
    """
    drafted = served.drafted
    return drafted is not None and drafted.model.vocab_size != served.target.model.vocab_size


def _sglang(served: Served) -> list[Words]:
    scenario = served.scenario
    serve = ["python3", "-m", "sglang.launch_server", "--model-path", served.model]
    serve += ["--tp", str(served.target.tensor_parallel)]
    if served.shared_requests > 1:
        serve += ["--dp-size", str(served.shared_requests), "--enable-dp-attention"]
    if served.stages:
        serve += ["--pp-size", str(served.stages)]
    if served.whole_experts:
        serve += ["--ep-size", str(served.target.tensor_parallel)]
    room = ["--max-running-requests", str(scenario.batch), "--context-length", str(served.context)]
    room += ["--mem-fraction-static", str(scenario.serving.memory.utilisation)]
    room += [*served.form, *served.cache]
    policy = scenario.serving.policy
    prompts = ["--chunked-prefill-size", str(chunk_of(policy) or -1)]
    if isinstance(policy, ChunkedPrefill | UnifiedBudget):
        prompts.append("--enable-mixed-chunk")
    if scenario.serving.memory.prefix_caching is False:
        lines = [serve, room, ["--disable-radix-cache", *prompts]]
    else:
        lines = [serve, [*room, *prompts]]
    if served.method:
        lines += _sglang_speculation(served)
    return lines


def _sglang_speculation(served: Served) -> list[Words]:
    algorithm = ["--speculative-algorithm", served.method]
    if served.draft:
        algorithm += ["--speculative-draft-model-path", served.draft]
    choices, tokens = served.tree
    drafts = ["--speculative-num-draft-tokens", str(1 + tokens)]
    if served.method in ("DFLASH", "DSPARK"):
        return [algorithm, drafts]
    if served.method == "NGRAM":
        return [algorithm, ["--speculative-ngram-max-bfs-breadth", str(choices), *drafts]]
    steps = ["--speculative-num-steps", str(served.scenario.schedule.window)]
    steps += ["--speculative-eagle-topk", str(choices)]
    return [algorithm, [*steps, *drafts]]


def _sglang_notes(served: Served) -> Iterator[str]:
    mixed = isinstance(served.scenario.serving.policy, ChunkedPrefill | UnifiedBudget)
    if mixed and served.method in ("NGRAM", "STANDALONE"):
        yield f"with {served.method} SGLang switches --enable-mixed-chunk off"


def _sglang_rule(rule: LossyRule) -> Words:
    """Return the thresholds of a rule; none for a rule that the program does not have."""
    if not isinstance(rule, ThresholdRule):
        return []
    single = ["--speculative-accept-threshold-single", f"{rule.single:g}"]
    return [*single, "--speculative-accept-threshold-acc", f"{rule.accumulated:g}"]


def _llama_cpp(served: Served) -> list[Words]:
    places = served.scenario.batch
    serve = ["llama-server", "-m", served.model]
    if served.method:
        serve += ["-md", served.draft]
    serve += ["-np", str(places), "-c", str(served.context * places)]
    serve += [*_llama_cpp_layers(served.target), *served.cache]
    if not served.method:
        return [serve]
    drafts = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(served.tokens)]
    drafts += ["--spec-draft-n-min", "0"]
    return [serve, [*drafts, "--spec-draft-p-min", "0"]]


def _llama_cpp_layers(target: Placement) -> Words:
    """Return which layers, and experts of layers, lie on the card: all that are not offloaded."""
    layers = target.model.num_hidden_layers
    on_card = ["-ngl", "all"]
    experts: Words = []
    for part in (target.offload or {}).values():
        away = part.places(layers)
        if part.layers is not None:
            on_card = ["-ngl", str(layers + 1 - away.stop)]
        elif len(away) == layers:
            experts = ["--cpu-moe"]
        else:
            experts = ["--n-cpu-moe", str(away.stop)]
    return [*on_card, *experts]


FORMATS: Options = {
    "bf16": ("--dtype", "bfloat16"),
    "fp16": ("--dtype", "float16"),
    "fp32": ("--dtype", "float32"),
    "fp8": ("--quantization", "fp8"),
}
ENGINES = {
    "vllm": ServingProgram(
        file="vllm.sh",
        source=(
            "vLLM 0.32: docs/features/speculative_decoding (vllm-project/vllm 01ed47b4; dynamic "
            "lengths: 015a47e1), docs/cli/serve; read 2026-11"
        ),
        formats={**FORMATS, "fp8_block": ("--quantization", "fp8_per_block")},
        cache={
            "fp8": ("--kv-cache-dtype", "fp8"),
            "int8": ("--kv-cache-dtype", "int8_per_token_head"),
            "int4": ("--kv-cache-dtype", "int4_per_token_head"),
        },
        methods={
            "draft_model": "draft_model",
            "p_eagle": "eagle3",
            "eagle_1": "eagle",
            "eagle_2": "eagle",
            "eagle_3": "eagle3",
            "eagle": "eagle",
            "ngram": "ngram",
            "mtp": "mtp",
            "dflash": "dflash",
            "dspark": "dspark",
            LOOKED_UP: "suffix",
        },
        affinity=(
            "a session stays on its replica with --routing-logic session --session-key HEADER of "
            "the router of vllm-project/production-stack"
        ),
        lines=_vllm,
        notes=_vllm_notes,
    ),
    "sglang": ServingProgram(
        file="sglang.sh",
        source=(
            "SGLang: docs/advanced_features/server_arguments.md (sgl-project/sglang 004813e1) and "
            "speculative_decoding.md (067ad4d); read 2026-11"
        ),
        formats=FORMATS,
        cache={"fp8": ("--kv-cache-dtype", "fp8_e4m3")},
        methods={
            "draft_model": "STANDALONE",
            "p_eagle": None,
            "eagle_1": "EAGLE",
            "eagle_2": "EAGLE",
            "eagle_3": "EAGLE3",
            "eagle": "EAGLE",
            "ngram": "NGRAM",
            "mtp": "EAGLE",
            "dflash": "DFLASH",
            "dspark": "DSPARK",
        },
        affinity=("a session stays where its prefix is with --policy cache_aware of sglang_router"),
        lines=_sglang,
        notes=_sglang_notes,
        rule=_sglang_rule,
    ),
    "llama_cpp": ServingProgram(
        file="llama_cpp.sh",
        source=(
            "llama.cpp: tools/server/README.md (ggml-org/llama.cpp 00dc8057); before builds of "
            "2026 --spec-draft-n-max was --draft-max; read 2026-11"
        ),
        formats={},
        cache={
            "int8": ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0"),
            "int4": ("--cache-type-k", "q4_0", "--cache-type-v", "q4_0"),
        },
        methods={"draft_model": "draft_model"},
        affinity="a session stays on its replica with a load balancer that hashes a header of it",
        lines=_llama_cpp,
        loads=gguf_checkpoint,
    ),
}
"""Programs by engine, whose name may go on."""


def program_name(scenario: Scenario) -> str | None:
    """Return the engine of a scenario's target as :data:`ENGINES` names it; None where no options
    of it are known.
    """
    engine = scenario.target.engine.name if scenario.target else ""
    return next((name for name in ENGINES if engine.startswith(name)), None)


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
