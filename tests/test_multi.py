"""Images with numbers beside them: packed as bytes, and read by an encoder for each."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from p3s.algorithms import DQN, PPO, SAC, SQL, TD3
from p3s.envs import Adapter, with_masks
from p3s.envs.flattening import NotThisSpace, describe_space, flatten_observation
from p3s.errors import UserError
from p3s.networks import Conv, Multi, apply_network, encoder_of, init_model, part, unpacked
from p3s.types import EnvSpec, ObservationSpec
from tests.camera_worlds import Camera, Goals, batch_of, image, shown
from tests.helpers import Counter

MULTI = Multi(hidden_sizes=(8, 6), activation="relu", layer_norm=False, initialization="fan_in")
DRAW = np.random.default_rng(0)
IMAGES = ((8, 8, 3), (5, 5, 1))
SPEC = EnvSpec(ObservationSpec.packed(4, IMAGES), 2)


def packed(*batch: int) -> np.ndarray:
    """Observations of `SPEC`."""
    numbers = DRAW.normal(size=(*batch, 4)).astype(np.float32).view(np.uint8)
    pixels = DRAW.integers(0, 256, (*batch, 8 * 8 * 3 + 5 * 5)).astype(np.uint8)
    return np.concatenate([numbers, pixels], axis=-1)


class TestPacking:
    def test_what_is_unpacked_is_what_the_environment_showed(self):
        env = Adapter(Camera(), keeps_images=True)
        spec = env.env_spec.observation
        assert spec == ObservationSpec.packed(Camera.NUM_NUMBERS, tuple(Camera.IMAGES.values()))
        assert (spec.shape, spec.dtype) == ((Camera.NUM_BYTES,), "uint8")
        own = env.env.reset(seed=3)[0]
        seen = env.reset(seed=3)[0]
        assert (seen.shape, seen.dtype) == (spec.shape, np.uint8)
        assert env.observation_space.contains(seen)
        numbers, images = unpacked(jnp.asarray(seen), spec.images)
        hot = np.eye(3)[own["arm"][1] - 1]
        np.testing.assert_array_equal(
            numbers, np.concatenate([own["arm"][0], hot, own["touch"]]).astype(np.float32)
        )
        for name, found in zip(Camera.IMAGES, images, strict=True):
            np.testing.assert_array_equal(found, own[name].reshape(Camera.IMAGES[name]))

    def test_a_description_packs_one_or_a_batch_as_the_environment_does(self):
        env = Adapter(Camera(), keeps_images=True)
        description = json.loads(json.dumps(env.about_spaces()["observation_space"]))
        rows = np.stack([env.reset(seed=seed)[0] for seed in range(4)])
        observations = shown(4)
        found = [flatten_observation(description, seen) for seen in observations]
        np.testing.assert_array_equal(found, rows)
        batch = flatten_observation(description, batch_of(observations))
        np.testing.assert_array_equal(batch, rows)

    def test_images_alone_and_stacks_are_packed_too(self):
        for space, images in (
            (spaces.Dict({"a": image(4, 5), "b": image(4, 4, 3)}), ((4, 5, 1), (4, 4, 3))),
            (image(3, 4, 4, 3), ((3, 4, 4, 3),)),
        ):
            env = Adapter(Counter(observation_space=space), keeps_images=True)
            assert env.env_spec.observation == ObservationSpec.packed(0, images)
            assert env.env_spec.features.num_numbers == 0
            assert env.observation_space.contains(env.reset(seed=0)[0])

    def test_stacked_frames(self):
        """By Gymnasium's wrapper a stack; what an algorithm stacks itself is flattened."""
        env = Adapter(gymnasium.wrappers.FrameStackObservation(Goals(), 3), keeps_images=True)
        assert env.env_spec.observation == ObservationSpec.packed(3 * 6, ((3, 6, 6, 1),))
        assert env.observation_space.contains(env.reset(seed=0)[0])
        make = partial(Adapter, Goals())
        stacked = with_masks(make, num_stacked_observations=2, keeps_images=True)()
        assert stacked.env_spec.observation == ObservationSpec((2 * (6 + 36),))

    @pytest.mark.parametrize(
        "space", [image(4, 4, 3), spaces.Dict({"a": image(7)}), spaces.Box(0, 1, (2, 2))]
    )
    def test_everything_else_is_as_it_was(self, space):
        make = partial(Adapter, Counter(observation_space=space))
        assert with_masks(make, keeps_images=True) is make
        assert Adapter(make().env, keeps_images=True).env_spec == make().env_spec

    @pytest.mark.parametrize(
        ("part", "value", "message"),
        [
            ("camera", np.zeros((8, 8, 3), np.uint8), r"camera has shape \[8, 8, 3\] of uint8"),
            ("camera", np.zeros((3, 8, 8)), "float64, its space .* whole numbers from 0 to 255"),
            ("camera", np.full((3, 8, 8), 256), "camera has shape"),
            ("touch", np.zeros(3), r"touch has shape \[3\]"),
            ("arm", (np.zeros(2), 4), "arm.1 is 4, its space discrete of 3 from 1"),
            ("arm", (np.zeros(2),), "arm is no tuple of 2"),
        ],
    )
    def test_a_part_that_does_not_fit_is_named(self, part, value, message):
        env = Adapter(Camera(), keeps_images=True)
        wrong = {**env.env.reset(seed=0)[0], part: value}
        env.env._show = lambda: wrong
        with pytest.raises(NotThisSpace, match=message):
            env.reset()

    def test_whole_numbers_of_another_type_are_pixels_too(self):
        description = describe_space(Camera.SPACE, keeps_images=True)
        seen = shown(1)[0]
        wide = {**seen, "camera": seen["camera"].astype(np.int64)}
        np.testing.assert_array_equal(
            flatten_observation(description, wide), flatten_observation(description, seen)
        )


