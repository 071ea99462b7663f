"""Computations in parts: as plain code, and as CUDA graphs."""

import pytest
import torch
from torch import nn

from crosstask.gradients.cuda_graphs import NUM_PLAIN_RUNS, CudaGraphs, PlainGraphs, StaticInputs
from crosstask.gradients.inner_products import gram_matrix
from crosstask.gradients.stacked import MAX_SMALL_ENTRIES, StackedGradients

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def running_sums(inputs):
    """A computation of two parts: the host sees a sum, and sends a factor for it."""
    total = inputs["values"].sum()
    sent = yield {"total": total}
    yield {"product": total * sent["factor"]}


def product_by(graphs, values, factor):
    run = graphs.run("product", running_sums, {"values": torch.tensor(values)})
    assert graphs.fetch(run.outputs["total"]).item() == sum(values)
    run.send({"factor": torch.tensor(factor)})
    product = graphs.fetch(run.outputs["product"]).item()
    run.finish()
    return product


def test_what_the_host_sends_reaches_the_next_part():
    graphs = PlainGraphs(CPU)
    assert product_by(graphs, [1.0, 2.0], 10.0) == 30.0
    assert product_by(graphs, [1.0, 2.0, 3.0], -1.0) == -6.0


def test_inputs_of_a_graph_stay_where_they_are():
    like = {"ids": torch.tensor([[1, 2], [3, 4]]), "more": torch.tensor([5]), "weights": torch.tensor([0.5])}
    static = StaticInputs(like, CPU)
    before = {name: tensor.data_ptr() for name, tensor in static.tensors.items()}
    static.fill(like)
    assert static.tensors["ids"].tolist() == [[1, 2], [3, 4]]
    assert static.tensors["more"].tolist() == [5]
    static.fill({**like, "weights": torch.tensor([2.0])})
    assert static.tensors["weights"].tolist() == [2.0]
    assert {name: tensor.data_ptr() for name, tensor in static.tensors.items()} == before


def test_stacked_gradients_give_the_products_and_the_mixture():
    torch.manual_seed(0)
    large = nn.Parameter(torch.zeros(3, MAX_SMALL_ENTRIES))
    shared = [nn.Parameter(torch.zeros(4)), large, nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(5))]
    reached = [shared[0], large, shared[2]]  # the last parameter is reached by no task
    stacks = {id(parameter): torch.randn(3, *parameter.shape) for parameter in reached}
    rows = [[stacks[id(parameter)][task] for parameter in reached] for task in range(3)]
    stacked = StackedGradients(stacks, shared)
    torch.testing.assert_close(stacked.gram(), gram_matrix(rows), rtol=1e-6, atol=1e-6)
    factors = torch.tensor([0.5, -1.0, 2.0])
    stacked.put_mixture_in_place(factors)
    for index, parameter in enumerate(reached):
        expected = sum(factor * row[index] for factor, row in zip(factors, rows, strict=True))
        torch.testing.assert_close(parameter.grad, expected)
    assert shared[3].grad is None


@needs_cuda
def test_graphs_are_captured_and_replayed():
    graphs = CudaGraphs(torch.device("cuda"))
    with graphs.active():
        for number in range(NUM_PLAIN_RUNS + 3):
            assert product_by(graphs, [1.0, float(number)], 3.0) == 3.0 * (1.0 + number)
    assert len(graphs.captured) == 1


@needs_cuda
def test_what_cannot_be_captured_runs_as_plain_code():
    notes = []
    graphs = CudaGraphs(torch.device("cuda"), notes.append)

    def waits(inputs):
        yield {"value": inputs["values"] * inputs["values"].sum().item()}

    with graphs.active():
        for _ in range(NUM_PLAIN_RUNS + 3):
            run = graphs.run("waits", waits, {"values": torch.tensor([2.0])})
            assert graphs.fetch(run.outputs["value"]).item() == 4.0
            run.finish()
        torch.nn.functional.dropout(torch.ones(5, device="cuda"))  # random numbers still work
    assert len(notes) == 1
    assert "without CUDA graphs" in notes[0]
