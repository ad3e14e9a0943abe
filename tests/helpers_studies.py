"""A small study that several tests read."""

from __future__ import annotations

from p3s.study.definition import Study
from p3s.study.reading import parse

GRID = """
steps = 500
seeds = [3, 5]
environments = ["Pendulum-v1", {id = "Ant-v5", delay = 20}]

[[methods]]
label = "P3S"
num_learners = 2
[methods.grid]
d_min = [0.02, 0.05]

[[methods]]
scheme = "single"
algorithm = "sac"

[paper."P3S d_min=0.05"]
"Delayed Ant-v5" = 7
"""


def study_of(text: str) -> Study:
    return parse(text, "mine.toml", "mine")
