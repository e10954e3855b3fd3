"""Claims of Speculative Streaming: headlines, tables and figures beside what our commands
give.
"""

from simulator.evidence.claims import (
    FALLS,
    PEAKS,
    RISES,
    Values,
    at_least,
    at_most,
    cell_runs,
    claim,
    over,
    quotient,
    unprinted,
    values,
)

STREAMING = "scenarios/papers/speculative_streaming/streaming.yaml"
FACTOR_OF_TASK = (
    "tokens a step by task and model; lent: the task's factor of Vicuna-7B; ends: that of "
    "Vicuna-7B and, from printed speed-ups, of Vicuna-13B"
)


@claim(
    where="Abstract",
    published="2..3.5",
    unit="x",
    cells="specstream_text:2 specstream_text:3 specstream_text:4",
    remark="tokens a step are as printed; the 7B of Vicuna is calibrated",
)
def speedup() -> Values:
    """2 to 3.5 times as fast as autoregressive decoding"""
    return cell_runs(
        "specstream_table1:13",
        "specstream_table1:29",
        "specstream_table1:45",
        "specstream_table1:57",
        "specstream_table1:69",
        "specstream_table1:15",
        "specstream_table1:31",
        "specstream_table1:47",
        "specstream_table1:59",
        "specstream_table1:71",
    )


@claim(
    where="Abstract",
    shape=[at_least(1000)],
    remark=(
        "counted on a 7B: adapters, embeddings and pruning of 344,064 numbers, of which the "
        "paper's 8.2e4 counts fewer"
    ),
)
def fewer_weights() -> Values:
    """over 1000 times fewer additional parameters than Medusa"""
    return quotient(
        "method.medusa_1.extra_weights",
        "method.speculative_streaming.extra_weights",
        "specsim list method",
    )


@claim(
    where="Sec 3.1; Table 1",
    published="2.93..3.24",
    unit="x",
    shape=[at_least(2.9)],
    remark="order: Vicuna 7B, 13B, 33B, Llama-2-Chat 7B, 13B",
)
def mt_bench_lossless() -> Values:
    """SS-Lossless is 2.93 to 3.24 times as fast on MT-Bench"""
    return cell_runs(
        "specstream_table1:13",
        "specstream_table1:29",
        "specstream_table1:45",
        "specstream_table1:57",
        "specstream_table1:69",
    )


@claim(
    where="Sec 3.1; Table 1",
    published="3.05..3.35",
    unit="x",
    shape=[at_least(2.9)],
    remark="order as above",
)
def mt_bench_shared() -> Values:
    """SS-Shared is 3.05 to 3.35 times as fast on MT-Bench"""
    return cell_runs(
        "specstream_table1:15",
        "specstream_table1:31",
        "specstream_table1:47",
        "specstream_table1:59",
        "specstream_table1:71",
    )


@claim(
    where="Table 1",
    published="3.24",
    unit="x",
    remark=(
        "a pass over the 121 nodes of gamma 4 and k 3; its printed step of 3.75 / 3.24 = "
        "1.157 plain ones is that of 64 rows in three stacks"
    ),
)
def vicuna_33b() -> Values:
    """SS-Lossless on Vicuna-33B, 3.24"""
    return cell_runs("specstream_table1:45")


@claim(where="Sec 3.1; Table 2", published="3.45", unit="x", missing=FACTOR_OF_TASK)
def math_33b() -> Values:
    """Mathematical Reasoning is up to 3.45 times as fast, on Vicuna-33B"""
    tokens_per_step = unprinted("3.5084762976087727", "3.5084762976087727", "3.937")
    return values(
        "speedup_with_prompts",
        f"specsim run {STREAMING} --set target.model=vicuna_33b "
        "--set target.engine.many_rows_host_ratio=1.0973366317612967 "
        f"--set acceptance.rescale.tokens_per_step={tokens_per_step}",
    )


