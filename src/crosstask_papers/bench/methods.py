"""What the bench compares, by name: one entry of `METHODS` each. A method that is new is an entry more.

All that train take the same number of updates, phases together, and choose from the same learning rates; the table says
what `tuned-weights` takes besides, to search. Those that differ by one thing stand side by side as arms in `ablations`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from crosstask.automl.budget import Clock
from crosstask.automl.driver import Request, find_model
from crosstask.automl.leaderboard import Board
from crosstask.automl.prior import Prior
from crosstask.data.examples import KINDS, Kind
from crosstask.data.label_names import NAMED_KINDS
from crosstask.ensembles.distillation import distill
from crosstask.ensembles.fitting import FittedEnsemble, fit_ensemble
from crosstask.ensembles.weights import Rule
from crosstask.learner import Learner
from crosstask.methods import Named, make_transfer, make_weighting
from crosstask.runs.events import Row
from crosstask.studies.tuned_weights import NUM_TRIALS, candidate_weights, search_updates, tune_weights
from crosstask.training.config import Training
from crosstask.training.paradigms import Plan, find_paradigm, plan_phases
from crosstask_papers.bench.opponents import tfidf
from crosstask_papers.bench.problems import Problem
from crosstask_papers.bench.suites import Suite

CLASSES: tuple[Kind, ...] = ("classification",)
AUTO_MINUTES = 2.0


@dataclass(frozen=True)
class Settings:
    """How a run is trained: the suite's updates and batch, the rate of the run key, the encoder that was asked for."""

    encoder: Named
    training: Training
    minutes: float = AUTO_MINUTES


@dataclass(frozen=True)
class Outcome:
    """The target's scores by metric, the updates that they took, and what a search has chosen."""

    scores: Mapping[str, float | None]
    updates: int = 0
    chosen: str | None = None


