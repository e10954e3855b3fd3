"""Tables of runs for `specsim calibrate engine`, from measurements beside the project: python
tests/engine_runs.py FOLDER.

``OPTIONS`` are those that made the shipped engines. Columns with a ``#`` name the groups that are
left out in turn.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared/data/engine_runs"
METHODS = {
    "EAGLE2": "eagle_2",
    "Recycling": "token_recycling",
    "EAGLE": "eagle_1",
    "Hydra": "hydra",
    "Medusa": "medusa_1",
    "PLD": "pld",
    "SpS": "hf_assisted",
    "REST": "rest",
    "Lookahead": "lookahead_7",
}
DRAFTS = {"Qwen/Qwen3-1.7B": "qwen3_1_7b", "Qwen/Qwen3-4B": "qwen3_4b"}
PROMPTS = {"gsm8k": 1000, "financeqa": 1200, "livecodebench": 500, "gpqa": 250}
"""Prompt tokens by data set, assumed; 150 for the others."""
EAGLE_3 = "layers: 1, squares: 4, vocabulary: 32000"
"""The head of EAGLE-3."""
Row = dict[str, object]


def measured(name: str) -> list[dict[str, str]]:
    with (SHARED / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tree(width: int, levels: int, head: str, rows: list[int]) -> str:
    """Return a strategy with ``width`` chains of so many levels, drafted by a head over
    ``rows``.
    """
    branching = [width, *[1] * (levels - 1)]
    return (
        f"{{name: tree_sd, passes: [{{head: {{{head}}}, rows: {rows}}}], tree: {{branching: "
        f"{branching}}}}}"
    )


def chain(levels: int, head: str) -> str:
    return tree(1, levels, head, [levels + 1, *[1] * (levels - 1)])


def hf_eager() -> Iterator[Row]:
    """Yield nine methods of Spec-Bench on an A100, and a plain step of a 7B on an A800
    (DuoDecoding, Table 1).
    """
    yield {"#method": "plain", "strategy": "autoregressive", "step_ms": 22.42, "tokens_per_step": 1}
    for row in measured("spec_bench_a100_vicuna_7b.csv"):
        if row["task"].startswith("all"):
            method = METHODS[row["method"]]
            yield {
                "#method": method,
                "strategy": method,
                "speedup": row["speedup"],
                "tokens_per_step": row["tokens_per_step"],
            }


def vllm() -> Iterator[Row]:
    """Yield runs of one request at a time, of batches, and of a model over two cards."""
    for row in vllm_alone():
        yield {"#rows": "alone"} | row
    yield from vllm_batches()


def vllm_alone() -> Iterator[Row]:
    """Yield steps of Qwen3-32B on an H100 of 94 GB: plain, two draft models, an EAGLE-3 head."""
    for row in measured("vllm_h100_qwen3_32b_concurrency_1.csv"):
        levels, draft = int(row["draft_length"]), DRAFTS.get(row["draft_model"], "")
        made: Row = {
            "#drafter": (draft or "eagle_3") if levels else "",
            "#k": levels or "",
            "strategy": "autoregressive",
            "draft.model": draft,
            "requests.prompt_tokens": round(float(row["mean_input_tokens"])),
            "requests.output_tokens": round(float(row["mean_output_tokens"])),
            "tokens_per_step": row["acceptance_length"] or 1,
            "step_ms": row["median_itl_ms"],
        }
        if levels:
            own = f"{{name: vanilla_sd, gamma: {levels}}}"
            made["strategy"] = own if draft else chain(levels, EAGLE_3)
        yield made


def vllm_batches() -> Iterator[Row]:
    """Yield mean times per token of Qwen3-32B in batches, and of Llama-3.3-70B on two H100 without
    peer access.

    Prompts of others ride in the steps. Rows in which clients wait for room in the cache take no
    part.
    """
    for row in measured("vllm_h100_batches.csv"):
        levels, clients = int(row["draft_length"]), int(row["concurrency"])
        draft = DRAFTS.get(row["draft_model"], "")
        over_two = "70B" in row["target_model"]
        made: Row = {
            "#rows": "two cards" if over_two else "batches",
            "#drafter": (draft or "eagle_3") if levels else "",
            "strategy": "autoregressive",
            "draft.model": draft,
            "requests.concurrency": clients,
            "requests.count": row["requests"],
            "requests.prompt_tokens": 145,
            "requests.output_tokens": 200,
            "serving.policy": "{name: unified_budget, budget_tokens: 8192}",
            "target.tensor_parallel": 1,
            "tokens_per_step": row["acceptance_length"] or 1,
            "tpot_ms": row["mean_tpot_ms"],
        }
        if levels and draft:
            made["strategy"] = f"{{name: vanilla_sd, gamma: {levels}}}"
        elif levels:
            made["strategy"] = chain(levels, EAGLE_3)
        if over_two:
            made |= {
                "target.model": "llama_3_3_70b",
                "target.device": "h100_pcie",
                "target.link": "pcie_5_x16",
                "target.p2p": "false",
                "target.tensor_parallel": 2,
            }
        if clients == 256 or (over_two and clients == 64):
            made["left_out"] = "clients wait for room in the cache"
        yield made


def vllm_2025() -> Iterator[Row]:
    """Yield rates of Llama-3.1-8B on an H100 of July 2025: plain, with two generations of heads."""
    plain: set[str] = set()
    for row in measured("serving_cells_2026.csv"):
        if row["source"] != "vllm-project/vllm#20780":
            continue
        levels = int(row["draft_steps"])
        head = EAGLE_3 if "EAGLE-3" in row["method"] else "layers: 1, squares: 2"
        if not plain:
            plain.add(row["plain_tokens_per_s"])
            rate = row["plain_tokens_per_s"]
            yield {"#run": "plain", "strategy": "autoregressive", "tokens_per_s": rate}
        yield {
            "#run": f"{row['method']} {levels}",
            "strategy": chain(levels, head),
            "tokens_per_step": row["tokens_per_step"],
            "tokens_per_s": row["speculative_tokens_per_s"],
        }


def sglang() -> Iterator[Row]:
    """Yield rates of Llama-3.1-8B on an H200, and of a mixture over two H100."""
    for row in sglang_alone():
        yield {
            "#rows": "one card",
            "target.model": "llama_3_1_8b",
            "target.tensor_parallel": 1,
        } | row
    yield from sglang_mixture()


def sglang_mixture() -> Iterator[Row]:
    """Yield rates of Qwen3-30B-A3B on two H100: plain, a chain and two trees of an EAGLE-3 head."""
    on_two: Row = {
        "#rows": "two cards",
        "target.model": "qwen3_30b_a3b",
        "target.device": "h100_sxm",
        "target.link": "nvlink_h100",
        "target.tensor_parallel": 2,
        "requests.prompt_tokens": 150,
    }
    for row in measured("serving_cells_2026.csv"):
        if row["source"] != "sgl-project/SpecForge#339":
            continue
        levels, width = int(row["draft_steps"]), int(row["top_k"])
        if width == 1:
            rate = row["plain_tokens_per_s"]
            yield on_two | {"strategy": "autoregressive", "tokens_per_s": rate}
            drafted = chain(levels, EAGLE_3)
        else:
            rows = [levels + 1, *[width] * (levels - 1)]
            size = f"budget: {int(row['verified_rows']) - 1}, levels: {levels}, choices: {width}"
            drafted = (
                f"{{name: tree_sd, passes: [{{head: {{{EAGLE_3}}}, rows: {rows}}}], tree: {{{size},"
                " source: as in the row}}"
            )
        yield on_two | {
            "strategy": drafted,
            "tokens_per_step": row["tokens_per_step"],
            "tokens_per_s": row["speculative_tokens_per_s"],
        }


def sglang_alone() -> Iterator[Row]:
    """Yield rates of Llama-3.1-8B on an H200: plain, and chains of three of two EAGLE-3 heads."""
    for row in measured("sglang_h200_eagle3_batch_1.csv"):
        drafted = chain(3, EAGLE_3)
        yield {
            "#task": row["task"],
            "strategy": drafted if row["draft_model"] else "autoregressive",
            "requests.prompt_tokens": PROMPTS.get(row["task"], 150),
            "tokens_per_step": row["acceptance_length"],
            "tokens_per_s": row["output_tokens_per_s"],
        }


def mlx() -> Iterator[Row]:
    """Yield steps of Vicuna-7B with a recurrent drafter on an M1 Max; prompts are those of the
    plain run.
    """
    prompt: dict[str, float] = {}
    for row in measured("recurrent_drafter_m1_max.csv"):
        form, width, length = (
            row["target_format"],
            int(row["beam_width"] or 0),
            int(row["beam_length"] or 0),
        )
        made: Row = {
            "#width": width or "",
            "#length": length or "",
            "target.weights": form,
            "strategy": "autoregressive",
        }
        if not width:
            prompt.setdefault(form, float(row["prefill_ms"]))
            yield made | {"step_ms": float(row["generation_ms"]) / 199}
            continue
        made["strategy"] = tree(width, length, "squares: 10, lm_heads: 2", [width] * length)
        step_ms = (float(row["total_ms"]) - prompt[form]) / float(row["steps"])
        yield made | {"tokens_per_step": row["tokens_per_step"], "step_ms": step_ms}


CARDS = {"GB10 (DGX Spark)": "gb10", "RTX 4060 Ti": "rtx_4060_ti_16g"}


def llama_cpp_cuda() -> Iterator[Row]:
    """Yield 4-bit runs of a 27B with its MTP head on an RTX 3090, a GB10 and an RTX 4060 Ti where
    acceptance was printed, and eight rows against one.
    """
    for row in measured("qwen38_mtp_rtx_3090.csv"):
        levels = int(row["draft_length"] or 0)
        if row["cost_ratio_to_one_row"] and row["target_model"] == "Qwen3.8-27B":
            one: Row = {
                "#what": "8 rows",
                "#card": "rtx_3090",
                "strategy": "autoregressive",
                "target.weights": "q4_0",
                "step_ms": 23.6,
            }
            yield one
            yield one | {
                "requests.concurrency": 8,
                "requests.count": 8,
                "step_ms": 23.6 * float(row["cost_ratio_to_one_row"]),
            }
        low, _, high = row["acceptance_published"].partition("-")
        if (
            not (low and levels and row["speedup"])
            or row["draft_p_min"]
            or (high and float(high) - float(low) > 0.3)
        ):
            continue
        rate = float(row["acceptance_aggregate"] or (float(low) + float(high)) / 2)
        yield {
            "#what": row["measured_by"],
            "#card": "rtx_3090",
            "#k": levels,
            "strategy": chain(levels, "layers: 1, squares: 2"),
            "target.weights": row["target_format"].partition(" (")[0],
            "tokens_per_step": 1 + levels * rate,
            "speedup": row["speedup"],
        }
    for row in measured("serving_cells_2026.csv"):
        if row["hardware"] in CARDS:
            levels = int(row["draft_steps"])
            plain = float(row["plain_tokens_per_s"])
            card = CARDS[row["hardware"]]
            yield {
                "#card": card,
                "#k": levels,
                "target.device": card,
                "draft.device": card,
                "strategy": chain(levels, "layers: 1, squares: 2"),
                "target.weights": row["target_format"],
                "serving.memory": "{utilisation: 1}",
                "tokens_per_step": row["tokens_per_step"],
                "speedup": float(row["speculative_tokens_per_s"]) / plain,
            }


TABLES = {
    "hf_eager": hf_eager,
    "vllm": vllm,
    "vllm@0.9": vllm_2025,
    "sglang": sglang,
    "mlx": mlx,
    "llama_cpp_cuda": llama_cpp_cuda,
}
RATES = "--set acceptance={rate: 0.5}"
ON = "--set target.device={0} --set draft.device={0} --set target.engine={1} --set draft.engine={1}"
OPTIONS = {
    "hf_eager": f"--scenario methods_vicuna_7b_a100 {RATES} "
    f"{ON.format('a100_80g_sxm', 'hf_eager')} "
    "--group #method"
    " --free host_us_per_layer --free host_us_per_pass --free speculation.tree.fixed_us",
    "vllm": f"--scenario vanilla_qwen3_32b_a100 {RATES} {ON.format('h100_94g_sxm', 'vllm')}"
    " --set target.tensor_parallel=1"
    " --group #rows --group #drafter --free schedule_us --free schedule_us_per_request"
    " --free speculation.head.fixed_us --free speculation.head.pass_us"
    " --free speculation.draft_model.pass_us --free verified_row_us --free eager_gap_us_per_layer"
    " --free sharded_step_us --free sharded_pass_us --free device",
    "vllm@0.9": f"--scenario methods_vicuna_7b_a100 {RATES} {ON.format('h100_sxm', 'vllm@0.9')}"
    " --set target.model=llama_3_1_8b --set requests.prompt_tokens=150 --group #run"
    " --free schedule_us --free speculation.head.own_lm_head_us",
    "sglang": f"--scenario methods_vicuna_7b_a100 {RATES} {ON.format('h200_sxm', 'sglang')}"
    " --group #rows --group #task --free speculation.head.fixed_us"
    " --free speculation.tree.fixed_us --free speculation.head.pass_us --free verified_row_us"
    " --free sharded_step_us --free sharded_pass_us --free device",
    "mlx": f"--scenario methods_vicuna_7b_a100 {RATES} {ON.format('m1_max', 'mlx')} --set "
    "requests.prompt_tokens=66"
    " --set requests.output_tokens=200 --group #width --group #length+"
    " --free rows.any.step --free rows.any.row --free rows.any.beyond",
    "llama_cpp_cuda": f"--scenario methods_vicuna_7b_a100 {RATES} "
    f"{ON.format('rtx_3090', 'llama_cpp_cuda')}"
    " --set target.model=qwen3_5_27b"
    " --set requests.prompt_tokens=300 --set requests.output_tokens=400 --group #card --group #k+"
    " --free rows.quantised.operations"
    " --free speculation.head.fixed_us",
}
"""Options of ``specsim calibrate engine NAME.csv --like NAME`` for each table; a value with a space
is one argument.
"""


def arguments(name: str) -> list[str]:
    """Return the options of a table as a list."""
    words = OPTIONS[name].replace("{rate: 0.5}", "{rate:_0.5}").split()
    return ["--like", name, *(word.replace(":_", ": ") for word in words)]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write a table of runs."""
    made = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in made for key in row)))
        writer.writeheader()
        writer.writerows(made)


if __name__ == "__main__":
    for name, rows in TABLES.items():
        write(Path(sys.argv[1]) / f"{name}.csv", rows())
