"""Pictures of the bench as SVG files, drawn from the rows alone: average ranks, and quality beside cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from xml.sax.saxutils import escape

from crosstask_papers.bench.ranks import Ranking
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import SUITES, Suite

WIDTH, ROW = 760, 19
"""Of a picture, and of a line of names, in pixels."""
STYLE = (
    "text { font: 13px sans-serif; fill: #222 } line, path { stroke: #222; fill: none } .thin { stroke: #999 } "
    ".bar { stroke-width: 4 } .dot { fill: #2a6fb0 } .quiet { fill: #666 } "
    "@media (prefers-color-scheme: dark) { text { fill: #ddd } line, path { stroke: #ddd } .thin { stroke: #777 } "
    ".dot { fill: #6cb0f0 } .quiet { fill: #aaa } }"
)
"""Readable on white and on black."""
RANKS_PICTURE = "bench-ranks"


def pictures(results: Results) -> dict[str, str]:
    """All pictures by name, as SVG."""
    drawn: dict[str, str] = {}
    ranking = Ranking.of(results.at_first_size.by_target())
    if ranking is not None:
        drawn[RANKS_PICTURE] = ranks_picture(ranking)
    for suite in SUITES.values():
        points = cost_points(results, suite)
        if len(points) > 1:
            drawn[cost_name(suite)] = cost_picture(points, suite)
    return drawn


def cost_name(suite: Suite) -> str:
    """The name of a suite's picture."""
    return f"bench-{suite.name}"


# Average ranks


def ranks_picture(ranking: Ranking) -> str:
    """The diagram of Demsar (2006): methods on an axis of ranks, bars over those that are not told apart."""
    names = list(ranking.ranks)  # best first
    left, right, top = 240, WIDTH - 240, 56
    lowest, highest = 1, len(names)

    def x_of(rank: float) -> float:
        return left + (rank - lowest) / (highest - lowest) * (right - left)

    groups = indistinct_groups(ranking)
    first_row = top + 22 + 8 * len(groups)
    num_left = math.ceil(len(names) / 2)
    height = first_row + ROW * num_left + 12
    parts = [_text(left, 18, f"critical difference {ranking.critical_difference:.2f}")]
    difference = min(ranking.critical_difference, highest - lowest)
    parts.append(_line(left, 28, left + difference / (highest - lowest) * (right - left), 28, "bar"))
    parts.append(_line(left, top, right, top))
    for tick in range(lowest, highest + 1):
        parts.append(_line(x_of(tick), top - 4, x_of(tick), top))
        if tick in (lowest, highest) or (highest - lowest) < 20:
            parts.append(_text(x_of(tick), top - 8, str(tick), "middle", "quiet"))
    for number, (best, worst) in enumerate(groups):
        y = top + 12 + 8 * number
        parts.append(_line(x_of(ranking.ranks[best]) - 3, y, x_of(ranking.ranks[worst]) + 3, y, "bar"))
    # The better half at the left, the best on top; the others at the right, the worst on top: no lines cross.
    for number, name in enumerate(names[:num_left]):
        y, x = first_row + ROW * number, x_of(ranking.ranks[name])
        parts.append(_path([(x, top), (x, y), (left - 10, y)]))
        parts.append(_text(left - 14, y + 4, f"{name} {ranking.ranks[name]:.1f}", "end"))
    for number, name in enumerate(reversed(names[num_left:])):
        y, x = first_row + ROW * number, x_of(ranking.ranks[name])
        parts.append(_path([(x, top), (x, y), (right + 10, y)]))
        parts.append(_text(right + 14, y + 4, f"{ranking.ranks[name]:.1f} {name}"))
    title = f"Average ranks over {ranking.num_targets} targets: {', '.join(names)}, best first."
    return _svg(height, title, parts)


def indistinct_groups(ranking: Ranking) -> list[tuple[str, str]]:
    """The best and the worst method of each group that is not told apart and lies in no larger one.

    >>> ranks = {"a": 1.0, "b": 1.5, "c": 2.5, "d": 4.0}
    >>> indistinct_groups(Ranking(ranks, 9, 1.5, None))
    [('a', 'c'), ('c', 'd')]
    """
    names = list(ranking.ranks)
    groups: list[tuple[int, int]] = []
    for first, name in enumerate(names):
        last = first
        while last + 1 < len(names) and ranking.ranks[names[last + 1]] - ranking.ranks[name] <= (
            ranking.critical_difference
        ):
            last += 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return [(names[first], names[last]) for first, last in groups]


