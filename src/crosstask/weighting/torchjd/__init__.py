"""TorchJD's methods as weightings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.papers import JACOBIAN_DESCENT, Paper
from crosstask.weighting.base import Problem, State, Weighting
from crosstask.weighting.evidence import Evidence, Need, by_task, to_vector
from crosstask.weighting.torchjd import options as methods
from crosstask.weighting.torchjd.options import Input
from crosstask.weighting.torchjd.state import convert_options, read_state, write_state
from crosstask.weighting.validation import check_count, check_number, check_seed

STATE_PREFIX = "object:"
"""Of the keys of `state_dict` that belong to TorchJD's object."""


def root_of(gram: Tensor) -> Tensor:
    """A square matrix R with `R R' = gram`: the Jacobian with its rows rotated into as many dimensions.

    >>> root = root_of(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> (root @ root.T).round(decimals=4).tolist()
    [[4.0, 2.0], [2.0, 5.0]]
    """
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp(min=0.0).sqrt()


def primary_first(tasks: Sequence[str], targets: Sequence[str]) -> tuple[list[str], Tensor]:
    """Names of the rows and the matrix that makes them: the mean of the targets first, then every other task.

    >>> rows, mixing = primary_first(["pos", "ner", "chunk"], ["ner"])
    >>> rows, mixing.tolist()
    (['ner', 'pos', 'chunk'], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    """
    primary = [task for task in tasks if task in targets]
    others = [task for task in tasks if task not in targets]
    mixing = torch.zeros(1 + len(others), len(tasks), dtype=torch.float64)  # [rows, tasks]
    for column, task in enumerate(tasks):
        if task in primary:
            mixing[0, column] = 1.0 / len(primary)
        else:
            mixing[1 + others.index(task), column] = 1.0
    return ["+".join(primary), *others], mixing


def trial_argument(like: Tensor) -> Tensor:
    """An argument that every method accepts: losses of one, or orthogonal gradients of norm one."""
    if like.dim() == 1:
        return torch.ones_like(like)
    return torch.eye(*like.shape).to(like)


