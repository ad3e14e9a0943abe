"""The line that says what becomes of an observation."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from p3s.algorithms import DQN, PPO, TD3
from p3s.config.observations import describe_observation
from p3s.envs import Adapter, with_masks
from tests.helpers import Counter

PADDED = "padded with zeros for network conv, which wants 36×36 (--network multi or mlp)"
HINT = "(--network multi reads images as such)"
GUESS = "a guess (--image-axes)"
SCALED = "pixels / 255 (--no-scale-images)"


def image(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "algorithm", "line"),
    [
        (spaces.Box(-1, 1, (3,)), TD3(), None),
        (spaces.Box(-1, 1, (2, 3)), TD3(), "2×3, flattened to 6 numbers"),
        (spaces.Discrete(16), DQN(), "one of 16, flattened to 16 numbers"),
        (
            spaces.Dict({"a": spaces.Tuple([image(2, 2), spaces.Discrete(3)]), "b": image(5)}),
            PPO(),
            "a.0 2×2 (pixels / 255), a.1 one of 3 and b 5 (pixels / 255), flattened to 12 numbers",
        ),
        (
            spaces.Dict({"a": spaces.Tuple([image(2, 2), spaces.Discrete(3)]), "b": image(5)}),
            TD3(),
            "a.0 2×2, a.1 one of 3 and b 5 (pixels / 255) for network multi, channels "
            f"{GUESS}, {SCALED}",
        ),
        (
            spaces.Dict({"camera": image(3, 64, 64), "joints": spaces.Box(-1, 1, (7,))}),
            TD3(image_axes="first", scale_images=False),
            "camera 3×64×64 (channels first) and joints 7 for network multi, pixels as they are",
        ),
        (
            spaces.Dict({f"part{i:02}": spaces.Box(0, 1, ()) for i in range(20)}),
            TD3(),
            "part00 1, part01 1, part02 1, part03 1, part04 1, part05 1, part06 1 and 13 others, "
            "flattened to 20 numbers",
        ),
        (
            spaces.Dict({"a": image(2, 2)}),
            TD3(network="mlp", scale_images=False),
            f"a 2×2, flattened to 4 numbers {HINT}",
        ),
        (image(7, 7, 3), TD3(network="multi"), f"image 7×7×3, channels last, {GUESS}, {SCALED}"),
        (image(84, 84, 4), TD3(), f"image 84×84×4, channels last, {GUESS}, {SCALED}"),
        (image(3, 64, 64), TD3(), f"image 3×64×64, channels first, {GUESS}, {SCALED}"),
        (
            image(7, 7, 20),
            TD3(image_axes="last", scale_images=False),
            f"image 7×7×20, channels last, pixels as they are, {PADDED}",
        ),
        (image(84, 84), TD3(), f"image 84×84, {SCALED}"),
        (image(7, 7, 3), TD3(network="mlp"), f"image 7×7×3, {SCALED}, flattened to 147 numbers"),
        (image(7, 7, 3), PPO(), f"image 7×7×3, {SCALED}, flattened to 147 numbers"),
    ],
)
def test_line(space, algorithm, line):
    env = with_masks(
        lambda: Adapter(Counter(observation_space=space)), keeps_images=algorithm.reads_parts
    )()
    said = describe_observation(env, algorithm)
    assert said == (None if line is None else f"observation: {line}")
