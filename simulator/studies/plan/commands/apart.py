"""Commands that serve the answer of a plan with prefill and decode apart: a script for the replicas
of either, one for the router before them, and a graph for Dynamo.

Each server is called as where it does both (:mod:`simulator.studies.plan.commands.engines`), with
what its documentation says of its role behind that. Hosts are called ``prefill-1``, ``decode-1``,
and so on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import yaml

from simulator.core.plain import PlainData
from simulator.core.serving.fields import ReplicaPool
from simulator.core.serving.fleet.handover import PoolRole
from simulator.inputs.catalogue import Catalogue
from simulator.inputs.writing import json_text
from simulator.scenario import Scenario
from simulator.scenario.pools import pool_scenarios
from simulator.studies.plan.commands.engines import ENGINES, program_name
from simulator.studies.plan.commands.program import (
    Ranges,
    Served,
    Words,
    machine_words,
    shell_command,
)

DYNAMO = "dynamo.yaml"
DYNAMO_SOURCE = (
    "Dynamo 1.3: examples/backends/{name}/deploy/v1beta1/disagg.yaml (ai-dynamo/dynamo "
    "{revision}); read 2026-11"
)


@dataclass(frozen=True)
class DynamoWorker:
    """States how Dynamo runs a server that reads prompts only, or decodes only."""

    called: int
    """Words of the server's own command before its options, without the model."""
    model: str
    """Option that names the model to Dynamo; empty where the command has it."""
    options: Callable[[PoolRole], Words]
    """Returns what stands behind the options of the server."""
    revision: str
    """Commit of Dynamo whose example that is from."""
    version: str
    """Version of what Dynamo runs there."""


@dataclass(frozen=True)
class PoolProgram:
    """States how a program is told that a server reads prompts only, or decodes only."""

    source: str
    """The documentation that names of options are from."""
    note: str
    """What else the servers need to know, which no plan can."""
    router_version: str
    """The program of the router, and where it is from."""
    options: Callable[[PoolRole], Words]
    """Returns what stands behind the command of a server."""
    router: Callable[[Sequence[str], Sequence[str]], list[Words]]
    """Returns the command of the router before these hosts for prefill and for decode, by lines."""
    dynamo: DynamoWorker


def _vllm_options(role: PoolRole) -> Words:
    named = {"prefill": "kv_producer", "decode": "kv_consumer", "both": "kv_both"}
    return ["--kv-transfer-config", _nixl(named[role])]


def _nixl(role: str) -> str:
    return json_text({"kv_connector": "NixlConnector", "kv_role": role}, indent=None)


def _vllm_router(prefill: Sequence[str], decode: Sequence[str]) -> list[Words]:
    proxy = "tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
    lines = [["python", proxy, "--port", "8192"]]
    for side, hosts in (("prefiller", prefill), ("decoder", decode)):
        ports = ["8000"] * len(hosts)
        lines.append([f"--{side}-hosts", *hosts, f"--{side}-ports", *ports])
    return lines


def _vllm_worker(role: PoolRole) -> Words:
    return ["--disaggregation-mode", role, "--kv-transfer-config", _nixl("kv_both")]


def _sglang_options(role: PoolRole) -> Words:
    return ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "nixl"]


def _sglang_router(prefill: Sequence[str], decode: Sequence[str]) -> list[Words]:
    lines = [["python", "-m", "sglang_router.launch_router", "--pd-disaggregation"]]
    for role, hosts in (("prefill", prefill), ("decode", decode)):
        lines += [[f"--{role}", f"http://{host}:30000"] for host in hosts]
    return [*lines, ["--port", "8000"]]


def _sglang_worker(role: PoolRole) -> Words:
    return [*_sglang_options(role), "--disaggregation-bootstrap-port", "12345"]


PROGRAMS = {
    "vllm": PoolProgram(
        source=(
            "vLLM: docs/features/nixl_connector_usage.md (vllm-project/vllm 026c83f9); read 2026-11"
        ),
        note=(
            "on several machines VLLM_NIXL_SIDE_CHANNEL_HOST is the address of each, on one "
            "VLLM_NIXL_SIDE_CHANNEL_PORT and --port differ"
        ),
        router_version="the toy proxy of vLLM 0.32, in a checkout of vllm-project/vllm",
        options=_vllm_options,
        router=_vllm_router,
        dynamo=DynamoWorker(
            2, "--model", _vllm_worker, "14a3b0d9, launch/disagg.sh 11bc2e86", "1.3.0"
        ),
    ),
    "sglang": PoolProgram(
        source=(
            "SGLang: docs/advanced_features/pd_disaggregation.md (sgl-project/sglang 08edc506); "
            "read 2026-11"
        ),
        note="on one machine --port and --base-gpu-id differ",
        router_version="sglang_router, a package beside SGLang 0.5.23",
        options=_sglang_options,
        router=_sglang_router,
        dynamo=DynamoWorker(3, "", _sglang_worker, "2ac51dda", "1.3.1"),
    ),
}
"""Programs whose servers can be told, by engine."""


