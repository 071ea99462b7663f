"""Newsgroup messages: what is taken out, and what stays."""

import json
import sys

import pytest

from crosstask.data.readers import read
from crosstask.errors import CrossTaskError
from crosstask_papers.newsgroups import strip_footers, strip_headers, strip_quotes

MESSAGE = """From: ann@x.edu (Ann)
Subject: Re: Which bike?
\tfor winter
Organization: U. of X

In article <123@y.com> bob@y.com (Bob) writes:
>Which bike should I buy?
>> None: walk.

In article <456@z.com>,
cyd@z.com (Cyd) writes:
> I ride.

Buy the red one > the blue one.
It is a bike: nice.

--
Ann, ann@x.edu
"""


def test_parts_one_by_one():
    assert strip_headers(MESSAGE).startswith("In article <123@y.com>")
    assert strip_headers("No header here.\n\nStill none.") == "No header here.\n\nStill none."
    twice = "From: a@b.c\nLines: 3\n\nNewsgroups: rec.autos\nSubject: Cars\n\nNote: a car.\n\nEnd"
    assert strip_headers(twice) == "Note: a car.\n\nEnd"
    quotes = strip_quotes(strip_headers(MESSAGE))
    assert quotes.strip() == "Buy the red one > the blue one.\nIt is a bike: nice.\n\n--\nAnn, ann@x.edu"
    assert strip_footers(MESSAGE).endswith("It is a bike: nice.\n")
    assert strip_footers("Text.\n\nAnn\nPhone 123") == "Text."
    assert strip_footers("Text.\n\nMore text.") == "Text.\n\nMore text."
    assert strip_footers("Text.\n=========\nAnn") == "Text."
    assert strip_footers("--\nann@x.edu") == "--\nann@x.edu"


@pytest.fixture
def read_messages(tmp_path):
    """Read a message and one that is nothing but a quote, with these options."""
    messages = (MESSAGE, "From: a@b.c\n\n> quoted only\n")
    content = "".join(json.dumps({"text": text, "label": "a"}) + "\n" for text in messages)
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    return lambda **options: read("a.jsonl", folder=tmp_path, task="t", options=options)


@pytest.fixture
def refusal(read_messages):
    def sentence(**options):
        with pytest.raises(CrossTaskError) as caught:
            read_messages(**options)
        return str(caught.value)

    return sentence


def test_option_of_tables(read_messages, refusal):
    parts = ["footers", "headers", "quotes"]
    texts = read_messages(strip=parts, empty="keep").inputs
    assert texts == ["Buy the red one > the blue one.\nIt is a bike: nice.", ""]
    assert list(read_messages(strip=parts, empty="drop").lines) == [1]
    assert read_messages(strip="headers").inputs[1] == "> quoted only"
    assert refusal(strip=parts) == (
        "Task 't': a.jsonl, line 2 has no text left after `strip`; set `empty: drop` to leave such examples out or "
        "`empty: keep` to keep them."
    )
    assert "`strip` knows no part 'header'. Did you mean 'headers'?" in refusal(strip=["header"])
    assert "`strip` must be a text or a list; found True." in refusal(strip=True)


def test_without_the_package_the_option_says_what_to_install(read_messages, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "crosstask_papers.newsgroups", None)
    assert len(read_messages()) == 2
    assert "The option `strip` is part of crosstask_papers, which is not installed." in refusal(strip=["headers"])
