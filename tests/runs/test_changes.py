"""Other values for a run that has begun: what may change, and what is refused in one line."""

from __future__ import annotations

import pytest

from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.runs.changes import changeable, with_changes
from p3s.types import EnvSpec, ObservationSpec
from tests.helpers import small_config

SPEC = EnvSpec(ObservationSpec((3,)), 1)


def test_what_may_change():
    config = small_config("Pendulum-v1")
    values = {"learning_rate": 1e-4, "batch_size": 16, "rho": 3, "evaluation_period": 50}
    changed = with_changes(config, values, SPEC)
    assert changed.algorithm.learning_rate == 1e-4
    assert (changed.algorithm.batch_size, changed.scheme.rho) == (16, 3.0)
    assert changed.options.evaluation_period == 50
    assert with_changes(config, {"hidden_sizes": (16,), "seed": 0}, SPEC) == config


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden_sizes", (8,), "of the algorithm's fields these can: .*learning_rate"),
        ("num_learners", 2, "num_learners cannot change"),
        ("seed", 1, "of the run's fields these can: steps, "),
        ("buffer_size", 500, "buffer_size cannot change"),
        ("beta", 2.0, "beta cannot change"),  # it adapts
        ("n_step", 3, "n_step cannot change"),
        ("learning_rate", -1.0, "learning_rate must be above 0"),
        ("learning_rate", "a", "learning_rate: expected"),
        ("learning_rat", 1.0, "did you mean learning_rate"),
        ("algorithm", "sac", "algorithm cannot change in a run that has begun$"),
    ],
)
def test_what_may_not(name, value, message):
    with pytest.raises(UserError, match=message):
        with_changes(small_config("Pendulum-v1"), {name: value}, SPEC)


def test_what_every_learner_has_of_its_own():
    config = resolve("Pendulum-v1", "pbt", perturbed=("learning_rate",))
    with pytest.raises(UserError, match="every learner has its own under pbt"):
        with_changes(config, {"learning_rate": 1e-4}, SPEC)
    assert with_changes(config, {"discount_factor": 0.9}, SPEC).algorithm.discount_factor == 0.9


def test_starts_are_over():
    names = changeable(resolve("Pendulum-v1", "p3s", "sac").algorithm)
    assert "initial_temperature" not in names
    assert {"target_entropy", "policy_learning_rate"} <= set(names)
