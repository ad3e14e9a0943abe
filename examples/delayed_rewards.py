"""Where populations help: rewards that come every twenty steps only. With a report.

python examples/delayed_rewards.py [STEPS]
"""

import subprocess
import sys
from pathlib import Path

steps = sys.argv[1] if len(sys.argv) > 1 else "40000"
env = ["InvertedPendulum-v5", "--delay", "20", "--hidden-sizes", "64", "64"]
runs = {"p3s": Path("runs/delayed-p3s"), "single": Path("runs/delayed-single")}
for scheme, path in runs.items():
    run = ["train", *env, "--scheme", scheme, "--steps", steps, "--out", str(path)]
    subprocess.run([sys.executable, "-m", "p3s", *run], check=True)
report = ["report", *map(str, runs.values()), "--out", "delayed.html"]
subprocess.run([sys.executable, "-m", "p3s", *report], check=True)
