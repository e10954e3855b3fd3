"""Claims of SpecPipe: headlines, tables and figures beside what our commands give."""

from simulator.evidence.claims import (
    DIPS,
    RISES,
    Values,
    at_least,
    at_most,
    cell_runs,
    change_percent,
    claim,
    flat,
    largest_at,
    mean_of,
    onset_of,
    over,
    smallest_at,
    unprinted,
    values,
)

EAGLE3 = "scenarios/papers/specpipe/eagle3.yaml"
PP_VLLM_LOAD = "scenarios/papers/specpipe/pp_vllm_load.yaml"
SPECINFER_LOAD = "scenarios/papers/specpipe/specinfer_load.yaml"
SPECINFER_TWO_SERVERS = "scenarios/papers/specpipe/specinfer_two_servers.yaml"
SPECPIPE = "scenarios/papers/specpipe/specpipe.yaml"
SPECPIPE_DB = "scenarios/papers/specpipe/specpipe_db.yaml"
SPECPIPE_TWO_SERVERS = "scenarios/papers/specpipe/specpipe_two_servers.yaml"
TP_VLLM_TWO_SERVERS = "scenarios/papers/specpipe/tp_vllm_two_servers.yaml"
SIZES = ("2,4,8", "16,32")
"""Batches of Figures 16 and 17, in two commands, which may run at the same time."""
FRAMEWORK = "--set target.engine.host_us_per_layer=1554.7001866328924"
"""Host time of SpecPipe's framework on a layer: ``framework_layer`` of ``fitted.yaml``."""
HITS_OF_BEST_AND_WORST = (0.974736388896734, 0.9124550141953218)
"""Chance that the next token is in the tree on HumanEval-X, and on the data set with the smallest
ratio: ``hit`` and ``hit_at_worst`` of ``fitted.yaml``.
"""
STEP_HOST_MS = unprinted("302.39", "302.39", "2419.12")
PASSES_OF_DRAFTING = (
    "passes of the pipeline that a tree of EAGLE-3 takes to draft: one as sec. 4.2 is "
    "written, eight were every level one"
)
RUN_OF_EAGLE3 = f"specsim run {EAGLE3} {FRAMEWORK} --set strategy.step_host_ms.value={STEP_HOST_MS}"
DB_FROM_TWO = values(
    "specpipe_db.*.tokens_per_s",
    *(f"specsim load {SPECPIPE_DB} --sizes {sizes}" for sizes in SIZES),
)
DB_OF_ONE = values("specpipe_db.*.tokens_per_s", f"specsim load {SPECPIPE_DB} --sizes 1")


@claim(
    where="Abstract",
    published="5.53",
    unit="x",
    cells="specpipe_text:2 specpipe_text:10 specpipe_text:22",
    remark="both times are calibrated: the framework's host time on one, the hits on the other",
)
def tbt_over_pp_best() -> Values:
    """a token comes 5.53 times as fast as with pipeline parallelism on the best data set
    (HumanEval-X)
    """
    return mean_of(over(cell_runs("specpipe_text:37"), cell_runs("specpipe_text:41")))


@claim(
    where="Abstract",
    published="4.19",
    unit="x",
    cells="specpipe_text:1 specpipe_text:9 specpipe_text:21",
    remark="calibrated: the hits of that data set",
)
def tbt_over_pp_worst() -> Values:
    """a token comes 4.19 times as fast on the worst data set"""
    return mean_of(cell_runs("specpipe_text:21"))


@claim(
    where="Abstract",
    published="1.64..2.08",
    unit="x",
    remark=(
        "assumed: requests share 64 rows, packing doubles what a step takes longer than one "
        "request's; prompts and outputs of 256 tokens, chosen after 512 and 160 had given "
        "1.86, 1.54 and 1.43"
    ),
)
def db_throughput_2_to_8() -> Values:
    """SpecPipe-DB brings 1.64 to 2.08 times the throughput of vLLM: 2, 4 and 8 requests"""
    ours = values("specpipe_db.*.tokens_per_s", f"specsim load {SPECPIPE_DB} --sizes 2,4,8")
    others = values("pp_vllm_load.*.tokens_per_s", f"specsim load {PP_VLLM_LOAD} --sizes 2,4,8")
    return over(ours, others)


