"""`metrics.json`: how a run came out."""

from typing import NotRequired

from typing_extensions import TypedDict

Scores = dict[str, dict[str, dict[str, float]]]
"""By task, split and metric."""


class Metrics(TypedDict):
    """`metrics.json`: how a run came out.

    - `uses_sources`, `papers`: of the paradigm, and keys in BibTeX; folders of version 0.1 lack both;
    - `weights`: at the end of each phase, by its name; a solver weighs no tasks;
    - `majority`: of each target, the scores of always answering what is most common in training;
    - `never_predicted`: of each target and split the labels that occur there and are never predicted;
    - `still_rising`: targets whose dev score was still rising when training ended;
    - `trained_on`: number of training examples of each task.
    """

    targets: list[str]
    paradigm: str
    uses_sources: NotRequired[bool]
    papers: NotRequired[list[str]]
    scores: Scores
    majority: NotRequired[Scores]
    never_predicted: NotRequired[dict[str, dict[str, list[str]]]]
    still_rising: NotRequired[list[str]]
    weights: dict[str, dict[str, float]]
    trained_on: dict[str, int]
    set_aside: list[str]
    seconds: float


class SavedMetrics(TypedDict):
    """`Metrics` as the file holds them: null for a score or weight that is not finite."""

    targets: list[str]
    paradigm: str
    uses_sources: NotRequired[bool]
    papers: NotRequired[list[str]]
    scores: dict[str, dict[str, dict[str, float | None]]]
    majority: NotRequired[dict[str, dict[str, dict[str, float | None]]]]
    never_predicted: NotRequired[dict[str, dict[str, list[str]]]]
    still_rising: NotRequired[list[str]]
    weights: dict[str, dict[str, float | None]]
    trained_on: dict[str, int]
    set_aside: list[str]
    seconds: float | None
