"""`python -m fuzz`, the command behind `make fuzz`."""

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path

from fuzz import campaign


def main() -> int:
    """Run a campaign, or one input again; 1 where something ended in neither an answer nor a refusal."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--inputs", type=int, help="stop after this many inputs")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--seed", type=int, help="of all batches; a random one when left out")
    parser.add_argument("--kinds", nargs="+", choices=list(campaign.FRACTIONS), default=list(campaign.FRACTIONS))
    parser.add_argument("--output", type=Path, default=Path("fuzz-findings"), help="folder for inputs that failed")
    parser.add_argument("--json", type=Path, help="file for the counts")
    parser.add_argument("--again", type=Path, metavar="INPUT", help="run the input.txt of a finding again")
    options = parser.parse_args()
    if options.again:
        return run_again(options.again)
    if options.inputs is None and math.isinf(options.seconds):
        parser.error("say how long: --seconds or --inputs")
    seed = random.getrandbits(32) if options.seed is None else options.seed
    print(f"Seed {seed}, {options.jobs} processes.")
    started = time.monotonic()
    totals = campaign.run(
        seconds=options.seconds,
        inputs=options.inputs,
        jobs=options.jobs,
        seed=seed,
        kinds=options.kinds,
        output=options.output,
    )
    seconds = time.monotonic() - started
    print(f"\n{totals.num_inputs:,} inputs in {seconds:,.0f} s\n{totals.table()}")
    for signature, count in totals.signatures.most_common():
        print(f"{count:>7,}  {signature}")
    if options.json:
        summary = campaign.summary(totals, jobs=options.jobs, seed=seed, seconds=seconds)
        options.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return int(totals.num_other > 0)


def run_again(path: Path) -> int:
    """Judge one input that was kept, and show how it ends."""
    from fuzz.commands import CommandCase
    from fuzz.files import FileCase
    from fuzz.folders import Damage, FolderCase
    from fuzz.methods import MethodCase
    from fuzz.oracle import Verdict, judge
    from fuzz.predictions import PredictionCase
    from fuzz.recipes import RecipeCase
    from fuzz.tiny_runs import empty_folder

    cases = (FileCase, PredictionCase, CommandCase, RecipeCase, MethodCase, FolderCase, Damage)
    names = {"nan": math.nan, "inf": math.inf, **{case.__name__: case for case in cases}}
    case = eval(path.read_text(encoding="utf-8"), names)  # written by `campaign.keep`
    outcome = judge(case, empty_folder())
    print(f"{outcome.verdict}: {outcome.reason}\n{outcome.details}")
    return int(outcome.verdict is Verdict.OTHER)


if __name__ == "__main__":
    sys.exit(main())
