"""What engines log about acceptance, and what papers print of it, becomes the ``acceptance`` block
of a scenario.

A summary holds no bursts: rates by position are drawn independently, and a mean is lent the bursts
of the nearest recording.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from simulator.core.faults import BadInput
from simulator.inputs.document import parse
from simulator.inputs.traces.engines import sglang, trtllm, vllm_bench, vllm_log, vllm_metrics
from simulator.inputs.traces.llama_cpp import llama_batched_bench, llama_cpp
from simulator.inputs.traces.rates import (
    Block,
    measured_mean,
    numbers,
    rates_by_position,
    rates_from_lengths,
)

__all__ = ["TO_RATES", "golden_lengths", "mean_length", "rates_by_position", "rates_from_lengths"]


def golden_lengths(lines: Sequence[str], window: int | None, series: str | None = None) -> Block:
    """Return rates from mean lengths at windows 1, 2, 3, ...: bare numbers, or a YAML file of
    InferenceX, model by mode.

    Of a file with several curves ``series`` names one, such as ``thinking_on``. Continued to
    ``window``.
    """
    if not any(":" in line.partition("#")[0] for line in lines):
        return rates_from_lengths(numbers(lines), window)
    curves = dict(_curves(parse("\n".join(line.rstrip("\n") for line in lines), "").data))
    chosen = []
    for name, curve in curves.items():
        if series in (None, name, name.rpartition(" ")[2]):
            chosen.append(curve)
    if len(chosen) != 1:
        raise BadInput.at(
            "",
            "expected --series, one of: "
            f"{', '.join(curves) or 'none, it holds no curve by window 1, 2, 3, ...'}",
        )
    return rates_from_lengths(chosen[0], window)


def _curves(content: object, name: str = "") -> Iterator[tuple[str, list[float]]]:
    """Yield every mapping from windows 1, 2, 3, ... to lengths, with the keys that lead to it."""
    if isinstance(content, Mapping):
        windows = [str(window) for window in range(1, len(content) + 1)]
        if list(content) == windows and all(
            type(value) in (int, float) for value in content.values()
        ):
            yield name, [float(value) for value in content.values()]
        else:
            for key, value in content.items():
                yield from _curves(value, f"{name} {key}".strip())


def mean_length(lines: Sequence[str], window: int | None, _: str | None = None) -> Block:
    """Return a mean accepted length with its window."""
    given = numbers(lines)
    if len(given) != 1 or window is None:
        raise BadInput.at("", "expected one mean accepted length and --window")
    return measured_mean(given[0], window, "not stated")


TO_RATES: Mapping[str, Callable[[Sequence[str], int | None, str | None], Block]] = {
    "vllm_log": vllm_log,
    "vllm_metrics": vllm_metrics,
    "vllm_bench": vllm_bench,
    "sglang": sglang,
    "trtllm": trtllm,
    "llama_cpp": llama_cpp,
    "llama_batched_bench": llama_batched_bench,
    "golden_lengths": golden_lengths,
    "mean_length": mean_length,
}
"""Functions from the lines of a file, and what the command line says of it, to an acceptance block,
by name of the format.
"""
