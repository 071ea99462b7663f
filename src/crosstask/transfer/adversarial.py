"""Shared features from which the task cannot be told: a task discriminator behind a gradient reversal layer."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.models.arrays import rows_of
from crosstask.models.encoder import Encoder, Representation
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.heads import LinearHead
from crosstask.models.hooks import ByTask, Insert, PlainParts
from crosstask.papers import ADVERSARIAL, TCHEBYCHEFF, Paper
from crosstask.transfer.base import Ability, Facts, Moment, Pass, Setup, Terms, Transfer, WholeModel, step_if_finite
from crosstask.weighting import validation as checks
from crosstask.weighting.static import Uniform
from crosstask.weighting.tchebycheff import Tchebycheff

if TYPE_CHECKING:
    from crosstask.models.batches import Step
    from crosstask.models.multitask import Model
    from crosstask.training.paradigms import Plan
    from crosstask.training.trainer import Phase


class _Reversal(torch.autograd.Function):
    """The identity, whose gradient is reversed."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reverse_gradient(values: Tensor, strength: float = 1.0) -> Tensor:
    """The same values; in the backward pass the gradient is multiplied by `-strength`.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = reverse_gradient(x, 0.5) ** 2
    >>> y.backward()
    >>> y.item(), x.grad.item()
    (9.0, -3.0)
    """
    reversed_: Tensor = _Reversal.apply(values, strength)
    return reversed_


