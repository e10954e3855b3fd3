"""What a token costs at night: the electricity of a run by day and by night.

A package of its own, as a user would write one: the folder goes on the path, and specsim finds it
by its entry point.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.report.blocks import Paragraph, Section, Table
from simulator.report.columns import Column, table
from simulator.report.wording import number
from simulator.scenario.result.run_result import RunResult

TITLE = "What a token costs at night"
J_PER_KWH = 3.6e6


class Tariff(NamedTuple):
    """A price of electricity, and what a million tokens costs at it."""

    hours: str
    usd_per_kwh: float
    usd_per_million_tokens: float


def section(result: RunResult) -> Section | None:
    """Return the section; None where a device states no power."""
    expenses = result.expenses
    if expenses is None or expenses.busy_j_per_token is None:
        return None
    kwh_per_million = expenses.busy_j_per_token * 1e6 / J_PER_KWH
    day = Tariff("day, 6 to 22", 0.30, 0.30 * kwh_per_million)
    night = Tariff("night, 22 to 6", 0.12, 0.12 * kwh_per_million)
    return Section(TITLE, [_prices([day, night]), Paragraph(sentence(day, night))])


def _prices(tariffs: list[Tariff]) -> Table:
    columns: list[Column[Tariff]] = [
        Column("hours", lambda tariff: tariff.hours),
        Column("USD per kWh", lambda tariff: number(tariff.usd_per_kwh)),
        Column("USD per million tokens", lambda tariff: number(tariff.usd_per_million_tokens)),
    ]
    return table("Electricity of a million tokens", tariffs, columns)


def sentence(day: Tariff, night: Tariff) -> str:
    """Return what the night saves."""
    saved = day.usd_per_million_tokens - night.usd_per_million_tokens
    return (
        f"At night a million tokens takes {number(night.usd_per_million_tokens)} USD of "
        f"electricity, {number(saved)} USD less than by day."
    )
