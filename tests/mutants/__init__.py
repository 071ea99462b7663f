"""The mutation test: core formulas with one plausible mistake each, which the tests must see.

`make mutants` runs it; `CONTRIBUTING.md` says how to read what it prints.
"""
