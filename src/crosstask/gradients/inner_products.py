"""Inner products of gradients, parameter by parameter and in float64.

A float32 sum over millions of entries loses three digits, and a copy of a gradient in float64 takes twice its memory:
products are added up in float32 over short pieces, and the pieces in float64. Only torch is needed here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from crosstask.errors import CrossTaskError

CHUNK = 1024
"""Entries whose products are added up in float32 before float64 takes over."""
CPU_BLOCK = 256 * CHUNK
"""Entries of a parameter that are multiplied together on the CPU: they stay in its cache."""
ACCELERATOR_BLOCK = 2**24
"""The same for an accelerator, over all tasks: few enough to hold in float64, many enough to keep it busy."""
CPU_DOT = 2**14
"""Entries of one `torch.dot` on the CPU, which adds so many up in float32 to five digits or more."""
ACCELERATOR_DOT = 2**22
"""The same for an accelerator: enough to keep it busy."""

Gradient = list[Tensor | None]
"""One entry per shared parameter; None where a task does not reach it."""


def gram_matrix(gradients: Sequence[Gradient]) -> Tensor:
    """All products of the tasks' gradients, [tasks, tasks] in float64.

    Parameter by parameter, so that no matrix of tasks times all parameters ever exists. Small parameters are taken
    together: for them a call costs more than its work.

    >>> gram_matrix([[torch.tensor([1.0, 2.0]), None], [torch.tensor([3.0, 0.0]), torch.ones(1)]]).tolist()
    [[5.0, 3.0], [3.0, 10.0]]
    """
    total: Tensor | None = None
    for block in _blocks(gradients):
        products = products_of_rows(block, block)
        total = products if total is None else total.add_(products)
        del block  # before the next one is made
    if total is None:
        raise CrossTaskError("None of the tasks reaches any of the shared parameters.")
    return (total + total.T) / 2.0  # float32 products may differ in their last digit


@torch.no_grad()
def cross_products(first: Sequence[Gradient], second: Sequence[Gradient]) -> Tensor:
    """The product of every gradient of the first kind with every one of the second, [first, second] in float64.

    Some parameters at a time, so that no gradient is copied as a whole. Nothing here waits for the device.

    >>> cross_products([[torch.tensor([1.0, 2.0]), None]], [[torch.tensor([3.0, 0.0]), torch.ones(1)]]).tolist()
    [[3.0]]
    """
    on_parameters = (on_parameter for gradient in (*first, *second) for on_parameter in gradient)
    example = next((on_parameter for on_parameter in on_parameters if on_parameter is not None), None)
    if example is None or not example.is_cuda:
        return torch.stack([_products_of_pieces(gradient, second) for gradient in first])
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=example.device)
    for block in _blocks([*first, *second]):
        total += products_of_rows(block[: len(first)], block[len(first) :])
        del block
    return total


def _products_of_pieces(gradient: Gradient, others: Sequence[Gradient]) -> Tensor:
    """Products of a gradient with each of the others, [others], on the CPU.

    In pieces that stay in its cache while all the others are multiplied with them.
    """
    by_other: list[list[Tensor]] = [[] for _ in others]
    for index, on_parameter in enumerate(gradient):
        if on_parameter is None:
            continue
        other_pieces: list[Sequence[Tensor] | None] = []
        for other in others:
            values = other[index]
            other_pieces.append(None if values is None else _vector(values).split(CPU_DOT))
        for number, piece in enumerate(_vector(on_parameter).split(CPU_DOT)):
            for products, pieces in zip(by_other, other_pieces, strict=True):
                if pieces is not None:
                    products.append(torch.dot(*_in_one_dtype(piece, pieces[number])))
    return torch.stack([_sum(products) for products in by_other])


def product(first: Gradient, second: Gradient) -> Tensor:
    """The product of two gradients, in float64.

    >>> product([torch.tensor([1.0, 2.0]), None], [torch.tensor([3.0, 1.0]), torch.ones(1)]).item()
    5.0
    """
    terms = []
    for one, two in zip(first, second, strict=True):
        if one is not None and two is not None:
            terms.append(dot(one.detach().reshape(-1), two.detach().reshape(-1)))
    if not terms:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack(terms).sum()


@torch.no_grad()
def pair_products(gradient: Gradient, direction: Gradient) -> tuple[Tensor, Tensor]:
    """The product of a gradient with a direction, and with itself; in float64.

    >>> [value.item() for value in pair_products([torch.tensor([1.0, 2.0]), None], [torch.ones(2), torch.ones(1)])]
    [3.0, 5.0]
    """
    products = PairProducts()
    for on_parameter, along in zip(gradient, direction, strict=True):
        if on_parameter is not None:
            products.add(on_parameter, along)
    return products.totals()


class PairProducts:
    """Adds up two products over parameters that come one by one: of a gradient with a direction, and with itself.

    Large parameters are multiplied at once, in pieces that stay in the cache, so that nothing is read twice; small ones
    wait until there are enough of them.
    """

    def __init__(self) -> None:
        self.crosswise: list[Tensor] = []
        self.squares: list[Tensor] = []
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.num_waiting = 0

    def add(self, gradient: Tensor, direction: Tensor | None) -> None:
        """Add the products of one parameter; a direction of None is zero."""
        size = gradient.numel()
        enough = ACCELERATOR_DOT if gradient.is_cuda else CPU_DOT
        if direction is None:
            direction = torch.zeros_like(gradient)
        if size >= enough:
            pieces = zip(gradient.reshape(-1).split(enough), direction.reshape(-1).split(enough), strict=True)
            for gradient_piece, direction_piece in pieces:
                self._multiply(gradient_piece, direction_piece)
            return
        if self.waiting and self.waiting[0][0].device != gradient.device:
            self._multiply_waiting()
        self.waiting.append((gradient.reshape(-1), direction.reshape(-1)))
        self.num_waiting += size
        if self.num_waiting >= enough:
            self._multiply_waiting()

    def _multiply_waiting(self) -> None:
        if self.waiting:
            gradients, directions = zip(*self.waiting, strict=True)
            self._multiply(torch.cat(gradients), torch.cat(directions))
            self.waiting, self.num_waiting = [], 0

    def _multiply(self, gradient: Tensor, direction: Tensor) -> None:
        multiply: Callable[[Tensor, Tensor], Tensor] = dot
        if not gradient.is_cuda:
            multiply = torch.dot  # short enough for float32
            gradient, direction = _in_one_dtype(gradient, direction)
        self.crosswise.append(multiply(gradient, direction))
        self.squares.append(multiply(gradient, gradient))

    def totals(self) -> tuple[Tensor, Tensor]:
        """Both products over the parameters since the last call, in float64."""
        self._multiply_waiting()
        totals = _sum(self.crosswise), _sum(self.squares)
        self.crosswise, self.squares = [], []
        return totals


def _sum(scalars: Sequence[Tensor]) -> Tensor:
    if not scalars:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack([scalar.to(scalars[0].device) for scalar in scalars]).sum(dtype=torch.float64)


def dot(one: Tensor, two: Tensor) -> Tensor:
    """The product of two vectors in float64, without a copy of either in float64."""
    one, two = _in_one_dtype(one, two)
    if one.is_cuda:
        num_chunked = len(one) // CHUNK * CHUNK
        with without_tf32(one):
            chunks = torch.bmm(one[:num_chunked].view(-1, 1, CHUNK), two[:num_chunked].view(-1, CHUNK, 1))
        rest = one[num_chunked:] * two[num_chunked:]
        return chunks.sum(dtype=torch.float64) + rest.sum(dtype=torch.float64)
    # Within a block torch adds up in pairs, which loses next to nothing and is faster than float64.
    total = 0.0
    for one_block, two_block in zip(one.split(CPU_BLOCK), two.split(CPU_BLOCK), strict=True):
        total += float((one_block * two_block).sum())
    return torch.tensor(total, dtype=torch.float64)


def products_of_rows(rows: Tensor, others: Tensor) -> Tensor:
    """`rows @ others.T` in float64, [rows, others]; nothing waits for the device.

    >>> products_of_rows(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [[3.0], [3.0]]
    """
    num_chunked = rows.shape[1] // CHUNK * CHUNK
    if rows.dtype == torch.float64:
        num_chunked = 0  # one product does it
    total = torch.zeros(len(rows), len(others), dtype=torch.float64, device=rows.device)
    if num_chunked:
        chunks = rows[:, :num_chunked].float().unflatten(1, (-1, CHUNK)).transpose(0, 1)  # [chunks, rows, CHUNK]
        other_chunks = others[:, :num_chunked].float().unflatten(1, (-1, CHUNK)).permute(1, 2, 0)
        with without_tf32(rows):
            total += torch.bmm(chunks, other_chunks).double().sum(0)
    if num_chunked < rows.shape[1]:
        total += rows[:, num_chunked:].double() @ others[:, num_chunked:].double().T
    return total


def cosines(gram: Tensor) -> Tensor:
    """Cosines of all pairs; a gradient that is zero has cosine zero with every other."""
    norms = gram.diagonal().clamp(min=0.0).sqrt()
    scales = torch.where(norms > 0, 1.0 / norms.clamp(min=1e-300), 0.0)
    return (gram * scales[:, None] * scales).clamp(-1.0, 1.0)


def conflict(gram: Tensor) -> float:
    """Fraction of the pairs of tasks whose gradients have a negative product."""
    size = len(gram)
    if size < 2:
        return 0.0
    num_negative = 0
    for row, products in enumerate(gram.tolist()):
        num_negative += sum(product < 0 for product in products[row + 1 :])
    return num_negative / (size * (size - 1) / 2)


def _in_one_dtype(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float32, unless they are float64."""
    if one.dtype != two.dtype or one.dtype not in (torch.float32, torch.float64):
        return one.float(), two.float()
    return one, two


def _vector(values: Tensor) -> Tensor:
    """Without a graph, and as a vector."""
    return values.detach().reshape(-1)


def _blocks(gradients: Sequence[Gradient]) -> Iterator[Tensor]:
    """The gradients some parameters at a time, [gradients, entries], with zeros where one does not reach."""
    waiting: list[list[Tensor]] = []
    num_waiting = 0
    for by_task in zip(*gradients, strict=True):
        reached = next((gradient for gradient in by_task if gradient is not None), None)
        if reached is None:
            continue
        rows = []
        for gradient in by_task:
            rows.append(_vector(torch.zeros_like(reached) if gradient is None else gradient))
        size = len(rows) * reached.numel()
        max_size = ACCELERATOR_BLOCK if reached.is_cuda else CPU_BLOCK
        if waiting and (num_waiting + size > max_size or not _alike(waiting[0][0], rows[0])):
            yield from _joined(waiting)
            waiting, num_waiting = [], 0
        waiting.append(rows)
        num_waiting += size
    if waiting:
        yield from _joined(waiting)


def _joined(waiting: Sequence[list[Tensor]]) -> Iterator[Tensor]:
    """Small parameters as one block, a large one as several; each is copied once."""
    first_rows = waiting[0]
    if len(waiting) > 1:
        block = first_rows[0].new_empty(len(first_rows), sum(len(rows[0]) for rows in waiting))
        for number in range(len(first_rows)):
            torch.cat([rows[number] for rows in waiting], out=block[number])
        yield block
        return
    width = CPU_BLOCK
    if first_rows[0].is_cuda:
        width = max(CHUNK, ACCELERATOR_BLOCK // len(first_rows))
    for start in range(0, len(first_rows[0]), width):
        yield torch.stack([row[start : start + width] for row in first_rows])


def _alike(one: Tensor, two: Tensor) -> bool:
    return one.device == two.device and one.dtype == two.dtype


@contextmanager
def without_tf32(like: Tensor) -> Iterator[None]:
    """Products in float32 proper: TF32, which an accelerator may be set to use, has three digits."""
    backend = torch.backends.cuda.matmul
    if not like.is_cuda or not hasattr(backend, "fp32_precision"):
        yield
        return
    before = backend.fp32_precision
    backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = before
