"""Names of methods and where each is defined; a method's module is imported when it is first asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from crosstask.errors import unknown

Method = TypeVar("Method")
PRESETS = ("paper",)
"""Named sets of a method's options."""


class HasPresets:
    """A method whose options can be had by a word: defaults are the best that we have measured, "paper" the paper's."""

    paper_options: ClassVar[Mapping[str, Any]] = {}
    """The options of the paper, where the defaults are others."""

    @classmethod
    def preset_options(cls, preset: object, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a preset, changed by single ones; the same without a preset."""
        if preset is None:
            return dict(options)
        if preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        return {**cls.paper_options, **options}

    @classmethod
    def from_preset(cls, preset: str, **options: Any) -> Self:
        """The method with the options of a preset, changed by single ones: `TAWT.from_preset("paper", every=100)`."""
        return cls(**cls.preset_options(preset, options))


class Registry(Mapping[str, type[Method]]):
    """A mapping from the names that recipes use to classes, given as "module:Class" within a package.

    >>> weightings = Registry("crosstask.weighting", {"uniform": "static:Uniform"})
    >>> weightings["uniform"].__name__, weightings.find("Uniform").name, weightings.find("Other")
    ('Uniform', 'uniform', None)
    """

    def __init__(self, package: str, locations: Mapping[str, str]) -> None:
        self.package = package
        self.locations = dict(locations)

    def __getitem__(self, name: str) -> type[Method]:
        module, class_name = self.locations[name].split(":")
        method: type[Method] = getattr(import_module(f"{self.package}.{module}"), class_name)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    def class_names(self) -> list[str]:
        """The names of the classes."""
        return [location.split(":")[1] for location in self.locations.values()]

    def find(self, class_name: str) -> type[Method] | None:
        """The class of this name, or None."""
        for name, location in self.locations.items():
            if location.split(":")[1] == class_name:
                return self[name]
        return None
