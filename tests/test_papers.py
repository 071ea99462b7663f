"""Every paper is complete, and its BibTeX entry reads back."""

import re
import unicodedata

import pytest

from crosstask import papers
from crosstask.papers import METAXT, PAPERS, Paper

by_key = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)


def read_back(entry: str) -> tuple[str, str, dict[str, str]]:
    """Type, key and fields of a BibTeX entry that has one field a line."""
    head, *lines, last = entry.split("\n")
    kind, key = re.fullmatch(r"@(\w+)\{([a-z0-9]+),", head).groups()
    assert last == "}"
    return kind, key, dict(re.fullmatch(r"  (\w+) = \{(.*)\},", line).groups() for line in lines)


def test_every_paper_of_the_module_is_listed_once():
    defined = [value for value in vars(papers).values() if isinstance(value, Paper)]
    assert sorted(paper.key for paper in defined) == sorted(paper.key for paper in PAPERS)
    assert len({paper.key for paper in PAPERS}) == len({paper.title for paper in PAPERS}) == len(PAPERS)


@by_key
def test_complete(paper):
    assert all(text and text == text.strip() for text in (paper.title, paper.venue, *paper.authors))
    assert len(set(paper.authors)) == len(paper.authors) >= 1
    assert all(re.fullmatch(r"[^\W\d_][\w.\-]*( [\w.\-']+)+", author) for author in paper.authors)
    assert 1950 <= paper.year <= 2100
    assert re.fullmatch(r"https://\S+", paper.url)
    family = unicodedata.normalize("NFKD", paper.authors[0].split()[-1].lower()).encode("ascii", "ignore").decode()
    assert re.fullmatch(rf"{family}{paper.year}[a-z]+", paper.key)


@by_key
def test_bibtex_reads_back(paper):
    entry = paper.bibtex()
    assert entry.count("{") == entry.count("}")
    kind, key, fields = read_back(entry)
    assert key == paper.key
    assert fields["title"] == f"{{{paper.title}}}"
    assert tuple(fields["author"].split(" and ")) == paper.authors
    assert (fields["year"], fields["url"]) == (str(paper.year), paper.url)
    place = {"inproceedings": "booktitle", "article": "journal"}[kind]
    assert fields[place] == paper.venue
    assert len(fields) == 5


def test_preprint_is_an_article():
    kind, _, fields = read_back(METAXT.bibtex())
    assert (kind, fields["journal"]) == ("article", "arXiv:2109.04240")


def test_signs_with_a_meaning_in_latex_are_escaped():
    paper = Paper("a2000b", "Q & A: 50% of #1", ("Ann A", "Bob B"), "V", 2000, "https://example.org/a_b")
    assert r"{{Q \& A: 50\% of \#1}}" in paper.bibtex()
    assert "https://example.org/a_b" in paper.bibtex()
    assert paper.short == "A and B (2000)"
