"""Learners spread over several devices learn what they learn on one."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import pytest

from p3s.errors import UserError
from p3s.learning import devices
from tests.helpers import ROOT, call, small_config, small_training

SPREAD = """
import json, sys
import jax
import numpy as np
from p3s.learning import devices
devices.prepare(4)
from tests.helpers import small_training

def finished(**fields):
    training = small_training(evaluation_period=0, **fields)
    training.run(4 * 119)
    learners = training.crew.updater.state.learners
    parts = len(jax.tree.leaves(learners.policy)[0].sharding.device_set)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(learners)]
    training.close()
    return training.counters.updates, parts, leaves

_, _, alone = finished(devices=1)
for count in (2, 4):
    updates, parts, spread = finished(devices=count)
    apart = max(float(np.abs(a - b).max()) for a, b in zip(alone, spread))
    print(json.dumps([count, updates, parts, apart]))
"""
TOLERANCE = 1e-5
"""After 100 updates; the compiler may sum in another order where a device has fewer learners."""


def test_two_and_four_devices_learn_what_one_does():
    done = subprocess.run(
        [sys.executable, "-c", SPREAD], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(count, updates, parts) for count, updates, parts, _ in found] == [
        (2, 100, 2),
        (4, 100, 4),
    ]
    assert max(apart for *_, apart in found) < TOLERANCE


def test_the_number_has_to_divide_the_learners(capsys, tmp_path):
    with pytest.raises(UserError, match="must divide the 4 learners that are trained: 1, 2, 4"):
        small_config(devices=3).check()
    code, _, error = call(capsys, "train", "Pendulum-v1", "--devices", 3, "--out", tmp_path / "run")
    assert code == 2
    assert "devices must divide" in error


def test_more_devices_than_there_are(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    with pytest.raises(UserError, match=r"devices is 2, and jax has 1 here \(cpu\)"):
        small_training(devices=2)


def test_by_default_as_many_as_pay(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [*range(8)])
    monkeypatch.setattr(devices, "Mesh", lambda own, names: len(own))
    sizes = {count: devices.learner_mesh(count) for count in (1, 4, 8, 12, 64)}
    assert sizes == {1: 1, 4: 1, 8: 2, 12: 3, 64: 8}
