"""The kill test: runs that are stopped at any moment and resumed must end, byte for byte, as those that were not.

`make torture KILLS=1000` runs it; `CONTRIBUTING.md` says how to read what it prints.
"""
