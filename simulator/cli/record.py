"""``specsim trace record``. Imports torch and transformers when it runs, so that its ``--help``
needs neither.
"""

from typing import Any

import click

from simulator.cli.options import answer, faults_as_lines, stated
from simulator.files.document import BadInput

EXTRA = frozenset({"torch", "transformers", "safetensors", "tokenizers", "jinja2"})
INSTALL = "pip install 'specdecode-sim[record]'"


def shares(text: str) -> tuple[float, ...]:
    """Return comma-separated numbers between 0 and 1; none of an empty text. Raises
    :class:`BadInput`.
    """
    try:
        numbers = tuple(float(word) for word in text.split(",")) if text else ()
    except ValueError:
        numbers = (0.0,)
    if not all(0.0 < number < 1.0 for number in numbers):
        raise BadInput.at(f"--exits {text}", "expected shares between 0 and 1, as in 0.25,0.5,0.75")
    return numbers


@click.command("record", **stated("trace record"))
def record(
    as_json: bool, temperature: float, top_k: int, top_p: float, exits: str, **options: Any
) -> None:
    """Record a trace from two Hugging Face models on this machine."""
    with faults_as_lines():
        try:
            from simulator.acceptance.record.pair_recorder import RecordingJob, record_pair
            from simulator.acceptance.record.scores import Sampling
        except ModuleNotFoundError as error:
            if error.name not in EXTRA:
                raise
            raise BadInput.at(
                "trace record", f"needs {error.name}; install it with {INSTALL}"
            ) from error
        if temperature == 0.0 and (top_k or top_p < 1.0):
            raise BadInput.at(
                "--top-k, --top-p", "cut a distribution to sample from; give a --temperature"
            )
        job = RecordingJob(
            sampling=Sampling(temperature, top_k, top_p), exits=shares(exits), **options
        )
        try:
            trace = record_pair(job)
        except KeyboardInterrupt:
            click.echo(
                "interrupted; the same command goes on from the last finished batch", err=True
            )
            raise
    facts = {
        "file": str(job.out),
        "bytes": job.out.stat().st_size,
        "requests": len(trace.flavour),
        "tokens": len(trace.token),
        "bytes_per_token": round(job.out.stat().st_size / len(trace.token), 2),
        "repeated_four_grams": round(trace.repetition(), 4),
    }
    line = (
        "{file}: {bytes:,} bytes, {requests:,} requests, {tokens:,} tokens, {bytes_per_token} "
        "bytes a token"
    )
    answer(as_json, lambda: facts, None, line.format(**facts))
