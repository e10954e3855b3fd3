"""A model by the name that somebody gives it: of the catalogue, of Hugging Face, or of a file."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.core.cost.model import ModelSpec
from simulator.core.faults import BadInput, did_you_mean
from simulator.core.identifiers import HUB_ID
from simulator.inputs.catalogue import OF_MODELS, Catalogue, shown
from simulator.inputs.document import read
from simulator.inputs.models.huggingface import read_config
from simulator.inputs.models.quantised import quantised
from simulator.inputs.schema import validate


@dataclass(frozen=True)
class NamedModel:
    """Is a model that a name led to: what a file calls it, its shapes and the id by which it is
    published.
    """

    reference: str
    spec: ModelSpec
    published_as: str
    weights: str = ""
    """Format of the weights that the name states; empty for none."""
    checkpoint: str = ""
    """The repository that the name is the id of; empty for a name of the catalogue or of a file."""

    def placed(self) -> dict[str, str]:
        """Return the fields of a placement that say which model it is, and which of its
        checkpoints where that is not the first.
        """
        if self.checkpoint in ("", next(iter(self.spec.huggingface), "")):
            return {"model": self.reference}
        return {"model": self.reference, "checkpoint": self.checkpoint}

    @property
    def known_as(self) -> str:
        """Return the id by which it is published, or what a file calls it."""
        return self.published_as or self.reference


def find_model(name: str, catalogue: Catalogue, option: str) -> NamedModel:
    """Return the model of a name of the catalogue, an id of Hugging Face, quantised or not, a
    folder with a ``config.json`` or a GGUF file.

    Raises :class:`BadInput` that says how to get one, and for an id that leaves the format of its
    weights open.
    """
    names = catalogue.names("model")
    if name in names:
        spec = _spec(names[name])
        published_as = next(iter(spec.huggingface), "")
        return NamedModel(name, spec, published_as)
    if known := identified(name, catalogue):
        _, spec = known
        return NamedModel(*known, name, checkpoint=_published(spec, name))
    path = Path(name)
    of_a_model = path.suffix in OF_MODELS
    if (path / "config.json").is_file() or (path.is_file() and of_a_model):
        reference = os.path.relpath(path)
        if "/" not in reference:
            reference = f"./{path}"
        return NamedModel(reference, read_config(path), "")
    there = path.exists()
    if of_a_model or there or name.startswith((".", "/", "~")):
        raise BadInput.at(option, no_file(name, there))
    if of_quantised := _quantised(name, catalogue, option):
        return of_quantised
    ids = [id_ for known_file in names.values() for id_ in _spec(known_file).huggingface]
    perhaps = did_you_mean(name, [*ids, *names])
    raise BadInput.at(option, unknown_model(name, perhaps))


def _quantised(name: str, catalogue: Catalogue, option: str) -> NamedModel | None:
    """Return the model of an id that states a format, whoever quantised it; None for another."""
    taken_apart = quantised(name, option)
    if taken_apart is None:
        return None
    base, weights = taken_apart
    repository = name if "/" in name and HUB_ID.fullmatch(name) else ""
    for id_ in (base, base.rpartition("/")[2]):
        known = identified(id_, catalogue)
        if known:
            reference, spec = known
            published = _published(spec, id_)
            return NamedModel(reference, spec, published, weights, repository or published)
        if id_ in catalogue.names("model"):
            spec = _spec(catalogue.names("model")[id_])
            published = next(iter(spec.huggingface), "")
            return NamedModel(id_, spec, published, weights, repository)
    return None


def _published(spec: ModelSpec, name: str) -> str:
    """Return the id of a model as its file lists it, its owner named or not."""
    wanted = name.lower()
    for known in spec.huggingface:
        if wanted in (known.lower(), known.lower().partition("/")[2]):
            return known
    return name


def no_file(name: str, there: bool) -> str:
    """Return what is wrong with the path of a model, and what a model may be."""
    if there:
        fault = "is neither a folder with a config.json nor a .json or .gguf file"
    else:
        fault = f"there is no file {name}"
    return (
        f"{fault}; a model is a name of the catalogue, an id of Hugging Face that it knows, a "
        "folder with a config.json, or a .gguf file"
    )


def unknown_model(name: str, perhaps: str) -> str:
    """Return that a name leads to no model, and how to get its shapes."""
    local = name.rpartition("/")[2]
    return (
        "is neither a model of the catalogue, nor an id that it knows, nor a folder with a "
        f"config.json{perhaps}; get its config.json: hf download {name} config.json --local-dir "
        f"{local}, then --model ./{local}"
    )


def identified(name: str, catalogue: Catalogue) -> tuple[str, ModelSpec] | None:
    """Return the catalogue's name and the shapes of an id of Hugging Face, with its owner or
    without; None for an unknown one.
    """
    wanted = name.lower()
    for ours, path in catalogue.names("model").items():
        spec = _spec(path)
        for known in map(str.lower, spec.huggingface):
            if wanted in (known, known.partition("/")[2]):
                return ours, spec
    return None


@cache
def _spec(path: Path) -> ModelSpec:
    document = read(path, shown(path))
    document.data.setdefault("name", path.stem)
    return validate(ModelSpec, document)
