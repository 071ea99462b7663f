"""Publications behind the methods, as data from `papers.toml`: tables, reports and the documentation read them here."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING


@dataclass(frozen=True)
class Paper:
    """A publication.

    - `key`: its key in BibTeX;
    - `authors`: full names, given name first;
    - `venue`: where it appeared, written out; a preprint has its number here, as in `arXiv:2109.04240`;
    - `url`: a page that is free to read.
    """

    key: str
    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    url: str

    @property
    def short(self) -> str:
        """As one names it in a sentence.

        >>> TAWT.short, TEXTCNN.short
        ('Chen et al. (2022)', 'Kim (2014)')
        """
        family_names = [author.split()[-1] for author in self.authors]
        if len(family_names) > 2:
            return f"{family_names[0]} et al. ({self.year})"
        return f"{' and '.join(family_names)} ({self.year})"

    def bibtex(self) -> str:
        """The entry for a bibliography; the title keeps its capitals.

        >>> print(TEXTCNN.bibtex())
        @inproceedings{kim2014convolutional,
          title = {{Convolutional Neural Networks for Sentence Classification}},
          author = {Yoon Kim},
          booktitle = {Conference on Empirical Methods in Natural Language Processing},
          year = {2014},
          url = {https://aclanthology.org/D14-1181},
        }
        """
        entry_type, venue_field = "inproceedings", "booktitle"
        if self.venue.startswith("arXiv:"):
            entry_type, venue_field = "article", "journal"
        fields = {
            "title": f"{{{_escape(self.title)}}}",  # the second pair of braces keeps the capitals
            "author": _escape(" and ".join(self.authors)),
            venue_field: _escape(self.venue),
            "year": str(self.year),
            "url": self.url,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@{entry_type}{{{self.key},", *lines, "}"])


def _escape(text: str) -> str:
    for character in "&%#_$":
        text = text.replace(character, f"\\{character}")
    return text


def _read_papers() -> dict[str, Paper]:
    """The papers by the names that this module gives them, such as `TAWT`."""
    tables = tomllib.loads(files("crosstask").joinpath("papers.toml").read_text(encoding="utf-8"))
    papers = {}
    for name, table in tables.items():
        papers[name] = Paper(**{**table, "authors": tuple(table["authors"])})
    return papers


_BY_NAME = _read_papers()
globals().update(_BY_NAME)
PAPERS = tuple(_BY_NAME.values())
"""All papers."""
PAPERS_BY_KEY = {paper.key: paper for paper in PAPERS}
"""All papers by their keys in BibTeX, as `metrics.json` names them."""

if TYPE_CHECKING:
    # The names come from the file: each is a Paper to a type checker.
    def __getattr__(name: str) -> Paper: ...
