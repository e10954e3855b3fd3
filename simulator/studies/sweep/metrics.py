"""Name what a point of a sweep is measured by: columns with units, labels of plots, and which way
is better.
"""

from pathlib import Path
from typing import NamedTuple

import yaml

STATED = Path(__file__).with_name("metrics.yaml")


class Metric(NamedTuple):
    """Names a measure on a plot, and says whether less of it is better."""

    label: str
    less_is_better: bool = True


METRICS = {
    name: Metric(**stated) for name, stated in yaml.safe_load(STATED.read_text("utf-8")).items()
}
"""The measures by column; the law gives the first five, replay and simulation give all."""
LAW_METRICS = tuple(METRICS)[:5]
