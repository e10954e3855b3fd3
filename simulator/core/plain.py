"""Data as JSON and YAML have them: names, numbers, texts, lists and mappings."""

from collections.abc import Mapping
from typing import Any, TypeAlias

PlainData: TypeAlias = dict[str, Any]
"""A mapping of names to plain data."""
PlainMapping: TypeAlias = Mapping[str, Any]
"""The same where nobody writes to it."""
