"""Whether to split: the best split of some devices beside the same devices together, both run to
their end.

The devices are those of the answer, or two replicas where it has one; the strategy is that of the
answer, in every placement of it that has just so many devices.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from simulator.core.parallel import say
from simulator.core.plain import PlainData
from simulator.studies.plan.file import APART, Candidate, Plan
from simulator.studies.plan.search import Finding, Search, examine, rank
from simulator.studies.plan.splits import Balance, balance, split_as

SIZES = (2, 4, 8, 16, 32)
"""Replicas of which it is said how much of their throughput a split keeps."""


@dataclass(frozen=True)
class SplitOrNot:
    """Holds the best fleet of some devices whose prefill and decode are apart, and the best in
    which every replica does both.
    """

    together: Finding | None
    """None where no number of replicas that do both has as many devices."""
    apart: Finding | None
    """None where the answer's strategy or devices cannot be split."""
    refused: str
    """Why they cannot; empty where they can."""
    cheapest: Finding | None
    """The cheapest split of all that is recommended; None where none was compared."""
    balance: Balance | None
    """The work of a request in the replicas of the split."""
    missing: str = ""
    """Which devices are compared that there are fewer of to use, in words; empty for none."""

    @property
    def kept(self) -> dict[int, float]:
        """Return by replicas, the share of their throughput that their best split keeps by law."""
        if self.balance is None:
            return {}
        return {replicas: self.balance.kept(replicas) for replicas in SIZES}

    @property
    def handover_s(self) -> float | None:
        """Return the mean seconds that a request of the split waits for its link, and for what its
        transfer shows; None without a split.
        """
        if self.apart is None or self.apart.outcome is None:
            return None
        handover = self.apart.outcome.handover
        if handover is None or not handover.transfers:
            return None
        return float(handover.link.mean + handover.transfer.mean)


def split_or_not(searched: Search, chosen: Finding) -> SplitOrNot | None:
    """Return the comparison for the answer of a plan; None where the plan splits nothing."""
    plan = searched.plan
    if plan.file.apart == "no":
        return None
    splits = [entry for entry in searched.findings if entry.candidate.split]
    recommended = filter(searched.recommended, splits)
    cheapest = min(recommended, key=rank, default=None)
    replicas = max(2, chosen.replicas)
    devices = chosen.candidate.fleet_devices(replicas)
    whole = [entry for entry in plan.candidates if _alike(entry, chosen.candidate)]
    templates = [entry for entry in plan.apart if _alike(entry, chosen.candidate)]
    say("the same devices together, and apart")
    together = _best(searched, _with_devices(whole, devices))
    apart = _best(searched, _splits_with_devices(templates, devices))
    refused = "" if apart else _refused(plan, chosen)
    work = balance(apart.candidate.loaded) if apart else None
    return SplitOrNot(together, apart, refused, cheapest, work, _missing(plan, devices))


def _missing(plan: Plan, devices: Mapping[str, int]) -> str:
    """Return which of these devices there are fewer of to use, in words."""
    said = []
    for name, count in devices.items():
        usable = plan.file.devices[name].usable
        if usable < count:
            said.append(f"{count} x {name}, of which {usable} may be used")
    return " and ".join(said)


def _refused(plan: Plan, chosen: Finding) -> str:
    """Return why the strategy of the answer cannot be split on its hardware."""
    family = (chosen.candidate.hardware, chosen.candidate.strategy)
    for entry in plan.left_out:
        if entry.name.endswith(APART) and entry.family == family:
            return entry.reason
    return "no split has as many devices"


def _alike(entry: Candidate, other: Candidate) -> bool:
    """Return whether two candidates have a strategy and hardware in common, split or not."""
    return (entry.hardware, entry.strategy) == (other.hardware, other.strategy)


def _with_devices(
    candidates: Iterable[Candidate], devices: dict[str, int]
) -> Iterator[tuple[Candidate, int]]:
    """Yield the candidates of which some replicas have exactly these devices, with their number."""
    for candidate in candidates:
        one = candidate.devices
        units = min(devices.get(name, 0) // count for name, count in one.items())
        replicas = units * candidate.sharing
        if devices == candidate.fleet_devices(replicas):
            yield candidate, replicas


def _splits_with_devices(
    templates: Iterable[Candidate], devices: dict[str, int]
) -> Iterator[tuple[Candidate, int]]:
    """Yield the splits nearest to their balance that have exactly these devices, with their
    replicas.
    """
    for candidate, replicas in _with_devices(templates, devices):
        if replicas > 1:
            for split in balance(candidate.loaded).nearest(replicas):
                yield split_as(candidate, split), replicas


def _best(searched: Search, fleets: Iterable[tuple[Candidate, int]]) -> Finding | None:
    """Return the fleet that keeps the SLO with the most to spare, else that misses by least; each
    runs to its end, unless it was seen to.
    """
    ended = {}
    for finding in searched.findings:
        if finding.measured:
            ended[finding.candidate.name, finding.replicas] = finding
    ran = []
    for candidate, replicas in fleets:
        known = ended.get((candidate.name, replicas))
        ran.append(known or examine(candidate, replicas, "end"))
    return min(ran, key=lambda entry: (not entry.kept, entry.tightest.strain), default=None)


def goodput_per_s(finding: Finding) -> float | None:
    """Return good requests a second of a run; None where none was timed."""
    if finding.outcome is None:
        return None
    return finding.outcome.serving.counted.goodput_requests_per_s


def split_data(compared: SplitOrNot | None) -> PlainData | None:
    """Return a comparison as plain data, but for its fleets."""
    if compared is None:
        return None
    data: PlainData = {"refused": compared.refused or None}
    for name in ("together", "apart", "cheapest"):
        finding = getattr(compared, name)
        data[name] = finding and finding.candidate.name
    data["goodput_requests_per_s"] = {
        "together": compared.together and goodput_per_s(compared.together),
        "apart": compared.apart and goodput_per_s(compared.apart),
    }
    data["read_share"] = compared.balance and compared.balance.read_share
    data["throughput_kept"] = compared.kept
    handover_s = compared.handover_s
    data["handover_ms"] = None if handover_s is None else handover_s * 1e3
    return data
