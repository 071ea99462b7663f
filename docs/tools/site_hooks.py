"""Puts the generated pages into the site. They exist in memory alone, so that none can be out of date."""

from typing import Any

from mkdocs.structure.files import File, Files

from method_pages import method_pages, nav_of
from reference_pages import reference_pages

BEFORE = "Reference"
"""The methods stand before this part of the navigation."""


def on_config(config: Any) -> Any:
    """Add a part for the methods to the navigation."""
    places = [next(iter(item)) if isinstance(item, dict) else item for item in config.nav]
    config.nav.insert(places.index(BEFORE), {"Methods": nav_of(method_pages())})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages themselves."""
    for path, text in (method_pages() | reference_pages()).items():
        files.append(File.generated(config, path, content=text))
    return files