@claim(
    where="Abstract",
    published="1.64..2.08",
    unit="x",
    shape=[at_least(1)],
    cells="specpipe_text:42 specpipe_text:43",
    remark=(
        "16 and 32 requests have 4 and 2 rows each, so that hits fall to 92 and 87 %, while "
        "vLLM's batches of 2 and 4 cost it nothing"
    ),
)
def db_throughput() -> Values:
    """SpecPipe-DB brings 1.64 to 2.08 times the throughput of vLLM for every batch from 2 on (2 to
    32)
    """
    ours = DB_FROM_TWO
    others = values(
        "pp_vllm_load.*.tokens_per_s",
        *(f"specsim load {PP_VLLM_LOAD} --sizes {sizes}" for sizes in SIZES),
    )
    return over(ours, others)


@claim(
    where="Sec 4.1; Sec 4.4",
    published="1.64..2.08",
    unit="x",
    bound=at_most(0.85),
    bound_why=(
        "64 rows a token at each stage are 64 x 2 x 8.556e9 = 1.095e12 flop, 15.4 ms at 71 "
        "TFLOPS: 64.8 tokens/s with every miss, packing and prompt for nothing, over the 76.1 "
        "tokens/s of PP-vLLM"
    ),
)
def db_throughput_64_rows_each() -> Values:
    """w = 64 in all experiments: SpecPipe-DB over vLLM with 16 requests of 64 rows each"""
    ours = values(
        "specpipe_db.*.tokens_per_s",
        f"specsim load {SPECPIPE_DB} --sizes 16 --set strategy.width_rule=each "
        "--set strategy.packing_ratio=1",
    )
    others = values("pp_vllm_load.*.tokens_per_s", f"specsim load {PP_VLLM_LOAD} --sizes 16")
    return over(ours, others)


@claim(
    where="Abstract",
    published="1.61..2.06",
    unit="x",
    shape=[at_least(1)],
    cells="specpipe_text:44 specpipe_text:45",
    remark="as db_throughput",
)
def db_tbt() -> Values:
    """SpecPipe-DB brings a token 1.61 to 2.06 times as fast as vLLM for every batch from 2 on"""
    rival = values(
        "pp_vllm_load.*.tpot_ms",
        *(f"specsim load {PP_VLLM_LOAD} --sizes {sizes}" for sizes in SIZES),
    )
    specpipe = values(
        "specpipe_db.*.tpot_ms", *(f"specsim load {SPECPIPE_DB} --sizes {sizes}" for sizes in SIZES)
    )
    return over(rival, specpipe)


@claim(where="Abstract", published="1.61..2.06", unit="x", remark="as db_throughput_2_to_8")
def db_tbt_2_to_8() -> Values:
    """SpecPipe-DB brings a token 1.61 to 2.06 times as fast as vLLM: 2, 4 and 8 requests"""
    rival = values("pp_vllm_load.*.tpot_ms", f"specsim load {PP_VLLM_LOAD} --sizes 2,4,8")
    specpipe = values("specpipe_db.*.tpot_ms", f"specsim load {SPECPIPE_DB} --sizes 2,4,8")
    return over(rival, specpipe)


@claim(where="Figure 16", shape=[RISES, at_least(1)])
def db_wins_from_two() -> Values:
    """SpecPipe-DB has the highest throughput of all from 2 requests on: also over plain SpecPipe,
    one request at a time
    """
    return over(DB_FROM_TWO, DB_OF_ONE)


