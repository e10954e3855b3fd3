"""The handover of a request: what goes over a link from the replica that has read its prompt to the
one that decodes it, and how long that takes.

With ``overlap: by_layer`` the caches of a layer leave as soon as the prefill is through it
(Splitwise, section 4.2; Mooncake, section 5.2)::

    prefill   |layer 1|layer 2|  ...  |layer L|
    link              |start-up|cache 1|  ...  |cache L|
                                               |--seen-|

so that a transfer which is quicker than the prefill shows the cache of the last layer alone. A
prompt that is read in several passes is taken to be read evenly from its admission on. Without
overlap the transfer begins behind the prefill.
"""

from typing import Literal

from numpy.random import Generator
from pydantic import Field

from simulator.core.cost.device import UNMEASURED_START_US, Link
from simulator.core.quantities import Frozen, Ranged

PoolRole = Literal["prefill", "decode", "both"]
DraftState = Literal["transferred", "recomputed", "absent"]
MOST_CONNECTIONS = 1_024
"""Links side by side; far beyond any server."""


class Handover(Frozen):
    """How a request goes from a prefill pool to a decode pool.

    ``routing`` says when its decode replica is chosen. ``decode_first`` (SGLang, Dynamo): as it
    arrives, and its blocks there are reserved before its prefill begins. ``prefill_first`` (the
    proxies of vLLM): behind its prefill; the prefill replica holds its blocks until there is room,
    and the transfer has ended.

    ``draft_state`` says what the draft has of the prompt where the request decodes.
    ``transferred``: its cache, which the prefill pool has filled. ``recomputed``: the draft reads
    the prompt there, before its first step; a head needs the target's hidden states of it, which
    are transferred. ``absent``: nothing, and steps are plain ones until a window of output is
    there.
    """

    link: Link
    """The link between the pools."""
    start_up_us: Ranged = UNMEASURED_START_US
    """What every handover takes beyond the link's latency, in us: handshake, metadata."""
    connections: int = Field(default=1, gt=0, le=MOST_CONNECTIONS)
    """Links side by side that share out a transfer, as one for each device."""
    shared: bool = False
    """Whether a replica sends or receives one request at a time; else each pair of replicas
    does.
    """
    overlap: Literal["by_layer", "none"] = "none"
    """Whether caches leave layer by layer during the prefill, or behind it."""
    draft_state: DraftState = "transferred"
    """What the draft has of the prompt where the request decodes."""
    hidden_layers: int | None = Field(default=None, ge=1, le=64)
    """Layers whose hidden states a head reads (EAGLE-3: 3, EAGLE and MTP: 1); by default as its
    first matrices have it.
    """
    routing: Literal["decode_first", "prefill_first"] = "decode_first"
    """When the decode replica is chosen and its blocks are looked for."""
    shown_by: Literal["decode", "prefill"] = "decode"
    """Which replica shows the first token: the one that decodes, as it takes the request up
    (SGLang, the proxies of vLLM), or the one that has read the prompt, at once.
    """
    token_bytes: float | None = Field(default=None, ge=0, le=1e15)
    """Bytes that go over for each token of a prompt, stated outright; by default as the models have
    it.
    """

    def seconds(self, size_bytes: float, random: Generator | None = None) -> float:
        """Return the seconds for which a transfer of so many bytes has its link."""
        share = size_bytes / self.connections
        return self.start_up_us.value * 1e-6 + self.link.transfer_seconds(share, random)

    def last_layer_s(self, size_bytes: float, layers: int) -> float:
        """Return the seconds of the caches of one of so many ``layers``, without the start-up."""
        return self.link.transfer_seconds(size_bytes / self.connections / layers)

    def end_s(
        self,
        reading: tuple[float, float],
        free_s: float,
        seconds: float,
        last_s: float,
        layers: int,
    ) -> float:
        """Return when a transfer ends that takes so many ``seconds`` over a link that is free at
        ``free_s``.

        ``reading`` is when the prefill began and ended, ``last_s`` the transfer of the last of
        ``layers`` by itself; all times are in seconds.
        """
        began_s, read_s = reading
        if self.overlap == "none":
            return max(read_s, free_s) + seconds
        first_s = began_s + (read_s - began_s) / layers
        return max(read_s + last_s, max(first_s, free_s) + seconds)

    def least_ttft_s(self, read_s: float, size_bytes: float, layers: int) -> float:
        """Return the least TTFT, in seconds, of a request whose prompt takes ``read_s`` alone: then
        its caches, so many bytes of so many ``layers``, go over a free link.

        Where the prefill shows the first token, that is ``read_s``.
        """
        if self.shown_by == "prefill":
            return read_s
        seconds = self.seconds(size_bytes)
        last_s = self.last_layer_s(size_bytes, layers)
        return self.end_s((0.0, read_s), 0.0, seconds, last_s, layers)