class TestNetwork:
    def model(self, **fields):
        network = replace(MULTI, images=IMAGES, **fields)
        return init_model(network, jax.random.key(0), [SPEC.observation.shape, (2,)], 3)

    def test_every_part_has_an_encoder_as_wide_as_the_first_layer(self):
        params = self.model().params
        assert len(params["images"]) == 2
        outputs = [encoder["dense"][0]["weight"].shape[1] for encoder in params["images"]]
        assert outputs == [8, 8]
        assert params["numbers"][0]["weight"].shape == (4, 8)
        assert [layer["weight"].shape for layer in params["head"]] == [(26, 8), (8, 6), (6, 3)]

    def test_every_byte_is_seen(self):
        model, one = self.model(activation="tanh", scale_images=False), packed()
        action = np.zeros(2, np.float32)
        before = apply_network(model, one, action)
        others = np.repeat(one[None], len(one), axis=0)
        places = np.arange(len(one))
        others[places, places] ^= 1 << 6
        after = apply_network(model, others, np.zeros((len(one), 2), np.float32))
        # The lowest byte of a number may be lost in its sum with others.
        assert np.flatnonzero((np.abs(after - before) < 1e-9).all(axis=1)).tolist() in (
            [], *([place] for place in range(0, 16, 4))
        )  # fmt: skip

    def test_one_or_any_batch(self):
        model, rows = self.model(), packed(2, 3)
        actions = DRAW.normal(size=(2, 3, 2)).astype(np.float32)
        batch = apply_network(model, rows, actions)
        assert batch.shape == (2, 3, 3)
        np.testing.assert_allclose(
            apply_network(model, rows[1, 2], actions[1, 2]), batch[1, 2], rtol=1e-5
        )

    def test_an_image_alone_needs_no_packing(self):
        model = init_model(MULTI, jax.random.key(0), [(8, 8, 3)], 2)
        alone = init_model(replace(MULTI, images=((8, 8, 3),)), jax.random.key(0), [(192,)], 2)
        pixels = DRAW.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
        np.testing.assert_array_equal(
            apply_network(model, pixels), apply_network(alone, pixels.reshape(4, -1))
        )

    def test_axes_and_stacks(self):
        """A stack of images is one image with the channels of all, wherever they are."""
        stack = DRAW.integers(0, 256, (5, 2, 6, 7, 3)).astype(np.uint8)
        joined = np.moveaxis(stack, 1, -2).reshape(5, 6, 7, 6)
        plain = init_model(MULTI, jax.random.key(0), [(6, 7, 6)], 2)
        expected = apply_network(replace(plain, network=replace(MULTI, image_axes="last")), joined)
        for axes, seen in (("last", stack), ("first", np.moveaxis(stack, -1, 2))):
            network = replace(MULTI, image_axes=axes, images=(seen.shape[1:],))
            model = replace(plain, network=network)
            np.testing.assert_array_equal(apply_network(model, seen.reshape(5, -1)), expected)

    def test_pixels_are_scaled_or_not(self):
        rows = packed(3)
        rows[:, 16:] //= 255
        pixels = rows.copy()
        pixels[:, 16:] *= 255
        actions = np.zeros((3, 2), np.float32)
        scaled, plain = (self.model(scale_images=scales) for scales in (True, False))
        np.testing.assert_array_equal(
            apply_network(scaled, pixels, actions), apply_network(plain, rows, actions)
        )

    def test_the_encoder_follows_from_the_size(self):
        layers = [encoder_of(shape, "auto") for shape in ((84, 84, 3), (40, 16, 3), (15, 15, 3))]
        assert [len(each) for each in layers] == [3, 2, 2]
        assert layers[0] == ((32, 8, 4), (64, 4, 2), (64, 3, 1))
        assert encoder_of((3, 40, 44), "auto") == layers[0]
        assert encoder_of((2, 40, 40, 3), "auto") == layers[0]

    def test_outputs_can_be_cut(self):
        """As the export of a Gaussian or a dueling network wants it."""
        model, rows, actions = self.model(), packed(3), np.ones((3, 2), np.float32)
        cut = part(model, outputs=slice(1, None))
        assert cut is not None
        np.testing.assert_allclose(
            apply_network(cut, rows, actions), apply_network(model, rows, actions)[:, 1:], rtol=1e-5
        )
        assert part(model, inputs=slice(4)) is None

    def test_layer_norm_reaches_the_encoders(self):
        params = self.model(layer_norm=True).params
        assert "scale" in params["numbers"][0]
        assert "scale" in params["images"][0]["dense"][0]