@claim(
    where="Figure 16",
    published="2",
    cells="specpipe_text:46",
    remark=(
        "one request: SpecPipe itself, which is fastest there; over SpecInfer see "
        "db_wins_over_specinfer"
    ),
)
def db_wins_from() -> Values:
    """SpecPipe-DB has the highest throughput from 2 requests on"""
    ours = values("specpipe_db.*.tokens_per_s", f"specsim load {SPECPIPE_DB} --sizes 1,2")
    others = DB_OF_ONE
    return onset_of(over(ours, others))


@claim(
    where="Figure 16",
    shape=[at_least(1)],
    missing=(
        "what packing costs: twice the increase of a step, or once (sec. 4.4 can be read "
        "either way)"
    ),
)
def db_wins_over_specinfer() -> Values:
    """SpecPipe-DB has the highest throughput of all from 2 requests on: also over SpecInfer in the
    same framework
    """
    packing_ratio = unprinted("2", "2", "1")
    ours = values(
        "specpipe_db.*.tokens_per_s",
        *(
            (
                f"specsim load {SPECPIPE_DB} --sizes {sizes} "
                f"--set strategy.packing_ratio={packing_ratio}"
            )
            for sizes in SIZES
        ),
    )
    others = values(
        "specinfer_load.*.tokens_per_s", f"specsim load {SPECINFER_LOAD} --sizes 2,4,8,16,32"
    )
    return over(ours, others)


@claim(
    where="Figure 17",
    shape=[at_least(1)],
    missing=(
        "hits by data set: 97 % are calibrated, Figure 7 has 99 % for the best 32; a miss "
        "alone takes eight steps"
    ),
)
def db_tail() -> Values:
    """the 99th percentile of SpecPipe-DB stays below that of vLLM at every batch"""
    setting = unprinted(
        "--set strategy.width_rule=shared",
        "--set acceptance.trace=null --set acceptance.stand_in=false --set acceptance.rate=0.97",
        "--set acceptance.trace=null --set acceptance.stand_in=false --set acceptance.rate=0.9975",
    )
    rival = values(
        "pp_vllm_load.*.tbt_p99_ms",
        *(f"specsim load {PP_VLLM_LOAD} --sizes {sizes}" for sizes in SIZES),
    )
    specpipe = values(
        "specpipe_db.*.tbt_p99_ms",
        *(f"specsim load {SPECPIPE_DB} --sizes {sizes} {setting}" for sizes in SIZES),
    )
    return over(rival, specpipe)


@claim(
    where="Sec 1",
    published="3.32",
    unit="x",
    cells="specpipe_text:12 specpipe_text:24",
    remark="PP-vLLM is predicted, nothing of it is fitted",
)
def tbt_over_vllm_best() -> Values:
    """3.32 times as fast as PP-vLLM on HumanEval-X"""
    return mean_of(over(cell_runs("specpipe_text:38"), cell_runs("specpipe_text:41")))


@claim(where="Sec 1", published="2.50", unit="x", cells="specpipe_text:11 specpipe_text:23")
def tbt_over_vllm_worst() -> Values:
    """2.50 times as fast as PP-vLLM on the worst data set"""
    return mean_of(cell_runs("specpipe_text:23"))


@claim(
    where="Sec 1",
    published="2.09..2.38",
    unit="x",
    cells="specpipe_text:4 specpipe_text:13 specpipe_text:14 specpipe_text:27 specpipe_text:28",
    remark="data sets of the ends are not named; SpecInfer is predicted from a recorded tree",
)
def tbt_over_specinfer() -> Values:
    """2.09 to 2.38 times as fast as tree-based speculative decoding (SpecInfer): HumanEval-X"""
    return mean_of(over(cell_runs("specpipe_text:40"), cell_runs("specpipe_text:41")))


