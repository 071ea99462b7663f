"""What more minutes would let a search do, and what was expected of that beforehand."""

from collections.abc import Sequence

from crosstask.automl.candidates import Level, is_pretrained
from crosstask.automl.fine_tuning import FineTuningPlan
from crosstask.automl.search import Search
from crosstask.automl.wording import amount, quoted
from crosstask.methods import Named
from crosstask.validation import name_and_options


def more_minutes(search: Search, plan: FineTuningPlan | None, encoder: Named) -> str:
    """In one sentence.

    Args:
        search: that has ended.
        plan: how a pretrained encoder was fine-tuned, None where that was not done.
        encoder: as the user named it.
    """
    parts: list[str] = []
    untried = untried_for_time(search)
    if untried:
        parts.append(f"try {_with_expectations(search, untried)}")
    for level, planned in search.planned_updates.items():
        names = _tried(search, level)
        updates = search.evaluator.updates[level]
        if names and updates < planned:
            parts.append(f"make {planned} updates instead of {updates} in {_with_expectations(search, names)}")
    more_folds = [name for name in search.candidates if name in search.short_of_time and search.rows_of(name)]
    if more_folds:
        parts.append(f"compare {quoted(more_folds)} on more folds")
    _, options = name_and_options("encoder", encoder)
    has_sources = any(candidate.sources for candidate in search.candidates.values())
    if is_pretrained(encoder) and not options.get("freeze"):
        if plan is None:
            parts.append("fine-tune the encoder, which stayed as it is")
        elif plan.fine_tuning.frozen_layers:
            how = " with sources" if has_sources and not plan.num_sources else ""
            parts.append(f"fine-tune the whole encoder{how} instead of its upper layers")
    if not parts:
        return "More minutes would probably change little: all candidates were tried as planned."
    return f"More minutes would let it {'; '.join(parts)}."


def untried_for_time(search: Search) -> list[str]:
    """Candidates of which no fold was run for want of time."""
    return [name for name in search.candidates if name in search.short_of_time and not search.rows_of(name)]


def _tried(search: Search, level: Level) -> list[str]:
    return [name for name, candidate in search.candidates.items() if candidate.level == level and search.scores(name)]


def _with_expectations(search: Search, names: Sequence[str]) -> str:
    """Their names, and what was expected of the most promising one over the base before any fold."""
    order = sorted(names, key=lambda name: -search.expected[name].gain)
    gain = amount(search.expected[order[0]].gain, search.evaluator.metric.greater_is_better)
    whose = "it" if len(order) == 1 else f"'{order[0]}'"
    return f"{quoted(order)} (beforehand {gain} over '{search.base}' were expected of {whose})"