class TestChoice:
    def networks(self, algorithm, spec):
        learner = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
        found = jax.tree.leaves(
            (learner.policy, learner.value), is_leaf=lambda node: hasattr(node, "network")
        )
        return {node.network for node in found if hasattr(node, "network")}

    @pytest.mark.parametrize("made", [TD3, SAC, SQL, DQN])
    def test_auto_is_multi_for_images_beside_numbers(self, made):
        spec = replace(SPEC, discrete=made is DQN)
        found = self.networks(made(hidden_sizes=(4,), image_axes="last"), spec)
        assert {(each.name, each.images, each.image_axes) for each in found} == {
            ("multi", IMAGES, "last")
        }

    def test_others_get_them_flattened(self):
        assert TD3().reads_parts
        assert TD3(network="multi").reads_parts
        for algorithm in (TD3(network="mlp"), TD3(network="batch_renorm"), PPO()):
            assert not algorithm.reads_parts

    def test_multi_without_images_is_refused(self):
        with pytest.raises(UserError, match="network multi takes images: choose --network mlp"):
            TD3(network="multi").init(jax.random.key(0), EnvSpec.flat(3, 2))

    def test_an_algorithm_that_hides_the_parts_is_told(self):
        model = TD3(network="mlp").init_network(jax.random.key(0), [SPEC.observation.shape], 2)
        with pytest.raises(UserError, match=r"give init_network spec\.features, not its shape"):
            apply_network(model, packed(3))

    def test_conv_and_multi_share_the_convolutions(self):
        fields = {name: getattr(MULTI, name) for name in ("activation", "layer_norm")}
        conv = Conv(hidden_sizes=(), initialization="fan_in", **fields)
        assert init_model(conv, jax.random.key(0), [(40, 40, 1)], 2).params["encoder"][0][
            "weight"
        ].shape == (64, 32)
        multi = init_model(MULTI, jax.random.key(0), [(40, 40, 1)], 2).params["images"][0]
        assert multi["convolutions"][0]["weight"].shape == (64, 32)
