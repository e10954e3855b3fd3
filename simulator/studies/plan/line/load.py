"""The load of a question: the busiest requests of a log, or the first turns of a file of sessions,
and what was read of it in words.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from simulator.core.plain import PlainData
from simulator.core.serving.load.sessions import SessionFile
from simulator.core.serving.load.traffic import TrafficFile
from simulator.inputs.logs import RecordedLog, read_log


def busiest(
    file: str, columns: Mapping[str, str], count: int, rate_per_s: float | None, context: int | None
) -> tuple[PlainData, list[str]]:
    """Return the workload of the ``count`` requests of a log that come closest together, and what
    was read, in words.

    Requests of more than ``context`` tokens are left out. Raises :class:`BadInput` for a log that
    cannot be read.
    """
    arrivals: PlainData = {"name": "file", "format": "log", "file": file}
    if columns:
        arrivals["columns"] = dict(columns)
    if rate_per_s:
        arrivals["rate_per_s"] = rate_per_s
    name = Path(file).name
    log = read_log(file, columns)
    said = [f"{name}: {words}" for words in log.words]
    limited = TrafficFile.model_validate(arrivals | {"drop_above_tokens": context})
    if dropped := limited.dropped:
        arrivals["drop_above_tokens"] = context
        said.append(
            f"{dropped:,} requests of more than {context:,} tokens left out: the context of the "
            "model is no longer"
        )
    at = [line.arrival_s for line in limited.lines()]
    if not at:
        raise limited.all_too_long(context, "the model's context") if context else limited.empty()
    said += _rate_said(name, log, rate_per_s)
    if len(at) <= count:
        return {"arrivals": arrivals}, said
    spans = []
    for first, last in zip(at, at[count - 1 :], strict=False):
        spans.append((last - first, first))
    span_s, from_s = min(spans)
    said.append(
        f"planned for the busiest {count:,} requests in a row, from {from_s:,.0f} s on, within "
        f"{span_s:,.0f} s"
    )
    arrivals["from_s"] = from_s
    return {"arrivals": arrivals, "count": count}, said


def talked(
    file: str, count: int, rate_per_s: float | None, context: int | None
) -> tuple[PlainData, list[str]]:
    """Return the workload of the first ``count`` turns of a file of sessions, and what was read, in
    words; ``rate_per_s`` sessions begin in a second, by default as recorded.

    A session ends before a turn of more than ``context`` tokens. Raises :class:`BadInput` for a
    file that cannot be read, or says nothing of times where no rate is stated.
    """
    read_in = SessionFile(file=file, context_tokens=context)
    every = read_in.recorded()
    sessions = list(read_in.sessions(0))
    name = Path(file).name
    turns = sum(len(session.turns) for session in sessions)
    said = [f"{name}: {turns:,} turns of {len(sessions):,} sessions"]
    left_out = sum(len(session.turns) for session in every) - turns
    if left_out:
        said.append(
            f"{left_out:,} turns from the first of more than {context:,} tokens on left out: the "
            "context of the model is no longer"
        )
    if not sessions:
        raise read_in.fault(0, "holds no turn within the context of the model")
    taken = 0
    begun: list[float | None] = []
    for session in sessions:
        if taken >= count:
            break
        taken += len(session.turns)
        begun.append(session.begin_s)
    if turns > count:
        said.append(f"planned for the first {count:,} turns, of {len(begun):,} sessions")
    arrivals, words = _begun(read_in, begun, rate_per_s)
    sessions_file = read_in.model_dump(exclude_none=True)
    workload = {"arrivals": arrivals, "sessions": sessions_file, "count": min(count, turns)}
    return workload, [*said, *words]


def _begun(
    file: SessionFile, begun: Sequence[float | None], rate_per_s: float | None
) -> tuple[PlainData, list[str]]:
    """Return when sessions begin, which did at ``begun`` (s; None: not recorded), and what a stated
    rate does to that, in words.
    """
    name = Path(file.file).name
    times = [begin_s for begin_s in begun if begin_s is not None]
    if rate_per_s is None:
        if not times:
            raise file.fault(
                0, "does not say when sessions begin; state --rate, sessions in a second"
            )
        return {"name": "recorded"}, []
    lasted_s = times[-1] - times[0] if times else 0.0
    if not lasted_s:
        words = f"{name}: sessions begin at {rate_per_s:g} a second (Poisson), as stated"
        return {"name": "poisson", "rate_per_s": rate_per_s}, [words]
    scale = rate_per_s * lasted_s / (len(times) - 1)
    words = (
        f"{name}: the beginnings of its sessions are stretched to {rate_per_s:g} a second in the "
        "mean, as stated; times within them stay"
    )
    return {"name": "recorded", "rate_scale": scale}, [words]


def _rate_said(file: str, log: RecordedLog, rate_per_s: float | None) -> list[str]:
    """Return what a stated rate does to a log, in words; nothing without one, and for a single
    request.
    """
    if rate_per_s is None:
        return []
    if not log.timed:
        return [f"{file} has no times: Poisson arrivals at {rate_per_s:g} a second, as stated"]
    if len(log.requests) <= 1:
        return []
    return [f"{file}: its times are stretched to {rate_per_s:g} a second in the mean, as stated"]