@claim(where="Sec 3.1; Table 2", published="2.83", unit="x", missing=FACTOR_OF_TASK)
def retrieval_33b() -> Values:
    """Retrieval Augmented Generation is 2.83 times as fast on Vicuna-33B"""
    tokens_per_step = unprinted("3.060605707435219", "3.060605707435219", "3.248")
    return values(
        "speedup_with_prompts",
        f"specsim run {STREAMING} --set target.model=vicuna_33b "
        "--set target.engine.many_rows_host_ratio=1.0973366317612967 "
        f"--set acceptance.rescale.tokens_per_step={tokens_per_step}",
    )


@claim(
    where="Table 3",
    published="1.90..2.93",
    unit="x",
    shape=[at_least(1.5)],
    remark="the six predicted; SqlCreateContext is calibrated",
)
def applications() -> Values:
    """SS-Shared on three applications, 1.90 to 2.93 times as fast"""
    return cell_runs(*(f"specstream_table3_applications:{place}" for place in range(60, 156, 19)))


@claim(
    where="Table 4",
    published="2.68..2.92",
    unit="x",
    shape=[FALLS],
    missing=(
        "the kernels of int8 and int4: a pass of many rows over one of a single row; 1.13 to "
        "1.61 are printed for programs of the same paper (Table 3)"
    ),
    remark="fp16 is calibrated",
)
def quantisation() -> Values:
    """quantisation leaves less to gain: 2.92, 2.84, 2.68 in fp16, int8, int4"""
    many_rows_host_ratio = unprinted("1.2093596443776882", "1.13", "1.61")
    return values(
        "speedup_with_prompts",
        f"specsim run {STREAMING} --set target.model=mistral_7b "
        "--set target.weights=fp16 --set acceptance.rescale.tokens_per_step=3.67 "
        "--set target.engine.many_rows_host_ratio=1.2093596443776882",
        f"specsim run {STREAMING} --set target.model=mistral_7b "
        "--set target.weights=int8 --set acceptance.rescale.tokens_per_step=3.67 "
        f"--set target.engine.many_rows_host_ratio={many_rows_host_ratio}",
        f"specsim run {STREAMING} --set target.model=mistral_7b "
        "--set target.weights=int4 --set acceptance.rescale.tokens_per_step=3.67 "
        f"--set target.engine.many_rows_host_ratio={many_rows_host_ratio}",
    )


@claim(where="App E.5", published="2.7", unit="x", missing="the kernels of int4 and their time")
def int4() -> Values:
    """about 2.7 times as fast with weights of 4 bits"""
    return cell_runs("specstream_table4_quantisation:8")


@claim(
    where="Table 5",
    shape=[at_most(1)],
    remark="ms a sample of OPT-6.7B; SqlContext, DialogSum, E2E-NLG",
)
def two_models() -> Values:
    """significantly lower latency than two models with OPT-125M"""
    ours = cell_runs(
        "specstream_table5_two_model_sd:15",
        "specstream_table5_two_model_sd:34",
        "specstream_table5_two_model_sd:54",
    )
    others = cell_runs(
        "specstream_table5_two_model_sd:11",
        "specstream_table5_two_model_sd:29",
        "specstream_table5_two_model_sd:49",
    )
    return over(ours, others)


@claim(where="Figure 10", shape=[PEAKS], remark="3 streams, whole trees")
def rises_then_falls() -> Values:
    """with k the speed-up rises, then falls"""
    return values(
        "whole.*.speedup", "specsim streams streaming_vicuna_7b_a100 --set strategy.streams=3"
    )


@claim(
    where="Figure 10",
    shape=[at_least(1.01)],
    remark="at k = 5; pruning stands at layer N - N_s, so 28 of 32 layers carry the whole tree",
)
def pruning_offers_more() -> Values:
    """pruning reduces compute and offers more speed-up where trees are large"""
    return quotient(
        "pruned.4.speedup",
        "whole.4.speedup",
        "specsim streams streaming_vicuna_7b_a100 --set strategy.streams=3",
    )


