"""The lower parts of the networks: from observation columns to features, on either array namespace.

mlp flattens every column and lays them side by side. cnn sends each image through convolutions and
lays the result beside the flattened rest. items sends each row of one [items, features] column
(with all other vector columns appended to it) through the same layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.errors import ConfigError
from penstock.model.tensors import Array

if TYPE_CHECKING:
    from penstock.model.policy import PolicyDescription

UNBOUNDED = 1e38
"""Bounds beyond this stand for infinity (see `ActionLayout.low`)."""

CLIP = 10.0
"""Normalised observations are cut at this many deviations."""

EPSILON = 1e-8
"""Added to a variance before its root."""

HEADS = {
    "categorical": "discrete",
    "multi_categorical": "multi_discrete",
    "gaussian": "box",
    "squashed_gaussian": "box",
    "q": "discrete",
}


def body(description: PolicyDescription) -> Literal["mlp", "cnn", "items"]:
    """The body in use, with `auto` resolved."""
    if description.network.body != "auto":
        return description.network.body
    return "cnn" if description.spaces.observation.images else "mlp"


def item_columns(description: PolicyDescription) -> list[str]:
    """Names of the matrix columns: candidates for body items."""
    columns = description.spaces.observation.columns
    return [name for name, column in columns.items() if len(column.shape) == 2]


def normalized_columns(description: PolicyDescription) -> dict[str, tuple[int, ...]]:
    """Columns scaled by running statistics and the shape of these: per entry, or per feature of an item."""
    if not description.network.normalize_observations:
        return {}
    layout = description.spaces.observation
    items = item_columns(description) if body(description) == "items" else []
    return {
        name: column.shape[-1:] if name in items else column.shape
        for name, column in layout.columns.items()
        if name not in layout.images
    }


def check(description: PolicyDescription) -> None:
    """Raise ConfigError where head, body, observation and action do not fit together."""
    action, kind = description.spaces.action, body(description)
    if HEADS[description.head] != action.kind:
        raise ConfigError(f"a {description.head} head cannot choose {action.kind} actions")
    if description.duelling and description.head != "q":
        raise ConfigError("duelling is for the q head only")
    if description.head == "squashed_gaussian":
        bounds = np.array([action.low, action.high])
        if not np.all(np.abs(bounds) < UNBOUNDED):
            raise ConfigError(
                "a squashed gaussian needs an action Box with finite low and high in every entry"
            )
    if kind == "cnn":
        if not description.spaces.observation.images:
            raise ConfigError(
                "network.body cnn needs an image (three axes) in the observation; use mlp or auto"
            )
        for name in description.spaces.observation.images:
            _convolved_shape(description, name)
    if kind == "items":
        _check_items(description)


def _check_items(description: PolicyDescription) -> None:
    observation, action = description.spaces.observation, description.spaces.action
    names = item_columns(description)
    if len(names) != 1 or observation.images:
        raise ConfigError(
            f"network.body items needs exactly one [items, features] matrix and no image in the observation, "
            f"found {len(names)} matrices and {len(observation.images)} images"
        )
    items = observation.columns[names[0]].shape[0]
    if action.kind != "discrete" or action.sizes != (items,):
        raise ConfigError(
            f"network.body items chooses one of {items} items and needs the action space Discrete({items}), "
            f"not {action.kind} {action.sizes or action.shape}"
        )


def _convolved_shape(description: PolicyDescription, name: str) -> tuple[int, int, int]:
    height, width, channels = description.spaces.observation.columns[name].shape
    for out, kernel, stride in description.network.convolutions:
        if height < kernel or width < kernel:
            raise ConfigError(
                f"the image {name} is too small for network.convolutions: {height}×{width} is left where the "
                f"kernel is {kernel}; use smaller kernels, or network.body mlp"
            )
        height, width, channels = (height - kernel) // stride + 1, (width - kernel) // stride + 1, out
    return height, width, channels


def _input_width(description: PolicyDescription) -> int:
    layout, kind = description.spaces.observation, body(description)
    total = 0
    for name, column in layout.columns.items():
        if kind == "cnn" and name in layout.images:
            total += int(np.prod(_convolved_shape(description, name)))
        elif kind == "items" and len(column.shape) == 2:
            total += column.shape[1]
        else:
            total += int(np.prod(column.shape))
    return total


def features_width(description: PolicyDescription, extra: int = 0) -> int:
    """Width of what `features` gives."""
    hidden = description.network.hidden
    return hidden[-1] if hidden else _input_width(description) + extra


def initial(
    description: PolicyDescription, prefix: str, rng: np.random.Generator, extra: int = 0
) -> dict[str, Array]:
    """Convolutions and hidden layers under `prefix`; `extra` numbers join the observation."""
    gain = 2.0**0.5
    tensors: dict[str, Array] = {}
    if body(description) == "cnn":
        for name in description.spaces.observation.images:
            channels = description.spaces.observation.columns[name].shape[2]
            for i, (out, kernel, _) in enumerate(description.network.convolutions):
                place = f"{prefix}/conv/{name}/{i}"
                tensors |= initial_dense(place, kernel * kernel * channels, out, gain, rng)
                tensors[f"{place}/weight"] = tensors[f"{place}/weight"].reshape(kernel, kernel, channels, out)
                channels = out
    size = _input_width(description) + extra
    for i, out in enumerate(description.network.hidden):
        tensors |= initial_dense(f"{prefix}/body/{i}", size, out, gain, rng)
        size = out
    return tensors


def initial_dense(
    place: str, rows: int, columns: int, gain: float, rng: np.random.Generator
) -> dict[str, Array]:
    """An orthogonal matrix (Saxe et al., 2014) times `gain`, and a zero bias."""
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diagonal(r))
    weight = q if rows >= columns else q.T
    return {
        f"{place}/weight": np.ascontiguousarray(gain * weight, np.float32),
        f"{place}/bias": np.zeros(columns, np.float32),
    }


def features(
    description: PolicyDescription,
    tensors: Mapping[str, Any],
    observations: Mapping[str, Any],
    prefix: str,
    xp: Any,
    extra: Any = None,
) -> Any:
    """[N, F], or [N, items, F] for body items, from columns [N, …]; `extra` [N, E] joins the observation."""
    kind, images = body(description), description.spaces.observation.images
    normalized = normalized_columns(description)
    flat, rows = [], None
    for name, column in description.spaces.observation.columns.items():
        x = observations[name]
        if name in images and column.dtype.endswith("u1"):
            x = x.astype(np.float32) * np.float32(1 / 255)
        elif not column.dtype.endswith("f4"):
            x = x.astype(np.float32)
        if name in normalized:
            x = normalize(x, tensors[f"normalizer/{name}/mean"], tensors[f"normalizer/{name}/variance"], xp)
        if kind == "items" and len(column.shape) == 2:
            rows = x
            continue
        if kind == "cnn" and name in images:
            for i, (_, _, stride) in enumerate(description.network.convolutions):
                x = xp.maximum(convolve(tensors, f"{prefix}/conv/{name}/{i}", x, stride, xp), 0)
        flat.append(x.reshape(x.shape[0], -1))
    if extra is not None:
        flat.append(extra)
    x = rows
    if flat:
        x = flat[0] if len(flat) == 1 else xp.concatenate(flat, axis=-1)
        if rows is not None:  # what is not an item is seen beside every item
            context = xp.broadcast_to(x[:, None, :], (*rows.shape[:2], x.shape[-1]))
            x = xp.concatenate((rows, context), axis=-1)
    for i in range(len(description.network.hidden)):
        x = activate(description, dense(tensors, f"{prefix}/body/{i}", x), xp)
    return x


def normalize(x: Any, mean: Any, variance: Any, xp: Any) -> Any:
    """(x − mean) / deviation, cut at ±CLIP."""
    return xp.clip((x - mean) * (1 / xp.sqrt(variance + np.float32(EPSILON))), -CLIP, CLIP)


def dense(tensors: Mapping[str, Any], place: str, x: Any) -> Any:
    return x @ tensors[f"{place}/weight"] + tensors[f"{place}/bias"]


def activate(description: PolicyDescription, x: Any, xp: Any) -> Any:
    return xp.tanh(x) if description.network.activation == "tanh" else xp.maximum(x, 0)


def convolve(tensors: Mapping[str, Any], place: str, x: Any, stride: int, xp: Any) -> Any:
    """A VALID convolution of [N, H, W, C] as one product of patches (im2col) and weights."""
    weight = tensors[f"{place}/weight"]
    kernel, channels, out = weight.shape[0], weight.shape[2], weight.shape[3]
    height, width = (x.shape[1] - kernel) // stride + 1, (x.shape[2] - kernel) // stride + 1
    # 2k slices instead of k²: first the k rows of every patch, then the k columns of these
    x = xp.stack([x[:, i : i + stride * (height - 1) + 1 : stride] for i in range(kernel)], axis=2)
    x = xp.stack([x[:, :, :, j : j + stride * (width - 1) + 1 : stride] for j in range(kernel)], axis=4)
    # [N, height, k, width, k, C] → [N, height, width, k · k · C]
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(x.shape[0], height, width, kernel * kernel * channels)
    return x @ weight.reshape(kernel * kernel * channels, out) + tensors[f"{place}/bias"]
