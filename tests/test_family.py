"""The family of the shipped traces is trained member by member and read back as it was rounded, on
text by chance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'record'")
pytest.importorskip("tokenizers", reason="needs the extra 'record'")

from benchmarks.family import members, pair, training
from benchmarks.family.network import VOCABULARY
from benchmarks.family.pair import Family, weights_hash

pytestmark = pytest.mark.full
TOKENS = 17


class ByChance:
    """Stands for the corpus, which needs a Debian."""

    def batch(self, rng: np.random.Generator, rows: int) -> Any:
        return torch.from_numpy(rng.integers(VOCABULARY, size=(rows, TOKENS)))


def test_every_member_learns_and_the_pair_is_read_from_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {
        name: members.TrainingSchedule(1, one.rate, one.seed, rows=2)
        for name, one in members.SCHEDULES.items()
    }
    for module in (members, training):
        monkeypatch.setattr(module, "SCHEDULES", short)
    monkeypatch.setattr(training, "own_text", lambda *_: torch.zeros(4, TOKENS, dtype=torch.long))
    family = members.Members.blank()
    before = {name: weights_hash(module) for name, module in family.modules.items()}
    text: Any = ByChance()
    loss = {name: training.train_member(name, family, text, tmp_path) for name in short}
    assert list(loss) == list(family.modules)
    assert all(weights_hash(module) != before[name] for name, module in family.modules.items())
    again = training.train_member("draft", members.Members.blank(), text, tmp_path)
    assert again == loss["draft"], "a finished member is loaded, not trained again"
    path = tmp_path / "family.npz"
    pair.write(path, {"models": family.describe(loss, TOKENS)}, family.modules)
    whole, small = members.Members.read(path), Family.read(path)
    assert set(whole.modules) == set(short)
    assert set(small.modules) == {"target", "draft"}
    assert weights_hash(small.target) == weights_hash(whole.target) == weights_hash(family.target)
    assert weights_hash(small.draft) == weights_hash(whole.draft) != weights_hash(family.draft), (
        "only the target was rounded"
    )
    assert whole.header["models"]["target"]["shape"]["layers"] == len(whole.target.blocks)
