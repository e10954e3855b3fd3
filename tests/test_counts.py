"""Every count has an upper bound: fields of files by their types, options of commands by theirs."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import annotated_types
import click
import pytest
from click.testing import CliRunner
from command_tree import every

import simulator
from simulator.cli.main import main
from simulator.core.quantities import Frozen, descendants

CHECKED_OTHERWISE = {
    "MirrorSD.exit_layer",  # a layer of the target, which has at most 10,000
    "PipelineTree.branching",  # the nodes of a tree are counted, at most 65,536
    "TokenTree.branching",
}


def counts(annotation: Any) -> bool:
    """Whether a type has a whole number in it."""
    if typing.get_origin(annotation) is typing.Literal:
        return False
    return annotation is int or any(counts(part) for part in typing.get_args(annotation))


def limits(annotation: Any, metadata: list[Any]) -> Iterator[Any]:
    """What bounds a field, or a part of its type, from above."""
    for note in metadata:
        yield from (
            part
            for part in [note, *getattr(note, "metadata", ())]
            if isinstance(part, (annotated_types.Le, annotated_types.Lt))
        )
    for part in typing.get_args(annotation):
        yield from limits(part, [part, *getattr(part, "metadata", [])])


def fields() -> Iterator[tuple[str, Any]]:
    """Every field of every model that a file is read into."""
    for module in pkgutil.walk_packages(simulator.__path__, "simulator."):
        if "record" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for model in {
        model for model in descendants(Frozen) if model.__module__.startswith("simulator.")
    }:
        for name, info in model.model_fields.items():
            yield f"{model.__name__}.{name}", info


def test_every_count_in_a_file_has_an_upper_bound() -> None:
    counted = {name: info for name, info in fields() if counts(info.annotation)}
    unbounded = {
        name for name, info in counted.items() if not list(limits(info.annotation, info.metadata))
    }
    assert unbounded == CHECKED_OTHERWISE
    assert len(counted) > 150


def options() -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter of every command."""
    for path, command in every():
        for param in command.params:
            yield f"{path} {param.opts[-1]}", param


def test_every_count_among_options_has_an_upper_bound() -> None:
    whole = {
        name: param.type
        for name, param in options()
        if isinstance(param.type, (click.types.IntParamType, click.IntRange))
    }
    unbounded = {name for name, kind in whole.items() if getattr(kind, "max", None) is None}
    assert unbounded == set()
    assert len(whole) > 15


SERVED = (
    "requests={arrivals: {name: poisson, rate_per_s: 1}, count: 8, prompt_tokens: 8, "
    "output_tokens: 8}"
)
PLACES = "serving.policy={name: prefill_first, max_requests: 8}"
TOO_MANY = {
    "serving.replicas=1000000": "expected at most 10000, got 1000000",
    "serving.policy={name: prefill_first, max_requests: 100000000000}": "at most",
    "requests.count=1000000000": "at most",
    "requests.concurrency=100000000000": "at most",
    "strategy.gamma=1000000000": "at most",
    "requests.warm_up=100000000000": "at most",
    "serving.memory.block_tokens=100000000000": "at most",
    "seed=1000000000000000001": "expected at most 1000000000000000000",
}


@pytest.mark.parametrize("change", TOO_MANY)
def test_a_count_beyond_its_bound_is_refused_in_words(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in (SERVED, PLACES, change) for word in ("--set", setting)]
    done = CliRunner().invoke(main, ["law", "vanilla_llama_2_7b_a100", *settings])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert TOO_MANY[change] in done.stderr
    assert change.partition("=")[0] in done.stderr
