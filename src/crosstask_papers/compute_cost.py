"""What an experiment has cost: minutes by machine, from the rows that its runs have left."""

from collections.abc import Sequence
from itertools import pairwise

from crosstask.runs.events import Row


def machine_minutes(rows: Sequence[Row]) -> dict[str, float]:
    """Minutes of each sort of machine: the time of every run over the number of processes that shared the machine.

    Processes that wait for the last run of a session, and the start of a session, are left out.

    >>> gpu = {"gpus": ["H200"], "command": ["crosstask", "reproduce", "x", "--jobs", "2"]}
    >>> session = {"event": "session", "environment": gpu}
    >>> machine_minutes([session, {"event": "cell", "seconds": 60.0}, {"event": "cell", "seconds": 180.0}])
    {'H200': 2.0}
    >>> machine_minutes([{**session, "jobs": 4}, {"event": "cell", "seconds": 480.0}])
    {'H200': 2.0}
    """
    minutes_by_machine: dict[str, float] = {}
    machine, jobs = "", 1
    for row in rows:
        if row["event"] == "session":
            machine = (row["environment"]["gpus"] or ["CPU"])[0]
            jobs = row.get("jobs") or _named_jobs(row["environment"]["command"])
        elif row["event"] == "cell" and machine:
            minutes_by_machine[machine] = minutes_by_machine.get(machine, 0.0) + row["seconds"] / 60 / jobs
    return {name: round(minutes, 1) for name, minutes in minutes_by_machine.items()}


def _named_jobs(command: Sequence[str]) -> int:
    """Of a session that was written down before its row had them."""
    words = dict(pairwise(command))
    return int(words.get("--jobs", 1))
