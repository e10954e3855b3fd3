"""A worker of vLLM that writes down each of its passes (``--worker-cls``).

A line of ``$SPECSIM_PASSES`` for each step, with the fields of forward-pass metrics and, beside
them, the seconds of the target's layers and those of the drafter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

CORE = 0
"""The core that computes; the API and the clients are on others."""


class TimedWorker(CPUWorker):
    """The worker of a CPU, on one core, whose steps are timed from the target's begin to the
    draft's end.
    """

    def init_device(self) -> None:
        """Make the runner, and time what it calls."""
        os.sched_setaffinity(0, {CORE})
        super().init_device()
        self.spent = {"target_time": 0.0, "draft_time": 0.0}
        self.lines = Path(os.environ["SPECSIM_PASSES"]).open("a", buffering=1)  # noqa: SIM115
        runner: Any = self.model_runner
        runner._model_forward = self._timed("target_time", runner._model_forward)
        if hasattr(runner, "drafter"):
            runner.drafter.propose = self._timed("draft_time", runner.drafter.propose)

    def _timed(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            begin = perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self.spent[what] += perf_counter() - begin

        return timed

    def execute_model(self, scheduler_output: Any) -> Any:
        """Run the target over what is scheduled."""
        self.begin, self.scheduled = perf_counter(), scheduled(scheduler_output)
        return super().execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Choose tokens, draft the next ones, and write the step down."""
        chosen = super().sample_tokens(grammar_output)
        line = {
            "begin": self.begin,
            "wall_time": perf_counter() - self.begin,
            **self.spent,
            "scheduled_requests": self.scheduled,
        }
        self.lines.write(json.dumps(line, allow_nan=False) + "\n")
        self.spent = dict.fromkeys(self.spent, 0.0)
        return chosen


def scheduled(output: Any) -> dict[str, int]:
    """Return what a step was given: requests and tokens, of prompts and of outputs."""
    tokens = output.num_scheduled_tokens
    known = output.scheduled_cached_reqs
    drafted = output.scheduled_spec_decode_tokens
    before = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    before |= dict(zip(known.req_ids, known.num_computed_tokens, strict=True))
    prompts = [
        name
        for name, count in tokens.items()
        if (count > 1 and name not in drafted) or not before[name]
    ]
    decoding = [name for name in tokens if name not in prompts]
    return {
        "num_prefill_requests": len(prompts),
        "sum_prefill_tokens": sum(tokens[name] for name in prompts),
        "sum_prefill_kv_tokens": sum(before[name] for name in prompts),
        "num_decode_requests": len(decoding),
        "sum_decode_kv_tokens": sum(before[name] for name in decoding),
        "sum_decode_tokens": sum(tokens[name] for name in decoding),
    }