@claim(
    where="Sec 1",
    published="3.58..4.98",
    unit="x",
    missing=PASSES_OF_DRAFTING,
    cells="specpipe_text:25 specpipe_text:26",
    remark=(
        "tokens a step are the 5.88 of the EAGLE-3 paper for this model; as its own program "
        "drafts, with a layer on one device (30 ms assumed), 63 ms a token"
    ),
)
def tbt_over_eagle3() -> Values:
    """3.58 to 4.98 times as fast as EAGLE-3 behind the same pipeline"""
    rival = values("simulated.tpot_ms", RUN_OF_EAGLE3, RUN_OF_EAGLE3)
    specpipe = values(
        "simulated.tpot_ms",
        *(
            f"specsim run {SPECPIPE} {FRAMEWORK} --set acceptance.rate={rate}"
            for rate in HITS_OF_BEST_AND_WORST
        ),
    )
    return over(rival, specpipe)


@claim(
    where="Sec 4.2",
    published="272.30",
    unit="ms",
    missing=PASSES_OF_DRAFTING,
    cells="specpipe_text:39",
    remark=(
        "with two passes a step 272.30 are 2.22 tokens, 0.38 of what is published for this model"
    ),
)
def eagle3_tbt() -> Values:
    """272.30 ms a token with EAGLE-3"""
    return values("simulated.tpot_ms", RUN_OF_EAGLE3)


@claim(
    where="Figure 11",
    published="302.39",
    unit="ms",
    cells="specpipe_text:37",
    remark="calibrated: host time of the framework",
)
def pp_tbt() -> Values:
    """302.39 ms a token with PP on HumanEval-X"""
    return mean_of(cell_runs("specpipe_text:37"))


@claim(
    where="Figure 11", published="181.41", unit="ms", cells="specpipe_text:38", remark="predicted"
)
def vllm_tbt() -> Values:
    """181.41 ms a token with PP-vLLM on HumanEval-X"""
    return mean_of(cell_runs("specpipe_text:38"))


@claim(
    where="Figure 11", published="117.92", unit="ms", cells="specpipe_text:40", remark="predicted"
)
def specinfer_tbt() -> Values:
    """117.92 ms a token with SpecInfer on HumanEval-X"""
    return mean_of(cell_runs("specpipe_text:40"))


@claim(
    where="Figure 11",
    published="54.67",
    unit="ms",
    cells="specpipe_text:41",
    remark="calibrated: share of hits",
)
def specpipe_tbt() -> Values:
    """54.67 ms a token with SpecPipe on HumanEval-X"""
    return mean_of(cell_runs("specpipe_text:41"))


@claim(
    where="Figure 13",
    published="3.89..5.23",
    unit="x",
    cells="specpipe_text:29 specpipe_text:30",
    remark="predicted from one server's fit",
)
def two_servers_over_pp() -> Values:
    """3.89 to 5.23 times as fast as PP on two servers over 10 GbE"""
    return cell_runs("specpipe_text:29", "specpipe_text:30")


@claim(
    where="Figure 13",
    published="2.38..3.16",
    unit="x",
    shape=[at_least(1)],
    cells="specpipe_text:31 specpipe_text:32",
    remark=(
        "predicted; 2.34 and 3.10 with an RTX 3090's formula on the RTX 4090, whose kernels "
        "are now measured"
    ),
)
def two_servers_over_vllm() -> Values:
    """2.38 to 3.16 times as fast as PP-vLLM on two servers"""
    return cell_runs("specpipe_text:31", "specpipe_text:32")