class TorchJD(Weighting):
    """Any method of TorchJD by name: `weighting: {name: torchjd, method: UPGrad}`.

    With `J` the Jacobian of the losses on the shared parameters, one row per task: a weighting of TorchJD is a function
    `w(J J')` and the gradient `w' J`; an aggregator is a function `A(J)` that is the gradient; a scalarizer is a
    function `S(L)` of the losses, with weights `dS/dL_t`.

    - `L`: `losses`; `J J'`: the Gram matrix of gradients, added up parameter by parameter in float64;
    - `w`: `weights`, of the last step. GradDrop, ConFIG and TrimmedMean have none: 1 / T stands in the record.

    Weightings, and aggregators made from one, get the Gram matrix only, so that no matrix of tasks times parameters
    is formed (Mean, Sum, Random, Constant and NashMTL get a root of it, `root_of`). ExcessMTL, GradDrop, ConFIG,
    TrimmedMean, and what later versions may add, get the full Jacobian. With all of these a task's head gets its
    gradient as it is, like in TorchJD's `mtl_backward`; a scalarizer weighs heads too.

    Args:
        method: the name of a class of `torchjd.aggregation` or `torchjd.scalarization`, with or without the ending
            `Weighting`. Names that both have (Constant, Mean, Random, Sum) are the aggregator's; the scalarizer is
            `scalarization.Mean`.
        every: steps from one inspection of gradients to the next. In between a step is one plain backward pass with
            the last weights, heads included.
        seed: of random methods. Each step has its own random numbers, the same on every rank.
        step_size: of Adam on the parameters of UW and IMTLL; as in our `uncertainty`.
        window: steps of an epoch of DWA.
        options: the method's. A value per task (`pref_vector`, `weights`, `leak`, `tau`, ...) is a mapping by task or a
            list in the order of the tasks; `projector` is a mapping of `norm_eps` and `reg_eps`; the wrapped
            `weighting` of CRMOGMWeighting is a name, or a mapping with `method`; the number of tasks is filled in.

    PCD's primary objective is our target; of several targets, the mean. Methods with a state, with values per task, or
    with a count of tasks need all of them: when a task is missing from a step, the last weights are used. All others
    combine the tasks that are there.

    Differs from TorchJD: MoDo and SDMGrad ask for products of gradients on two independent batches and get those of
    one, without MoDo's guarantee. FAMO's update uses the same batch's losses after the step: pass them to `after_step`,
    or the next step's losses are used. UW and IMTLL train by a separate Adam instead of the model's optimizer.

    Needs `pip install "crosstask[torchjd]"`. An inspection costs a backward pass per task (a scalarizer: one plain
    pass); with the Jacobian also T times the memory of the shared gradient. `state_dict` holds the full state of a
    method, and random numbers depend on the step alone: all methods resume exactly.

    >>> x = torch.nn.Parameter(torch.zeros(2))
    >>> weighting = TorchJD("MGDA", tasks=["a", "b"])
    >>> weighting.backward({"a": x[0], "b": 3**0.5 * x[1]}, shared=[x])  # squared lengths 1 and 3
    >>> [round(weight, 4) for weight in weighting.weights.values()]
    [0.75, 0.25]
    """

    name: ClassVar[str] = "torchjd"
    summary: ClassVar[str] = "any weighting, aggregator or scalarizer of TorchJD by its name"
    paper: ClassVar[Paper | None] = JACOBIAN_DESCENT
    weighs_heads: ClassVar[bool] = False
    _input: Input = Input.GRAM
    _part: Any = None

    def __init__(
        self,
        method: str,
        *,
        every: int = 1,
        seed: int = 0,
        step_size: float = 0.01,
        window: int = 100,
        tasks: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.every = check_count(self.name, "every", every)
        self.seed = check_seed(self.name, seed)
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        self.window = check_count(self.name, "window", window)
        methods.check(method, options, besides=("every", "seed", "step_size", "window"))
        self.method, self.options = method, options
        self.needs_all_tasks = methods.needs_all_tasks(method, options)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Make TorchJD's object for these tasks, and try another like it, so that it fails now if it must."""
        super().start(problem)
        rows, self._mixing = list(self.tasks), None
        if methods.has_primary(self.method, self.options):
            if not set(self.tasks) & set(self.targets):
                raise CrossTaskError(
                    f"weighting 'torchjd': the primary objective of {self.method} is the target, but no target is "
                    f"among the tasks ({', '.join(self.tasks)}); name it, or use the paradigm 'joint'."
                )
            rows, self._mixing = primary_first(self.tasks, self.targets)
        self._rows = rows
        trial, argument = methods.build(self.method, self.options, rows)
        like = torch.ones(len(rows), len(rows), dtype=torch.float64)
        if argument is Input.LOSSES:
            like = like[0]  # [tasks]
        methods.call(trial, trial_argument(like), self.seed)
        if self.every > 1 and argument in (Input.LOSSES, Input.VECTOR):
            raise CrossTaskError(
                f"weighting 'torchjd': TorchJD's {self.method} works anew in each step; leave out `every`."
            )
        self._make()

    def _make(self) -> None:
        """A new object without a state."""
        self._part, self._input = methods.build(self.method, self.options, self._rows)
        scalarization = methods.package().scalarization
        self._is_famo = isinstance(self._part, scalarization.FAMO)
        self._is_dwa = isinstance(self._part, scalarization.DWA)
        self._parameters: list[nn.Parameter] = []
        if not self._is_famo:  # which has its own optimizer
            self._parameters = list(self._part.parameters())
        if self._parameters:
            # An attribute of the object, so that its state is saved with the object's.
            self._part.adam = torch.optim.Adam(self._parameters, lr=self.step_size)
        self._restored: State | None = None
        self._has_state = self._awaits_losses = False

    def needs(self, step: int) -> Need:
        """Losses for a scalarizer, gradients on every `every`-th step for all others."""
        if self._input is Input.LOSSES:
            return Need.EVERY_TASK | Need.LOSSES
        if step % self.every == 0:
            need = Need.EVERY_TASK | Need.GRADIENTS | Need.SEPARATE_GRAPHS
            return need | Need.PRODUCTS if self._input is Input.GRAM else need
        return Need.EVERY_TASK

    def _can_learn_from(self, evidence: Evidence) -> bool:
        return len(evidence.tasks) == len(self.tasks) or not self.needs_all_tasks

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """TorchJD's weights; a method that has none puts its direction in place."""
        if self._input is Input.LOSSES:
            weights = self._scalarize(evidence.losses)
        elif self._input is Input.JACOBIAN:
            weights = self._call(evidence.jacobian)
        elif self._input is Input.VECTOR:
            probabilities = to_vector(evidence.probabilities, evidence.tasks, default=1.0)
            rows = evidence.jacobian / probabilities.to(evidence.jacobian)[:, None]  # [tasks, parameters]
            evidence.put_direction_in_place(self._call(rows))
            return {}
        elif not evidence.gram.diagonal().any():  # all gradients are zero: nothing to weigh
            return {}
        else:
            weights = self._weights_from_gram(evidence.gram)
        if not torch.isfinite(weights).all():
            return {}
        return by_task(evidence.tasks, weights)

    def _weights_from_gram(self, gram: Tensor) -> Tensor:
        if self._mixing is not None:
            gram = self._mixing @ gram @ self._mixing.T  # [rows, rows]
        if self._input is Input.ROOT:
            gram = root_of(gram)
        weights = self._call(gram)  # [rows]
        if self._mixing is not None:
            weights = self._mixing.T @ weights  # [tasks]
        return weights

    def _scalarize(self, losses: Mapping[str, float]) -> Tensor:
        """The scalarizer's gradient at the losses of all ranks; its parameters take a step."""
        values = to_vector(losses, list(losses)).requires_grad_()  # [tasks]
        if not torch.isfinite(values).all():
            return values.detach()  # not finite either: the weights stay
        self._restore(values)
        if self._awaits_losses:
            self._part.update(values.detach())
        scalar = self._call(values)
        if not torch.isfinite(scalar):
            raise CrossTaskError(
                f"weighting 'torchjd': TorchJD's {self.method} gives {scalar.item()} for the losses "
                f"{[round(value, 4) for value in values.tolist()]}; it may need losses above zero."
            )
        weights, *gradients = torch.autograd.grad(scalar, [values, *self._parameters])
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        if self._parameters:
            self._part.adam.step()
        self._awaits_losses = self._is_famo
        if self._is_dwa and self.steps % self.window == 0:
            self._part.step()
        return weights

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        """FAMO learns from the losses of the batch that was just trained on; other methods need none."""
        if not self._awaits_losses or any(task not in losses for task in self.tasks):
            return
        values = torch.stack([losses[task].detach() for task in self.tasks])
        if values.dtype != torch.float64:
            values = values.float()
        values = self.reduce(values).cpu().double()
        self._restore(values)
        self._part.update(values)
        self._awaits_losses = False

    def _call(self, argument: Tensor) -> Tensor:
        self._restore(argument)
        if self._input in (Input.JACOBIAN, Input.VECTOR):
            convert_options(self._part, argument)
        self._has_state = True
        # A seed for each step, the same on every rank: a run that is resumed needs to know nothing else.
        return methods.call(self._part, argument, (self.seed * 1_000_003 + self.steps) % 2**32)

    def _restore(self, argument: Tensor) -> None:
        """Restore a saved state; a call before it makes what was not saved, for this shape and device."""
        if self._restored is None:
            return
        trial = trial_argument(argument)
        methods.call(self._part, trial, self.seed)
        if self._is_famo:
            self._part.update(trial)
        write_state(self._part, self._restored, argument.device)
        self._restored = None

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that an option has a value for."""
        named = {}
        for key, value in self.options.items():
            if isinstance(value, Mapping) and methods.is_per_task(self.method, key, value):
                named[key] = list(value)
        return named

    def state_dict(self) -> State:
        """The weights, the number of steps, and the state of TorchJD's object."""
        state = super().state_dict()
        state["called"] = self._has_state or self._restored is not None
        state["awaits_losses"] = self._awaits_losses
        method_state = read_state(self._part) if self._restored is None else self._restored
        for key, value in method_state.items():
            state[STATE_PREFIX + key] = value
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it; the state of TorchJD's object follows at the next call, when its device is known."""
        self._make()
        super().load_state_dict(state)
        self._awaits_losses = bool(state["awaits_losses"])
        if state["called"]:
            self._restored = {}
            for key, value in state.items():
                if key.startswith(STATE_PREFIX):
                    self._restored[key.removeprefix(STATE_PREFIX)] = value
