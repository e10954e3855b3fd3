"""SpecPipe: what nothing was fitted to, and the sizes that follow from shapes."""

from __future__ import annotations

import pytest
from papers import AS_PRINTED, Committed

from simulator.evidence.fits import SCALES
from simulator.papers.specpipe.claims import FRAMEWORK, HITS_OF_BEST_AND_WORST

FOUND = Committed("specpipe")


def test_claims_take_what_was_fitted() -> None:
    terms = FOUND.paper.fitted
    host_us = SCALES["log"](terms["framework_layer"]["all"])
    assert f"--set target.engine.host_us_per_layer={host_us}" == FRAMEWORK
    best, worst = (SCALES["logit"](terms[hit]["all"]) for hit in ("hit", "hit_at_worst"))
    assert (best, worst) == HITS_OF_BEST_AND_WORST


def test_what_is_not_fitted_comes_out() -> None:
    assert abs(FOUND.error("specpipe_text:38")) < 0.03
    assert max(abs(FOUND.error(cell)) for cell in ("specpipe_text:64", "specpipe_text:65")) < 0.08
    assert FOUND.errors().within_10 == 1.0


def test_the_large_models_on_l40_do_not_hang_on_what_the_small_one_was_fitted_to() -> None:
    for cell in ("specpipe_text:64", "specpipe_text:65"):
        run = FOUND.paper.question(FOUND.cells[cell]).run
        bare = run._replace(overrides=(*run.overrides, "target.engine.host_us_per_layer=700"))
        assert bare.measured("simulated.tpot_ms") == pytest.approx(FOUND.runs[cell], rel=AS_PRINTED)


@pytest.mark.parametrize("cell", [cell.cell for cell in FOUND.paper.with_role("check")])
def test_sizes_follow_from_shapes(cell: str) -> None:
    assert FOUND.answer(cell) == pytest.approx(float(FOUND.cells[cell].published), rel=0.005)
