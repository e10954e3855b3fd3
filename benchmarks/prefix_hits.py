"""What speculation leaves of a prefix cache, by law: published hits, published losses, Mooncake.

``python -m benchmarks.prefix_hits [SHARED]`` prints three tables:

* published hits of single prompts beside the law (``SHARED/data/engine_runs``);
* of published losses, what the law makes of them: a head drops a block of u tokens of each prompt,
  so that of prompts of L tokens the hit rate falls by u / L, and which L, at which block, that
  asks for;
* of Mooncake's traces (``SHARED/data/mooncake_fast25``), the hit rate of ten lines that count
  hashes, of the cache without a limit, and of heads in blocks of an engine.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from simulator.core.serving.cache.prefixes import PrefixCache, hit_tokens
from simulator.core.serving.load.content import HASHED_TOKENS, hashed_prefixes
from simulator.core.serving.requests import Request

SHARED = Path(__file__).parents[2] / "shared"
TRACES = ("conversation_trace", "synthetic_trace")
UNITS = {
    16: "a dense model in vLLM",
    544: "Qwen3-Next",
    1_072: "Qwen3.5-35B-A3B with MTP 3 (that of vllm#38182)",
    1_648: "that of vllm#53670",
    2_144: "Qwen3.5-35B-A3B with a cache in 8 bits (that of vllm#54360)",
    16_384: "the least common multiple of the groups of DeepSeek-V4",
}
LOSSES = {
    "vllm#53670": (0.975, (0.869, 0.917)),
    "vllm#38182": (0.92, (0.71, 0.71)),
    "sglang#32459": (0.97, (0.40, 0.53)),
}
"""Hit rates without speculation, and the least and the most with it, as the issues give them."""


def published(shared: Path) -> Iterator[tuple[int, int, int, int]]:
    """Yield unit, prompt and hit tokens as published, and the hit tokens of the law."""
    path = shared / "data/engine_runs/prefix_hits_with_speculation.csv"
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            unit, prompt = int(row["cache_unit_tokens"]), int(row["prompt_tokens"])
            yield unit, prompt, int(row["hit_tokens"]), hit_tokens(prompt, prompt, unit, 1)


def counted_by_hashes(lines: list[tuple[list[int], int]]) -> float:
    """Return the share of prompt tokens whose 512-token piece has been there before, but for the
    last block of 16: what anybody would count in ten lines.
    """
    seen = set[int]()
    tokens = hit = 0
    for hashes, prompt in lines:
        met = sum(name in seen for name in hashes)
        hit += min(met * HASHED_TOKENS, (prompt - 1) // 16 * 16)
        tokens += prompt
        seen.update(hashes)
    return hit / tokens


def hit_rate(lines: list[tuple[list[int], int]], unit: int, dropped: int) -> float:
    """Return the hit rate of a cache without a limit, one request after the other."""
    cache = PrefixCache(unit, None, None, dropped)
    for index, (hashes, prompt) in enumerate(lines):
        request = Request(index, 0.0, prompt, 1, prefixes=hashed_prefixes(hashes, prompt))
        request.cached = cache.cached(request)
        cache.hold(request, prompt)
        request.cached = prompt
        cache.keep(request, 0)
    return cache.hit_tokens / cache.asked_tokens


def main(shared: Path) -> None:
    """Print the three tables."""
    print("unit   prompt   published   law")
    for unit, prompt, hit, by_law in published(shared):
        print(f"{unit:>5} {prompt:>7,} {hit:>10,} {by_law:>7,}")
    print("\nmean prompt (tokens) at which a dropped block takes so many points")
    print("loss".ljust(32) + "".join(f"u = {unit:,}".rjust(12) for unit in UNITS))
    for issue, (without, (least, most)) in LOSSES.items():
        for rate in sorted({least, most}):
            prompts = "".join(f"{unit / (without - rate):12,.0f}" for unit in UNITS)
            print(f"{issue} {without:.1%} to {rate:.1%}".ljust(32) + prompts)
    print("\nhit rate of a cache without a limit")
    print("trace".ljust(20) + "   ten lines  plain 16" + "".join(f"{u:>9,}+" for u in UNITS))
    for name in TRACES:
        text = (shared / f"data/mooncake_fast25/{name}.jsonl").read_text(encoding="utf-8")
        records = [json.loads(line) for line in text.splitlines()]
        lines = [(record["hash_ids"], record["input_length"]) for record in records]
        rates = [counted_by_hashes(lines), hit_rate(lines, 16, 0)]
        rates += [hit_rate(lines, unit, 1) for unit in UNITS]
        print(name.ljust(20) + "".join(f"{rate:>10.1%}" for rate in rates))
    print("+ with a head, in blocks of so many tokens")
    for unit, whose in UNITS.items():
        print(f"{unit:>6,}: {whose}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SHARED)
