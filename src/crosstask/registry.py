"""Names of methods and where each lives; a method's file is read when it is first asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Registry(Mapping[str, Any]):
    """A mapping from the names that recipes use to classes, given as "module:Class" within a package.

    >>> weightings = Registry("crosstask.weighting", {"uniform": "static:Uniform"})
    >>> weightings["uniform"].__name__, weightings.find("Uniform").name, weightings.find("Other")
    ('Uniform', 'uniform', None)
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self.package = package
        self.places = dict(places)

    def __getitem__(self, name: str) -> Any:
        module, _, class_name = self.places[name].partition(":")
        return getattr(import_module(f"{self.package}.{module}"), class_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def class_names(self) -> list[str]:
        """The names of the classes."""
        return [place.partition(":")[2] for place in self.places.values()]

    def find(self, class_name: str) -> Any | None:
        """The class of this name, or None."""
        for name, place in self.places.items():
            if place.partition(":")[2] == class_name:
                return self[name]
        return None
