r"""Where speculation stops being faster, by law: batch, context or acceptance changed alone.

    speed-up |--..__                looked at: powers of two, and the place that is asked about;
           1 |------`--..__-----    between two of them on different sides, halved until the first
             +-------x-----------   value behind the turn is known

A turn and its return between two neighbours of the grid stay unseen.
"""

from collections.abc import Callable
from math import inf

from simulator.core.acceptance.sources import Rates, odds_of
from simulator.core.strategies.common.law import Law, OddsOf
from simulator.scenario import Loaded, Scenario
from simulator.scenario.decision.answer import AcceptanceTurn, Along, Flips, Turn
from simulator.scenario.evaluate import plain_tpot_s

MOST_BATCH = 256
"""Batch up to which a turn is looked for; under arrivals no larger than the cache has room for."""
LEAST_CONTEXT = 128
MOST_CONTEXT = 131_072
"""Cached tokens between which a turn is looked for, as far as model and cache allow."""
CONTEXT_SHARE = 1 / 64
"""Part of a context to which a turn is known."""
CHANCE_STEP = 1e-3
"""Chance of a draft token to which a turn is known."""


def flips(loaded: Loaded, batch: int) -> Flips:
    """Return where the speed-up by law of a tuned scenario is 1, around ``batch`` requests at its
    mean context; in a closed loop around the clients of a replica.
    """
    scenario = loaded.scenario
    context = scenario.mean_context
    odds = odds_of(loaded.acceptance(), scenario.exit)

    def at_context(tokens: int) -> bool:
        return speedup_at(scenario, odds, batch, tokens) > 1.0

    return Flips(
        batch=_by_batch(scenario, odds, batch),
        context=along(
            at_context,
            context,
            min(context, LEAST_CONTEXT),
            _most_context(scenario, batch),
            CONTEXT_SHARE,
        ),
        acceptance=_acceptance(loaded, odds, batch),
    )


def _by_batch(scenario: Scenario, odds: OddsOf, batch: int) -> Along:
    """Return the turns over the batch; in a closed loop over the clients of a replica, of which
    those wait for which the cache has no room.
    """
    context = scenario.mean_context
    requests = scenario.requests
    room = _room(scenario)

    def at_batch(size: int) -> bool:
        if requests.varies or (size <= room and size != scenario.batch):
            return speedup_at(scenario, odds, size, context) > 1.0
        clients = size * scenario.serving.decoding
        enough = max(requests.count, clients)
        asked = requests.model_copy(update={"concurrency": clients, "count": enough})
        waiting = scenario.replace(requests=asked)
        return speedup_at(waiting, odds, waiting.batch, context) > 1.0

    if scenario.strategy.traits.alone:
        return along(at_batch, batch, batch, batch)
    if requests.varies:
        most = max(batch, int(min(MOST_BATCH, room)))
        return along(at_batch, batch, 1, most)
    return along(at_batch, scenario.asked_batch, 1, max(scenario.asked_batch, MOST_BATCH))


def law_at(scenario: Scenario, odds: OddsOf, batch: int, context: int) -> Law:
    """Return the law of a batch at ``context`` cached tokens each, with the settings that the
    strategy has for it; under arrivals and sessions these are for all places, whatever the
    batch.
    """
    if scenario.requests.varies:
        strategy = scenario.schedule
    else:
        strategy = scenario.strategy.fitted_to(batch, scenario.stages)
    return strategy.law(
        scenario.cost,
        odds,
        batch,
        context,
        one_lane=scenario.one_lane,
        outputs=scenario.outputs,
    )


def speedup_at(scenario: Scenario, odds: OddsOf, batch: int, context: int) -> float:
    """Return the time per token of plain decoding over that of a scenario, by law, both for
    ``batch`` requests at ``context`` cached tokens each; where clients wait, for as many as run.
    """
    plain_s = plain_tpot_s(scenario, batch, context)
    return plain_s / float(law_at(scenario, odds, batch, context).tpot_s)


def along(
    faster: Callable[[int], bool], now: int, first: int, last: int, share: float = 0.0
) -> Along:
    """Return the turns of a function between two ends, each known to a ``share`` of its value."""
    grid = {now, first, last}
    grid |= {1 << power for power in range(last.bit_length()) if first < 1 << power < last}
    values = sorted(grid)
    side = faster(values[0])
    at_first = side
    turns = []
    before = values[0]
    for value in values[1:]:
        here = faster(value)
        if here != side:
            turns.append(Turn(_first_behind(faster, here, before, value, share), here))
            side = here
        before = value
    return Along(now, values[0], values[-1], at_first, tuple(turns))


def _first_behind(
    faster: Callable[[int], bool], behind: bool, low: int, high: int, share: float
) -> int:
    """Return the first value on the side of ``high``, by halving."""
    while high - low > max(1.0, share * high):
        middle = (low + high) // 2
        if faster(middle) == behind:
            high = middle
        else:
            low = middle
    return high


def _room(scenario: Scenario) -> float:
    """Return how many of the longest requests the cache of a replica has room for."""
    if scenario.kv_tokens is None:
        return inf
    _, _, longest = scenario.lengths
    return scenario.kv_tokens // (longest + _step_slots(scenario))


def _step_slots(scenario: Scenario) -> int:
    """Return the tokens for which a request gets room beyond those in its cache."""
    return scenario.serving.policy.step_slots(scenario.strategy.needs)


def _most_context(scenario: Scenario, batch: int) -> int:
    """Return the longest context to look at, which model and cache allow to every request of the
    batch.
    """
    most: float = MOST_CONTEXT
    if scenario.target:
        most = min(most, scenario.target.model.context_tokens or inf)
    if scenario.kv_tokens is not None:
        most = min(most, scenario.kv_tokens // batch - _step_slots(scenario))
    return max(scenario.mean_context, int(most))


def _acceptance(loaded: Loaded, odds: OddsOf, batch: int) -> AcceptanceTurn:
    """Return the acceptance at which both are equally fast, all draft tokens being kept with the
    same chance.

    A strategy whose law is solved one chance at a time, or whose windows follow the confidence that
    was recorded, is not asked for others: its step is taken to be as long as it is.
    """
    scenario = loaded.scenario
    context = scenario.mean_context
    own = law_at(scenario, odds, batch, context)
    plain_s = plain_tpot_s(scenario, batch, context)
    now = float(own.tokens_per_step)
    strategy = scenario.schedule
    if strategy.needs.single_rates or odds(strategy.window).gated:
        equal = now * float(own.tpot_s) / plain_s
        faster_at_best = equal < strategy.window + 1.0
        if equal <= 1.0 or not faster_at_best:
            return AcceptanceTurn(now, None, None, faster_at_best)
        return AcceptanceTurn(now, equal, None, faster_at_best)

    def at(chance: float) -> Law:
        accepted = scenario.at_rates(Rates((chance,)))
        return law_at(scenario, odds_of(accepted, scenario.exit), batch, context)

    def faster(thousandths: int) -> bool:
        return bool(at(thousandths * CHANCE_STEP).tpot_s < plain_s)

    most = round(1.0 / CHANCE_STEP)
    best = faster(most)
    if best == faster(0):
        return AcceptanceTurn(now, None, None, best)
    chance = round(_first_behind(faster, best, 0, most, 0.0) * CHANCE_STEP, 3)
    return AcceptanceTurn(now, float(at(chance).tokens_per_step), chance, best)
