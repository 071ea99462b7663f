"""Make `benchmarks/results/README.md` from the JSON files beside it; nothing in it is typed by hand.

python benchmarks/tables.py
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from calibration import table as calibration
from distilled_vectors import SEEDS as DISTILLED_SEEDS
from distilled_vectors import table as distilled
from first_hour import table as first_hour
from fused_gradients import table as fused
from joint_steps import table as joint_steps
from label_forecast import table as label_forecast
from label_names import SEEDS as NAMES_SEEDS
from label_names import table as label_names
from linear_solver import table as linear_solver
from many_runs import table as many_runs
from max_over_time import table as max_over_time
from narrow_alignment import table as narrow
from partial_freeze import score_table, time_table
from query_sets import SEEDS as QUERY_SEEDS
from query_sets import table as query_sets
from scale_simulator import table as scale
from serve_load import table as serve_load
from setfit_beside import table as setfit
from stacked_start import SEEDS as STACKED_SEEDS
from stacked_start import table as stacked
from textcnn_trials import table as trials
from update_graphs import table as update_graphs
from weighting_overhead import table

RESULTS = Path(__file__).parent / "results"


def machine(result: dict[str, Any]) -> str:
    """Where a result was measured, in a few words."""
    found = result["environment"]
    versions = ", ".join(
        f"{name} {found['packages'][name]}" for name in ("torch", "transformers") if name in found["packages"]
    )
    return (
        f"{found['gpus'][0] if found['gpus'] else 'CPU, ' + str(found['processor_threads']) + ' threads'}; {versions}"
    )


def choices(result: dict[str, Any]) -> list[str]:
    """How often TAWT looks in the demo and in the example, and the dev accuracies that chose it."""
    lines = ["## How often TAWT looks", "", "| problem | seeds | dev accuracy (± standard error) by `every` | chosen |"]
    lines.append("|---|---|---|---|")
    for name, found in result["problems"].items():
        shown = [
            f"{every}: {row['dev_accuracy']:.3f} ± {row['standard_error']:.3f}"
            for every, row in found["summary"].items()
        ]
        lines.append(f"| {name} | {len(found['seeds'])} | {', '.join(shown)} | {found['chosen']} |")
    return [*lines, "", "Dev examples of the target alone, of seeds that demo and example do not show."]


def meta_steps(results: list[dict[str, Any]]) -> list[str]:
    """What a MetaXT step costs over a plain multi-task step."""
    lines = ["## A MetaXT step over a plain multi-task step", ""]
    lines += ["| machine | encoder, batch, sources | variant | time | memory |", "|---|---|---|---|---|"]
    for result in results:
        settings = result["settings"]
        for row in result["rows"]:
            where = f"{row['encoder']}, {settings['batch_size']} × {settings['length']}, {row['sources']}"
            ratios = f"{row['time_ratio']:.2f} | {row['memory_ratio']:.2f}"
            lines.append(f"| {machine(result)} | {where} | {row['variant']} | {ratios} |")
    return [*lines, "", "Unrolled: a graph of the whole step and a pass back through it, as it is usually written.", ""]


def joint_training(results: list[dict[str, Any]]) -> list[str]:
    """Joint training beside transformers.Trainer."""
    lines = ["## Joint training against transformers.Trainer", ""]
    lines += ["| machine | precision | examples of a task | over Trainer | over Trainer, batches by length |"]
    lines += ["|---|---|---|---|---|"]
    for result in results:
        settings, by_length = result["settings"], "–"
        if "ratio_by_length" in result:
            by_length = f"{result['ratio_by_length']:.2f}"
        where = f"{machine(result)} | {settings['precision']} | {settings['examples']}"
        lines.append(f"| {where} | {result['ratio']:.2f} | {by_length} |")
    return [*lines, "", "Examples per second of crosstask over those of Trainer; four tasks, the same updates.", ""]


def known_map(result: dict[str, Any]) -> list[str]:
    """MetaXT on a problem whose label map is known."""
    lines = ["", "## Label transfer where the map is known", ""]
    lines += ["| target labels | method | accuracy | MetaXT against it (paired t-test) |", "|---|---|---|---|"]
    for k, found in result["labels"].items():
        for method, row in found["methods"].items():
            against = found["MetaXT_against"].get(method)
            said = f"{against['difference']:+.3f} (p = {against['t_test_p']:.2g})" if against else "–"
            lines.append(f"| {k} | {method} | {sum(row['accuracy']) / len(row['accuracy']):.3f} | {said} |")
    return [*lines, "", f"Means over {len(result['seeds'])} seeds; the settings were chosen on other seeds.", ""]


def rank_speed(result: dict[str, Any]) -> list[str]:
    """How long `crosstask rank` takes."""
    first, cached = result["first"], result["cached_median"]
    lines = ["", "## Time of `crosstask rank`", ""]
    lines += ["| machine | call | seconds | processor seconds |", "|---|---|---|---|"]
    calls = [("first", first), (f"features on disk, median of {len(result['cached'])}", cached)]
    path = RESULTS / "rank_speed_bfloat16.json"
    if path.exists():
        calls.insert(1, ("first, with `precision: bfloat16`", json.loads(path.read_text())["first"]))
    path = RESULTS / "rank_speed_solver.json"
    if path.exists():
        solvers = json.loads(path.read_text())
        calls.append(("another time, features on disk, the solver's batch", solvers["cached_median"]))
        calls.append(("in turns with it, the solver of version 0.3", solvers["cached_before_median"]))
    for call, found in calls:
        lines.append(f"| {machine(result)} | {call} | {found['seconds']:.1f} | {found['processor_seconds']:.1f} |")
    loads = [one["load"] for one in (first, *result["cached"])]
    return [
        *lines,
        "",
        f"{result['sources']} sources of reviews, MiniLM, a new process each time, {result['processors']} processors "
        f"with other work too: a load from {min(loads)} to {max(loads)}.",
    ]


def feature_speed(paths: list[Path]) -> list[str]:
    """Texts a second through a frozen encoder."""
    lines = ["", "", "## Features of a frozen encoder, texts a second", ""]
    lines += [
        "| machine | tokens | plain loop | the package's pass | in bfloat16 | its distance | other predictions |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in paths:
        result = json.loads(path.read_text())
        speeds, rough = result["texts_per_second"], result["deviation"]["bfloat16"]
        package = speeds[result["default"]]
        lines.append(
            f"| {machine(result)} | {result['mean_length']:.0f} | {speeds['loop']:,.0f} | {package:,.0f} "
            f"| {speeds['bfloat16']:,.0f} | {rough['median_distance']:.2%} | {rough['other_predictions']:.2%} |"
        )
    note = (
        "MiniLM, tokenization included. The plain loop reads 64 texts at a time on the same device; predictions are a"
    )
    return [*lines, "", f"{note} linear model's of 20 classes, on held-out texts."]


def nothing_twice(result: dict[str, Any]) -> list[str]:
    """What a later run of a process reads again."""
    lines = ["", "", "## A later run of the same process", ""]
    lines += [
        "| machine | run | what earlier ones read is | seconds | encoder read | texts tokenized | shards checked |",
        "|---|---|---|---|---|---|---|",
    ]
    for run, row in result["runs"].items():
        for way, words in (("before", "forgotten"), ("after", "in memory")):
            calls = row["calls"][way]
            lines.append(
                f"| {machine(result)} | {run} | {words} | {row['seconds'][way]:.2f} | {calls['encoder_readings']} "
                f"| {calls['texts_tokenized']} | {calls['shards_checked']} |"
            )
    seconds = result["imports"]["seconds"]
    return [
        *lines,
        "",
        f"MiniLM, three tasks, two updates, dev and all. A new process takes {seconds['torch']:.1f} s for torch, "
        f"{seconds['torch_transformers_crosstask']:.1f} s with transformers, {seconds['with_first_run']:.1f} s with "
        "its first run.",
    ]


def million_rows(result: dict[str, Any]) -> list[str]:
    """A training with a source of a million rows, before and after reading became a stream."""
    lines = ["", "", "## A source of a million rows", ""]
    lines += ["| machine | checkout | first sign of life | first update | peak memory |", "|---|---|---|---|---|"]
    for name, row in result["median"].items():
        lines.append(
            f"| {machine(result)} | {name} | {row['first_sign_of_life']:.1f} s | {row['first_update']:.1f} s "
            f"| {row['peak_megabytes']:.0f} MB |"
        )
    num_rounds = len(result["rounds"]["now"])
    note = f"A CSV file of {result['megabytes']} MB, a text CNN on one thread, on a terminal; medians of {num_rounds}."
    return [*lines, "", note]


def fuzzing(result: dict[str, Any]) -> list[str]:
    """How inputs that nobody would write by hand ended."""
    lines = ["", "", "## Inputs of every kind: `make fuzz`", ""]
    lines += ["| kind | tried | right | refused | other | of which hangs |", "|---|---|---|---|---|---|"]
    columns = ("tried", "right", "refused", "other", "of which hangs")
    for kind, counts in result["kinds"].items():
        lines.append(f"| {kind} | " + " | ".join(f"{counts[column]:,}" for column in columns) + " |")
    totals = [sum(counts[column] for counts in result["kinds"].values()) for column in columns]
    lines.append("| all | " + " | ".join(f"{total:,}" for total in totals) + " |")
    note = "Right: answered, and the answer passes its checks; refused: in one sentence; other: anything else."
    return [*lines, "", f"{note} {_minutes(result)}, {result['jobs']} processes, seed {result['seed']}."]


def killing(result: dict[str, Any]) -> list[str]:
    """How runs ended that were stopped again and again."""
    columns = ("sequences", "kills", "other stops", "identical", "different", "lost", "left behind", "failed")
    lines = ["", "", "## Runs killed at every moment: `make torture`", ""]
    lines += [f"| command | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in result["rows"].items():
        lines.append(f"| {name} | " + " | ".join(f"{row.get(column, 0):,}" for column in columns) + " |")
    note = "A sequence is started, stopped and resumed until it finishes; identical: byte for byte what an undisturbed"
    return [*lines, "", f"{note} run leaves. {_minutes(result)}, {result['jobs']} processes, seed {result['seed']}."]


def inspections(result: dict[str, Any]) -> list[str]:
    """How often TAWT inspects gradients, and what it makes of its weights."""
    lines = ["## Inspections of TAWT in a long run", ""]
    lines += ["| weights | dev accuracy | over plain | weight of the target |", "|---|---|---|---|"]
    for arm, figures in result["summary"].items():
        gain = f"{figures['gain']:+.2f} ± {figures['standard error over seeds']:.2f}"
        lines.append(f"| {arm} | {figures['dev']:.2f} | {gain} | {figures['weight of the target']:.3f} |")
    num_seeds = len({row["seed"] for row in result["rows"]})
    settings = result["settings"]
    note = f"Six sentence tasks, {settings['labels']} labels each, {settings['updates']:,} updates, {num_seeds} seeds"
    return [*lines, "", f"{note}; ± is the standard error of the mean over seeds. {machine(result)}.", ""]


def ranks(result: dict[str, Any]) -> list[str]:
    """Two and four processes against one, and what they send."""
    kinds = {"copies": "a copy of the model each", "shards": "a part of the encoder each"}
    lines = ["", "", "## Two and four processes against one", ""]
    lines += ["| processes | largest difference of losses | of task weights | of parameters |", "|---|---|---|---|"]
    for kind, words in kinds.items():
        for count in (2, 4):
            end = f" {kind} {count} ranks"
            rows = [row for case, row in result["differences"].items() if case.endswith(end)]
            cells = [f"{max(row[what] for row in rows):.0e}" for what in ("losses", "weights", "parameters")]
            lines.append(f"| {count}, {words} ({len(rows)} runs) | {' | '.join(cells)} |")
    lines += [
        "",
        "Every weighting, on vectors, and small transformers with low-rank updates and gradient checkpointing.",
        "",
    ]
    lines += ["| weighting | for weights | gradients, copies | shards | passes, shards |", "|---|---|---|---|---|"]
    sent = result["sent_per_update"]
    for case in dict.fromkeys(key.rsplit(" ", 2)[0] for key in sent):
        section = json.loads(case)
        name = " ".join(str(value) for key, value in section.items() if key in ("name", "method", "similarity"))
        cells: list[str] = []
        for kind, purpose in (("shards", "for_weights"), ("copies", "task_gradients"), ("shards", "task_gradients"),
                              ("shards", "passes")):  # fmt: skip
            cells.append(" / ".join(f"{sent[f'{case} {kind} {size}'][purpose]:g}" for size in ("narrow", "wide")))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = "Numbers that each of two processes sends in an update with an inspection, three tasks: an encoder of 56"
    return [*lines, "", f"{note} / 448 parameters. {machine(result)}.", ""]


def ten_million_rows(result: dict[str, Any]) -> list[str]:
    """A training whose source is read a window at a time."""
    lines = ["", "", "## A source of ten million rows, by window", "", "| | |", "|---|---|"]
    median = result["median"]["now"]
    lines.append(f"| first sign of life | {median['first_sign_of_life']:.1f} s |")
    lines.append(f"| first update | {median['first_update']:.1f} s |")
    lines.append(f"| 20 updates, evaluation and report | {median['end']:.1f} s |")
    lines.append(f"| processor time | {median['processor_seconds']:.1f} s |")
    lines.append(f"| peak of memory | {median['peak_megabytes']:,.0f} MB |")
    note = (
        f"A CSV file of {result['rows']:,} rows and {result['megabytes']:,} MB, {result['window']:,} of them in memory"
    )
    num_rounds = len(result["rounds"]["now"])
    load = f"median of {num_rounds} rounds, on a machine with a load of {median['load']:.1f}"
    return [*lines, "", f"{note}; {load}. {machine(result)}.", ""]


def many_tasks(result: dict[str, Any]) -> list[str]:
    """Time and memory of a step by the number of tasks, and the beginning of a training with a thousand."""
    lines = ["", "## Many tasks", ""]
    counts = list(result["steps"][0]["by_number_of_tasks"])
    lines += [f"| method | tasks in a step | {' | '.join(counts)} | time | memory |", "|---" * (len(counts) + 4) + "|"]
    for row in result["steps"]:
        cells: list[str] = []
        for numbers in row["by_number_of_tasks"].values():
            cells.append(f"{numbers['milliseconds']:.0f} ms, {numbers['megabytes']:.0f} MB")
        size = row["tasks_per_step"] or "all"
        powers = f"{row['exponent_of_milliseconds']:.1f} | {row['exponent_of_megabytes']:.1f}"
        lines.append(f"| {row['method']} | {size} | {' | '.join(cells)} | {powers} |")
    lines += [
        "",
        "An update with an inspection, by the number of tasks, and the additional memory. The last columns are the "
        "power of the number of tasks by which time and memory grow from eight tasks on: 1 is linear, 0 flat.",
        "",
    ]
    beginning = dict(result["beginning"])
    lines += [f"| {beginning.pop('tasks'):,} tasks of 20 rows | first update | end | memory |", "|---|---|---|---|"]
    for name, row in beginning.items():
        times = f"{row['first_update']:.1f} s | {row['end']:.1f} s"
        lines.append(f"| {name} | {times} | {row['peak_megabytes']:,.0f} MB |")
    return [*lines, "", f"{machine(result)}.", ""]


def ray_nodes(result: dict[str, Any]) -> list[str]:
    """Studies on a cluster that loses a node."""
    lines = [
        "",
        "## A cluster that loses a node",
        "",
        "| study | runs | when a node was killed | nodes left | results |",
    ]
    lines.append("|---|---|---|---|---|")
    for row in result["studies"]:
        outcome = "the same" if row["same"] else "others"
        nodes = f"{row['nodes_left']} of {row['nodes']}"
        lines.append(f"| {row['study']} | {row['runs']} | {row['runs_when_killed']} | {nodes} | {outcome} |")
    note = "Ray nodes of one CPU each on one machine; results against those of the same study without Ray"
    return [*lines, "", f"{note}. {machine(result)}.", ""]


def decoder(result: dict[str, Any]) -> list[str]:
    """A decoder with few labels."""
    settings = result["settings"]
    lines = ["", "## A decoder with few labels", "", "| arm | accuracy | seconds |", "|---|---|---|"]
    lines.append(f"| the most common label | {result['majority']:.3f} | |")
    for arm, row in result["arms"].items():
        lines.append(f"| {arm} | {row['accuracy']:.3f} | {row['seconds']:.0f} |")
    difference = max(result["difference_to_transformers"][side] for side in ("right", "left"))
    same = "the same to the last bit" if result["resumed_is_the_same"] else "another model"
    note = f"SmolLM2-135M, low-rank updates, {settings['labels']} labels, {settings['updates']} updates, one seed"
    return [
        *lines,
        "",
        f"{note}. Stopped and resumed: {same}; logits in plain transformers within {difference:.0e}.",
        "",
    ]


def mutants(result: dict[str, Any]) -> list[str]:
    """How many plausible mistakes the tests notice."""
    counts = f"{result['mutants']} mistakes: {result['killed']} make a test fail, {result['survived']} do not"
    return ["", "", "## Plausible mistakes in core formulas: `make mutants`", "", f"{counts}. {_minutes(result)}.", ""]


def parity(result: dict[str, Any]) -> list[str]:
    """ONNX beside torch, the Trainer beside a plain loop."""
    kinds = list(next(iter(result["onnx"].values())))
    lines = [f"| ONNX against torch | {' | '.join(kinds)} |", "|---" * (1 + len(kinds)) + "|"]
    for architecture, row in result["onnx"].items():
        lines.append(f"| {architecture} | {' | '.join(f'{row[kind]:.0e}' for kind in kinds)} |")
    lines += ["", "| compared | largest difference |", "|---|---|"]
    for name, value in result["onnx_of_other_models"].items():
        lines.append(f"| ONNX against torch, {name} | {value:.0e} |")
    for name, value in result["trainer"].items():
        lines.append(f"| Trainer with TAWT against a plain loop, {name} | {value:.0e} |")
    return lines


def auto_beside(result: dict[str, Any]) -> list[str]:
    """What `auto` found, beside all its candidates fitted on all labels, and ten lines of scikit-learn."""
    rows = result["rows"]
    lines = [
        "",
        "## What auto finds, beside all that it tried",
        "",
        "| target | labels | minutes | chosen | test | best in hindsight | target alone | ten lines | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        scores = row["scores"]
        best = max(scores, key=scores.__getitem__)
        alone = f"{scores[row['best_alone']]:.1f}" if row["best_alone"] else "-"
        cells = (
            f"{row['minutes']:g} | {row['winner']} | {scores[row['winner']]:.1f} | {scores[best]:.1f} ({best}) | "
            f"{alone} | {scores['ten lines']:.1f} | {row['seconds']:.0f}"
        )
        lines.append(f"| {row['suite']}: {row['target']} | {row['labels']} | {cells} |")
    summary = result["summary"]
    fixed = ", ".join(f"{name} {score:.1f}" for name, score in summary["fixed"].items())
    return [
        *lines,
        "",
        f"Test accuracy; `auto` knows nothing of the suite beforehand. Mean {summary['auto']:.1f}; of what all targets "
        f"had: {fixed}. `ten lines` is a logistic regression on features and on what those of the sources say. One "
        f"draw of labels a target. {machine(result)}.",
        "",
    ]


def auto_on_bench(result: dict[str, Any]) -> list[str]:
    """`auto` with little time on all targets of the bench, beside the bench's rows."""
    numbers = result["summary"]
    minutes = result["rows"][0]["minutes"]
    lines = [
        "",
        f"## Auto in {minutes:g} minutes on two cores",
        "",
        "| suite | targets | auto | probe | stacking | target alone, on a card | best in hindsight, on a card |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, means in numbers["suites"].items():
        cells = [means[each] for each in ("auto", "probe", "stacking", "single", "best in hindsight")]
        lines.append(f"| {name} | {means['targets']} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    ahead, behind = numbers["ahead"], numbers["behind_by_a_point"]
    of_others = [f"of {name} {ahead[name]:+.1f} (behind by more than a point on {behind[name]})" for name in ahead]
    chosen = Counter(row["chosen"] for row in result["rows"]).most_common()
    return [
        *lines,
        "",
        f"The same labels, one draw a target; `auto` knows nothing of the suite beforehand. Ahead, in points, "
        f"{', '.join(of_others)}, of {len(result['rows'])} targets. Columns with a card had it as long as they needed, "
        f"for all layers. Chosen: {', '.join(f'{name} {count}' for name, count in chosen)}. Over time: "
        f"{numbers['late']}; more than a third of it left: {numbers['more_than_a_third_left']}. {machine(result)}; "
        "it was busy: other programs had half of it or more.",
        "",
    ]


def auto_refuses(result: dict[str, Any]) -> list[str]:
    """How often `auto` used sources that cannot help, and what it gained."""
    lines = ["", "## Sources that auto should not use", "", "| sources | used | mean gain |", "|---|---|---|"]
    for sort, used in result["uses_sources"].items():
        lines.append(f"| {sort} | {used} | {100 * result['mean_gain'][sort]:+.1f} |")
    return [*lines, "", f"Points of accuracy over the same search without sources. {machine(result)}.", ""]


def label_forecasts(result: dict[str, Any]) -> list[str]:
    """What twice the labels brought, and what a search would have said of it."""
    overall = result["summary"]["all"]
    return [
        "",
        "## What twice the labels bring",
        "",
        *label_forecast(result),
        "",
        f"Points on test, of a probe; what is foretold of a target is by its learning curve and by what the other "
        f"targets brought. It was off by {100 * overall['error']:.1f} points on average, without the curve by "
        f"{100 * overall['error_without_curve']:.1f}. {machine(result)}.",
        "",
    ]


def _minutes(result: dict[str, Any]) -> str:
    return f"{result['seconds'] / 60:.0f} minutes"


def main() -> None:
    lines = ["# Measurements", "", "Made by `python benchmarks/tables.py` from the JSON files in this folder.", ""]
    lines += joint_training([json.loads(path.read_text()) for path in sorted(RESULTS.glob("joint_training_*.json"))])
    lines += [
        "## Per-example products",
        "",
        "| machine | over a plain step | loop over it | memory |",
        "|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("sample_products_*.json")):
        result = json.loads(path.read_text())
        lines.append(
            f"| {machine(result)} | {result['products_over_plain_step']:.2f} | {result['loop_over_products']:.0f} | "
            f"{result['memory_over_plain_step']:.2f} |"
        )
    paths = sorted(RESULTS.glob("weighting_overhead_*.json"))
    if paths:
        machines = dict.fromkeys(machine(json.loads(path.read_text())) for path in paths)
        lines += ["", "## Weightings", "", *(f"- {name}" for name in machines), "", table(paths)]
    paths = sorted(RESULTS.glob("fused_gradients_*.json"))
    if paths:
        lines += ["", "## Gradients of all tasks: one fused pass against a pass per task", ""]
        lines += [*fused([json.loads(path.read_text()) for path in paths]), ""]
        lines += ["Time of a whole update; the ratio is that of a pass per task to the fused one.", ""]
    paths = sorted(RESULTS.glob("meta_step_*.json"))
    if paths:
        lines += meta_steps([json.loads(path.read_text()) for path in paths])
    path = RESULTS / "update_graphs_gpu.json"
    if path.exists():
        result = json.loads(path.read_text())
        lines += ["", "## Updates as CUDA graphs", "", *update_graphs(result), ""]
        lines += [f"{machine(result)}. A whole update, the optimizer's step included; `over uniform` is by graphs.", ""]
    paths = sorted(RESULTS.glob("many_runs_*.json"))
    if paths:
        lines += many_runs([json.loads(path.read_text()) for path in paths])
    path = RESULTS / "choose_every.json"
    if path.exists():
        lines += choices(json.loads(path.read_text()))
    path = RESULTS / "tawt_inspections.json"
    if path.exists():
        lines += inspections(json.loads(path.read_text()))
    path = RESULTS / "known_label_map.json"
    if path.exists():
        lines += known_map(json.loads(path.read_text()))
    path = RESULTS / "stacked_start.json"
    if path.exists():
        lines += ["## Label transfer between tags, from a stacked probe", "", stacked(path), ""]
        note = f"Span F1 of fine entities with k sentences and coarse ones as source, {len(STACKED_SEEDS)} seeds"
        lines += [f"{note}; frozen MiniLM with a layer that learns, judged by training sentences that no run sees.", ""]
    paths = sorted(RESULTS.glob("partial_freeze_time_*.json"))
    if paths:
        results = [json.loads(path.read_text()) for path in paths]
        times = {machine(result): result for result in results}
        lines += ["## The first four of MiniLM's six layers frozen, over full fine-tuning", "", *time_table(times), ""]
    path = RESULTS / "partial_freeze_scores.json"
    if path.exists():
        lines += [*score_table(path), ""]
    path = RESULTS / "textcnn_trials.json"
    if path.exists():
        lines += ["## Trials of TextCNN on MetaWeighting's benchmarks", "", *trials(path), ""]
        lines += [
            "Mean dev accuracy (runs) of seeds that no experiment has; `textcnn_trials.py` says what differs.",
            "",
        ]
    path = RESULTS / "joint_steps.json"
    if path.exists():
        lines += ["## Joint training of MiniLM on newsgroups, by updates and rate", "", *joint_steps(path), ""]
        lines += ["Mean dev accuracy (runs) of seeds that no experiment has.", ""]
    path = RESULTS / "distilled_vectors.json"
    if path.exists():
        lines += ["## Word vectors out of MiniLM, and those of GloVe", "", *distilled(path), ""]
        note = f"Accuracy of a small TextCNN by training texts of a task, {len(DISTILLED_SEEDS)} seeds, uniform weights"
        lines += [f"{note}; judged by training texts that no run sees. Numbers of a word's vector after its name.", ""]
    path = RESULTS / "query_sets.json"
    if path.exists():
        lines += ["## MetaWeighting judged by the dev sets", "", *query_sets(path), ""]
        note = f"Accuracy of a small TextCNN with 100 texts of a task, {len(QUERY_SEEDS)} seeds, normalised steps"
        lines += [f"{note}; judged by training texts that no run sees.", ""]
    path = RESULTS / "max_over_time.json"
    if path.exists():
        lines += ["## TextCNN's max-over-time pooling", "", *max_over_time(path), ""]
        note = "Forward and backward pass of the encoder on one batch; ratios of the last to the first and the second."
        lines += [f"{note} {machine(json.loads(path.read_text()))}.", ""]
    path = RESULTS / "linear_solver.json"
    if path.exists():
        lines += ["## Our linear solver over others", "", *linear_solver(path), ""]
        note = "Cross-validation over seven penalties by the clock; ratios of medians, below 1 is faster."
        lines += [f"{note} {machine(json.loads(path.read_text()))}.", ""]
    path = RESULTS / "linear_solver_cuda.json"
    if path.exists():
        lines += ["The same on a GPU, over others on the CPU beside it:", "", *linear_solver(path), ""]
        lines += [f"{machine(json.loads(path.read_text()))}.", ""]
    path = RESULTS / "narrow_alignment.json"
    if path.exists():
        lines += ["## Alignment by the width of the shared part", "", *narrow(path), ""]
        lines += ["Dev accuracy of both tasks of a pair, six sentence tasks, MLP; a seed that no experiment has.", ""]
    path = RESULTS / "label_names.json"
    if path.exists():
        lines += ["## Heads that begin at the names of their labels", "", label_names(path), ""]
        lines += [
            "Test accuracy by labels of each intent, linear models on a frozen MiniLM; the paradigms `names` and "
            f"`probe`. One and two labels are drawn {NAMES_SEEDS} times, five and ten are the published sets. Scale "
            "and penalty of the prior where labels choose none were chosen on the dev sets of the same data.",
            "",
        ]
    path = RESULTS / "setfit.json"
    if path.exists():
        lines += ["## SetFit beside our writing of its recipe", "", setfit(path), ""]
        lines += ["Test accuracy of five classes of SST by labels k, as `metaxt-sentiment` draws them.", ""]
    path = RESULTS / "rank_speed.json"
    if path.exists():
        lines += rank_speed(json.loads(path.read_text()))
    paths = sorted(RESULTS.glob("feature_speed_*.json"))
    if paths:
        lines += feature_speed(paths)
    path = RESULTS / "nothing_twice.json"
    if path.exists():
        lines += nothing_twice(json.loads(path.read_text()))
    path = RESULTS / "million_rows.json"
    if path.exists():
        lines += million_rows(json.loads(path.read_text()))
    for name, section in {
        "ten_million_rows": ten_million_rows, "many_tasks": many_tasks, "ray_nodes": ray_nodes,
        "auto_beside": auto_beside, "auto_on_bench": auto_on_bench, "auto_refuses": auto_refuses,
        "label_forecast": label_forecasts,
    }.items():  # fmt: skip
        path = RESULTS / f"{name}.json"
        if path.exists():
            lines += section(json.loads(path.read_text()))
    path = RESULTS / "decoder.json"
    if path.exists():
        lines += decoder(json.loads(path.read_text()))
    path = RESULTS / "ranks.json"
    if path.exists():
        lines += ranks(json.loads(path.read_text()))
    path = RESULTS / "scale.json"
    if path.exists():
        lines += ["", "## 64 cards, by simulation", "", *scale(path), ""]
        lines += ["Of a card, in an update with an inspection; eight tasks, 25 GB/s between cards.", ""]
    path = RESULTS / "serve_load.json"
    if path.exists():
        found = json.loads(path.read_text())
        lines += [*serve_load(found), f"{machine(found)}.", ""]
    path = RESULTS / "parity.json"
    if path.exists():
        lines += ["", "## Two ways to the same numbers", "", *parity(json.loads(path.read_text())), ""]
        lines += [
            "Largest differences of a probability (of regression: of a value around 50), a parameter, a weight.",
            "",
        ]
    path = RESULTS / "first_hour.json"
    if path.exists():
        result = json.loads(path.read_text())
        lines += ["", "## From the README alone: a data frame to a service", "", *first_hour(result), ""]
        lines += [f"{machine(result)}, with other work beside it (a load of {result['system_load_after'][0]:.0f}).", ""]
    path = RESULTS / "calibration.json"
    if path.exists():
        result = json.loads(path.read_text())
        lines += ["", "## Calibration", "", *calibration(result), ""]
        note = f"{result['num_labels']} labels, a fifth of which is dev; before → after, on test, means over seeds"
        lines += [f"{note}. Answered: of what `abstain: {result['max_error']:g}` leaves. {machine(result)}.", ""]
    path = RESULTS / "fuzz.json"
    if path.exists():
        lines += fuzzing(json.loads(path.read_text()))
    path = RESULTS / "torture.json"
    if path.exists():
        lines += killing(json.loads(path.read_text()))
    path = RESULTS / "mutants.json"
    if path.exists():
        lines += mutants(json.loads(path.read_text()))
    (RESULTS / "README.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