@claim(
    where="Figure 10",
    shape=[at_least(1.05)],
    remark="at k = 6 whole trees have fallen by 10 per cent from their best, pruned ones by 2",
)
def pruning_moves_the_fall() -> Values:
    """pruned trees fall at a larger k than whole ones"""
    return quotient(
        "pruned.5.speedup",
        "whole.5.speedup",
        "specsim streams streaming_vicuna_7b_a100 --set strategy.streams=3",
    )


@claim(where="Figure 13", shape=[RISES])
def components() -> Values:
    """a tree is faster than a chain, and a pruned one faster still"""
    return values(
        "speedup",
        *(
            f"specsim run {scenario}"
            for scenario in (
                "streaming_vicuna_7b_a100_chain",
                "streaming_vicuna_7b_a100_unpruned",
                "streaming_vicuna_7b_a100",
            )
        ),
    )


@claim(
    where="App L; Figure 18",
    published="2",
    unit="x",
    missing=(
        "tokens that the best path keeps; 1.6 on our stand-in; 2.2 are the tree's 3.46 (Table "
        "6) times 2.3 over 3.62, a chain's over a tree's with EAGLE on Llama-2-7B "
        "(SafeAILab/EAGLE#132)"
    ),
    cells="specstream_text:12",
)
def batched() -> Values:
    """more than 2 times as fast in batches, with the best path alone"""
    scenario = unprinted(
        "streaming_vicuna_7b_a100_batched",
        "streaming_vicuna_7b_a100_batched",
        "streaming_vicuna_7b_a100_batched --set acceptance.rescale.tokens_per_step=2.2",
    )
    return values(
        "speedup",
        *(
            f"specsim law {scenario} --set requests.concurrency={concurrency}"
            for concurrency in (1, 8, 16)
        ),
    )


@claim(
    where="App L; Figure 18",
    shape=[at_least(2), FALLS],
    remark="the best path is set to keep 2.1 tokens by replay, which the paper does not print",
)
def batched_of_2_1_tokens() -> Values:
    """more than 2 times as fast in batches: what that takes"""
    return values(
        "speedup",
        *(
            (
                "specsim law streaming_vicuna_7b_a100_batched "
                f"--set requests.concurrency={concurrency} "
                "--set acceptance.rescale.tokens_per_step=2.1"
            )
            for concurrency in (1, 8, 16)
        ),
    )


@claim(where="App L; Figure 18", shape=[FALLS])
def degrades_in_batches() -> Values:
    """some degradation of the speed-up in batches"""
    return values(
        "speedup",
        *(
            (
                "specsim law streaming_vicuna_7b_a100_batched "
                f"--set requests.concurrency={concurrency}"
            )
            for concurrency in (1, 8, 16, 32)
        ),
    )


@claim(
    where="App O; Figure 21",
    published="2.64",
    unit="x",
    missing=(
        "the model, the prompts and the tokens a step on LongBench: 2.0 on our stand-in, 3.46 "
        "on MT-Bench with gamma 4 (Table 6)"
    ),
    cells="specstream_text:13",
)
def long_context() -> Values:
    """2.64 times as fast on long contexts with gamma 3 and k 4"""
    scenario = unprinted(
        "streaming_vicuna_7b_a100_long_context",
        "streaming_vicuna_7b_a100_long_context",
        "streaming_vicuna_7b_a100_long_context --set acceptance.rescale.tokens_per_step=3.4",
    )
    return values(
        "speedup",
        f"specsim law {scenario} --set strategy.streams=3 --set strategy.branching=4 "
        "--set strategy.kept=32",
    )


@claim(where="App O; Figure 21", shape=[PEAKS])
def long_context_shape() -> Values:
    """the speed-up rises and falls with k behind long prompts"""
    return values("whole.*.speedup", "specsim streams streaming_vicuna_7b_a100_long_context")
