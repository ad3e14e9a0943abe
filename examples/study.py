"""A study from Python: a grid of runs, its table, and a report.

python examples/study.py [STEPS]
"""

import subprocess
import sys
from pathlib import Path

from p3s import load_results

steps = sys.argv[1] if len(sys.argv) > 1 else "10000"
Path("pendulum.toml").write_text(
    f"""
title = "Pendulum, population or not"
steps = {steps}
seeds = 2
environments = ["Pendulum-v1"]
[fields]
hidden_sizes = [32, 32]
initial_steps = 100
review_period = 100
evaluation_period = {int(steps) // 4}
[grid]
scheme = ["p3s", "single"]
"""
)
study = [sys.executable, "-m", "p3s", "study", "run", "pendulum.toml"]
subprocess.run(study, check=True)  # killed and started again, it goes on
table = load_results("studies/pendulum")
print(table)