# Quality beside cost


@dataclass(frozen=True)
class CostPoint:
    """A method on a suite: the mean score over targets, in percent, and the seconds of a run."""

    method: str
    score: float
    seconds: float


def cost_points(results: Results, suite: Suite) -> list[CostPoint]:
    """Of every method that has all targets, with the suite's first number of labels."""
    results = results.of_suite(suite)
    points = []
    for method in results.methods:
        by_target = [results.by_seed(target, suite.labels[0], method) for target in suite.targets]
        seconds = results.seconds(method)
        if all(by_target) and seconds is not None:
            points.append(CostPoint(method, fmean(fmean(scores.values()) for scores in by_target), seconds))
    return points


def cost_picture(points: Sequence[CostPoint], suite: Suite) -> str:
    """A dot for each method by seconds and score; the names stand at the right, in the order of the scores."""
    left, right, top = 60, WIDTH - 230, 30
    ordered = sorted(points, key=lambda point: -point.score)
    height = top + max(ROW * len(ordered), 240) + 50
    bottom = height - 50
    logs = [math.log10(max(point.seconds, 0.01)) for point in points]
    shortest, longest = math.floor(min(logs)), math.ceil(max(logs) + 1e-9)
    lowest, highest = min(point.score for point in points), max(point.score for point in points)
    spread = max(highest - lowest, 1e-9)

    def x_of(seconds: float) -> float:
        share = (math.log10(max(seconds, 0.01)) - shortest) / max(longest - shortest, 1)
        return left + share * (right - left)

    def y_of(score: float) -> float:
        return bottom - 12 - (score - lowest) / spread * (bottom - top - 24)

    parts = [_line(left, bottom, right, bottom), _line(left, top, left, bottom)]
    for exponent in range(shortest, longest + 1):
        x = x_of(10.0**exponent)
        parts += [_line(x, bottom, x, bottom + 5), _text(x, bottom + 20, f"{10.0**exponent:g}", "middle", "quiet")]
    parts.append(_text((left + right) / 2, bottom + 40, "seconds of a run", "middle"))
    for score in (lowest, highest):
        parts.append(_text(left - 8, y_of(score) + 4, f"{score:.1f}", "end", "quiet"))
    parts.append(_text(left - 8, top - 12, "score", "middle"))
    for point, y in zip(ordered, label_places([y_of(point.score) for point in ordered], top, bottom), strict=True):
        x, dot_y = x_of(point.seconds), y_of(point.score)
        parts.append(_path([(x, dot_y), (right + 8, y), (right + 14, y)], "thin"))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{dot_y:.1f}" r="4.5"/>')
        parts.append(_text(right + 18, y + 4, f"{point.method} {point.score:.1f}"))
    title = f"{suite.title}: mean score by seconds of a run. Best: {ordered[0].method} ({ordered[0].score:.1f})."
    return _svg(height, title, parts)


def label_places(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights for labels that want to stand at these, in rising order, a line apart and within the picture."""
    places: list[float] = []
    for y in wanted:
        places.append(max(y, places[-1] + ROW) if places else max(y, top))
    limit = bottom - ROW / 2
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit)
        limit = places[number] - ROW
    return places


# SVG


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" '
        f'aria-label="{_attribute(title)}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{_style(style)}>{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, style: str = "") -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"{_style(style)}/>'


def _path(points: Sequence[tuple[float, float]], style: str = "") -> str:
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{steps}"{_style(style)}/>'


def _style(name: str) -> str:
    return f' class="{name}"' if name else ""


def image(name: str, alternative: str) -> str:
    """A picture in Markdown, beside the page in `images`."""
    return f"![{alternative}](images/{name}.svg)"


def files_of(drawn: Mapping[str, str]) -> dict[str, str]:
    """Pictures by the path of their file, from the page's folder."""
    return {f"images/{name}.svg": text for name, text in drawn.items()}
