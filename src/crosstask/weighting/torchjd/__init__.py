"""TorchJD's methods as weightings of ours."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.papers import JACOBIAN_DESCENT, Paper
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.evidence import Evidence, Need
from crosstask.weighting.torchjd import options as objects
from crosstask.weighting.torchjd import state as states
from crosstask.weighting.torchjd.options import Input
from crosstask.weighting.torchjd.rows import blank, primary_first, root_of
from crosstask.weighting.validation import check_count, check_number


class TorchJD(Weighting):
    """Any method of TorchJD by name: `weighting: {name: torchjd, method: UPGrad}`.

    With `J` the Jacobian of the losses on the shared parameters, one row per task: a weighting of TorchJD is a function
    `w(J J')` and the gradient `w' J`; an aggregator is a function `A(J)` that is the gradient; a scalarizer is a
    function `S(L)` of the losses, with weights `dS/dL_t`.

    - `L`: `losses`; `J J'`: the Gram matrix of gradients.py, added up parameter by parameter in float64;
    - `w`: `weights`, as they were used last. GradDrop, ConFIG and TrimmedMean have none: 1 / T stands in the record.

    Weightings, and aggregators made from one, see the Gram matrix only, so that no matrix of tasks times parameters
    ever exists (Mean, Sum, Random, Constant and NashMTL see a root of it, `root_of`). ExcessMTL, GradDrop, ConFIG,
    TrimmedMean, and what later versions may add, see the whole Jacobian, `jacobian_of`. With all of these a task's head
    gets its own gradient as it is, like in TorchJD's `mtl_backward`; a scalarizer weighs heads too.

    Args:
        method: the name of a class of `torchjd.aggregation` or `torchjd.scalarization`, with or without the ending
            `Weighting`. Names that both have (Constant, Mean, Random, Sum) are the aggregator's; the scalarizer is
            `scalarization.Mean`.
        every: steps from one look at the gradients to the next. In between a step is one plain backward pass with the
            last weights, heads included.
        seed: of methods that draw at random. Each step has its own numbers, the same on every rank.
        step_size: of Adam on what UW and IMTLL learn besides the model; as in our `uncertainty`.
        window: steps that DWA takes for an epoch.
        options: the method's own. A value per task (`pref_vector`, `weights`, `leak`, `tau`, ...) is a mapping by task
            or a list in the order of the tasks; `projector` is a mapping of `norm_eps` and `reg_eps`; the wrapped
            `weighting` of CRMOGMWeighting is a name, or a mapping with `method`; the number of tasks is filled in.

    PCD's primary objective is our target; of several targets, the mean. Methods with a memory, with values per task, or
    with a count of tasks need all of them: when a task is missing from a step, the last weights are kept for it. All
    others combine the tasks that are there.

    Differs from TorchJD: MoDo and SDMGrad ask for products of gradients on two independent batches and get those of
    one, without MoDo's guarantee. FAMO's update wants the same batch's losses again after the step: give them to
    `after_step`, or else the next step's losses are taken. UW and IMTLL train by an Adam of their own instead of the
    model's optimizer.

    Needs `pip install "crosstask[torchjd]"`. Costs a backward pass per task on a look (a scalarizer: one plain pass);
    with the Jacobian also T times the memory of the shared gradient. `state_dict` holds everything that a method
    remembers, and random draws depend on the step alone: all methods resume exactly.

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
        self.seed = check_count(self.name, "seed", seed, at_least=0)
        self.step_size = check_number(self.name, "step_size", step_size, above=0.0)
        self.window = check_count(self.name, "window", window)
        objects.check(method, options, besides=("every", "seed", "step_size", "window"))
        self.method, self.options = method, options
        self.needs_all = objects.needs_all(method, options)
        super().__init__(tasks, target)

    def start(self, problem: Problem) -> None:
        """Make TorchJD's object for these tasks, and try another like it, so that it fails now if it must."""
        super().start(problem)
        self._make()

    def _make(self) -> None:
        rows, self._making = list(self.tasks), None
        if objects.has_primary(self.method, self.options):
            if not set(self.tasks) & set(self.targets):
                raise CrossTaskError(
                    f"weighting 'torchjd': the primary objective of {self.method} is the target, but no target is "
                    f"among the tasks ({', '.join(self.tasks)}); name it, or use the paradigm 'joint'."
                )
            rows, self._making = primary_first(self.tasks, self.targets)
        self._restored: dict[str, Any] | None = None
        self._called = self._awaits_losses = False
        self._part, self._input = objects.input_of(objects.build(self.method, self.options, rows).double())
        trial, _ = objects.input_of(objects.build(self.method, self.options, rows).double())
        shape = [len(rows)] if self._input is Input.LOSSES else [len(rows), len(rows)]
        objects.call(trial, blank(torch.ones(shape, dtype=torch.float64)), self.seed)
        if self.every > 1 and self._input in (Input.LOSSES, Input.VECTOR):
            raise CrossTaskError(
                f"weighting 'torchjd': TorchJD's {self.method} works anew in each step; leave out `every`."
            )
        learned = [] if isinstance(self._part, self._scalarization.FAMO) else list(self._part.parameters())
        self._optimizer = torch.optim.Adam(learned, lr=self.step_size) if learned else None

    @property
    def _scalarization(self) -> Any:
        return objects.package().scalarization

    def needs(self, step: int) -> Need:
        """Losses for a scalarizer, gradients on every `every`-th step for all others."""
        if self._input is Input.LOSSES:
            return Need.EVERY_TASK | Need.LOSSES
        is_due = step % self.every == 0
        return Need.EVERY_TASK | Need.GRADIENTS | Need.SEPARATE_GRAPHS if is_due else Need.EVERY_TASK

    def _can_learn_from(self, evidence: Evidence) -> bool:
        return len(evidence.tasks) == len(self.tasks) or not self.needs_all

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        """TorchJD's weights of the rows, given back to the tasks that the rows were made of."""
        if self._input is Input.LOSSES:
            return self._scalarize(evidence.losses)
        if self._input is Input.VECTOR:
            drawn = torch.tensor([evidence.probabilities.get(task, 1.0) for task in evidence.tasks])
            jacobian = evidence.jacobian
            evidence.put_direction_in_place(self._call(jacobian / drawn.to(jacobian)[:, None]))
            return {}
        if self._input is Input.JACOBIAN:
            return self._finite(evidence.tasks, self._call(evidence.jacobian))
        gram = evidence.gram
        if not gram.diagonal().any():  # when all gradients are zero there is nothing to choose
            return {}
        seen = gram if self._making is None else self._making @ gram @ self._making.T
        found = self._call(root_of(seen) if self._input is Input.ROOT else seen)
        return self._finite(evidence.tasks, found if self._making is None else self._making.T @ found)

    def _scalarize(self, losses: Mapping[str, float]) -> dict[str, float]:
        """The weights are the scalarizer's slopes at the losses of all ranks; what it learns itself takes a step."""
        values = torch.tensor(list(losses.values()), dtype=torch.float64, requires_grad=True)
        if not torch.isfinite(values).all():
            return {}
        self._put_back(values)
        if self._awaits_losses:
            self._part.update(values.detach())
        scalar = self._call(values)
        if not torch.isfinite(scalar):
            raise CrossTaskError(
                f"weighting 'torchjd': TorchJD's {self.method} gives {scalar.item()} for the losses "
                f"{[round(value, 4) for value in values.tolist()]}; it may need losses above zero."
            )
        learned = list(self._part.parameters()) if self._optimizer else []
        slopes, *own = torch.autograd.grad(scalar, [values, *learned])
        if self._optimizer:
            for parameter, slope in zip(learned, own, strict=True):
                parameter.grad = slope
            self._optimizer.step()
        self._awaits_losses = isinstance(self._part, self._scalarization.FAMO)
        if isinstance(self._part, self._scalarization.DWA) and self.steps % self.window == 0:
            self._part.step()
        return self._finite(list(losses), slopes)

    def _learn_from_held_out(self, losses: Mapping[str, Tensor], shared: Iterable[nn.Parameter] | None) -> None:
        """FAMO learns from the losses of the batch that was just trained on; other methods need none."""
        if self._awaits_losses and all(task in losses for task in self.tasks):
            stacked = torch.stack([losses[task].detach() for task in self.tasks])
            values = self.reduce(stacked if stacked.dtype == torch.float64 else stacked.float()).cpu().double()
            self._put_back(values)
            self._part.update(values)
            self._awaits_losses = False

    def _finite(self, tasks: Sequence[str], weights: Tensor) -> dict[str, float]:
        return dict(zip(tasks, weights.tolist(), strict=True)) if torch.isfinite(weights).all() else {}

    def _call(self, seen: Tensor) -> Tensor:
        self._put_back(seen)
        if self._input in (Input.JACOBIAN, Input.VECTOR):
            states.match_options(self._part, seen)
        self._called = True
        # A seed for each step, the same on every rank: a run that is resumed needs to know nothing else.
        return objects.call(self._part, seen, (self.seed * 1_000_003 + self.steps) % 2**32)

    def _put_back(self, seen: Tensor) -> None:
        """Give TorchJD's object its memory back; a first call makes what cannot be kept, for this shape and device."""
        if self._restored is not None:
            empty = blank(seen)
            objects.call(self._part, empty, self.seed)
            if isinstance(self._part, self._scalarization.FAMO):
                self._part.update(empty)
            states.write_state(self._part, self._restored, seen.device)
            self._restored = None

    def named_tasks(self) -> dict[str, list[str]]:
        """Tasks that an option has a value for."""
        named = {}
        for key, value in self.options.items():
            if isinstance(value, Mapping) and objects.is_per_task(self.method, key, value):
                named[key] = list(value)
        return named

    def state_dict(self) -> dict[str, Any]:
        """The weights, the number of steps, and everything that TorchJD's object remembers."""
        remembered = self._restored if self._restored is not None else states.read_state(self._part)
        learned = states.read_optimizer(self._optimizer) if self._optimizer else {}
        return {
            **super().state_dict(),
            "called": self._called or self._restored is not None,
            "awaits_losses": self._awaits_losses,
            **{f"object:{key}": value for key, value in remembered.items()},
            **{f"optimizer:{key}": value for key, value in learned.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; TorchJD's object gets its memory back at the next call, when its device is known."""
        self._make()
        super().load_state_dict(state)
        self._awaits_losses = bool(state["awaits_losses"])
        kept = {key.removeprefix("object:"): value for key, value in state.items() if key.startswith("object:")}
        self._restored = kept if state["called"] else None
        if self._optimizer:
            learned = {
                key.removeprefix("optimizer:"): value for key, value in state.items() if key.startswith("optimizer:")
            }
            states.write_optimizer(self._optimizer, learned)
