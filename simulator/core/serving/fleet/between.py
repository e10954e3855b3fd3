"""Requests between two replicas: who looks for blocks where, what is on the link, and the books of
both.

A request that is handed over passes three systems, each with books of its own: the replica that
reads it, the link, and the replica that decodes it. It leaves one as it enters the next, so that
Little's law holds in each and over all.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from numpy.random import Generator
from simpy import Environment

from simulator.core.serving.cache.memory import Blocks, Report
from simulator.core.serving.fleet.handover import Handover
from simulator.core.serving.ledger import Ledger
from simulator.core.serving.metrics import BrokenRunError, Sketch
from simulator.core.serving.requests import Request
from simulator.core.serving.router import Dealer
from simulator.core.serving.scheduler import Scheduler
from simulator.core.world import Lane, World, at


@dataclass(frozen=True)
class Luggage:
    """What a request takes along, by the tokens of its prompt."""

    size_bytes: Callable[[int], float]
    """Bytes that go over the link."""
    layers: int = 1
    """Layers of the target, whose caches may leave one by one."""
    redraft_s: Callable[[int], float] | None = None
    """Seconds in which the draft reads the prompt where the request decodes; None where it need
    not.
    """
    on_target: bool = False
    """Whether it does so on the target's device, as a head."""


class Receiver:
    """The side of a replica that decodes what others have read: it gives room, first come, first
    served, to those that look for it, and is what a router sees of the replica.
    """

    def __init__(self, replica: Scheduler, number: int, lane: Lane) -> None:
        self.replica = replica
        self.number = number
        self.lane = lane
        """The lane on which the draft reads a prompt again."""
        self._asking: deque[tuple[Request, Callable[[], object]]] = deque()
        self._coming = 0
        """Requests that are to come, or on their way."""
        replica.grants = self._grant

    @property
    def waiting(self) -> int:
        """Return how many requests look for blocks, or wait for a place."""
        return len(self._asking) + self.replica.waiting

    @property
    def outstanding(self) -> int:
        """Return how many requests have not got their last token, those on their way included."""
        return self._coming + self.replica.outstanding

    @property
    def kv_use(self) -> float:
        """Return the share of the cache that requests have."""
        return self.replica.kv_use

    def cached(self, request: Request) -> int:
        """Return 0: what is handed over is not shared."""
        return 0

    def report_to(self, report: Report) -> None:
        """Do nothing: what is handed over is not shared."""

    def submit(self, request: Request) -> None:
        """Raise :class:`BrokenRunError`: nobody comes here with a prompt to be read."""
        raise BrokenRunError(f"request {request.index} came to a replica that only decodes")

    def ring(self) -> None:
        """Look now whether there is something to do."""
        self.replica.ring()

    def ask(self, guest: Request, then: Callable[[], object], now: float) -> None:
        """Give ``guest`` room for a request as soon as there is some, and call ``then``."""
        self._coming += 1
        self._asking.append((guest, then))
        self._grant(now)

    def _grant(self, now: float) -> None:
        """Give room to those that look for it; who was preempted here goes first."""
        queues = self.replica.queues
        policy = self.replica.policy
        while self._asking and not queues.waiting:
            guest, then = self._asking[0]
            self.replica.ledger.hold(now)
            tokens = policy.entry_tokens(queues, guest)
            if not self.replica.memory.hold(guest, tokens, policy.spare_blocks(queues)):
                return
            self._asking.popleft()
            then()

    def land(self, request: Request, now: float) -> None:
        """Take a request up that has come."""
        self._coming -= 1
        self.replica.take_over(request, now)

    def check(self) -> None:
        """Raise :class:`BrokenRunError` unless everybody has come who was to come."""
        if self._coming or self._asking:
            raise BrokenRunError(f"{self._coming} requests were to be handed over and did not come")


@dataclass(slots=True, eq=False)
class Transit:
    """A request on its way from the replica that reads it to the one that decodes it."""

    request: Request
    guest: Request
    """Who holds its blocks where it decodes."""
    sender: Scheduler
    number: int
    """Number of the sender among all replicas."""
    receiver: Receiver
    read_s: float = 0.0
    """When its prompt was read."""