@dataclass(frozen=True)
class Method:
    """One way to a model of the target.

    - `summary`: one line for people;
    - `learner`: options of `Learner`, or else `measure`: a function of its own;
    - `training`: settings of the loop that differ from those of all;
    - `alone`: whether the target is trained without sources, also where the paradigm could read some;
    - `has_rate`: whether a learning rate has to be chosen; `rate_of`: the method whose rate it has, of which it is a
      control;
    - `kinds`: of targets; `min_labels`: of these, at least.
    """

    summary: str
    learner: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    measure: Callable[[Problem, Settings], Outcome] | None = None
    has_rate: bool = True
    rate_of: str | None = None
    kinds: tuple[Kind, ...] = KINDS
    min_labels: int = 1

    def fits(self, suite: Suite, labels: int) -> bool:
        """Whether it can be run on the targets of a suite with so many labels."""
        return suite.kind in self.kinds and (labels >= self.min_labels or suite.per_class)

    @property
    def trains_on_sources(self) -> bool:
        """Whether a run of the learner reads the sources."""
        if self.measure is not None or self.alone:
            return False
        return find_paradigm(self.learner["paradigm"]).uses_sources

    def run(self, problem: Problem, settings: Settings) -> Outcome:
        """Train and measure."""
        if self.measure is not None:
            return self.measure(problem, settings)
        return self._train(problem, settings)

    def _train(self, problem: Problem, settings: Settings) -> Outcome:
        sources = list(problem.sources) if self.trains_on_sources else []
        run = self.make_learner(problem, settings).fit(problem.target, sources)
        return Outcome(run.scores[problem.target.name]["test"], run.num_updates)

    def make_learner(self, problem: Problem, settings: Settings) -> Learner:
        """A learner whose phases together take the updates of the settings."""
        training = self.same_updates(problem, replace(settings.training, **self.training))
        return Learner(settings.encoder, training=training, seed=problem.seed, progress=False, **self.learner)

    def same_updates(self, problem: Problem, training: Training) -> Training:
        """Settings with which all phases together take the updates that `training` names, or one or two fewer."""
        sizes = {task.name: len(task.train) for task in (problem.target, *problem.sources)}
        plan = Plan(
            (problem.target.name,),
            tuple(source.name for source in problem.sources),
            sizes,
            training,
            make_weighting(self.learner.get("weighting")),
            tuple(make_transfer(item) for item in self.learner.get("transfer", ())),
        )
        total = 0
        for phase in plan_phases(self.learner["paradigm"], plan):
            if phase.solve is None:
                total += phase.settings.updates or 0
        if not total or training.updates is None:  # a solver takes none
            return training
        return replace(training, updates=max(1, training.updates**2 // total))

    def to_json(self) -> Row:
        """All that can change a result, as plain data."""
        data: Row = {"learner": dict(self.learner), "training": dict(self.training), "rate_of": self.rate_of}
        if self.measure is not None:
            data["measure"] = self.measure.__name__
        if self.alone:
            data["alone"] = True
        return data


def train(paradigm: str, **options: Any) -> dict[str, Any]:
    """Options of the learner."""
    return {"paradigm": paradigm, **options}


def carried(**changes: Any) -> dict[str, Any]:
    """Label transfer from a probe, with these options changed."""
    return train("normalized-joint", transfer=[{"name": "label-transfer", **changes}])


PAIRS = {"name": "contrast", "loss": "cosine", "tasks": "targets"}
"""Of the target's texts, as SetFit compares them."""
EQUAL_WEIGHTS = "normalized-joint"
"""What methods that differ from it by the weights of tasks alone have their learning rate of."""


def weighted(summary: str, weighting: str, min_labels: int = 1) -> Method:
    """Normalized joint training with weights that are learned, at the rate of the same with equal ones."""
    learner = train("normalized-joint", weighting=weighting)
    return Method(summary, learner, rate_of=EQUAL_WEIGHTS, min_labels=min_labels)


def best_within_minutes(problem: Problem, settings: Settings) -> Outcome:
    """What `crosstask auto` finds, with nothing chosen by hand, and knowing nothing of the suite beforehand."""
    request = Request(
        problem.target,
        problem.sources,
        settings.encoder,
        replace(settings.training, updates=None, learning_rate=None),
        problem.seed,
        folder=None,
        clock=Clock(settings.minutes),
        prior=Prior.load(without=[problem.suite.name]),
    )
    found = find_model(request, Board())
    return Outcome(found.run.scores[problem.target.name]["test"], found.run.num_updates, found.winner)


def tuned_weights(problem: Problem, settings: Settings) -> Outcome:
    """Normalized joint training with fixed weights that short runs have found."""
    training, sources = settings.training, list(problem.sources)

    def make_learner(weights: Mapping[str, float], trial_training: Training) -> Learner:
        weighting = {"name": "fixed", "weights": dict(weights)}
        return Learner(
            settings.encoder,
            paradigm="normalized-joint",
            weighting=weighting,
            training=trial_training,
            seed=problem.seed,
            progress=False,
        )

    candidates = candidate_weights(problem.target.name, [source.name for source in sources], NUM_TRIALS, problem.seed)
    best = tune_weights(make_learner, training, problem.target, sources, candidates)[0]
    run = make_learner(best.weights, training).fit(problem.target, sources)
    updates = training.updates or 0
    updates += search_updates(updates, NUM_TRIALS, has_dev=problem.target.dev is not None)
    return Outcome(run.scores[problem.target.name]["test"], updates)


def linear_words(problem: Problem, settings: Settings) -> Outcome:
    """TF-IDF of words and a logistic regression."""
    return Outcome(tfidf(problem.target, problem.seed))


ENSEMBLE = ("stacking", "single-probed", "sources-first")
"""Methods whose models an ensemble has; those of other solvers where a suite is without one."""
FOLDS = 3


def fitted_ensemble(problem: Problem, settings: Settings, rule: Rule, updates: int) -> FittedEnsemble:
    """Models of the folds with their weights, all trained in so many updates together."""
    names = [name for name in ENSEMBLE if name not in problem.suite.without]
    trained = [name for name in names if METHODS[name].has_rate]
    training = replace(settings.training, updates=max(1, updates // (len(trained) * FOLDS)))
    learners = {name: METHODS[name].make_learner(problem, replace(settings, training=training)) for name in names}
    options: dict[str, Any] = {"folds": FOLDS, "refit": False, "seed": problem.seed, "progress": False}
    return fit_ensemble(learners, problem.target, problem.sources, rule=rule, **options)


def ensemble(problem: Problem, settings: Settings, rule: Rule = "mixture") -> Outcome:
    """Models with and without sources, weighted by labels that trained none of them."""
    fitted = fitted_ensemble(problem, settings, rule, settings.training.updates or 0)
    return Outcome(fitted.ensemble.score(problem.target.test), fitted.num_updates)


def best_of_ensemble(problem: Problem, settings: Settings) -> Outcome:
    """The same models, of which the best method by those labels has all the weight."""
    return ensemble(problem, settings, "best")


def distilled(problem: Problem, settings: Settings) -> Outcome:
    """An ensemble in half of the updates, and one model of what it says of the sources' texts in the other half."""
    updates = settings.training.updates or 0
    fitted = fitted_ensemble(problem, settings, "mixture", updates // 2)
    training = replace(settings.training, updates=max(1, updates - fitted.num_updates))
    student = METHODS["single"].make_learner(problem, replace(settings, training=training))
    run = distill(fitted.ensemble, problem.target, problem.sources, student=student)
    return Outcome(run.scores[problem.target.name]["test"], fitted.num_updates + run.num_updates)


def nearest_name(problem: Problem, settings: Settings) -> Outcome:
    """The target alone: a solver keeps its head near what the labels mean."""
    learner = Learner(settings.encoder, paradigm="names", seed=problem.seed, progress=False)
    run = learner.fit(problem.target)
    return Outcome(run.scores[problem.target.name]["test"])


METHODS: dict[str, Method] = {
    # The target alone, and solvers.
    "probe": Method("a linear model on features of the frozen encoder", train("probe"), has_rate=False),
    "tfidf": Method(
        "logistic regression on words and pairs of words", measure=linear_words, has_rate=False, kinds=CLASSES
    ),
    "stacking": Method("the probe, which also reads what probes of the sources say", train("stacking"), has_rate=False),
    "single": Method("the target alone, with a fresh head", train("single")),
    "single-probed": Method("the target alone, its head begun as a probe", train("single"), {"head": "probe"}),
    "contrastive": Method(
        "the target alone: texts of one label together, others apart, then a probe (SetFit's recipe)",
        train("contrastive", transfer=[PAIRS]),
        alone=True,
        kinds=CLASSES,
    ),
    # Sources and target.
    "normalized-joint": Method("all tasks in every step, each counting the same", train("normalized-joint")),
    "pretrain": Method("the sources, then the target", train("pretrain")),
    "joint-then-target": Method(
        "half of the updates all tasks, then the target", train("normalized-joint"), {"finish": "target"}
    ),
    "sources-first": Method(
        "half of the updates the sources, a probe as head, then all tasks", train("normalized-joint"), {"head": "probe"}
    ),
    "label-transfer": Method("source labels as soft labels of the target, from a probe", carried()),
    "sources-then-contrast": Method(
        "half of the updates the sources, then such pairs of the target, then a probe",
        train("contrastive", transfer=[PAIRS]),
        {"sources_first": 0.5},
        kinds=CLASSES,
    ),
    "contrastive-sources": Method(
        "texts of one label together, others apart, in every task; then a probe", train("contrastive"), kinds=CLASSES
    ),
    "contrast-first": Method(
        "half of the updates on such pairs of every task, a probe as head, then all tasks",
        train("normalized-joint", transfer=["contrast"]),
        kinds=CLASSES,
    ),
    "joint": Method("all tasks in every step, each example counting the same", train("joint")),
    "scale-invariant": weighted("normalized joint on the logarithms of the losses", "scale-invariant"),
    "tuned-weights": Method(
        f"normalized joint, fixed weights: the best of {NUM_TRIALS} in short runs on parts of the labels",
        measure=tuned_weights,
        rate_of=EQUAL_WEIGHTS,
        min_labels=20,
    ),
    "tawt": weighted("normalized joint, weights by how gradients agree", "tawt"),
    "tawt-held-out": weighted(
        "normalized joint, weights by the target's loss on parts held out in turn", "tawt-held-out"
    ),
    "metaweighting": weighted(
        "normalized joint, weights by losses on held-out examples", "metaweighting", min_labels=100
    ),
    "db-mtl": weighted("normalized joint, gradients of one length on log losses", "db-mtl"),
    "go4align": weighted("normalized joint, groups of tasks with like losses", "go4align"),
    "forkmerge": Method(
        "branches with and without each source, merged as labels say that trained none of them",
        train("normalized-joint", transfer=[{"name": "forkmerge", "merges": 2, "parts": 2}]),
        rate_of=EQUAL_WEIGHTS,
    ),
    "auto": Method(f"`crosstask auto` in {AUTO_MINUTES:g} minutes", measure=best_within_minutes, has_rate=False),
    "names-alone": Method(
        "a linear model of few labels, near what their names or descriptions mean",
        measure=nearest_name,
        has_rate=False,
        kinds=CLASSES,
    ),
    "names": Method("the same after the sources, whose heads begin at their names", train("names"), kinds=CLASSES),
    "names-then-contrast": Method(
        "the same, half of the updates such pairs of the target before its head",
        train("names", transfer=[PAIRS]),
        kinds=CLASSES,
    ),
    "sources-first-named": Method(
        "half of the updates the sources, a head near the labels' names, then all tasks",
        train("normalized-joint"),
        {"head": "names"},
        kinds=NAMED_KINDS,
    ),
    "label-transfer-named": Method(
        "source labels as soft labels of the target, from what both mean", carried(start="names"), kinds=NAMED_KINDS
    ),
    "merging": Method(
        "each source by itself, encoders merged by the target's labels, then the target",
        train("pretrain", transfer=["merging"]),
    ),
    "merging-head": Method(
        "each source by itself, encoders merged, a probe as head",
        train("pretrain", transfer=[{"name": "merging", "then": "head"}]),
    ),
    "ensemble": Method(
        f"models of {FOLDS} folds, with and without sources, weighted by labels that trained none of them",
        measure=ensemble,
        rate_of="sources-first",
    ),
    "distilled": Method("one model of what an ensemble says of the sources' texts", measure=distilled),
    # Controls: a method with one thing switched off.
    "merging-mean": Method(
        "each source by itself, the mean of the encoders, then the target",
        train("pretrain", transfer=[{"name": "merging", "weights": "uniform"}]),
        rate_of="merging",
    ),
    "ensemble-best": Method(
        "of the models of an ensemble those of the best method alone", measure=best_of_ensemble, rate_of="sources-first"
    ),
    "pretrain-probed": Method("the sources, a probe as head, then the target", train("pretrain"), {"head": "probe"}),
    "sources-first-then-target": Method(
        "sources, a probe as head, all tasks, then the target",
        train("normalized-joint"),
        {"head": "probe", "finish": "target"},
    ),
    "label-transfer-then-target": Method("label transfer, then the target", carried(), {"finish": "target"}),
    "label-transfer-fixed": Method(
        "soft labels stay those of the probe", carried(learning_rate=0.0), rate_of="label-transfer"
    ),
    "label-transfer-off": Method("no soft labels", carried(learning_rate=0.0, gamma_2=0.0), rate_of="label-transfer"),
}
"""By name, in order of importance."""
