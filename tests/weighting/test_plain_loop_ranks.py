"""A loop of one's own on two ranks, with DistributedDataParallel, plain or sharded, learns what one process learns."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from crosstask.errors import CrossTaskError
from crosstask.gradients.distributed import share_ranks, sum_gradients, sum_over_ranks
from crosstask.gradients.sharded import is_sharded, put_together, shard
from crosstask.weighting import WEIGHTINGS

METHODS = {
    "uniform": {},
    "tawt": {"every": 2},
    "mgda": {},
    "metaweighting": {"step_size": 5.0},
    "mgda-ub": {},
    "gradnorm": {},
    "uncertainty": {},
}
TASKS = {"a": 2, "b": 3, "c": 4}
"""Tasks with their numbers of classes."""
BATCH, CUT, STEPS = 8, 5, 6
"""Examples of a task in a step; how many of them the first of two ranks has; and how many steps."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(4, classes) for task, classes in TASKS.items()})

    def forward(self, inputs, task):
        vectors = self.encoder(inputs)
        return self.heads[task](vectors), vectors


def train(method, rank=0, num_ranks=1, *, kind="plain"):
    """The final weights and parameters; rank 1 starts from other parameters unless something makes them the same."""
    wrapped = kind == "wrapped"
    torch.manual_seed(rank if wrapped else 0)
    net = Net()
    if kind == "sharded":
        shard(net.encoder, [net.encoder[0]], reshard_after_forward=True)
    model = DistributedDataParallel(net) if wrapped else net
    alone = model.no_sync if wrapped else nullcontext
    weighting = WEIGHTINGS[method](**METHODS[method], tasks=list(TASKS), target="a")
    weighting.learning_rate = 0.2
    share_ranks(weighting)
    assert weighting.num_ranks == num_ranks
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, foreach=False)  # which takes one kind of tensors alone
    data = torch.Generator().manual_seed(1)
    own = slice(None) if num_ranks == 1 else slice(0, CUT) if rank == 0 else slice(CUT, None)

    def losses_of():
        """This rank's part of each task's mean loss, and the representations."""
        losses, representations = {}, {}
        for task, classes in TASKS.items():
            inputs = torch.randn(BATCH, 6, generator=data)[own]
            labels = torch.randint(classes, (BATCH,), generator=data)[own]
            logits, representations[task] = model(inputs, task)
            losses[task] = F.cross_entropy(logits, labels, reduction="sum") / BATCH
        return losses, representations

    for _ in range(STEPS):
        with alone():
            losses, representations = losses_of()
            weighting.backward(losses, shared=net.encoder.parameters(), representations=representations)
        sum_gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        with alone():
            if weighting.wants_held_out:
                weighting.after_step(losses_of()[0], shared=net.encoder.parameters())
    if kind == "sharded":
        assert all(map(is_sharded, net.encoder.parameters()))
        put_together(net.encoder)
    return weighting.weights, {name: value.tolist() for name, value in net.state_dict().items()}


def work(folder):
    """What each process of the test does: every method, with the wrapper and without."""
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = distributed.get_rank()
    found = {
        f"{method} {kind}": train(method, rank, 2, kind=kind)
        for method in METHODS
        for kind in ("wrapped", "plain", "sharded")
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.barrier()  # neither ends while the other still needs it
    # At once: threads of torch's process groups can abort an interpreter that ends in its own way.
    os._exit(0)


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns_from_the_joined_batch(tmp_path):
    """Batches of 5 and 3 examples on the two ranks against one of 8; one launch for all methods."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, __file__, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second  # to the last bit
    torch.manual_seed(0)
    untouched = Net().state_dict()
    for case, (weights, parameters) in first.items():
        expected_weights, expected = train(case.split()[0])
        assert weights == pytest.approx(expected_weights, abs=1e-5), case
        for name, value in expected.items():
            found, value = torch.tensor(parameters[name]), torch.tensor(value)
            assert (found - value).abs().max() < 1e-5, (case, name)
            assert (untouched[name] - value).abs().max() > 1e-4, (case, name)  # there was something to learn


def test_one_process_needs_no_process_group():
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    unreached = nn.Parameter(torch.ones(1))
    sum_gradients([parameter, unreached])
    assert parameter.grad.tolist() == [1.0, 1.0]
    assert unreached.grad is None
    assert sum_over_ranks(torch.ones(1)).tolist() == [1.0]


def test_gradients_of_each_type_and_parameters_that_one_rank_alone_reaches():
    """As if the other rank had the same gradients but for one parameter, which it alone reaches."""
    parameters = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3).half()), nn.Parameter(torch.ones(1))]
    parameters += [nn.Parameter(torch.ones(4))]
    parameters[0].grad, parameters[1].grad = torch.ones(2, 2).T, torch.full((3,), 0.5).half()

    def add_up(values):
        other = values.clone()
        if values.numel() == 9 and values.dtype == torch.float32:  # entries of the three parameters in float32
            other[4] = 7.0
        elif values.numel() == 3 and values.dtype == torch.float32:  # which of them are reached
            other[1] = 1.0
        return values + other

    sum_gradients(parameters, add_up)
    assert parameters[0].grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert parameters[1].grad.tolist() == [1.0] * 3
    assert parameters[1].grad.dtype == torch.float16
    assert parameters[2].grad.tolist() == [7.0]
    assert parameters[3].grad is None


def test_ranks_that_do_not_know_of_each_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CrossTaskError, match="init_process_group"):
        share_ranks(WEIGHTINGS["uniform"](tasks=["a"]))


if __name__ == "__main__":
    work(sys.argv[1])
