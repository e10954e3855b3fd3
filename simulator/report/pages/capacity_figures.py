"""Figure of the load that scenarios carry, as SVG text: who piles up requests under each traffic, and who does not."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from simulator.report.figures import BLUE, GREEN, GREY, LOOK, ORANGE, VERMILLION, WIDTH_IN, svg
from simulator.report.run_summary import number, short_names
from simulator.studies.capacity import Capacity

COLOURS = (BLUE, GREEN, VERMILLION, ORANGE, "#CC79A7", "#56B4E9")


def capacity_figure(found: Sequence[Capacity]) -> str:
    """A column for each traffic. Above: requests in the system over time, as offered; below: carried against offered rate."""
    traffics = list(dict.fromkeys(one.workload for one in found))
    names = list(dict.fromkeys(one.scenario for one in found))
    short = dict(zip(names, short_names(names), strict=True))
    colours = dict(zip(names, COLOURS * len(names), strict=False))
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN * 1.15, 5.2), layout="constrained")
        panels = figure.subplots(2, len(traffics), squeeze=False, height_ratios=(3, 2))
        for column, traffic in enumerate(traffics):
            over_time, carried = panels[0][column], panels[1][column]
            here = [one for one in found if one.workload == traffic]
            for one in here:
                run = one.offered
                over_time.plot(run.hours[1:], run.in_system[1:], color=colours[one.scenario], lw=1.1, label=short[one.scenario])
            over_time.set_yscale("symlog", linthresh=1.0)
            over_time.set_ylim(bottom=0)
            over_time.set_xscale("log")
            over_time.set_xlabel("hours; ends with the last request")
            over_time.set_ylabel("" if column else "requests in the system")
            over_time.set_title(traffic, size=8, loc="left", color=GREY)
            places, rates = range(len(here)), [one.carried_per_s for one in here]
            bars = carried.barh(places, rates, color=[colours[one.scenario] for one in here], height=0.7)
            carried.bar_label(bars, [number(rate, 3) for rate in rates], padding=2, size=7)
            carried.margins(x=0.12)
            carried.axvline(here[0].offered.requests_per_s, color=GREY, ls="--", lw=1)
            carried.set_yticks(places, [short[one.scenario] for one in here] if not column else [])
            carried.invert_yaxis()
            carried.set_xlabel("requests per s carried; dashed: offered")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(names)))
        return svg(figure)
