"""Newsgroup messages: what is taken out, and what stays."""

import json

from crosstask.data.readers.newsgroups import strip_footers, strip_headers, strip_quotes

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


def test_option_of_tables(read_file, refusal):
    empty = "From: a@b.c\n\n> quoted only\n"
    content = "".join(json.dumps({"text": text, "label": "a"}) + "\n" for text in (MESSAGE, empty))
    parts = ["footers", "headers", "quotes"]
    kept = read_file("a.jsonl", content, strip=parts, empty="keep")
    assert kept.inputs == ["Buy the red one > the blue one.\nIt is a bike: nice.", ""]
    assert read_file("a.jsonl", content, strip=parts, empty="drop").lines == [1]
    assert read_file("a.jsonl", content, strip="headers").inputs[1] == "> quoted only"
    assert refusal("a.jsonl", content, strip=parts) == (
        "Task 't': a.jsonl, line 2 has no text left after `strip`; set `empty: drop` to leave such examples out or "
        "`empty: keep` to keep them."
    )
    assert "`strip` knows no part 'header'. Did you mean 'headers'?" in refusal("a.jsonl", content, strip=["header"])
    assert "`strip` is a list of headers, quotes, footers; found True." in refusal("a.jsonl", content, strip=True)
