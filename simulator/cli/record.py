"""``specsim trace record``. Imports torch and transformers when it runs, so that its ``--help``
needs neither.
"""

from typing import Any

import click

from simulator.cli import options
from simulator.cli.options import answer, faults_as_lines
from simulator.core.faults import BadInput

EXTRA = frozenset({"torch", "transformers", "safetensors", "tokenizers", "jinja2"})
INSTALL = "pip install 'specdecode-sim[record]'"


def shares(text: str) -> tuple[float, ...]:
    """Return comma-separated numbers between 0 and 1; none of an empty text. Raises
    :class:`BadInput`.
    """
    try:
        if text:
            numbers = tuple(float(word) for word in text.split(","))
        else:
            numbers = ()
    except ValueError:
        numbers = (0.0,)
    if not all(0.0 < number < 1.0 for number in numbers):
        raise BadInput.at(f"--exits {text}", "expected shares between 0 and 1, as in 0.25,0.5,0.75")
    return numbers


@click.command("record")
@click.option(
    "--target",
    type=options.PATH,
    required=True,
    help="Folder of the target: config.json, tokenizer, safetensors.",
)
@click.option(
    "--draft", type=options.PATH, required=True, help="Folder of the draft; the same vocabulary."
)
@click.option(
    "--prompts",
    type=options.NEW_FILE,
    required=True,
    help="JSON lines (prompt, flavour), Spec-Bench's question.jsonl, or plain lines.",
)
@options.output("--out", type=options.NEW_FILE, required=True, help="The trace, a .npz file.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--top-k",
    type=click.IntRange(0, 100_000_000),
    default=0,
    help="Sample from the likeliest K tokens only [default: all].",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=1.0,
    help="Sample from the fewest that reach P [default: 1].",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(1, 1_000_000),
    default=256,
    show_default=True,
    help="Most tokens that a request writes.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000_000),
    help="Take this many prompts, spread evenly over the file.",
)
@click.option(
    "--exits",
    metavar="SHARES",
    default="",
    help="Early exits by logit lens, as shares of the depth: 0.25,0.5,0.75.",
)
@click.option("--chat", is_flag=True, help="Put each prompt into the tokenizer's chat template.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=8,
    show_default=True,
    help="Requests at a time; bounds the memory.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 1_000_000_000_000_000_000),
    default=0,
    show_default=True,
    help="Seed of sampling; each request has a seed derived from it.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
)
@options.as_json
def record(
    as_json: bool, temperature: float, top_k: int, top_p: float, exits: str, **options: Any
) -> None:
    """Record a trace from two Hugging Face models on this machine.

    The target writes, then the draft predicts every token. Finished batches wait in OUT.part:
    the same command goes on where an interrupted one stopped. Nothing is downloaded and no code
    of a model folder is run.
    """
    with faults_as_lines():
        try:
            from simulator.record.pair_recorder import RecordingJob, record_pair
            from simulator.record.scores import Sampling
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            remedy = f"needs {error.name}; install it with {INSTALL}"
            raise BadInput.at("trace record", remedy) from error
        if temperature == 0.0 and (top_k or top_p < 1.0):
            message = "cut a distribution to sample from; give a --temperature"
            raise BadInput.at("--top-k, --top-p", message)
        sampling = Sampling(temperature, top_k, top_p)
        job = RecordingJob(sampling=sampling, exits=shares(exits), **options)
        try:
            trace = record_pair(job)
        except KeyboardInterrupt:
            message = "interrupted; the same command goes on from the last finished batch"
            click.echo(message, err=True)
            raise
    size = job.out.stat().st_size
    tokens = len(trace.token)
    facts = {
        "file": str(job.out),
        "bytes": size,
        "requests": len(trace.flavour),
        "tokens": tokens,
        "bytes_per_token": round(size / tokens, 2),
        "repeated_four_grams": round(trace.repetition(), 4),
    }
    line = (
        "{file}: {bytes:,} bytes, {requests:,} requests, {tokens:,} tokens, {bytes_per_token} "
        "bytes a token"
    )
    answer(as_json, lambda: facts, None, line.format(**facts))
