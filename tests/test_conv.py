"""The network for images: its convolutions against jax's own, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ACKTR, DQN, PPO, TD3
from p3s.errors import UserError
from p3s.networks import (
    NATURE_ENCODER,
    NETWORKS,
    Conv,
    apply_network,
    image_patches,
    init_model,
)
from p3s.types import EnvSpec, ObservationSpec, channels_first

CONV = Conv(hidden_sizes=(8,), activation="relu", layer_norm=False, initialization="fan_in")
DRAW = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return DRAW.integers(0, 256, shape).astype(np.uint8)


def images(*shape: int) -> EnvSpec:
    return EnvSpec(ObservationSpec(shape, "uint8"), 2)


def as_kernel(weight, kernel: int, stride: int, channels: int):
    """Rows of a weight as jax's kernel, (height, width, channels, filters).

    Patches come block by block, and within each stride × stride block pixel by pixel.
    """
    blocks = kernel // stride
    filters = weight.shape[-1]
    weight = weight.reshape(blocks, blocks, stride, stride, channels, filters)
    return weight.transpose(0, 2, 1, 3, 4, 5).reshape(kernel, kernel, channels, filters)


def convolve(image, kernel, stride: int):
    """With as many zeros at the bottom and on the right as the last place needs."""
    missing = [
        (0, max(kernel.shape[0] - size, -(size - kernel.shape[0]) % stride))
        for size in image.shape[1:3]
    ]
    return jax.lax.conv_general_dilated(
        image, kernel, (stride, stride), missing, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


class TestConvolutions:
    # Sizes that the strides do not divide.
    @pytest.mark.parametrize("size", [(84, 84), (47, 38)])
    @pytest.mark.parametrize(("channels", "layer"), zip((4, 32, 64), NATURE_ENCODER, strict=True))
    def test_a_product_of_patches_is_a_convolution(self, channels, layer, size):
        filters, kernel, stride = layer
        image = DRAW.normal(size=(2, *size, channels)).astype(np.float32)
        weight = DRAW.normal(size=(kernel * kernel * channels, filters)).astype(np.float32)
        weight /= np.sqrt(len(weight))
        ours = image_patches(image, kernel, stride) @ weight
        theirs = convolve(image, as_kernel(weight, kernel, stride, channels), stride)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_whole_network(self):
        """Pixels over 255, three convolutions with relu, then the dense layers."""
        model = init_model(CONV, jax.random.key(0), [(84, 84, 4), (2,)], 3)
        image, action = pixels(5, 84, 84, 4), DRAW.normal(size=(5, 2)).astype(np.float32)
        stream, channels = jnp.float32(image) / 255, 4
        layers = zip(model.params["encoder"], NATURE_ENCODER, strict=True)
        for layer, (filters, kernel, stride) in layers:
            weight = as_kernel(layer["weight"], kernel, stride, channels)
            stream = jax.nn.relu(convolve(stream, weight, stride) + layer["bias"])
            channels = filters
        assert stream.shape == (5, 7, 7, 64)
        first, last = model.params["head"]
        inputs = jnp.concatenate([stream.reshape(5, -1), action], axis=1)
        hidden = jax.nn.relu(inputs @ first["weight"] + first["bias"])
        expected = hidden @ last["weight"] + last["bias"]
        np.testing.assert_allclose(
            apply_network(model, image, action), expected, rtol=1e-4, atol=1e-5
        )

    def test_channels_first_are_transposed(self):
        image = pixels(3, 40, 44, 4)
        first = np.moveaxis(image, -1, 1)
        last = init_model(CONV, jax.random.key(0), [(40, 44, 4)], 2)
        other = init_model(CONV, jax.random.key(0), [(4, 40, 44)], 2)
        assert jax.tree.all(jax.tree.map(np.array_equal, last.params, other.params))
        assert np.array_equal(apply_network(last, image), apply_network(other, first))

    @pytest.mark.parametrize(
        ("shape", "first"),
        [((7, 7, 20), False), ((20, 7, 7), True), ((3, 40, 44), True), ((40, 44, 3), False),
         ((9, 9, 9), False), ((12, 12, 1), False)],
    )  # fmt: skip
    def test_two_equal_axes_are_height_and_width(self, shape, first):
        assert channels_first(shape) is first
        channels = shape[0] if first else shape[2]
        encoder = init_model(CONV, jax.random.key(0), [shape], 2).params["encoder"]
        assert encoder[0]["weight"].shape[0] == 8 * 8 * channels

    def test_what_the_user_says_of_the_axes_holds(self):
        image = pixels(3, 7, 7, 20)
        stated = replace(CONV, image_axes="first")
        model = init_model(stated, jax.random.key(0), [(7, 7, 20)], 2)
        assert model.params["encoder"][0]["weight"].shape[0] == 8 * 8 * 7
        last = init_model(CONV, jax.random.key(0), [(7, 20, 7)], 2)
        expected = apply_network(last, np.moveaxis(image, 1, -1))
        assert np.array_equal(apply_network(model, image), expected)
        made = TD3(hidden_sizes=(4,), image_axes="first").init(jax.random.key(0), images(7, 7, 20))
        assert made.policy.network.image_axes == "first"

    def test_one_image_or_any_batch_of_them(self):
        model = init_model(CONV, jax.random.key(0), [(36, 36, 1)], 2)
        image = pixels(2, 3, 36, 36, 1)
        batch = apply_network(model, image)
        assert batch.shape == (2, 3, 2)
        np.testing.assert_allclose(apply_network(model, image[1, 2]), batch[1, 2], rtol=1e-5)


class TestChoice:
    def test_auto_is_conv_for_images_and_mlp_for_vectors(self):
        algorithm = TD3(hidden_sizes=(4,))
        for spec, name in ((images(36, 36, 3), "conv"), (EnvSpec.flat(3, 2), "mlp")):
            learner = jax.eval_shape(lambda key, spec=spec: algorithm.init(key, spec),
                                     jax.random.key(0))  # fmt: skip
            assert {learner.policy.network.name, learner.value.network.name} == {name}

    def test_an_mlp_may_be_chosen_for_images(self):
        """Flattened and scaled."""
        learner = TD3(hidden_sizes=(4,), network="mlp").init(jax.random.key(0), images(8, 8, 1))
        image = pixels(3, 8, 8, 1)
        flat = np.float32(image).reshape(3, 64) / 255
        np.testing.assert_allclose(
            apply_network(learner.policy, image), apply_network(learner.policy, flat), rtol=1e-5
        )

    @pytest.mark.parametrize(
        "name", sorted(name for name in NETWORKS if not name.startswith("test_"))
    )
    def test_pixels_as_they_are(self, name):
        fields = {"network": name, "hidden_sizes": (4, 4)}
        scaled, plain = (
            TD3(**fields, scale_images=scale).init(jax.random.key(0), images(8, 8, 1)).policy
            for scale in (True, False)
        )
        image = pixels(3, 8, 8, 1) // 255  # so that both see the same numbers
        assert not np.array_equal(apply_network(scaled, image + 1), apply_network(plain, image + 1))
        np.testing.assert_array_equal(
            apply_network(scaled, 255 * image), apply_network(plain, image)
        )

    @pytest.mark.parametrize("algorithm", [PPO(), ACKTR()])
    def test_pixels_as_they_are_on_policy(self, algorithm):
        """The flat network of an on-policy algorithm."""
        made = replace(algorithm, hidden_sizes=(4,), scale_images=False)
        spec = EnvSpec(ObservationSpec((8, 8, 1), "uint8"), 2)
        policy = made.init(jax.random.key(0), spec).policy
        image = pixels(3, 8, 8, 1)
        flat = np.float32(image).reshape(3, 64)
        one, other = (
            made.act(policy, seen, jax.random.key(1), explore=False) for seen in (image, flat)
        )
        np.testing.assert_allclose(one, other, rtol=1e-5)

    @pytest.mark.parametrize("shape", [(40, 40, 1), (10, 6, 1)])
    def test_every_pixel_is_seen(self, shape):
        model = init_model(CONV, jax.random.key(0), [shape], 2)

        def total(image):
            patches = image_patches(image[None], *NATURE_ENCODER[0][1:])
            for _, kernel, stride in NATURE_ENCODER[1:]:
                patches = image_patches(patches.sum(-1, keepdims=True), kernel, stride)
            return patches.sum()

        assert (jax.grad(total)(jnp.ones(shape)) > 0).all()
        assert apply_network(model, pixels(*shape)).shape == (2,)

    def test_vectors_are_refused(self):
        with pytest.raises(UserError, match="network conv takes images: choose --network mlp"):
            TD3(network="conv").init(jax.random.key(0), EnvSpec.flat(3, 2))

    def test_the_name_is_taken(self):
        assert set(NETWORKS) >= {"mlp", "conv"}
        assert DQN(network="conv").problem() is None
        assert not hasattr(PPO(), "network")
