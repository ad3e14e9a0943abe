"""Hashes of what fixed seeds give: one line per run, to compare versions bit for bit.

    python benchmarks/bits.py --out bits.json              # write them down
    python benchmarks/bits.py --compare bits.json          # exit code 1 if any differs

Every scheme with TD3, SAC and DQN under the presets `paper` and `authors`, and every other
algorithm once; schemes that can be split in two shards; normalization, credit, images, masks and
workers: 3,000 environment steps each. Hashed are the evaluations and the lineage without times, and
the arrays of the policy file regardless of their names. Compare on one machine: other processors
and compilers round differently.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

SCHEMES = ("p3s", "sharing", "resetting", "distributed", "center", "cem", "erl", "pbt", "mf_pbt")
SCHEMES += ("single",)
COMMON = "--steps 3000 --evaluation-period 1000 --evaluation-episodes 2 --no-report"
SMALL = "--hidden-sizes 32 32"
WORLD = {"td3": "InvertedPendulum-v5", "sac": "InvertedPendulum-v5", "dqn": "CartPole-v1"}
EARLY = {
    "cem": "--initial-steps 60",
    "resetting": "--review-period 250",
    "pbt": "--review-period 250",
    "mf_pbt": "--review-period 100 --group-periods 1 2",
}
SPLIT = ("p3s", "sharing", "resetting", "pbt", "mf_pbt")
OTHERS = {
    "normalized": f"InvertedPendulum-v5 --normalize-observations {SMALL}",
    "normalized 2 shards": f"InvertedPendulum-v5 --normalize-observations --shards 2 {SMALL}",
    "crossq 2 shards": (
        "InvertedPendulum-v5 --algorithm crossq --shards 2 --initial-steps 250 "
        f"--updates-per-step 1 {SMALL}"
    ),
    "snapshot": f"InvertedPendulum-v5 --preset recommended --guide-source snapshot {SMALL}",
    "ircr": f"InvertedPendulum-v5 --delay 20 --credit ircr {SMALL}",
    "rrd": f"InvertedPendulum-v5 --delay 20 --credit rrd {SMALL}",
    "rrd 2 shards": f"InvertedPendulum-v5 --delay 20 --credit rrd --shards 2 {SMALL}",
    "own share": f"InvertedPendulum-v5 --own-share 0.5 {SMALL}",
    "masks": f"Taxi-v4 --algorithm dqn {SMALL}",
    "images": (
        "CarRacing-v3 --env-kwargs max_episode_steps 50 --initial-steps 700 --batch-size 8 "
        "--buffer-size 3000"
    ),
    "workers": f"InvertedPendulum-v5 --env-workers 2 --evaluation-workers 1 {SMALL}",
}


def cases() -> dict[str, list[str]]:
    """Name and command line of every run."""
    found = {}
    for algorithm, world in WORLD.items():
        for scheme in SCHEMES:
            if algorithm == "dqn" and scheme in ("cem", "erl"):
                continue
            for preset in ("paper", "authors"):
                found[f"{scheme} {algorithm} {preset}"] = (
                    f"{world} --scheme {scheme} --algorithm {algorithm} --preset {preset} {SMALL} "
                    + EARLY.get(scheme, "")
                ).split()
    for algorithm in ("ddpg", "sac_2018", "tqc", "sql"):
        found[f"p3s {algorithm}"] = f"InvertedPendulum-v5 --algorithm {algorithm} {SMALL}".split()
    for algorithm in ("redq", "droq", "crossq", "crossq_td3", "xqc", "flashsac"):
        words = f"InvertedPendulum-v5 --algorithm {algorithm} {SMALL} --initial-steps 250"
        found[f"p3s {algorithm}"] = [*words.split(), "--updates-per-step", "1"]
    found["p3s td3 3-step"] = f"InvertedPendulum-v5 --n-step 3 {SMALL}".split()
    found["p3s sac_discrete"] = f"CartPole-v1 --algorithm sac_discrete {SMALL}".split()
    for scheme in SPLIT:
        words = f"InvertedPendulum-v5 --scheme {scheme} --shards 2 {SMALL} {EARLY.get(scheme, '')}"
        found[f"{scheme} td3 2 shards"] = words.split()
    for name, flags in OTHERS.items():
        found[f"p3s {name}"] = flags.split()
    for algorithm in ("ppo", "acktr"):
        words = f"InvertedPendulum-v5 --scheme rollout --algorithm {algorithm} --rollout-steps 512"
        found[f"rollout {algorithm}"] = words.split()
    return found


def rows(path: Path) -> str:
    """A record without times and checksums."""
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    for row in kept:
        for name in ("seconds", "crc32"):
            row.pop(name, None)
    return json.dumps(kept, sort_keys=True)


def policy(path: Path) -> str:
    """The arrays of a policy file, whatever they are called and in whatever order."""
    from safetensors.numpy import load_file

    arrays = load_file(path).values()
    return " ".join(sorted(hashlib.sha256(array.tobytes()).hexdigest() for array in arrays))


def run(name: str) -> tuple[str, dict[str, str]]:
    """Train one case; the hashes of what it left."""
    from p3s.cli import main

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["train", *cases()[name], *COMMON.split(), "--out", str(out)]
        if "--preset" not in words:
            words += ["--preset", "paper"]
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), contextlib.suppress(SystemExit):
            main(words)
        parts = {
            "evaluations": rows(out / "evaluations.jsonl"),
            "lineage": rows(out / "lineage.jsonl"),
            "policy": policy(out / "policy.safetensors"),
        }
    return name, {
        key: hashlib.sha256(text.encode()).hexdigest()[:16] for key, text in parts.items()
    }


def main() -> None:
    """Write the hashes down, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--only", default="", help="only the cases whose name contains this")
    options = parser.parse_args()
    names = [name for name in cases() if options.only in name]
    found = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, hashes in pool.map(run, names):
            found[name] = hashes
            print(f"{name:<28} {' '.join(hashes.values())}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.compare is not None:
        before = json.loads(options.compare.read_text())
        moved = {
            name: [part for part in hashes if hashes[part] != before.get(name, {}).get(part)]
            for name, hashes in found.items()
        }
        moved = {name: parts for name, parts in moved.items() if parts}
        for name, parts in moved.items():
            print(f"moved: {name} ({', '.join(parts)})")
        print(f"{len(found) - len(moved)} of {len(found)} as before")
        sys.exit(1 if moved else 0)


if __name__ == "__main__":
    main()
