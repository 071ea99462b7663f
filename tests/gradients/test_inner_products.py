"""Inner products of gradients: float64 results from float32 pieces, against dense products."""

import math

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.gradients.inner_products import (
    CHUNK,
    CPU_BLOCK,
    CPU_DOT,
    _blocks,
    conflict,
    cosines,
    cross_products,
    gram_matrix,
    product,
    products_of_rows,
)

SHAPES = [(3, 5), (CHUNK + 7,), (2 * CPU_BLOCK + 11,), (1,)]


def random_gradients(num_tasks, dtype=torch.float64, shapes=SHAPES, missing=()):
    generator = torch.Generator().manual_seed(0)
    common = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    gradients = []
    for task in range(num_tasks):
        parts = [part + torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in common]
        gradients.append([None if (task, i) in missing else part.to(dtype) for i, part in enumerate(parts)])
    return gradients


def dense(gradients, shapes=SHAPES):
    rows = [
        torch.cat(
            [
                torch.zeros(math.prod(shape), dtype=torch.float64) if part is None else part.double().reshape(-1)
                for part, shape in zip(gradient, shapes, strict=True)
            ]
        )
        for gradient in gradients
    ]
    return torch.stack(rows) @ torch.stack(rows).T


@pytest.mark.parametrize("missing", [(), {(0, 0), (1, 2), (2, 2)}, {(0, 3), (1, 3), (2, 3)}])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 1e-6), (torch.float16, 1e-6)],
)
def test_gram_matrix_is_the_dense_product(dtype, tolerance, missing):
    """Parts may be missing; parameters end inside a chunk, inside a slice, or hold a single entry."""
    gradients = random_gradients(3, dtype, missing=missing)
    expected = dense(gradients)
    found = gram_matrix(gradients)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance * expected.max().item())
    assert torch.equal(found, found.T)
    for i in range(3):
        for j in range(3):
            one = product(gradients[i], gradients[j])
            assert one.dtype == torch.float64
            assert torch.allclose(one, expected[i, j], rtol=tolerance, atol=tolerance * expected.max().item())


def test_float32_products_over_five_million_entries_keep_six_digits():
    """Where a float32 sum of all loses three: entries of one sign, so that what is added is small next to the sum."""
    generator = torch.Generator().manual_seed(0)
    gradients = [[torch.rand(5_000_000, generator=generator)] for _ in range(2)]
    exact = dense(gradients, [(5_000_000,)])
    found = gram_matrix(gradients)
    assert ((found - exact) / exact).abs().max() < 1e-6
    assert ((product(*gradients) - exact[0, 1]) / exact[0, 1]).abs() < 1e-6


def test_gradients_that_do_not_lie_in_order():
    """A transposed or expanded part is multiplied by its entries and not by its memory."""
    base = torch.randn(4, 6, dtype=torch.float64)
    strange = [base.T, torch.ones(1, dtype=torch.float64).expand(5)]
    plain = [base.T.contiguous(), torch.ones(5, dtype=torch.float64)]
    assert torch.equal(gram_matrix([strange, plain]), gram_matrix([plain, plain]))
    assert torch.equal(product(strange, plain), product(plain, plain))


def test_no_task_reaches_the_shared_parameters():
    with pytest.raises(CrossTaskError, match="None of the tasks reaches"):
        gram_matrix([[None, None], [None, None]])
    assert product([None], [torch.ones(2)]) == 0.0


def test_products_that_overflow_stay_visible():
    gradients = [[torch.tensor([math.inf, 1.0])], [torch.tensor([1.0, -math.inf])]]
    assert not torch.isfinite(gram_matrix(gradients)).any()
    assert not torch.isfinite(product(*gradients))


def test_cosines_and_conflict_by_hand():
    rows = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    gram = rows @ rows.T
    half = math.sqrt(0.5)
    expected = [[1.0, 0.0, -half, 0.0], [0.0, 1.0, half, 0.0], [-half, half, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert torch.allclose(cosines(gram), torch.tensor(expected, dtype=torch.float64))
    assert conflict(gram) == pytest.approx(1 / 6)  # one of six pairs
    assert conflict(gram[:1, :1]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [5, CHUNK, CPU_DOT + 7])
def test_products_of_all_pairs_of_two_kinds(width, dtype):
    torch.manual_seed(0)
    rows = torch.randn(5, width, dtype=dtype)
    first = [[rows[0], None, torch.ones(2, 3)], [rows[1], torch.ones(1), None]]
    second = [[row, torch.full((1,), 2.0), torch.full((2, 3), 0.5)] for row in rows[2:4]] + [[None, None, rows[4][:0]]]
    second[2][2] = None
    expected = torch.zeros(2, 3, dtype=torch.float64)
    expected[:, :2] = rows[:2].double() @ rows[2:4].double().T + torch.tensor([[3.0], [2.0]])
    found = cross_products(first, second)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_products_of_two_kinds_are_those_of_the_gram_matrix():
    """Also by blocks, as on an accelerator."""
    torch.manual_seed(0)
    gradients = [[torch.randn(300, 1000), None, torch.randn(7), torch.randn(3, 2 * CHUNK)] for _ in range(4)]
    gram = gram_matrix(gradients)
    torch.testing.assert_close(cross_products(gradients[:1], gradients[1:]), gram[:1, 1:], rtol=1e-5, atol=1e-3)
    by_blocks = sum(products_of_rows(block[:1], block[1:]) for block in _blocks(gradients))
    torch.testing.assert_close(by_blocks, gram[:1, 1:], rtol=1e-5, atol=1e-3)
