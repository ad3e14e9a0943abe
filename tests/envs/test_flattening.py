"""Structured observations as vectors: the same as Gymnasium's, one by one and in batches."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import Adapter
from p3s.envs.flattening import NotThisSpace, describe_space, flat_size, flatten_observation
from tests.helpers import Counter

SPACES = [
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-1, 1, (2, 3)),
    spaces.Discrete(4),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([[3, 2], [4, 5]]),
    spaces.MultiBinary(3),
    spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.Discrete(3)]),
    spaces.Dict({"z": spaces.Box(0, 1, (2,)), "a": spaces.Discrete(3)}),
    spaces.Dict({"b": spaces.Tuple([spaces.MultiBinary(2)]), "a": spaces.Box(0, 1, ())}),
]


def stacked(space, samples):
    if isinstance(space, spaces.Dict):
        return {k: stacked(s, [x[k] for x in samples]) for k, s in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(s, [x[i] for x in samples]) for i, s in enumerate(space.spaces))
    return np.stack(samples)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_vectors_are_gymnasiums(space):
    space.seed(0)
    description = json.loads(json.dumps(describe_space(space)))
    samples = [space.sample() for _ in range(5)]
    expected = np.stack([spaces.flatten(space, sample) for sample in samples])
    assert flat_size(description) == expected.shape[1]
    for sample, row in zip(samples, expected, strict=True):
        np.testing.assert_array_equal(flatten_observation(description, sample), row)
    batch = flatten_observation(description, stacked(space, samples))
    np.testing.assert_array_equal(batch, expected)


CAMERA = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 3, 3), np.uint8),
        "inner": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 255, (2,), np.uint8)]),
        "flags": spaces.Box(0, 1, (2,), np.uint8),
        "joints": spaces.Box(-1, 1, (7,)),
    }
)


def test_pixels_are_scaled_by_the_environment_and_by_the_policy_alike():
    env = Adapter(Counter(observation_space=CAMERA))
    CAMERA.seed(0)
    own = CAMERA.sample()
    env.env._observe = lambda: own
    expected = spaces.flatten(CAMERA, own).astype(np.float32)
    assert expected[:36].max() > 200
    scaled = expected.copy()
    for pixels in (slice(36), slice(41, 43)):
        scaled[pixels] *= np.float32(1 / 255)
    np.testing.assert_array_equal(env.reset()[0], scaled)
    description = env.about_spaces()["observation_space"]
    np.testing.assert_array_equal(flatten_observation(description, own), scaled)
    assert flat_size(description) == len(scaled)
    plain = Adapter(env.env, scale_images=False)
    np.testing.assert_array_equal(plain.reset()[0], expected)
    description = plain.about_spaces()["observation_space"]
    np.testing.assert_array_equal(flatten_observation(description, own), expected)


@pytest.mark.parametrize(
    "value", [{"a": 0}, {"a": 3, "z": [0, 0]}, {"a": 0, "z": [0]}, 3, "x", {"a": "x", "z": [0, 0]}]
)
def test_what_does_not_fit_is_refused(value):
    description = describe_space(SPACES[8])
    with pytest.raises(NotThisSpace):
        flatten_observation(description, value)


@pytest.mark.parametrize(
    "made_up",
    [None, [], ["box"], ["box", [-1]], ["box", [10**9]], ["discrete", 0, 0], ["tuple", [3]],
     ["multi_discrete", [2], []], ["dict", {"a": 1}], "box"],
)  # fmt: skip
def test_a_made_up_description_is_refused(made_up):
    with pytest.raises(ValueError, match="not the description of an observation space"):
        flat_size(made_up)


def test_a_space_of_another_kind_has_no_description():
    assert describe_space(spaces.Text(5)) is None
    assert describe_space(spaces.Dict({"a": spaces.Text(5)})) is None
