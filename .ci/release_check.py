"""The gate of a release: `make release-check`, on the commit that is to be tagged.

Everything is run on a fresh clone of the commit, each step with a log of its own; a step that fails
does not keep the next ones from running. At the end there is a table with counts and minutes for
docs/reliability.md. The exit code is 1 if anything failed.

    python .ci/release_check.py                # all of it: hours
    python .ci/release_check.py dist readme    # some of it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "release"
BITS = "benchmarks/bits.py"
LAST_LINES = 30


class Step(NamedTuple):
    """Some commands, and where in what they print the counts are."""

    name: str
    commands: tuple[str, ...]
    counts: str


STEPS = (
    Step("version", (f"{sys.executable} .ci/version.py",), ""),
    Step("ci", (".ci/run",), r"\d+ passed.*"),
    Step("dist", ("make dist",), r"PASSED"),
    Step("slow", ("make test-slow",), r"\d+ passed.*"),
    Step("campaign", ("make campaign",), r"^all +[\d,]+ +[\d,]+ +[\d,]+"),
    Step(
        "bits",
        # The same seed gives the same bits in another process.
        (
            "make .venv/.dev",
            f".venv/bin/python {BITS} --out build/bits.json",
            f".venv/bin/python {BITS} --compare build/bits.json",
        ),
        r"\d+ of \d+ as before",
    ),
    Step("demo", ("make demo",), r"return .* over \d+ episodes"),
    Step("readme", ("make .venv/.dev", ".venv/bin/python .ci/readme.py"), r"\d+ commands.*"),
)


class Outcome(NamedTuple):
    """How a step went."""

    name: str
    passed: bool
    minutes: float
    counts: str
    log: Path


def main(wanted: list[str]) -> int:
    """Run the steps and print the table."""
    unknown = set(wanted) - {step.name for step in STEPS}
    if unknown:
        known = ", ".join(step.name for step in STEPS)
        sys.exit(f"unknown steps {', '.join(sorted(unknown))}; there are {known}")
    if git("status", "--porcelain"):
        sys.exit("a release is a commit: commit or remove what is not in one")
    commit, clone = git("rev-parse", "HEAD"), WORK / "clone"
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True)
    subprocess.run(["git", "-C", clone, "checkout", "--quiet", commit], check=True)
    steps = [step for step in STEPS if not wanted or step.name in wanted]
    outcomes = [run(step, clone) for step in steps]
    print(f"\ncommit {commit}, {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    print("| step | result | minutes | counts |\n|---|---|---|---|")
    for outcome in outcomes:
        result = "passed" if outcome.passed else "FAILED"
        print(f"| {outcome.name} | {result} | {outcome.minutes:.1f} | {outcome.counts} |")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        lines = outcome.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print(f"\n==== FAILED: {outcome.name} ({outcome.log})", *lines, sep="\n")
    if failed:
        print(f"\nNOT A RELEASE: {len(failed)} of {len(outcomes)} steps failed")
    else:
        print(f"\nall {len(outcomes)} steps passed")
    return bool(failed)


def git(*words: str) -> str:
    """What git says of this checkout."""
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(step: Step, clone: Path) -> Outcome:
    """Run the commands of a step one after the other, until one fails."""
    log, began = WORK / f"{step.name}.log", time.monotonic()
    print(f"{step.name}: {'; '.join(step.commands)} ({log})", flush=True)
    passed = True
    with log.open("wb") as printed:
        for command in step.commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=clone, stdout=printed, stderr=subprocess.STDOUT
            )
            passed = done.returncode == 0
            if not passed:
                break
    text = log.read_text(errors="replace")
    found = re.findall(f"({step.counts})", text, re.MULTILINE) if step.counts else []
    counts = " ".join(found[-1].split()).strip("= ") if found else ""
    # A step that says nothing of what it has done may have done nothing.
    passed = passed and (bool(counts) or not step.counts)
    minutes = (time.monotonic() - began) / 60
    print(f"  {'passed' if passed else 'FAILED'} in {minutes:.1f} minutes: {counts}", flush=True)
    return Outcome(step.name, passed, minutes, counts, log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
