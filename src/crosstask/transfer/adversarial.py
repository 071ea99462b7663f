"""Shared features that do not tell the task: a discriminator behind a gradient reversal, private encoders beside."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder, Representation
from crosstask.models.heads import LinearHead
from crosstask.models.hooks import Insert
from crosstask.papers import ADVERSARIAL, TCHEBYCHEFF, Paper
from crosstask.transfer.base import ANY_TRANSFER, PRIVATE_ENCODERS, Moment, Pass, Setup, Terms, Transfer
from crosstask.weighting.static import Uniform
from crosstask.weighting.tchebycheff import Tchebycheff

if TYPE_CHECKING:
    from crosstask.models.batches import Step
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase


class _Reversal(torch.autograd.Function):
    """The identity, whose gradient is turned around."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse_gradient(values: Tensor, strength: float = 1.0) -> Tensor:
    """The same values; on the way back the gradient is multiplied by `-strength`.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = reverse_gradient(x, 0.5) ** 2
    >>> y.backward()
    >>> y.item(), x.grad.item()
    (9.0, -3.0)
    """
    reversed_: Tensor = _Reversal.apply(values, strength)
    return reversed_


def orthogonality(shared: Tensor, private: Tensor) -> Tensor:
    """`|| S' P ||_F^2 / n^2` over rows of length one: 0 when features are orthogonal, 1 when all rows agree.

    >>> orthogonality(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.6, 0.8]])).item()
    1.0
    >>> signs = torch.tensor([[1.0], [-1.0]])
    >>> orthogonality(torch.ones(2, 1), signs).item()
    0.0

    Args:
        shared: S, [n, width].
        private: P, [n, width].
    """
    product = F.normalize(shared, dim=1).T @ F.normalize(private, dim=1)  # [width, width]
    return product.square().sum() / len(shared) ** 2


def rising_strength(progress: float) -> float:
    """`2 / (1 + exp(-10 p)) - 1`: from 0 at the start of training to nearly 1 (Ganin & Lempitsky 2015).

    >>> rising_strength(0.0), round(rising_strength(0.1), 4), round(rising_strength(1.0), 4)
    (0.0, 0.4621, 0.9999)
    """
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0


