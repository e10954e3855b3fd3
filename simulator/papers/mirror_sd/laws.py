"""Closed forms of Mirror-SD over its durations, in the paper's symbols."""

from typing import NamedTuple

import numpy as np

from simulator.core.numeric import Numbers
from simulator.core.strategies.common.beside import overlap_s


class MirrorDurations(NamedTuple):
    """These are seconds, in the paper's symbols."""

    prefix: float = 0.0
    rv_ee: float = 0.0
    suffix: float = 0.0
    draft: float = 0.0
    rv_fv: float = 0.0
    redraft: float = 0.0
    contention: float = 1.0
    """Not a duration: how much slower target and draft are while both use one memory."""


def batching_rule(requests: int) -> tuple[int, int]:
    """Return (kappa, streams) for a batch, read as a step function between the sizes of App. D.1
    (MSD-10).
    """
    for size, kappa, streams in ((64, 1, 1), (32, 2, 1), (16, 4, 1)):
        if requests >= size:
            return kappa, streams
    return 8, 2


def exposed_draft(durations: MirrorDurations) -> Numbers:
    """Return the seconds of drafting that the suffix does not hide: max(0, T_d - Delta) (MSD-3,
    MSD-13).
    """
    return np.maximum(0.0, durations.draft - durations.suffix)


def relative_overhead(durations: MirrorDurations, serial_draft: float) -> Numbers:
    """Return the exposed draft time over ``serial_draft`` seconds of serial drafting (MSD-11; the
    paper gives words only).
    """
    return exposed_draft(durations) / serial_draft


def eq_10(t: MirrorDurations, waits: bool) -> Numbers:
    """Return the seconds of Eq. 10 with the fallback it leaves out and the contention of one
    memory.

    ``waits``: the whole batch waits for a window that is written again; else it may end later than
    the draft's next one begins.
    """
    if waits:
        late = 0.0
    else:
        late = np.maximum(0.0, t.redraft - t.prefix - t.rv_ee)
    overlap = overlap_s(t.suffix, t.draft + late, t.contention)
    return (t.redraft if waits else 0.0) + t.prefix + t.rv_ee + overlap + t.rv_fv


def in_turn(t: MirrorDurations, one_lane: bool) -> tuple[Numbers, ...]:
    """Return the parts of Eq. 10 that follow one another: of suffix and draft the longer one, or
    both on one lane.
    """
    before = (t.redraft, t.prefix, t.rv_ee)
    if one_lane:
        return (*before, t.suffix, t.draft, t.rv_fv)
    return (*before, np.maximum(t.suffix, t.draft), t.rv_fv)
