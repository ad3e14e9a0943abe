"""The policy may have sizes, activation, normalization and step size of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.algorithms.off_policy import POLICY_FIELDS, ActorCritic
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.policies.policy import Policy
from p3s.types import Guide
from tests.helpers import assert_file_and_export, leaves, problem_of, sizes_for
from tests.helpers_losses import SPECS, random_batch

WITH_POLICY = [name for name, kind in ALGORITHMS.items() if issubclass(kind, ActorCritic)]
COMMON = {
    "hidden_sizes": (6, 5),
    "activation": "leaky_relu",
    "learning_rate": 1e-3,
    "layer_norm": False,
}
OWN = {
    "policy_hidden_sizes": (4,),
    "policy_activation": "tanh",
    "policy_learning_rate": 1e-5,
    "policy_layer_norm": True,
}


def networks(tree) -> set:
    """The networks of all models in a tree."""
    models = jax.tree.leaves(tree, is_leaf=lambda node: hasattr(node, "network"))
    return {model.network for model in models}


def updated(made, spec, before):
    """The learner after one step of its values and one of its policy."""
    batch = random_batch(spec, 0)
    guide = Guide(before.policy, jnp.float32(0.5))
    learner, _ = made.value_step(before, batch, jax.random.key(1))
    return made.policy_step(learner, batch, guide, jax.random.key(2))[0]


def largest_move(after, before) -> float:
    return max(np.abs(a - b).max() for a, b in zip(leaves(after), leaves(before), strict=True))


@pytest.mark.parametrize("name", WITH_POLICY)
def test_networks(name):
    spec = SPECS[ALGORITHMS[name].actions]
    sizes = sizes_for(name, (6, 5))
    made = ALGORITHMS[name](**{**COMMON, **OWN, "hidden_sizes": sizes})
    learner = jax.eval_shape(lambda: made.init(jax.random.key(0), spec))
    (policy,), values = networks(learner.policy), networks(learner.value)
    assert (policy.hidden_sizes, policy.activation, policy.layer_norm) == ((4,), "tanh", True)
    (value,) = values
    assert (value.hidden_sizes, value.activation, value.layer_norm) == (sizes, "leaky_relu", False)
    assert networks(learner.targets) <= {policy, value}
    if "policy" in learner.targets:
        assert networks(learner.targets["policy"]) == {policy}


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_learning_rates(name):
    """Adam's first step has the size of its rate, whatever the gradient is."""
    spec = SPECS["continuous"]
    made = ALGORITHMS[name](**COMMON, **OWN)
    before = made.init(jax.random.key(0), spec)
    after = jax.jit(lambda learner: updated(made, spec, learner))(before)
    assert largest_move(after.value, before.value) == pytest.approx(1e-3, rel=1e-2)
    assert largest_move(after.policy, before.policy) == pytest.approx(1e-5, rel=1e-2)


@pytest.mark.slow
def test_none_is_the_common_value():
    spec = SPECS["continuous"]
    common = ALGORITHMS["td3"](**COMMON)
    named = {f"policy_{field}": getattr(common, field) for field in POLICY_FIELDS}
    made = [common, ALGORITHMS["td3"](**COMMON, **named)]
    ours, theirs = (
        leaves(updated(each, spec, each.init(jax.random.key(0), spec))) for each in made
    )
    assert all(np.array_equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_policy_files_and_export(tmp_path):
    spec = SPECS["continuous"]
    made = ALGORITHMS["td3"](**COMMON, **OWN)
    about = {"action_low": [-2.0, 0.0], "action_high": [2.0, 1.0], "action_shape": [2]}
    params = jax.device_get(made.init(jax.random.key(0), spec).policy)
    policy = Policy(made, params, spec, about)
    assert_file_and_export(policy, tmp_path)


def test_settings_survive_json():
    config = resolve("Hopper-v5", **OWN)
    config.check()
    assert type(config).from_json(config.to_json()) == config


def test_bad_values():
    for fields, message in (
        ({"policy_hidden_sizes": (0,)}, "policy_hidden_sizes must be at least 1"),
        ({"policy_learning_rate": 0.0}, "policy_learning_rate must be above 0"),
        ({"policy_activation": "step"}, 'policy_activation must be "relu" or "tanh"'),
    ):
        assert message in problem_of(ALGORITHMS["td3"](**fields))


def test_an_algorithm_without_a_policy_of_its_own_has_no_such_fields():
    with pytest.raises(UserError, match=r"policy_activation is a field of td3, .*with dqn$"):
        resolve("CartPole-v1", algorithm="dqn", policy_activation="tanh")


class TestPBT:
    def test_may_perturb_the_policys_rate(self):
        fields = {"perturbed": ("learning_rate", "policy_learning_rate")}
        scheme = resolve("Hopper-v5", "pbt", policy_learning_rate=1e-4, **fields).scheme
        assert problem_of(scheme) == ""
        own = scheme.init(jax.random.key(0), SPECS["continuous"]).own_fields
        rates = np.asarray(own["policy_learning_rate"])
        assert ((rates > 1e-4 / 1.2) & (rates < 1e-4 * 1.2)).all()

    def test_but_only_if_it_has_one(self):
        scheme = resolve("Hopper-v5", "pbt", perturbed=("policy_learning_rate",)).scheme
        assert problem_of(scheme).startswith("policy_learning_rate is not a number of td3: ")
