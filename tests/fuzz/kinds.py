"""All kinds of inputs; `campaign.FRACTIONS` says how much of a long run each gets."""

from dataclasses import dataclass

from hypothesis import strategies as st

from fuzz.commands import command_cases
from fuzz.files import file_cases
from fuzz.folders import folder_cases
from fuzz.methods import method_cases
from fuzz.oracle import Case
from fuzz.predictions import prediction_cases
from fuzz.recipes import recipe_cases


@dataclass(frozen=True)
class Kind:
    """A kind of input: where its cases come from, and how many of them `make test` tries."""

    cases: st.SearchStrategy[Case]
    num_tests: int


KINDS: dict[str, Kind] = {
    "files": Kind(file_cases(), 1000),
    "predictions": Kind(prediction_cases(), 150),
    "commands": Kind(command_cases(), 80),
    "recipes": Kind(recipe_cases(), 700),
    "methods": Kind(method_cases(), 150),
    "folders": Kind(folder_cases(), 80),
}