class PrivateEncoders(Insert):
    """An encoder of its own for each task; heads read `[shared; private]`, twice as wide.

    Where an encoder reads word vectors, those come from the one table that all share.
    """

    name: ClassVar[str] = "private-encoders"

    def __init__(self, tasks: Sequence[str], encoder: Encoder) -> None:
        super().__init__()
        self.tasks = list(tasks)
        self.encoders = nn.ModuleList(encoder.private_copy() for _ in self.tasks)
        self._embed: Callable[[Mapping[str, Tensor]], Tensor | None] = lambda inputs: None

    def attach(self, model: "Model") -> None:
        """Put linear heads of twice the width in the place of the model's."""
        self._embed = model.encoder.shared_embedding
        for place, spec in enumerate(model.specs.values()):
            rates = [module.p for module in model.heads[place].modules() if isinstance(module, nn.Dropout)]
            model.heads[place] = LinearHead(2 * model.encoder.width, spec, dropout=max(rates, default=0.0))

    def of(self, task: str) -> Any:
        """The private encoder of a task."""
        return self.encoders[self.tasks.index(task)]

    def after(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Representation:
        """The shared representations with each task's private ones beside them."""
        # All rows at once: whatever another insert does to the word vectors of a task goes by rows of the whole batch.
        embedding = self._embed(inputs)
        private = []
        for task, rows in self.rows.items():
            task_inputs = {key: value[rows] for key, value in inputs.items()}
            task_embedding = None if embedding is None else embedding[rows]
            private.append(self.of(task).represent_privately(task_embedding, task_inputs))
        pooled = torch.cat([representation.vector(), torch.cat([part.vector() for part in private])], dim=-1)
        tokens = representation.tokens
        if tokens is not None:
            tokens = torch.cat([tokens, torch.cat([part.tokens for part in private])], dim=-1)
        return Representation(tokens, pooled, representation.mask)

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """Those of the task's private encoder."""
        return list(self.of(task).parameters()) if task in self.tasks else []

    def config(self) -> dict[str, Any]:
        """The tasks; the architecture is that of the model's encoder."""
        return {"tasks": self.tasks}

    @classmethod
    def restore(cls, config: Mapping[str, Any], model: "Model") -> Self:
        """Private encoders as the model's encoder is."""
        return cls(config["tasks"], model.encoder)

    def for_task(self, model: "Model", task: str) -> Insert:
        """The one private encoder of this task."""
        self.encoders = nn.ModuleList([self.of(task)])
        self.tasks = [task]
        return self


class Adversarial(Transfer):
    """Shared features that do not tell the tasks apart, and private ones for what a task has to itself.

    Each task t has a private encoder beside the shared one, and its head reads both. The objective is (Liu et al. 2017)

        L_task + lambda L_adv + gamma L_diff ,
        L_adv  = mean_t mean_i  log D(s_i)_t ,                 D(s) = softmax(U s + b) trained to make it large,
        L_diff = mean_t || S_t' P_t ||_F^2 / n_t^2 .

    - `L_task`: the tasks' losses, weighted as the paradigm or the weighting says;
    - `lambda`, `gamma`: `adversarial` (0.05 in the paper) and `orthogonality` (0.01);
    - `D`: `discriminator`, which names the task of an example from its shared features `s_i`. A gradient reversal
      stands before it, so that one backward pass trains D to tell tasks apart and the encoder to prevent that;
    - `S_t`, `P_t`: rows are the shared and the private features of the batch's n_t examples, of length one. For
      tagging, the features of a sentence are the mean over its tokens for D, and each token is a row here.

    In the code: `reverse_gradient`, `orthogonality`, `PrivateEncoders`.

    Args:
        adversarial: the weight lambda; 0 for none.
        orthogonality: the weight gamma; 0 for none. Without private encoders it has no part.
        private: private encoders for all tasks. False leaves one encoder with the discriminator on top of it, and the
            encoder's own heads.
        rising: let the reversed gradient grow from 0 to its full strength (`rising_strength`), so that D can learn
            something first.
        discriminator_rate: how many times faster than the model D learns; 1 is one rate for all, as in the paper. There
            the encoder may run ahead: it escapes from what D knows, and a new classifier still tells the tasks apart.

    Differs from the paper: the discriminator has an optimizer of its own, Adam, with the model's rate times
    `discriminator_rate`. Means over examples and tasks instead of sums, and rows of length one in `L_diff`; without
    that, it grows with the square of the batch and the fourth power of the features, and small features are all that
    it asks for. With several tasks in a step each counts the same; under `schedule: mixed` every batch does. Where one
    task trains alone, as in fine-tuning, D has nothing to learn and rests.

    Private encoders have the architecture of the shared one and start afresh, but for Hugging Face encoders, which
    all start from the pretrained weights. The table of word vectors is one for all, as in the paper. With a frozen
    encoder, each task has a `hidden` layer of its own.

    Costs the memory of one more encoder per task, which counts with transformers: four tasks train five of them. A
    step costs two passes of an encoder over each example, and a further backward pass for the terms beside the tasks'
    losses. An exported model holds the shared encoder and one private one; without private encoders it is a plain one.
    """

    name: ClassVar[str] = "adversarial"
    summary: ClassVar[str] = "shared features that do not tell the task, private encoders beside them"
    paper: ClassVar[Paper | None] = ADVERSARIAL
    excludes: ClassVar[Mapping[str, str]] = {
        PRIVATE_ENCODERS: "transfer '{name}': the model has private encoders already; name it once."
    }
    discriminator: nn.Linear
    sums: Tensor

    def __init__(
        self,
        *,
        adversarial: float = 0.05,
        orthogonality: float = 0.01,
        private: bool = True,
        rising: bool = False,
        discriminator_rate: float = 10.0,
    ) -> None:
        super().__init__()
        self.adversarial = self._number("adversarial", adversarial)
        self.orthogonality = self._number("orthogonality", orthogonality)
        self.discriminator_rate = self._number("discriminator_rate", discriminator_rate)
        self.private = private
        if private:
            self.provides = frozenset({ANY_TRANSFER, PRIVATE_ENCODERS})
        self.rising = rising
        if not private and not adversarial:
            raise CrossTaskError(
                f"transfer '{self.name}': with `private: false` and `adversarial: 0` there is nothing to do. "
                "Give `adversarial` a weight above 0, or leave the transfer out."
            )

    def _number(self, option: str, value: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise CrossTaskError(f"transfer '{self.name}': `{option}` must be a number >= 0, found {value!r}.")
        return float(value)

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The same phases, if at least one of them trains several tasks."""
        if all(len(phase.tasks) < 2 for phase in phases):
            alone = " then ".join(f"'{phase.tasks[0]}'" for phase in phases)
            raise CrossTaskError(
                f"transfer '{self.name}' has a discriminator that tells tasks apart, so several must train together; "
                f"here {alone} trains alone. Use the paradigm 'joint' or 'normalized-joint', with a source."
            )
        return list(phases)

    def start(self, setup: Setup) -> None:
        """Make the discriminator and the private encoders."""
        model = setup.model
        if not model.shared_parameters():
            raise CrossTaskError(
                f"transfer '{self.name}' trains what tasks share, but nothing that they share learns; with a frozen "
                "encoder, add a shared layer: `hidden`."
            )
        self.numbers = {task: number for number, task in enumerate(model.specs)}
        self.width = model.encoder.width
        if self.private:
            model.insert(PrivateEncoders(list(model.specs), model.encoder))
        self.discriminator = nn.Linear(self.width, len(self.numbers))
        self.optimizer = torch.optim.Adam(self.discriminator.parameters())
        # Since the last look: batches of a task, and D's loss, its accuracy and `L_diff` added up over them. A buffer,
        # so that a resumed run tells the same.
        self.register_buffer("sums", torch.zeros(4))
        self.share, self.strength, self.several = 1.0 / len(self.numbers), 1.0, True

    def before_step(self, moment: Moment) -> "Step":
        """How much a task of this step counts, and how strong the reversal is now."""
        self.share = 1.0 / max(1, len(moment.step))
        self.several = len(moment.weights) > 1
        self.strength = rising_strength(moment.update / moment.num_updates) if self.rising else 1.0
        self.rate = self.discriminator_rate * moment.learning_rate
        self.sum_gradients = moment.devices.sum_gradients
        return moment.step

    def terms(self, forward: Pass) -> Terms:
        """`lambda L_adv + gamma L_diff` of this pass; the reversal makes `L_adv` a cross-entropy that all minimise."""
        terms = [self._term(task, part, forward) for task, part in forward.representations.items()]
        found = [term for term in terms if term is not None]
        return Terms(unweighted=torch.stack(found).sum() * self.share if found else None)

    def _term(self, task: str, part: Representation, forward: Pass) -> Tensor | None:
        """What one task adds to both losses."""
        tags = forward.model.specs[task].kind == "tagging"
        total, seen = None, [torch.ones(()), torch.zeros(()), torch.zeros(()), torch.zeros(())]
        if self.adversarial and self.several:
            features = (_mean(part) if tags else part.vector())[:, : self.width]
            logits = self.discriminator(reverse_gradient(features, self.strength)).float()
            number = torch.full((len(logits),), self.numbers[task], device=logits.device)
            loss = F.cross_entropy(logits, number)
            total = self.adversarial * loss
            seen[1], seen[2] = loss.detach(), (logits.argmax(1) == number).float().mean()
        if self.orthogonality and self.private:
            rows = (part.tokens[part.mask] if tags and part.tokens is not None else part.vector()).float()
            penalty = orthogonality(rows[:, : self.width], rows[:, self.width :])
            total = self.orthogonality * penalty + (0.0 if total is None else total)
            seen[3] = penalty.detach()
        self.sums += torch.stack([value.to(self.sums) for value in seen])
        return total

    def after_backward(self, model: "Model", update: int) -> None:
        """A step of the discriminator, on the gradients that the same backward passes have left."""
        assert self.optimizer is not None
        own = self.own_parameters()
        self.sum_gradients(own)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        if all(torch.isfinite(parameter.grad).all() for parameter in own if parameter.grad is not None):
            self.optimizer.step()
        self.optimizer.zero_grad()

    def facts(self) -> dict[str, Any]:
        """Means since the last look: how well tasks are told apart, and how far from orthogonal features are."""
        batches, loss, accuracy, penalty = self.sums.tolist()
        self.sums.zero_()
        if not batches:
            return {}
        facts: dict[str, Any] = {}
        if self.adversarial and self.several:
            facts |= {"discriminator_loss": loss / batches, "discriminator_accuracy": accuracy / batches}
        if self.orthogonality and self.private:
            facts |= {"orthogonality": penalty / batches}
        return facts


def _mean(part: Representation) -> Tensor:
    """The mean over a sentence's tokens, [batch, width]."""
    assert part.tokens is not None
    assert part.mask is not None
    kept = part.mask.unsqueeze(-1)
    return (part.tokens * kept).sum(1) / kept.sum(1)


class TchebycheffAdversarial(Adversarial):
    """Adversarial training of the task whose loss is the largest (Mao et al. 2020).

    The shared encoder, the heads and the discriminator minimise

        max_t L_t + lambda L_adv ,

    `L_adv` as in `Adversarial`. It is short for `weighting: tchebycheff` beside the transfer `adversarial` with
    `private: false`, since the paper's model shares one encoder. To give the maximum preferences or make it smooth,
    name that weighting with its options; the two go together.

    Args:
        adversarial: the weight lambda.
        orthogonality: as in `Adversarial`; no part of the paper's method.
        private: as in `Adversarial`; not in the paper.
        rising: as in `Adversarial`; not in the paper.
        discriminator_rate: as in `Adversarial`.

    Differs from the paper: there the discriminator's loss reaches the encoder only while it is beyond a threshold; here
    it always does, and fades by itself when the discriminator can do no better than guess. The weight lambda is that
    of Liu et al. (2017).
    """

    name: ClassVar[str] = "tchebycheff-adversarial"
    summary: ClassVar[str] = "the worst task is trained, on shared features that do not tell the task"
    paper: ClassVar[Paper | None] = TCHEBYCHEFF

    def __init__(
        self,
        *,
        adversarial: float = 0.05,
        orthogonality: float = 0.01,
        private: bool = False,
        rising: bool = False,
        discriminator_rate: float = 10.0,
    ) -> None:
        super().__init__(
            adversarial=adversarial,
            orthogonality=orthogonality,
            private=private,
            rising=rising,
            discriminator_rate=discriminator_rate,
        )

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """Phases of several tasks are weighted by the largest loss."""
        phases = super().plan(plan, phases)
        if isinstance(plan.weighting, Tchebycheff):
            return phases
        if plan.weighting is not None:
            raise CrossTaskError(
                f"transfer '{self.name}' weighs tasks by the weighting 'tchebycheff', but '{plan.weighting.name}' is "
                "given. Leave that out, or use the transfer 'adversarial' with it."
            )
        return [self._weighted(plan, phase) if len(phase.tasks) > 1 else phase for phase in phases]

    def _weighted(self, plan: "Plan", phase: "Phase") -> "Phase":
        made = plan.phase(phase.name, phase.tasks, Uniform, watched=phase.watched, weighting=Tchebycheff())
        return replace(phase, weighting=made.weighting)
