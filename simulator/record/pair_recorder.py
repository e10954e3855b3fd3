"""Records a trace from a pair of Hugging Face models, batch by batch, so that it can be interrupted
and taken up.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from jinja2 import TemplateError

from simulator.core.acceptance.trace import FORMAT, Trace
from simulator.core.faults import BadInput
from simulator.core.parallel import counting
from simulator.core.plain import PlainData
from simulator.record.decoding import record_batch
from simulator.record.huggingface_pair import (
    Folder,
    Lens,
    Pair,
    check_vocabulary,
    digest,
    tokenizer_digest,
)
from simulator.record.parts import Parts, folder_of
from simulator.record.prompts import Prompt, read_prompts
from simulator.record.scores import Sampling

REPLAYABLE = 2
"""Positions below which a request says nothing: the first is emitted by the prefill and judged by
nobody.
"""

WIDE_VOCABULARY = 1 << 16


@dataclass(frozen=True)
class RecordingJob:
    """What a recording was asked to do on the command line."""

    target: Path
    draft: Path
    prompts: Path
    out: Path
    sampling: Sampling
    output_tokens: int
    limit: int | None
    batch: int
    seed: int
    exits: tuple[float, ...]
    chat: bool
    device: str
    dtype: str

    @property
    def command(self) -> str:
        """Return the command that makes the trace again, with names of folders and files instead of
        their paths.
        """
        paths = {"target": self.target, "draft": self.draft, "prompts": self.prompts}
        words = ["specsim", "trace", "record"]
        for name, path in paths.items():
            words += [f"--{name}", path.resolve().name]
        numbers = {
            "temperature": self.sampling.temperature,
            "top-k": self.sampling.top_k,
            "top-p": self.sampling.top_p,
        }
        numbers |= {"output-tokens": self.output_tokens, "batch": self.batch, "seed": self.seed}
        numbers |= {} if self.limit is None else {"limit": self.limit}
        for name, value in numbers.items():
            words += [f"--{name}", f"{value:g}"]
        words += ["--exits", ",".join(f"{share:g}" for share in self.exits)] if self.exits else []
        words += ["--chat"] if self.chat else []
        return shlex.join(
            [*words, "--device", self.device, "--dtype", self.dtype, "--out", self.out.name]
        )


@dataclass(frozen=True)
class Ready:
    """Everything that is known before the weights are loaded."""

    target: Folder
    draft: Folder
    prompts: Sequence[Prompt]
    ids: Sequence[Sequence[int]]
    """Token ids of each prompt."""
    layers: tuple[int, ...]
    device: str
    header: PlainData


def record_pair(job: RecordingJob) -> Trace:
    """Record, or resume recording, write ``job.out`` and return the trace.

    Raises :class:`BadInput` before anything is written where the input is at fault.
    """
    if job.out.suffix != ".npz" or not job.out.absolute().parent.is_dir():
        raise BadInput.at(
            job.out, "expected a file name that ends in .npz, in a folder that exists"
        )
    if job.out.exists() and not folder_of(job.out).exists():
        raise BadInput.at(job.out, "is there already; delete it to record it anew")
    ready = prepare(job)
    parts = Parts(job.out, ready.header)
    batches = -(-len(ready.ids) // job.batch)
    with parts.opened():
        missing = [number for number in range(batches) if not parts.finished(number)]
        if missing:
            _record_missing(job, ready, load(job, ready), parts, missing)
        trace = assemble(ready, parts.merged(batches))
        parts.finish(trace)
    return trace


def prepare(job: RecordingJob) -> Ready:
    """Read and check everything but the weights."""
    prompts = read_prompts(job.prompts, job.limit)
    target = Folder("target", job.target)
    draft = Folder("draft", job.draft)
    tokenizer = target.tokenizer()
    check_vocabulary(target, draft, tokenizer.get_vocab(), draft.tokenizer().get_vocab())
    ids = [_encode(job, tokenizer, prompt) for prompt in prompts]
    _check_lengths(job, (target, draft), prompts, ids)
    layers = _exit_layers(job, target)
    if job.device == "cuda" and not torch.cuda.is_available():
        raise BadInput.at("--device cuda", "torch finds no CUDA device here")
    device = job.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    header = describe(job, target, draft, ids, layers, device)
    return Ready(target, draft, prompts, ids, layers, device, header)


def _encode(job: RecordingJob, tokenizer: Any, prompt: Prompt) -> list[int]:
    if job.chat:
        message = [{"role": "user", "content": prompt.text}]
        try:
            text = tokenizer.apply_chat_template(
                message, add_generation_prompt=True, tokenize=False
            )
        except (ValueError, TemplateError) as error:
            raise BadInput.at(
                job.target,
                f"--chat: the tokenizer's template refuses: {str(error).splitlines()[0]}",
            ) from error
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return list(tokenizer(prompt.text)["input_ids"])


def _check_lengths(
    job: RecordingJob,
    folders: Sequence[Folder],
    prompts: Sequence[Prompt],
    ids: Sequence[Sequence[int]],
) -> None:
    for prompt, tokens in zip(prompts, ids, strict=True):
        place = (str(job.prompts), prompt.line, 1)
        if not tokens:
            raise BadInput.at(place, "the tokenizer makes no tokens of this prompt")
        for folder in folders:
            if folder.positions is not None and len(tokens) + job.output_tokens > folder.positions:
                wanted = f"{len(tokens):,} prompt and {job.output_tokens:,} output tokens"
                raise BadInput.at(
                    place,
                    f"{wanted} are more than the {folder.positions:,} positions of the "
                    f"{folder.role}",
                )


def _exit_layers(job: RecordingJob, target: Folder) -> tuple[int, ...]:
    depth = int(target.shape["layers"] or 0)
    layers = tuple(round(share * depth) for share in job.exits)
    if list(layers) != sorted(set(layers)) or any(not 1 <= layer < depth for layer in layers):
        message = (
            f"expected rising shares of the target's {depth} layers, each another layer below "
            "the last"
        )
        raise BadInput.at("--exits", message)
    return layers


def describe(
    job: RecordingJob,
    target: Folder,
    draft: Folder,
    ids: Sequence[Sequence[int]],
    layers: tuple[int, ...],
    device: str,
) -> PlainData:
    """Return the header without results: everything that shapes the recording, and so its
    manifest.
    """
    return {
        "format": FORMAT,
        "temperature": job.sampling.temperature,
        "sampling": {"top_k": job.sampling.top_k, "top_p": job.sampling.top_p},
        "seed": job.seed,
        "command": job.command,
        "vocabulary": target.vocabulary,
        "tokenizer": tokenizer_digest(target),
        "ends": list(target.ends()),
        "output_tokens": job.output_tokens,
        "batch": job.batch,
        "device": device,
        "software": {"torch": torch.__version__, "transformers": transformers.__version__},
        "exit_layers": list(layers),
        "exits": "logit lens, untrained" if layers else "none",
        "prompts": {
            "file": job.prompts.name,
            "hash": digest([job.prompts]),
            "used": len(ids),
            "chat_template": job.chat,
            "tokens": sum(map(len, ids)),
            "longest_tokens": max(map(len, ids)),
        },
        "models": {folder.role: folder.describe(job.dtype) for folder in (target, draft)},
    }


def load(job: RecordingJob, ready: Ready) -> Pair:
    """Load both models."""
    target, draft = (folder.load(job.dtype, ready.device) for folder in (ready.target, ready.draft))
    return Pair(
        target, draft, job.sampling, ready.target.ends(), Lens(target, ready.layers, job.target)
    )


def _record_missing(
    job: RecordingJob, ready: Ready, pair: Pair, parts: Parts, missing: Sequence[int]
) -> None:
    batches = -(-len(ready.ids) // job.batch)
    with counting(
        "positions", batches * job.output_tokens, (batches - len(missing)) * job.output_tokens
    ) as advance:
        for number in missing:
            requests = range(number * job.batch, min((number + 1) * job.batch, len(ready.ids)))
            uniforms = np.stack(
                [
                    np.random.default_rng((job.seed, request)).random(job.output_tokens)
                    for request in requests
                ]
            )
            try:
                arrays = record_batch(
                    pair, [ready.ids[request] for request in requests], uniforms, advance
                )
            except torch.OutOfMemoryError as error:
                message = (
                    f"{ready.device} has no memory for --batch {job.batch}; a smaller one needs "
                    "less"
                )
                raise BadInput.at("trace record", message) from error
            parts.add(number, arrays)
            advance(job.output_tokens - int(arrays["length"].max()))


def assemble(ready: Ready, arrays: dict[str, np.ndarray[Any, Any]]) -> Trace:
    """Return the trace of all batches, without requests that ended at once."""
    lengths = arrays.pop("length")
    kept = lengths >= REPLAYABLE
    if not kept.any():
        raise BadInput.at(
            "trace record", "the target ended every text at once; nothing can be replayed"
        )
    names = [prompt.flavour for prompt, keep in zip(ready.prompts, kept, strict=True) if keep]
    flavours = sorted(set(names), key=names.index)
    positions = np.repeat(kept, lengths)
    arrays = {name: values[..., positions] for name, values in arrays.items()}
    ids = np.uint16 if ready.target.vocabulary <= WIDE_VOCABULARY else np.uint32
    count = Counter(names)
    header = ready.header | {
        "flavours": flavours,
        "requests": {
            "recorded": int(kept.sum()),
            "ended_at_once": int((~kept).sum()),
            "of": dict(sorted(count.items())),
        },
    }
    return Trace(
        header=header,
        offsets=np.concatenate(([0], np.cumsum(lengths[kept]))).astype(np.int64),
        flavour=np.array(
            [flavours.index(name) for name in names], dtype=np.min_scalar_type(len(flavours) - 1)
        ),
        **arrays | {"token": arrays["token"].astype(ids)},
    )
