"""`python -m mutants`, the command behind `make mutants`."""

import argparse
import json
import sys
import time
from pathlib import Path

from mutants import campaign
from mutants.table import MUTANTS


def main() -> int:
    """Try all mutants or some; 1 where one survives, or where its snippet or its tests cannot be used."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants whose names begin so")
    parser.add_argument("--list", action="store_true", help="show names and what they break, and run nothing")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    options = parser.parse_args()
    mutants = MUTANTS
    if options.only:
        mutants = [mutant for mutant in MUTANTS if mutant.name.startswith(tuple(options.only))]
        if not mutants:
            parser.error(f"no mutant's name begins with {' or '.join(options.only)}; --list shows all names")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<45} {mutant.breaks}")
        return 0
    started = time.monotonic()
    verdicts: list[campaign.Verdict] = []
    for verdict in campaign.run(mutants, options.jobs):
        verdicts.append(verdict)
        details = "" if verdict.outcome == campaign.KILLED else f"  {verdict.details or verdict.mutant.breaks}"
        print(f"{verdict.outcome:<9} {verdict.seconds:>6.1f} s  {verdict.mutant.name}{details}", flush=True)
    summary = campaign.summary(verdicts, jobs=options.jobs, seconds=time.monotonic() - started)
    counts = ", ".join(f"{summary[outcome]} {outcome}" for outcome in campaign.OUTCOMES)
    print(f"\n{len(verdicts)} mutants in {summary['seconds']} s: {counts}")
    if options.json and not options.only:
        options.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return int(summary[campaign.KILLED] < len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
