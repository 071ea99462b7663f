"""Properties and mistakes of MGDA and MGDA-UB."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.mgda import MGDA
from crosstask.weighting.mgda_ub import MGDAUB
from weighting_problem import TinyProblem

both = pytest.mark.parametrize("method", [MGDA, MGDAUB])


def slopes(weighting, **values):
    """Gradients at right angles, as long as the values."""
    parameter = torch.nn.Parameter(torch.ones(len(values), dtype=torch.float64))
    losses = {task: value * parameter[i] for i, (task, value) in enumerate(values.items())}
    weighting.backward(losses, shared=[parameter])
    return parameter.grad.tolist()


@both
def test_weights_are_on_the_simplex(method):
    problem, weighting = TinyProblem(), method(tasks=["a", "b", "c"])
    for _ in range(5):
        problem.step(weighting)
        assert min(weighting.weights.values()) >= 0.0
        assert sum(weighting.weights.values()) == pytest.approx(1.0)
    facts = weighting.facts()
    assert set(facts["gradient_norms"]) == set("abc")
    assert 0.0 <= facts["conflict"] <= 1.0


@both
@pytest.mark.parametrize("normalise", ["l2", "loss", "loss+"])
def test_normalised_weights_do_not_depend_on_the_scale_of_one_loss(method, normalise):
    found = []
    for factor in (1.0, 100.0):
        problem, weighting = TinyProblem(), method(normalize=normalise, tasks=["a", "b", "c"])
        losses, representations = problem.losses()
        weighting.backward(
            {**losses, "b": factor * losses["b"]}, shared=problem.shared, representations=representations
        )
        found.append(weighting.weights)
    if normalise == "loss+":  # divides by the scale twice, so that the larger loss ends with the shorter vector
        assert found[1]["b"] > found[0]["b"]
    else:
        assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_a_task_without_gradient_does_not_stop_the_others():
    weighting = MGDA(tasks=["a", "b", "c"])
    assert slopes(weighting, a=1.0, b=0.0, c=2.0) == pytest.approx([0.8, 0.0, 0.4])
    assert weighting.weights == pytest.approx({"a": 0.8, "b": 0.0, "c": 0.2})
    slopes(weighting, a=0.0, b=0.0, c=0.0)
    assert weighting.weights == pytest.approx(dict.fromkeys("abc", 1 / 3))


def test_opposite_gradients_cancel():
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    weighting = MGDA(tasks=["a", "b"])
    weighting.backward({"a": 3.0 * parameter.sum(), "b": -1.0 * parameter.sum()}, shared=[parameter])
    assert weighting.weights == pytest.approx({"a": 0.25, "b": 0.75})
    assert parameter.grad.item() == pytest.approx(0.0, abs=1e-12)
    assert weighting.facts()["conflict"] == 1.0


def test_absent_tasks_keep_their_weights_and_the_others_share_one():
    weighting = MGDA(tasks=["a", "b", "c"])
    slopes(weighting, a=1.0, b=1.0, c=1.0)
    assert slopes(weighting, a=1.0, b=2.0) == pytest.approx([0.8, 0.4])
    assert weighting.weights == pytest.approx({"a": 0.8, "b": 0.2, "c": 1 / 3})


def test_an_overflow_leaves_the_weights_as_they_are():
    weighting = MGDA(tasks=["a", "b"])
    slopes(weighting, a=1.0, b=2.0)
    before = weighting.weights
    slopes(weighting, a=float("inf"), b=2.0)
    assert weighting.weights == before


def test_in_between_a_step_is_plain():
    problem, weighting = TinyProblem(), MGDA(every=3, tasks=["a", "b", "c"])
    looks = []
    for _ in range(4):
        looks.append(weighting.inspects_gradients)
        problem.step(weighting)
    assert looks == [True, False, False, True]


# --- on the representation ---


def test_the_encoder_is_passed_once():
    """One backward pass through the encoder, with one graph for all tasks."""
    torch.manual_seed(0)
    encoder, passes = torch.nn.Linear(4, 3), []
    encoder.register_full_backward_hook(lambda *_: passes.append(1))
    heads = {name: torch.nn.Linear(3, 1) for name in "abc"}
    inputs = torch.randn(9, 4, requires_grad=True)
    whole = encoder(inputs)
    parts = {name: whole[3 * i : 3 * i + 3] for i, name in enumerate("abc")}
    losses = {name: heads[name](part).pow(2).mean() for name, part in parts.items()}
    MGDAUB(tasks=list("abc")).backward(losses, shared=encoder.parameters(), representations=parts)
    assert len(passes) == 1


def test_heads_get_their_own_gradient():
    problem = TinyProblem()
    losses, _ = problem.losses()
    expected = {
        name: torch.autograd.grad(loss, problem.heads[name].weight, retain_graph=True)[0]
        for name, loss in losses.items()
    }
    problem.backward(MGDAUB(tasks=["a", "b", "c"]))
    for name, gradient in expected.items():
        assert torch.allclose(problem.heads[name].weight.grad, gradient, atol=1e-12)


@pytest.mark.parametrize("tell", [True, False])
def test_tied_weights_count_once(tell):
    """A head that multiplies with the embeddings themselves, as language models do.

    If `shared` names them, all of their gradient is weighted; if not, what the head reaches by itself is its own.
    """
    torch.manual_seed(0)
    embeddings = torch.nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
    words = {"a": torch.tensor([0, 1, 2]), "b": torch.tensor([3, 4, 0])}

    def encode():
        return {name: embeddings[at].tanh() for name, at in words.items()}

    def losses(z, table):
        return {name: (vectors @ table.T).pow(2).mean() for name, vectors in z.items()}

    z = encode()
    weighting = MGDAUB(tasks=["a", "b"])
    weighting.backward(losses(z, embeddings), shared=[embeddings] if tell else None, representations=z)
    through = losses(encode(), embeddings.detach())
    beside = losses({name: vectors.detach() for name, vectors in encode().items()}, embeddings)
    total = sum(
        weighting.weights[name] * through[name] + (weighting.weights[name] if tell else 1.0) * beside[name]
        for name in words
    )
    assert torch.allclose(embeddings.grad, torch.autograd.grad(total, embeddings)[0], atol=1e-12)


def test_batches_of_different_sizes_go_by_inverse_squares():
    encoder = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    z = {"a": encoder * torch.ones(1, dtype=torch.float64), "b": encoder * torch.ones(4, dtype=torch.float64)}
    weighting = MGDAUB(tasks=["a", "b"])
    weighting.backward({"a": z["a"].sum(), "b": z["b"].sum()}, shared=[encoder], representations=z)
    assert weighting.weights == pytest.approx({"a": 0.8, "b": 0.2})  # squared lengths 1 and 4


def test_without_representations_in_between_it_is_a_plain_step():
    problem, weighting = TinyProblem(), MGDAUB(every=2, tasks=["a", "b", "c"])
    problem.backward(weighting)
    before = weighting.weights
    for parameter in problem.parameters():
        parameter.grad = None
    losses, _ = problem.losses()
    weighting.backward(losses, shared=problem.shared)
    assert weighting.weights == before
    assert problem.first.weight.grad is not None


def test_probabilities_divide_the_share():
    problem = TinyProblem()
    grads = []
    for drawn in (None, {"a": 0.5, "b": 0.5, "c": 0.5}):
        for parameter in problem.parameters():
            parameter.grad = None
        losses, representations = problem.losses()
        MGDAUB(tasks=["a", "b", "c"]).backward(
            losses, shared=problem.shared, probabilities=drawn, representations=representations
        )
        grads.append(problem.first.weight.grad.clone())
    assert torch.allclose(2.0 * grads[0], grads[1])


def detached(problem):
    losses, representations = problem.losses()
    return losses, {name: z.detach() for name, z in representations.items()}


def other_tensor(problem):
    losses, representations = problem.losses()
    return losses, {name: z * 1.0 for name, z in representations.items()}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: (p.losses()[0], None), "pass `representations"),
        (lambda p: (p.losses()[0], {}), "representation of 'a' .* none was passed"),
        (detached, "it does not need a gradient"),
        (other_tensor, "loss of 'a' does not depend on the representation"),
    ],
)
def test_mistakes_with_representations(call, message):
    problem = TinyProblem()
    losses, representations = call(problem)
    with pytest.raises(CrossTaskError, match=message):
        MGDAUB(tasks=["a", "b", "c"]).backward(losses, shared=problem.shared, representations=representations)


@both
def test_mistakes_in_options(method):
    with pytest.raises(CrossTaskError, match="Unknown `normalize`"):
        method(normalize="l1")
    with pytest.raises(CrossTaskError, match="`every` must be"):
        method(every=0)


def test_normalising_by_losses_needs_them_above_zero():
    with pytest.raises(CrossTaskError, match=r"above zero with `normalize: loss`.* 'b' is -2"):
        slopes(MGDA(normalise="loss", tasks=["a", "b"]), a=1.0, b=-2.0)
    slopes(MGDA(normalise="loss", tasks=["a", "b"]), a=1.0, b=0.0)  # no gradient either: left out