def files_apart() -> list[str]:
    """Return the names of all files that :func:`scripts_apart` may write."""
    names = [DYNAMO]
    for engine in PROGRAMS:
        names += [f"{engine}_{part}.sh" for part in ("prefill", "decode", "router")]
    return names


def why_no_command(scenario: Scenario) -> str:
    """Return why no program is told how to serve a scenario, in words; empty where one is."""
    name = program_name(scenario)
    if name is None:
        engine = scenario.target.engine.name if scenario.target else "stated durations"
        return f"no options of {engine} are known"
    if scenario.serving.pools and name not in PROGRAMS:
        return f"no options of {ENGINES[name].version} for prefill and decode apart are known"
    return ENGINES[name].unserved(scenario)


def scripts_apart(
    engine: str,
    scenario: Scenario,
    ranges: Ranges | None,
    head: str,
    catalogue: Catalogue | None = None,
) -> dict[str, str]:
    """Return the scripts that serve a scenario whose prefill and decode are apart, by their files'
    names; none where the engine has no options for its roles, or for its way to draft.
    """
    program = PROGRAMS.get(engine)
    if program is None:
        return {}
    scripts = {}
    hosts: dict[str, list[str]] = {"prefill": [], "decode": []}
    workers = []
    for pool, alone in pool_scenarios(scenario):
        own = alone.model_copy()
        own.__dict__["lengths"] = scenario.lengths  # also a server for prefill is asked for outputs
        file = f"{engine}_{pool.role}.sh"
        behind = [program.options(pool.role)]
        script = ENGINES[engine].script(own, ranges, head, behind, catalogue, file)
        if script is None:
            return {}
        first, rest = script.split("\n", 1)
        role = f"# {pool.role}; its options: {program.source}\n# {program.note}\n"
        scripts[file] = f"{first}\n{role}{rest}"
        hosts[pool.role] += [f"{pool.role}-{number + 1}" for number in range(pool.replicas)]
        served = ENGINES[engine].served(own, ranges, head, catalogue)
        workers.append(_worker(engine, program.dynamo, pool, served))
    router = shell_command(program.router(hosts["prefill"], hosts["decode"]))
    file = f"{engine}_router.sh"
    scripts[file] = (
        f"# before all replicas, on any machine with {program.router_version}: sh {file}\n"
        "# prefill-1, decode-1 and so on stand for the hosts of the replicas\n"
        f"# option names: {program.source}\n{router}"
    )
    scripts[DYNAMO] = _graph_comments(scenario) + _graph(engine, program.dynamo, workers)
    return scripts


def _worker(
    engine: str,
    dynamo: DynamoWorker,
    pool: ReplicaPool,
    served: Served | None,
) -> PlainData:
    """Return the replicas of a pool as Dynamo names them."""
    lines = ENGINES[engine].lines(served) if served else []
    options = list(chain.from_iterable(lines))[dynamo.called :]
    if dynamo.model:
        options.insert(0, dynamo.model)
    devices = served.target.tensor_parallel * max(1, served.stages) if served else 1
    container: PlainData = {
        "args": [*options, *dynamo.options(pool.role)],
        "command": ["python3", "-m", f"dynamo.{engine}"],
        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
        **_main(engine, dynamo),
        "resources": {"limits": {"nvidia.com/gpu": str(devices)}},
    }
    return _component(pool.role, container, pool.replicas)


def _main(engine: str, dynamo: DynamoWorker) -> PlainData:
    """Return what a container is called and made of."""
    image = f"nvcr.io/nvidia/ai-dynamo/{engine}-runtime:{dynamo.version}"
    return {"image": image, "name": "main"}


def _component(kind: str, container: PlainData, replicas: int) -> PlainData:
    """Return a part of a graph, named for its kind."""
    template = {"spec": {"containers": [container]}}
    return {"name": kind, "podTemplate": template, "replicas": replicas, "type": kind}


def _graph_comments(scenario: Scenario) -> str:
    """Return what to do with the graph, and which devices it takes."""
    lines = [
        f"in place of the scripts, on a cluster with Dynamo's operator: kubectl apply -f {DYNAMO}",
        "the secret hf-token-secret holds a token of Hugging Face",
    ]
    for pool, alone in pool_scenarios(scenario):
        if alone.target:
            count = "1 replica" if pool.replicas == 1 else f"each of {pool.replicas} replicas"
            lines.append(f"{pool.role}: {count} takes {machine_words(alone.target)}")
    return "".join(f"# {line}\n" for line in lines)


def _graph(engine: str, dynamo: DynamoWorker, workers: Sequence[PlainData]) -> str:
    """Return the graph of a frontend and its workers, for ``kubectl apply``."""
    frontend = _component("frontend", _main(engine, dynamo), 1)
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": f"{engine}-apart"},
        "spec": {"components": [frontend, *workers]},
    }
    source = DYNAMO_SOURCE.format(name=engine, revision=dynamo.revision)
    return f"# {source}\n" + yaml.safe_dump(graph, sort_keys=False, width=120)
