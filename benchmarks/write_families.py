"""Write what the classes of transformers take where a config.json is silent: ``python
benchmarks/write_families.py``.

``families.yaml`` beside the reader names the families; their values are written anew from the
transformers that is installed. ``tests/test_config_defaults.py`` holds the file against it. To add
a family, add its ``model_type`` to ``takes``.
"""

import json
import re
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from simulator.inputs.models import config_fields

FILE = Path(config_fields.__file__).with_name("families.yaml")
SWITCHES = ("use_sliding_window",)
"""Fields whose default of false counts: a window that is stated beside it is none."""
HEAD = """\
# What classes of transformers {version} take where a config.json is silent; made by \
benchmarks/write_families.py.
#
# takes: by model_type, of the fields that may change the cost those whose default is not null, \
false or 0.
# composites: the model_type of the text model in a file of several towers, and whether such files \
tie by default.
# read_too: model types of code that transformers does not hold; their files state every size.
# not_read: architectures that transformers holds and that cannot be expressed here; all others \
are read like llama, as unknown.
"""


def default_config(kind: str) -> Any:
    """Return the configuration of a family with all its defaults."""
    # slow, and seldom installed
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CONFIG_MAPPING[kind]()


def as_file(config: Any) -> dict[str, Any]:
    """Return a configuration as a file with every field holds it."""
    stated: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return stated


def taken(kind: str) -> dict[str, Any]:
    """Return the defaults of a family's class that may change the cost, as written there: null is
    left to the reader.
    """
    stated = {field.name: field.default for field in fields(default_config(kind))}
    return {
        name: value
        for name, value in sorted(stated.items())
        if (value or name in SWITCHES) and _counts(name, value)
    }


def _counts(name: str, value: object) -> bool:
    """Return whether a default may change the cost; layers for drafting are no default, as files
    that are silent have none.
    """
    if isinstance(value, str):
        return value in config_fields.FIELDS["two_matrices"]["activations"]
    stated = config_fields.FIELDS
    if name in stated["names"]["num_nextn_predict_layers"] or not isinstance(value, int | float):
        return False
    read = set(re.findall(r"\w+", str(stated["mixers"]))).union(*stated["names"].values())
    return name in read | {"vocab_size_per_layer_input"} or not config_fields.HARMLESS.fullmatch(
        name
    )


def composite(kind: str) -> dict[str, Any]:
    """Return of which family the text model of a composite is by default, and whether the composite
    ties its embeddings.
    """
    config = default_config(kind)
    return {
        "of": config.text_config.model_type,
        "tie_word_embeddings": bool(getattr(config, "tie_word_embeddings", False)),
    }


def written() -> dict[str, Any]:
    """Return the content of the file, by what is installed."""
    stated = yaml.safe_load(FILE.read_text("utf-8"))
    stated["takes"] = {kind: taken(kind) for kind in sorted(stated["takes"])}
    stated["composites"] = {kind: composite(kind) for kind in sorted(stated["composites"])}
    return dict(stated)


def main() -> None:
    import transformers

    body = yaml.safe_dump(written(), sort_keys=False, width=140, default_flow_style=None)
    FILE.write_text(HEAD.format(version=transformers.__version__) + body, "utf-8")


if __name__ == "__main__":
    main()
