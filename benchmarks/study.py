"""What `p3s study run` costs over the same runs by `p3s train`.

    python benchmarks/study.py [--steps 4000] [--seeds 2]

TD3 alone and P3S-TD3 on Hopper-v5, one run at a time, with filled compilation caches. Two numbers,
since the machine's speed may swing more than what is looked for: the wall-clock time of the study
against that of the bare runs, and the scheduler's own computing as a share of the time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMES = ("single", "p3s")
FIELDS = {"evaluation_period": 2000, "evaluation_episodes": 2}


def p3s(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "p3s", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def own_seconds(process: subprocess.Popen[bytes]) -> float:
    """Computing time of a process, without its children."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bare_runs(folder: Path, steps: int, seeds: int) -> float:
    """Seconds of all runs by `p3s train`, one after another."""
    fields = [word for key, value in FIELDS.items() for word in (_option(key), value)]
    started = time.perf_counter()
    for seed in range(seeds):
        for scheme in SCHEMES:
            out = folder / f"{scheme}-{seed}"
            run = ["Hopper-v5", "--scheme", scheme, "--steps", steps, "--seed", seed, "--out", out]
            assert p3s("train", *run, *fields).wait() == 0
    return time.perf_counter() - started


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def study(folder: Path, steps: int, seeds: int) -> tuple[float, float, float]:
    """Seconds of the same runs as a study; and the scheduler's computing: to start, and after."""
    fields = "\n".join(f"{key} = {value}" for key, value in FIELDS.items())
    file = folder.with_suffix(".toml")
    file.write_text(
        f'environments = ["Hopper-v5"]\nsteps = {steps}\nseeds = {seeds}\n'
        f"[fields]\n{fields}\n[grid]\nscheme = {list(SCHEMES)}\n"
    )
    started, to_start, computed = time.perf_counter(), 0.0, 0.0
    process = p3s("study", "run", file, "--out", folder, "--jobs", 1)
    while process.poll() is None:
        computed = own_seconds(process)
        if not (folder / "cells.json").exists():
            to_start = computed
        time.sleep(0.05)
    assert process.returncode == 0
    return time.perf_counter() - started, to_start, computed - to_start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare_runs(folder / "warm-up", 1500, 1)
        bare = bare_runs(folder / "bare", options.steps, options.seeds)
        took, to_start, computed = study(folder / "study", options.steps, options.seeds)
    print(f"{len(SCHEMES) * options.seeds} runs of {options.steps} steps, one at a time")
    print(f"by p3s train: {bare:.1f} s; as a study: {took:.1f} s, {took / bare - 1:+.1%}")
    print(f"the scheduler computed for {to_start:.2f} s to start, and for {computed:.2f} s then,")
    print(f"{computed / took:.2%} of the time")


if __name__ == "__main__":
    main()
