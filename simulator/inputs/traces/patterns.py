"""The wordings of engines, as regular expressions, and what is said where one is missing."""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from simulator.core.faults import BadInput

STATED = Path(__file__).with_suffix(".yaml").read_text("utf-8")
PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern) for name, pattern in yaml.safe_load(STATED).items()
}
NO_COUNTERS = "no speculative-decoding counters in this file; is speculation switched on? Expected "


def unknown(message: str) -> BadInput:
    """Return the exception for a count that a file lacks."""
    return BadInput.at("", f"{message}; acceptance is unknown")