@claim(
    where="Figure 13",
    published="2.55..3.44",
    unit="x",
    missing=(
        "time of an all-reduce of 16 KiB among four GPUs on PCIe: 18 us in a CUDA graph (NCCL "
        "and vLLM), 56 to 110 eagerly, on L40S (aiconfigurator, MIT)"
    ),
    cells="specpipe_text:17 specpipe_text:18 specpipe_text:33 specpipe_text:34",
    remark=(
        "2.55 to 3.44 are 184 to 188 ms a token, that is 0.83 ms for each of 160 all-reduces, "
        "and slower than no tensor parallelism at all (169)"
    ),
)
def two_servers_over_tp() -> Values:
    """2.55 to 3.44 times as fast as TP/PP-vLLM: tensor parallelism in a
    server, a pipeline across
    """
    fixed_us = unprinted("40", "18", "110")
    run = (
        f"specsim run {TP_VLLM_TWO_SERVERS} --set target.link.all_reduce.tree=null "
        f"--set target.link.all_reduce.ring.fixed_us.value={fixed_us}"
    )
    rival = values("simulated.tpot_ms", run, run)
    specpipe = values(
        "simulated.tpot_ms",
        *(
            f"specsim run {SPECPIPE_TWO_SERVERS} {FRAMEWORK} --set acceptance.rate={rate}"
            for rate in HITS_OF_BEST_AND_WORST
        ),
    )
    return over(rival, specpipe)


@claim(
    where="Figure 13",
    published="2.08..2.37",
    unit="x",
    cells="specpipe_text:35 specpipe_text:36",
    remark="hits of HumanEval-X as fitted on one server",
)
def two_servers_over_specinfer() -> Values:
    """2.08 to 2.37 times as fast as SpecInfer on two servers"""
    rival = values(
        "simulated.tpot_ms",
        f"specsim run {SPECINFER_TWO_SERVERS} --set draft.engine.host_us_per_layer=1062.5",
    )
    specpipe = values(
        "simulated.tpot_ms", f"specsim run {SPECPIPE_TWO_SERVERS} --set acceptance.rate=0.9747"
    )
    return over(rival, specpipe)


@claim(where="Figure 10", unit="ms", shape=[DIPS, smallest_at(7)])
def width_64() -> Values:
    """64 nodes a level are best: time falls with the width up to 64 and rises behind it"""
    return values(
        "simulated.tpot_ms",
        *(
            f"specsim run specpipe_llama_3_1_70b_8x3090 --set strategy.width={width}"
            for width in (1, 2, 4, 8, 16, 32, 64, 128)
        ),
    )


@claim(where="Figure 10", unit="ms", shape=[largest_at(1)])
def two_children_are_worst() -> Values:
    """with k = 2 accuracy drops sharply: the slowest of k = 2, 4, 8, 16, 32"""
    return values(
        "simulated.tpot_ms",
        *(
            f"specsim run specpipe_llama_3_1_70b_8x3090 --set strategy.branching={branching}"
            for branching in (2, 4, 8, 16, 32)
        ),
    )


@claim(where="Figure 10", unit="ms", shape=[flat(2)])
def four_children_are_enough() -> Values:
    """from k = 4 on the effect is negligible"""
    return values(
        "simulated.tpot_ms",
        *(
            f"specsim run specpipe_llama_3_1_70b_8x3090 --set strategy.branching={branching}"
            for branching in (4, 8, 16, 32)
        ),
    )


@claim(
    where="Figure 15",
    published="4.39",
    unit="%",
    missing=(
        "how often the draft's tree holds what the paper's 70B model samples. Ends: no hit "
        "lost; 1.06 points, what EAGLE-3's tree loses on Llama-3.3-70B from temperature 0 to "
        "1 (5.88 to 5.66 tokens). 4.39 % are 0.9 points"
    ),
    cells="specpipe_text:48",
    remark="recorded from small models, whose samples are harder to foresee",
)
def stochastic_specpipe() -> Values:
    """SpecPipe takes 4.39 % longer when sampling (temperature 0.6, top-p 0.9, top-k 80)"""
    sampling = unprinted(
        "specpipe_llama_3_1_70b_8x3090_warm",
        f"{SPECPIPE} --set acceptance.rate=0.9747",
        f"{SPECPIPE} --set acceptance.rate=0.9641",
    )
    greedy = unprinted(
        "specpipe_llama_3_1_70b_8x3090",
        f"{SPECPIPE} --set acceptance.rate=0.9747",
        f"{SPECPIPE} --set acceptance.rate=0.9747",
    )
    sampled = values("simulated.tpot_ms", f"specsim run {sampling}")
    baseline = values("simulated.tpot_ms", f"specsim run {greedy}")
    return change_percent(sampled, baseline)


