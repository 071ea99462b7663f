"""A fuzzer: inputs that nobody would write by hand, and the promise that each ends right or in one sentence.

A *kind* of input is one file here (`files.py`, `predictions.py`, `commands.py`, `recipes.py`, `methods.py`,
`folders.py`): a `Case` that can be run, and a hypothesis strategy that draws such cases. `oracle.py` judges how a case
ended. `make test` runs some of each kind, always the same (`test_fuzz.py`); `make fuzz` runs them for hours in
processes of their own (`campaign.py`, `batches.py`).
"""