def orthogonality(shared: Tensor, private: Tensor) -> Tensor:
    """`|| S' P ||_F^2 / n^2` over rows of unit length: 0 when features are orthogonal, 1 when all rows agree.

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
    reads_inputs: ClassVar[bool] = True

    def __init__(self, tasks: Sequence[str], encoder: Encoder) -> None:
        super().__init__()
        self.encoders = ByTask({task: encoder.private_copy() for task in tasks})
        self._embed: Callable[[Mapping[str, Tensor]], Tensor | None] = lambda inputs: None

    def attach(self, model: "Model") -> None:
        """Replace the model's heads by linear ones of twice the width, with the same dropout."""
        self._embed = model.encoder.shared_embedding
        for index, spec in enumerate(model.specs.values()):
            dropout = 0.0
            for module in model.heads[index].modules():
                if isinstance(module, nn.Dropout):
                    dropout = max(dropout, module.p)
            model.heads[index] = LinearHead(2 * model.encoder.width, spec, dropout=dropout)

    def after(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Representation:
        """The shared representations with each task's private ones beside them."""
        # All rows at once: another insert may change the word vectors, by each task's rows of the full batch.
        embedding = self._embed(inputs)
        vectors: list[Tensor] = []
        tokens: list[Tensor] = []
        for task, rows in self.rows.items():
            task_inputs = rows_of(inputs, rows)
            task_embedding = None if embedding is None else embedding[rows]
            encoder = self.encoders.of(task)
            assert isinstance(encoder, Encoder)
            private = encoder.represent_privately(task_embedding, task_inputs)
            vectors.append(private.vector())  # [rows, width]
            if private.tokens is not None:
                tokens.append(private.tokens)  # [rows, length, width]
        pooled = torch.cat([representation.vector(), torch.cat(vectors)], dim=-1)  # [batch, 2 width]
        joined_tokens = representation.tokens
        if joined_tokens is not None:
            joined_tokens = torch.cat([joined_tokens, torch.cat(tokens)], dim=-1)  # [batch, length, 2 width]
        return Representation(joined_tokens, pooled, representation.mask)

    def parameters_of(self, task: str) -> list[nn.Parameter]:
        """Those of the task's private encoder."""
        return self.encoders.parameters_of(task)

    def config(self) -> dict[str, Any]:
        """The tasks; the architecture is that of the model's encoder."""
        return {"tasks": self.encoders.tasks}

    @classmethod
    def restore(cls, config: Mapping[str, Any], model: "Model") -> Self:
        """Private encoders with the architecture of the model's encoder."""
        if not model.specs.keys() >= set(config["tasks"]):  # a copy of the encoder for each
            raise CrossTaskError(f"the insert '{cls.name}' names tasks that the model does not have.")
        return cls(config["tasks"], model.encoder)

    def for_task(self, model: "Model", task: str) -> Insert:
        """The private encoder of this task alone."""
        self.encoders = self.encoders.only(task)
        return self

    def plain_parts(self) -> PlainParts | None:
        """A second encoder, if it is a whole one of transformers."""
        (encoder,) = self.encoders
        if type(encoder) is not HuggingFaceEncoder or encoder.has_lora:
            return None
        weights = {f"private.{name}": tensor for name, tensor in encoder.body.state_dict().items()}
        return PlainParts({"private": True}, weights)


class Adversarial(Transfer):
    """Shared features from which tasks cannot be told apart, and private ones for what is specific to a task.

    Each task t has a private encoder beside the shared one, and its head reads both. The objective is (Liu et al. 2017)

        L_task + lambda L_adv + gamma L_diff ,
        L_adv  = mean_t mean_i  log D(s_i)_t ,                 D(s) = softmax(U s + b) trained to make it large,
        L_diff = mean_t || S_t' P_t ||_F^2 / n_t^2 .

    - `L_task`: the tasks' losses, weighted by the paradigm or the weighting;
    - `lambda`, `gamma`: `adversarial` (0.05 in the paper) and `orthogonality` (0.01);
    - `D`: `discriminator`, which predicts the task of an example from its shared features `s_i`. A gradient reversal
      layer stands before it, so that one backward pass trains D to tell tasks apart and the encoder to prevent that;
    - `S_t`, `P_t`: rows are the shared and the private features of the batch's n_t examples, of unit length. For
      tagging, the features of a sentence are the mean over its tokens for D, and each token is a row here.

    In the code: `reverse_gradient`, `orthogonality`, `PrivateEncoders`.

    Args:
        adversarial: the weight lambda; 0 for none.
        orthogonality: the weight gamma; 0 for none. Without private encoders it has no effect.
        private: private encoders for all tasks, also when left out. False leaves one encoder with the discriminator on
            top of it, and the encoder's own heads.
        rising: let the factor of the reversed gradient grow from 0 to 1 (`rising_strength`), so that D can learn
            something first.
        discriminator_rate: learning rate of D in units of the model's; 1 is one rate for all, as in the paper. Then the
            encoder may be faster than D: it escapes the current D, and a new classifier still tells the tasks apart.

    Differs from the paper: the discriminator has an optimizer of its own, Adam, with the model's rate times
    `discriminator_rate`. Means over examples and tasks instead of sums, and rows of unit length in `L_diff`; without
    that, it grows with the square of the batch and the fourth power of the features, and merely makes features small.
    With several tasks in a step each counts the same; under `schedule: mixed` every batch does. Where one task trains
    alone, as in fine-tuning, D has nothing to learn and is left as it is.

    Private encoders have the architecture of the shared one and are initialized anew, but for Hugging Face encoders,
    which all start from the pretrained weights. All share one table of word vectors, as in the paper. With a frozen
    encoder, each task has a `hidden` layer of its own.

    Costs the memory of one more encoder per task, which matters with transformers: four tasks train five of them. A
    step costs two passes of an encoder over each example, and a further backward pass for the terms beside the tasks'
    losses. An exported model holds the shared encoder and one private one; without private encoders it is a plain one.
    """

    name: ClassVar[str] = "adversarial"
    summary: ClassVar[str] = "shared features that do not tell the task, private encoders beside them"
    paper: ClassVar[Paper | None] = ADVERSARIAL
    private_by_default: ClassVar[bool] = True
    excludes: ClassVar[Mapping[Ability, str]] = {
        Ability.PRIVATE_ENCODERS: "transfer '{name}': the model has private encoders already; name it once."
    }
    discriminator: nn.Linear
    sums: Tensor

    def __init__(
        self,
        *,
        adversarial: float = 0.05,
        orthogonality: float = 0.01,
        private: bool | None = None,
        rising: bool = False,
        discriminator_rate: float = 10.0,
    ) -> None:
        super().__init__()
        number = partial(checks.check_number, self.name, at_least=0, what="transfer")
        self.adversarial = number("adversarial", adversarial)
        self.orthogonality = number("orthogonality", orthogonality)
        self.discriminator_rate = number("discriminator_rate", discriminator_rate)
        self.private = self.private_by_default if private is None else private
        # Copies of the encoder would be whole ones.
        self.needs_whole_model = WholeModel.ALWAYS if self.private else WholeModel.NEVER
        if self.private:
            self.provides = frozenset({Ability.ANY, Ability.PRIVATE_ENCODERS})
        self.rising = rising
        if not self.private and not adversarial:
            raise CrossTaskError(
                f"transfer '{self.name}': with `private: false` and `adversarial: 0` there is nothing to do. "
                "Give `adversarial` a weight above 0, or leave the transfer out."
            )

    def plan(self, plan: "Plan", phases: "Sequence[Phase]") -> "list[Phase]":
        """The same phases, if at least one of them trains several tasks."""
        if max(len(phase.tasks) for phase in phases) < 2:
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
        self.tasks = list(model.specs)
        self.width = model.encoder.width
        if self.private:
            model.insert(PrivateEncoders(list(model.specs), model.encoder))
        self.discriminator = nn.Linear(self.width, len(self.tasks))
        self.optimizer = torch.optim.Adam(self.discriminator.parameters())
        # Since the last evaluation: number of batches of a task, and D's loss, its accuracy and `L_diff` added up over
        # them. A buffer, so that a resumed run records the same.
        self.register_buffer("sums", torch.zeros(4))
        self.task_factor, self.strength, self.has_several_tasks = 1.0 / len(self.tasks), 1.0, True

    def before_step(self, moment: Moment) -> "Step":
        """Set the factor of each task of this step, and that of the reversed gradient."""
        self.task_factor = 1.0 / max(1, len(moment.step))
        self.has_several_tasks = len(moment.weights) > 1
        if self.rising:
            self.strength = rising_strength(moment.update / moment.num_updates)
        self.rate = self.discriminator_rate * moment.learning_rate
        self.sum_gradients = moment.devices.sum_gradients
        return moment.step

    def terms(self, forward: Pass) -> Terms:
        """`lambda L_adv + gamma L_diff` of this pass; the reversal makes `L_adv` a cross-entropy that all minimize."""
        losses = []
        for task, representation in forward.representations.items():
            loss = self._task_loss(task, representation, forward.model.specs[task].kind == "tagging")
            if loss is not None:
                losses.append(loss)
        if not losses:
            return Terms()
        return Terms(unweighted=torch.stack(losses).sum() * self.task_factor)

    def _task_loss(self, task: str, representation: Representation, is_tagging: bool) -> Tensor | None:
        """One task's part of both losses; None where it has none."""
        total: Tensor | None = None
        loss = accuracy = penalty = torch.zeros(())
        if self.adversarial and self.has_several_tasks:
            features = _mean_over_tokens(representation) if is_tagging else representation.vector()
            shared = features[:, : self.width]  # [rows, width], without private features
            logits = self.discriminator(reverse_gradient(shared, self.strength)).float()  # [rows, tasks]
            labels = torch.full((len(logits),), self.tasks.index(task), device=logits.device)
            loss = F.cross_entropy(logits, labels)
            accuracy = (logits.argmax(1) == labels).float().mean()
            total = self.adversarial * loss
        if self.orthogonality and self.private:
            features = representation.vector()
            if is_tagging and representation.tokens is not None:
                features = representation.tokens[representation.mask]  # [tokens, 2 width]
            features = features.float()
            penalty = orthogonality(features[:, : self.width], features[:, self.width :])
            weighted = self.orthogonality * penalty
            total = weighted if total is None else weighted + total
        statistics = (torch.ones(()), loss, accuracy, penalty)
        self.sums += torch.stack([value.detach().to(self.sums) for value in statistics])
        return total

    def after_backward(self, model: "Model", update: int) -> None:
        """A step of the discriminator, on the gradients that the same backward passes have left."""
        assert self.optimizer is not None
        parameters = self.own_parameters()
        self.sum_gradients(parameters)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        step_if_finite([self.optimizer], parameters)

    def facts(self) -> Facts:
        """Means since the last evaluation: how well tasks are told apart, and how far from orthogonal features are."""
        batches, loss, accuracy, penalty = self.sums.tolist()
        self.sums.zero_()
        facts: Facts = {}
        if batches and self.adversarial and self.has_several_tasks:
            facts |= {"discriminator_loss": loss / batches, "discriminator_accuracy": accuracy / batches}
        if batches and self.orthogonality and self.private:
            facts |= {"orthogonality": penalty / batches}
        return facts


def _mean_over_tokens(representation: Representation) -> Tensor:
    """The mean over a sentence's tokens, [rows, width]."""
    assert representation.tokens is not None
    assert representation.mask is not None
    mask = representation.mask.unsqueeze(-1)  # [rows, length, 1]
    return (representation.tokens * mask).sum(1) / mask.sum(1)


class TchebycheffAdversarial(Adversarial):
    """Adversarial training of the task whose loss is the largest (Mao et al. 2020).

    The shared encoder, the heads and the discriminator minimize

        max_t L_t + lambda L_adv ,

    `L_adv` as in `Adversarial`. It is short for `weighting: tchebycheff` beside the transfer `adversarial` with
    `private: false`, since the paper's model shares one encoder. To give the maximum preferences or make it smooth,
    name that weighting with its options; the two go together.

    Args:
        adversarial: the weight lambda.
        orthogonality: as in `Adversarial`; no part of the paper's method.
        private: as in `Adversarial`, but off when left out; not in the paper.
        rising: as in `Adversarial`; not in the paper.
        discriminator_rate: as in `Adversarial`.

    Differs from the paper: there the discriminator's loss reaches the encoder only while it is beyond a threshold; here
    it always does, and fades by itself when the discriminator can do no better than guess. The weight lambda is that
    of Liu et al. (2017).
    """

    name: ClassVar[str] = "tchebycheff-adversarial"
    summary: ClassVar[str] = "the worst task is trained, on shared features that do not tell the task"
    paper: ClassVar[Paper | None] = TCHEBYCHEFF
    private_by_default: ClassVar[bool] = False

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
        weighted = []
        for phase in phases:
            if len(phase.tasks) > 1:
                new = plan.phase(
                    phase.name,
                    phase.tasks,
                    Uniform,
                    watched=phase.watched,
                    weighting=Tchebycheff(),
                    trains_target_heads=bool(phase.observed),
                )
                phase = replace(phase, weighting=new.weighting)
            weighted.append(phase)
        return weighted
