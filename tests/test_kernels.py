"""``benchmarks/measure_kernels.py`` on a core: every kernel computes what its row counts, and half
of the shapes are a test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="needs the extra 'record'")

from benchmarks import measure_kernels as kernels
from benchmarks.live.machine import Chip
from simulator.evidence.calibrate.measurements import read

CORE, TINY = Chip("cpu", repeats=1), kernels.SIZES["cpu"]
DENSE = torch.bfloat16


def test_a_table_of_every_kernel_is_written_and_half_of_the_shapes_are_a_test(
    tmp_path: Path,
) -> None:
    out = tmp_path / "times.csv"
    result = CliRunner().invoke(kernels.main, [str(out), "--kind", "cpu"])
    assert result.exit_code == 0, result.output
    rows = read([out])
    assert f"{len(rows)} rows on one core" in result.output
    assert set(rows.implementation) == {"eager"}
    assert (rows.time_us > 0).all()
    assert (rows.copies == 2).all()
    models = rows.groupby(["operation", "part", "format"]).apply(
        lambda group: group.groupby("model").left_out.unique().str[0].tolist(), include_groups=False
    )
    assert dict(models.items()) == {
        ("attention", "decode", "fp16"): ["", "test"] * 4,
        ("attention", "window", "fp16"): ["", "test"] * 4,
        ("matmul", "product", "fp16"): ["", "test"],
        ("matmul", "product", "fp8"): ["", "test"],
        ("matmul", "experts", "fp16"): ["", "test", ""],
    }


def test_products_in_eight_bits_are_near_those_in_sixteen() -> None:
    """Both calls draw the same numbers; fp8 rounds each to 3 bits of mantissa."""
    sixteen, eight = list(kernels.products(CORE, TINY))[:2]
    assert (sixteen.row["format"], eight.row["format"]) == ("fp16", "fp8")
    torch.manual_seed(5)
    exact = sixteen.made()()
    torch.manual_seed(5)
    rounded = eight.made()()
    assert rounded.shape == exact.shape == (1, 96)
    assert torch.nn.functional.cosine_similarity(exact.float(), rounded.float()) > 0.99


def test_query_rows_see_the_cache_and_the_rows_before_them() -> None:
    """Flops of a row count query-key pairs; so does the mask: the last row sees all keys, the first
    not those behind it.
    """
    kernel = next(
        k
        for k in kernels.attentions(CORE, TINY)
        if k.row["tokens"] == 8 and k.row["part"] == "window"
    )
    queries, cached = 8, 32
    assert kernel.row["flops"] == 4 * (queries * cached + queries * (queries + 1) / 2) * 4 * 128
    assert kernel.row["size_bytes"] == (queries + cached) * 2 * 2 * 2 * 128
    torch.manual_seed(5)
    got = kernel.made()()
    torch.manual_seed(5)
    q = torch.randn(1, 4, queries, 128, dtype=DENSE)
    k, v = (
        torch.randn(1, 2, cached + queries, 128, dtype=DENSE).repeat_interleave(2, 1)
        for _ in range(2)
    )
    scores = (q @ k.transpose(-1, -2)).float() / 128**0.5
    scores += torch.full_like(scores, -torch.inf).triu(cached + 1)
    assert torch.allclose(got.float(), scores.softmax(-1) @ v.float(), atol=0.05)


def test_experts_multiply_their_own_pairs() -> None:
    """Four tokens of two experts each, spread over four experts: two pairs an expert; bytes are
    those of four experts.
    """
    kernel = next(
        k
        for k in kernels.experts(CORE, TINY)
        if k.row["tokens"] == 2 and k.row["model"].startswith("004 of 8")
    )
    pairs, weights = 8, 4 * 3 * 64 * 32
    assert kernel.row["flops"] == 2 * pairs * weights / 4
    assert kernel.row["size_bytes"] == 2 * (weights + pairs * (64 + 32 + 2 * 32 + 64))
    torch.manual_seed(5)
    got = kernel.made()()
    torch.manual_seed(5)
    x, up, down = (
        torch.randn(8, 64, dtype=DENSE),
        torch.randn(4, 64, 64, dtype=DENSE),
        torch.randn(4, 32, 64, dtype=DENSE),
    )
    for row in range(pairs):
        gate, value = (x[row] @ up[row // 2]).chunk(2)
        assert torch.allclose(
            got[row], (torch.nn.functional.silu(gate) * value) @ down[row // 2], rtol=0.05, atol=2.0
        )


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    result = CliRunner().invoke(kernels.main, [str(tmp_path / "x.csv"), "--kind", "cuda"])
    assert result.exit_code == 2
    assert "torch finds no CUDA device here" in result.output