@claim(
    where="Figure 15",
    published="2.54",
    unit="%",
    missing="as stochastic_specpipe; a rate of 0.72 gives the printed 117.92 ms",
    cells="specpipe_text:47",
)
def stochastic_specinfer() -> Values:
    """SpecInfer takes 2.54 % longer when sampling"""
    sampling = unprinted(
        "specinfer_llama_3_1_70b_8x3090 --set acceptance.trace=six_flavours_warm",
        "specinfer_llama_3_1_70b_8x3090 --set acceptance.trace=null "
        "--set acceptance.stand_in=false --set acceptance.rate=0.72",
        "specinfer_llama_3_1_70b_8x3090 --set acceptance.trace=null "
        "--set acceptance.stand_in=false --set acceptance.rate=0.7094",
    )
    greedy = unprinted(
        "specinfer_llama_3_1_70b_8x3090",
        "specinfer_llama_3_1_70b_8x3090 --set acceptance.trace=null "
        "--set acceptance.stand_in=false --set acceptance.rate=0.72",
        "specinfer_llama_3_1_70b_8x3090 --set acceptance.trace=null "
        "--set acceptance.stand_in=false --set acceptance.rate=0.72",
    )
    sampled = values("simulated.tpot_ms", f"specsim run {sampling}")
    baseline = values("simulated.tpot_ms", f"specsim run {greedy}")
    return change_percent(sampled, baseline)


@claim(
    where="Sec 3.3.1",
    published="17",
    unit="ms",
    cells="specpipe_text:63",
    remark="calibrated: host time of Transformers",
)
def draft_on_l40() -> Values:
    """a token of the 1B draft takes 17 ms on an L40, of an 8B draft 67 ms, of the 70B model on
    four L40 374 ms
    """
    return mean_of(cell_runs("specpipe_text:63"))


@claim(where="Sec 3.3.1", published="67", unit="ms", cells="specpipe_text:64", remark="predicted")
def large_draft_on_l40() -> Values:
    """a token of the 8B draft takes 67 ms on an L40"""
    return mean_of(cell_runs("specpipe_text:64"))


@claim(where="Sec 3.3.1", published="374", unit="ms", cells="specpipe_text:65", remark="predicted")
def target_on_four_l40() -> Values:
    """a token of the 70B model takes 374 ms on four L40"""
    return mean_of(cell_runs("specpipe_text:65"))


@claim(
    where="Table 1",
    published="23.5",
    unit="GiB",
    cells="specpipe_table1_memory:1 specpipe_table1_memory:3",
    remark="from shapes",
)
def memory_of_ends() -> Values:
    """the first and the last GPU take 23.5 GiB"""
    return cell_runs("specpipe_table1_memory:1", "specpipe_table1_memory:3")


@claim(
    where="Table 1",
    published="21.5",
    unit="GiB",
    cells="specpipe_table1_memory:2",
    remark="from shapes",
)
def memory_of_others() -> Values:
    """GPUs between them take 21.5 GiB"""
    return cell_runs("specpipe_table1_memory:2")


@claim(where="Sec 4.2", published="64", unit="x", cells="specpipe_text:121", remark="from shapes")
def messages() -> Values:
    """messages between nodes grow 64 times, from 16 KiB to at most 1 MiB"""
    return mean_of(cell_runs("specpipe_text:121"))


@claim(
    where="Figure 7",
    published="0.99",
    cells="specpipe_text:57",
    remark=(
        "of trees of 64 nodes with 32 children from small models; the paper counts single "
        "tokens of its pairs"
    ),
)
def hits_of_draft() -> Values:
    """tokens of a 1B draft hold 99 % of those of Llama-3.1-70B among its best 32"""
    return values("studies.0.trees.12.hit", "specsim trees specpipe_llama_3_1_70b_8x3090")
