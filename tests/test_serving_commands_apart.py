"""Scripts that serve prefill and decode apart, in full, and the graph for Dynamo."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from simulator.scenario import load
from simulator.studies.plan.commands.apart import DYNAMO, PROGRAMS, files_apart, scripts_apart
from simulator.studies.plan.commands.engines import ENGINES

# a line that ends in ~ goes on in the next
VLLM = {
    "vllm_prefill.sh": r"""
vllm serve lmsys/vicuna-7b-v1.3 --tensor-parallel-size 1 \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 2048 \
    --speculative-config '{"method": "draft_model", "model": "Jiayi-Pan/Tiny-Vicuna-1B", ~
"draft_tensor_parallel_size": 1, "num_speculative_tokens": 3}' \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'
""",
    "vllm_decode.sh": r"""
vllm serve lmsys/vicuna-7b-v1.3 --tensor-parallel-size 1 \
    --max-num-seqs 8 --max-model-len 2048 --gpu-memory-utilization 0.9 --dtype bfloat16 \
    --no-enable-chunked-prefill --max-num-batched-tokens 2048 --no-enable-prefix-caching \
    --speculative-config '{"method": "draft_model", "model": "Jiayi-Pan/Tiny-Vicuna-1B", ~
"draft_tensor_parallel_size": 1, "num_speculative_tokens": 3}' \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'
""",
    "vllm_router.sh": r"""
python tests/v1/kv_connector/nixl_integration/toy_proxy_server.py --port 8192 \
    --prefiller-hosts prefill-1 --prefiller-ports 8000 \
    --decoder-hosts decode-1 decode-2 --decoder-ports 8000 8000
""",
}
SGLANG = {
    "sglang_prefill.sh": r"""
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 ~
--dtype bfloat16 --chunked-prefill-size -1 \
    --speculative-algorithm STANDALONE --speculative-draft-model-path Jiayi-Pan/Tiny-Vicuna-1B \
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
    --disaggregation-mode prefill --disaggregation-transfer-backend nixl
""",
    "sglang_decode.sh": r"""
python3 -m sglang.launch_server --model-path lmsys/vicuna-7b-v1.3 --tp 1 \
    --max-running-requests 8 --context-length 2048 --mem-fraction-static 0.9 --dtype bfloat16 \
    --disable-radix-cache --chunked-prefill-size -1 \
    --speculative-algorithm STANDALONE --speculative-draft-model-path Jiayi-Pan/Tiny-Vicuna-1B \
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
    --disaggregation-mode decode --disaggregation-transfer-backend nixl
""",
    "sglang_router.sh": r"""
python -m sglang_router.launch_router --pd-disaggregation \
    --prefill http://prefill-1:30000 \
    --decode http://decode-1:30000 \
    --decode http://decode-2:30000 \
    --port 8000
""",
}
SERVING = (
    "{policy: {name: prefill_first, max_requests: 8}, pools: [{role: prefill}, {role: decode, "
    "replicas: 2}], handover: {link: infiniband_ndr}}"
)


def scripts(engine: str, strategy: str = "chain", *more: str) -> dict[str, str]:
    """The scripts of one replica for prefill and two for decode."""
    device = f"machine: server, device: h100_sxm, engine: {engine}, weights: bf16"
    settings = [
        f"strategy={engine}_{strategy}",
        f"target={{{device}, model: vicuna_7b}}",
        f"draft={{{device}, model: tiny_vicuna_1b}}",
        "acceptance={rate: 0.7}",
        (
            "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 1000, "
            "output_tokens: 200}"
        ),
        f"serving={SERVING}",
        *more,
    ]
    return scripts_apart(engine, load("vanilla_llama_2_7b_a100", settings).scenario, None, "")


@pytest.mark.parametrize(("engine", "expected"), [("vllm", VLLM), ("sglang", SGLANG)])
def test_every_server_is_told_its_role(engine: str, expected: dict[str, str]) -> None:
    written = scripts(engine)
    assert set(written) == {*expected, DYNAMO} <= set(files_apart())
    for name, command in expected.items():
        lines = written[name].splitlines(keepends=True)
        comments = [line for line in lines if line.startswith("#")]
        body = "".join(line for line in lines if not line.startswith("#"))
        assert f"\n{body}" == command.replace("~\n", ""), name
        assert PROGRAMS[engine].source in "".join(comments)
    first = {name: text.partition("\n")[0] for name, text in written.items()}
    for role, replicas in (("prefill", "1 replica"), ("decode", "each of 2 replicas")):
        name = f"{engine}_{role}.sh"
        said = f"# for {replicas}, on 1 x h100_sxm with {ENGINES[engine].version}: sh {name}"
        assert first[name] == said
    assert first[f"{engine}_router.sh"].startswith("# before all replicas, on any machine with ")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_graph_has_every_replica_with_the_options_of_its_script(engine: str) -> None:
    written = scripts(engine)
    said = written[DYNAMO].splitlines()
    assert said[0].endswith("on a cluster with Dynamo's operator: kubectl apply -f dynamo.yaml")
    assert "# prefill: 1 replica takes 1 x h100_sxm" in said
    assert "# decode: each of 2 replicas takes 1 x h100_sxm" in said
    assert any("Dynamo 1.3" in line for line in said)
    graph: Any = yaml.safe_load(written[DYNAMO])
    components = {one["name"]: one for one in graph["spec"]["components"]}
    assert {name: one["replicas"] for name, one in components.items()} == {
        "frontend": 1,
        "prefill": 1,
        "decode": 2,
    }
    for role in ("prefill", "decode"):
        (container,) = components[role]["podTemplate"]["spec"]["containers"]
        words = container["args"]
        assert container["command"] == ["python3", "-m", f"dynamo.{engine}"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        option = {"vllm": "--model", "sglang": "--model-path"}[engine]
        assert words[:2] == [option, "lmsys/vicuna-7b-v1.3"]
        assert words[words.index("--disaggregation-mode") + 1] == role
        script = written[f"{engine}_{role}.sh"]
        options = [word for word in words if word.startswith("--") and word != "--model"]
        of_graph = {"--disaggregation-bootstrap-port"}
        if engine == "vllm":
            of_graph.add("--disaggregation-mode")
        assert all(f" {word}" in script for word in options if word not in of_graph)


def test_an_engine_without_roles_has_no_scripts() -> None:
    assert set(PROGRAMS) < set(ENGINES)
    scenario = load("apart_eagle3_qwen3_32b_4xh100").scenario
    assert scripts_apart("llama_cpp", scenario, None, "") == {}