class Between:
    """Hands requests over: chooses who decodes them, books the link, and keeps its books."""

    def __init__(
        self,
        handover: Handover,
        luggage: Luggage,
        environment: Environment,
        world: World,
        random: Generator,
    ) -> None:
        self.handover = handover
        self.luggage = luggage
        self.world = world
        self.ledger = Ledger(Blocks())
        self.room_wait = Sketch()
        """Seconds for which requests waited for blocks where they decode, before their prefill or
        behind it.
        """
        self.link_wait = Sketch()
        """Seconds for which they then waited for the link, overlap left out."""
        self.transfer = Sketch()
        """Seconds of the transfer that are seen: from when it could begin behind the prefill, or
        from its end where it began before.
        """
        self.redraft = Sketch()
        """Seconds until the draft had read the prompt again."""
        self.transfers = 0
        self.size_bytes = 0.0
        """Bytes that went over, of all requests."""
        self.link_s = 0.0
        """Seconds for which links were busy, summed over links."""
        self._environment = environment
        self._random = random
        self._dealer: Dealer
        self._receivers: list[Receiver] = []
        self._reserved: dict[Request, Transit] = {}

    def open(self, dealer: Dealer, receivers: list[Receiver]) -> None:
        """Hand requests over to these replicas, of which ``dealer`` chooses."""
        self._dealer = dealer
        self._receivers = receivers

    def reserve(self, request: Request, sender: Scheduler, number: int) -> None:
        """Let a request wait at ``sender`` until there is room where it will decode."""
        receiver = self._choose(request)
        guest = request.guest()
        sender.announce(request)

        def granted() -> None:
            request.granted_s = self._environment.now
            self._reserved[request] = Transit(request, guest, sender, number, receiver)
            sender.let_in(request)

        receiver.ask(guest, granted, self._environment.now)

    def _choose(self, request: Request) -> Receiver:
        chosen = self._dealer.replica_for(request)
        if not isinstance(chosen, Receiver):
            raise BrokenRunError(f"request {request.index} was sent where none is taken over")
        return chosen

    def take(self, sender: Scheduler, number: int, request: Request, now: float) -> None:
        """Take a request from the replica that has read its prompt."""
        if self.handover.shown_by == "prefill":
            sender.ledger.show_first(request, 1, now, sender.cost.outside_s)
        sender.hand_on(request, now)
        self.ledger.take_over(request, now)
        transit = self._reserved.pop(request, None)
        if transit:
            transit.read_s = now
            self._carry(transit)
            return
        receiver = self._choose(request)
        guest = request.guest()
        transit = Transit(request, guest, sender, number, receiver, now)
        receiver.ask(guest, partial(self._carry, transit), now)

    def _carry(self, transit: Transit) -> None:
        """Book the transfer of a request, now that there is room for it."""
        now = self._environment.now
        request = transit.request
        luggage = self.luggage
        size = luggage.size_bytes(request.prompt_tokens)
        seconds = self.handover.seconds(size, self._random)
        last_s = self.handover.last_layer_s(size, luggage.layers)
        lanes = self._lanes(transit)
        free_s = max(lane.free_at for lane in lanes)
        began_s = request.admitted_s if transit.read_s == now else now
        looked_s = now - transit.read_s
        if self.handover.routing == "decode_first":
            looked_s = request.granted_s - request.arrival_s
        end_s = self.handover.end_s((began_s, now), free_s, seconds, last_s, luggage.layers)
        begin_s = max(free_s, end_s - seconds)
        for lane in lanes:
            lane.book(begin_s, end_s, "KV")
            self.link_s += seconds
        waited_s = max(0.0, end_s - seconds - now)
        self.room_wait.add(looked_s)
        self.link_wait.add(waited_s)
        self.transfer.add(end_s - now - waited_s)
        self.transfers += 1
        self.size_bytes += size
        arrival = at(self._environment, end_s)
        arrival.callbacks.append(lambda _: self._arrived(transit))

    def _lanes(self, transit: Transit) -> list[Lane]:
        """Return the lanes that a transfer takes: that of its two replicas, or one of each."""
        sender = transit.number
        receiver = transit.receiver.number
        if self.handover.shared:
            names = [f"handover from {sender}", f"handover to {receiver}"]
        else:
            names = [f"handover {sender} to {receiver}"]
        return [self.world.lane(name) for name in names]

    def _arrived(self, transit: Transit) -> None:
        """Give back the blocks where the prompt was read; let the draft read it again where it
        has to.
        """
        now = self._environment.now
        transit.sender.give_back(transit.request, now)
        self.world.forget()
        redraft_s = self.luggage.redraft_s
        if redraft_s is None:
            self._land(transit, now)
            return
        seconds = redraft_s(transit.request.prompt_tokens)
        read_again = transit.receiver.lane.start(seconds, "draft prefill")
        read_again.callbacks.append(lambda _: self._land(transit, now))

    def _land(self, transit: Transit, arrived_s: float) -> None:
        """Let a request go on where it decodes, with the blocks that are held for it."""
        now = self._environment.now
        guest = transit.guest
        self.redraft.add(now - arrived_s)
        request = replace(
            transit.request,
            blocks=guest.blocks,
            slots=guest.slots,
            shared=0,
            cached=transit.request.prompt_tokens,
        )
        self.ledger.hand_on(request, now)
        transit.receiver.land(request, now)

    def check(self) -> None:
        """Raise :class:`BrokenRunError` unless whoever was taken up has been handed on."""
        self.ledger.tally.check()
        for receiver in self._receivers:
            receiver.check()
        if self._reserved:
            raise BrokenRunError(f"{len(self._reserved)} requests hold blocks and never came")
