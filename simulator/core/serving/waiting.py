"""More clients than the cache holds: who runs, who waits, and what a closed loop brings then.

Each of N clients has one request in the system. As many run as the cache has room for; the others
wait in order of arrival, and one of them enters as one that runs has ended::

    n = min(N, places, B / b)     requests that run; b blocks each, of the B of the cache
    S = R + D                     seconds in service: R for the prompts, D from first token to last
    X = n / S                     requests a second
    W = (N - n) / X               seconds of waiting: Little's law, L = lambda W, of the queue

so that TTFT = W + R and E2E = N S / n. In waves, where all n begin and end together::

    |-- S --|-- S --|-- S --|     N = 3, n = 2: requests 0 and 1, then 2 and 3, then 4 and 5
     0 0 0 0 2 2 2 2 4 4 4 4
     1 1 1 1 3 3 3 3 5 5 5 5
     2 . . .|4 . . .|6 . . .      2 waits S, 3 not at all, 4 waits S: S / 2 in the mean

Before the first N requests have entered, the queue has not yet filled up: of a run with few
requests for each client the mean wait is less (:meth:`ClosedLoopLaw.mean_wait_s`).

Sources: J. D. C. Little, Operations Research 9 (1961); the asymptotes of a closed network by
operational analysis: P. J. Denning and J. P. Buzen, Computing Surveys 10 (1978).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.core.serving.cache.memory import Blocks


def running_together(
    memory: Blocks, blocks: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    """Return how many requests run in a full cache, in the mean over time.

    ``blocks`` (requests,) are those that each request has in service, in the mean; ``weights``
    (requests,) are in proportion to the time that it stays there. The mean over time of the blocks
    in use is that of requests times that of blocks a request (Little's law for both).
    """
    return float(memory.total * weights.sum() / (blocks * weights).sum())


class ClosedLoopLaw(NamedTuple):
    """A closed loop by law; times in seconds."""

    clients: int
    running: int
    """Requests in service at a time."""
    read_s: float
    """From admission to the first token."""
    decode_s: float
    """From the first token to the last."""
    output_tokens: float
    outside_s: float = 0.0
    """Outside of the engine, before a first token is seen; it keeps no place."""

    @property
    def waiting(self) -> int:
        """Return how many requests wait for room."""
        return self.clients - self.running

    @property
    def service_s(self) -> float:
        """Return the seconds from admission to the last token."""
        return self.read_s + self.decode_s

    @property
    def requests_per_s(self) -> float:
        """Return how many requests end in a second."""
        return self.running / self.service_s

    @property
    def tokens_per_s(self) -> float:
        """Return the output tokens a second of all clients together, prompts included."""
        return self.requests_per_s * self.output_tokens

    @property
    def wait_s(self) -> float:
        """Return the seconds from arrival to admission, once the queue has filled up."""
        return self.waiting / self.requests_per_s

    @property
    def ttft_s(self) -> float:
        """Return the seconds from arrival to the first token, once the queue has filled up."""
        return self.wait_s + self.read_s + self.outside_s

    @property
    def e2e_s(self) -> float:
        """Return the seconds from arrival to the last token, once the queue has filled up."""
        return self.wait_s + self.service_s + self.outside_s

    def mean_wait_s(self, count: int) -> float:
        """Return the mean wait of the first ``count`` requests where they run in waves.

        Request k enters with wave ``floor(k / n)``. The first N arrive at once, and each later one
        at the end of the wave of the request N before it.
        """
        waves = np.arange(count) // self.running
        arrived = np.zeros(count, dtype=np.int64)
        arrived[self.clients :] = waves[: max(0, count - self.clients)] + 1
        return float((waves - arrived).mean()) * self.service_s
