"""How often TAWT should look in the demo and in `examples/plain_loop.py`: chosen by dev accuracy of the target alone.

Every value of `every` is tried with seeds that neither of them shows. Test examples play no part: the demo's target
keeps as many training examples as it has there, and a larger dev set is drawn from the rest of its pool, which the
sources then do without; the loop holds out a fifth of its own fifty labels. The highest mean accuracy is chosen.

    python benchmarks/choose_every.py digits sentences plain-loop
"""

import argparse
import json
import math
import runpy
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import crosstask as ct
from crosstask.data.subsets import balanced_subset
from crosstask.demo import make_study, one_thread
from crosstask.demo.problem import Problem
from crosstask.progress import Progress
from crosstask.runs.environment import environment
from crosstask.studies.compare_runs import run_key

OUTPUT = Path(__file__).parent / "results" / "choose_every.json"
LOOP = Path(__file__).parents[1] / "examples" / "plain_loop.py"
IN_DEMO = (9, 18, 37, 75)
"""16, 8, 4 and 2 looks in the 150 updates of the digits."""
IN_LOOP = (18, 37, 75, 150)
"""The same in its 300 updates."""
FIRST_SEED = 100
NUM_SEEDS = {"digits": 6, "sentences": 6, "plain-loop": 30}
"""More for the loop: it holds out ten examples, the demo hundreds."""
LABELS = 400
"""Labels of the target to draw in the demo: a fifth are set aside there, some train, all others are dev."""
LOOP_DEV = 10

Scores = dict[int, dict[str, list[float]]]
"""Dev accuracies by `every` and method, one per seed."""


def demo_scores(make_problem: Callable[..., Problem], seeds: range) -> Scores:
    """Every paradigm that the demo weights by TAWT."""
    problem = make_problem(num_labels=LABELS)
    num_train = round(0.8 * make_problem().num_labels)
    problem.prepare(Progress())
    weighted = [name for name in problem.methods() if name.endswith("+ tawt")]
    scores: Scores = {every: {name: [] for name in weighted} for every in IN_DEMO}
    for seed in seeds:
        drawn, sources = problem.make(seed)
        kept = balanced_subset(list(drawn.train.labels), num_train, np.random.default_rng(seed))
        others = sorted(set(range(len(drawn.train))) - set(kept))
        parts = drawn.train.take(kept), drawn.train.take(others)
        target = ct.Task.assemble(drawn.name, *parts, labels=drawn.labels, seed=seed)
        for every in IN_DEMO:
            study = make_study(replace(problem, tawt_every=every))
            tasks = {task.name: task for task in (target, *sources)}
            for name in weighted:
                run = study.learner(run_key(name, target.name, seed), tasks).fit(target, sources)
                last = [row for row in run.history if row["event"] == "dev" and row["task"] == target.name][-1]
                scores[every][name].append(last["scores"]["accuracy"])
    return scores


def loop_scores(seeds: range) -> Scores:
    """The example's own data and training, with a part of the target's labels held out."""
    example = runpy.run_path(str(LOOP))
    scores: Scores = {every: {"tawt": []} for every in IN_LOOP}
    for seed in seeds:
        train, _ = example["make_tasks"](seed)
        images, digits = train["ours"]
        train["ours"] = images[LOOP_DEV:], digits[LOOP_DEV:]
        for every in IN_LOOP:
            guess = example["learn"](train, ct.TAWT(tasks=list(train), target="ours", every=every), seed=seed)
            right = guess(images[:LOOP_DEV]) == digits[:LOOP_DEV]
            scores[every]["tawt"].append(right.double().mean().item())
    return scores


def summary(scores: Scores) -> dict[int, dict[str, float]]:
    """For each `every` the mean over methods and seeds, and the standard error of the mean over seeds."""
    found = {}
    for every, by_method in scores.items():
        by_seed = [statistics.fmean(values) for values in zip(*by_method.values(), strict=True)]
        error = statistics.stdev(by_seed) / math.sqrt(len(by_seed)) if len(by_seed) > 1 else math.nan
        found[every] = {"dev_accuracy": statistics.fmean(by_seed), "standard_error": error}
    return found


def problem_maker(name: str) -> Callable[[range], Scores]:
    if name == "plain-loop":
        return loop_scores
    if name == "sentences":
        from crosstask.demo.sentences import sentences_problem

        return partial(demo_scores, sentences_problem)
    from crosstask.demo.digits import digits_problem

    return partial(demo_scores, digits_problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", nargs="+", choices=list(NUM_SEEDS))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    problems = json.loads(arguments.output.read_text())["problems"] if arguments.output.exists() else {}
    with one_thread():
        for name in arguments.problems:
            seeds = range(FIRST_SEED, FIRST_SEED + NUM_SEEDS[name])
            scores = problem_maker(name)(seeds)
            found = summary(scores)
            problems[name] = {
                "chosen": max(found, key=lambda every: found[every]["dev_accuracy"]),
                "summary": found,
                "seeds": list(seeds),
                "dev_accuracies": scores,
                "environment": environment(),
            }
            print(name, json.dumps({"chosen": problems[name]["chosen"], **found}, indent=1))
    result = {"benchmark": "how often TAWT looks", "problems": problems}
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
