"""The law beside pools: two queues in tandem, with a link between them.

Of equal requests, one at a time in each replica and dealt out in turn, every time is known. With
request i arriving at a(i), c prefill replicas, d decode replicas, and l pairs of them that take
turns (their least common multiple)::

    r(i) = max(a(i), r(i - c)) + R      its prompt is read           (Lindley, 1952, for c servers
    t(i) = max(r(i), t(i - l)) + T      its caches have come          in turn)
    f(i) = max(t(i), e(i - d))          it is taken up: its first token
    e(i) = f(i) + D                     its last token

The events do exactly this where blocks never run out. Of unequal requests, several at a time, drawn
acceptance and any routing there are bounds: no first token comes before the prompt was read alone
and its caches went over a free link (:meth:`Handover.least_ttft_s`), no run is shorter than the
work of either pool shared out evenly over its replicas, and none without preemptions is longer than
all its work in series, from the last arrival on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

from simulator.core.numeric import ordered_sum


class ShownTimes(NamedTuple):
    """When the first and the last token of a request are shown, in seconds."""

    first_s: float
    last_s: float


@dataclass(frozen=True)
class Tandem:
    """Two queues in tandem: what each request takes in each, in seconds, and how many replicas
    there are.
    """

    read_s: float
    """R: the pass that reads a prompt."""
    transfer_s: float
    """T: its caches over the link of its two replicas."""
    decode_s: float
    """D: from its first token to its last one."""
    prefills: int
    decodes: int

    def times(self, arrivals_s: Iterable[float]) -> Iterator[ShownTimes]:
        """Yield when the tokens of each request are shown, in order of arrival."""
        pairs = lcm(self.prefills, self.decodes)
        read = [0.0] * self.prefills
        come = [0.0] * pairs
        ended = [0.0] * self.decodes
        for index, arrival_s in enumerate(arrivals_s):
            read_s = max(arrival_s, read[index % self.prefills]) + self.read_s
            come_s = max(read_s, come[index % pairs]) + self.transfer_s
            first_s = max(come_s, ended[index % self.decodes])
            last_s = first_s + self.decode_s
            read[index % self.prefills] = read_s
            come[index % pairs] = come_s
            ended[index % self.decodes] = last_s
            yield ShownTimes(first_s, last_s)

    @property
    def most_per_s(self) -> float:
        """Return the requests a second that it can serve: those of the slowest part."""
        rates = [self.prefills / self.read_s, self.decodes / self.decode_s]
        if self.transfer_s:
            rates.append(lcm(self.prefills, self.decodes) / self.transfer_s)
        return min(rates)


def least_end_s(
    read_s: Iterable[float], decode_s: Iterable[float], sizes: tuple[int, int]
) -> float:
    """Return the least length of a run in seconds, from what each request keeps a replica at least
    with its prompt and with its steps; ``sizes`` are those of the two pools.
    """
    prefills, decodes = sizes
    return max(ordered_sum(read_s) / prefills, ordered_sum(decode_s) / decodes)
