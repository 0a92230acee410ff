"""The distance of two segments, which selects pairs of capsules, against the nearest of many points on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.geometry.polytopes import Polytope
from jaxcontact.geometry.separation import segments_apart

POINTS = np.linspace(0.0, 1.0, 121)


def segment(ends):
    none = jnp.zeros((0, 3))
    return Polytope(jnp.asarray(ends), none, jnp.zeros(0), jnp.zeros(()))


def on(ends):
    return ends[0] + POINTS[:, None] * (ends[1] - ends[0])


def from_end(end, other):
    """Distance of a point from a segment."""
    along = other[1] - other[0]
    share = np.clip((end - other[0]) @ along / max(along @ along, 1e-300), 0.0, 1.0)
    return np.linalg.norm(end - other[0] - share * along)


def pairs(rng):
    """Ends (2, 2, 3): crossed, parallel, all but parallel, of no length, touching, all but equal."""
    for _ in range(200):
        yield rng.normal(size=(2, 2, 3))
    for _ in range(40):
        a, shift = rng.normal(size=(2, 3)), rng.normal(size=3)
        yield np.stack([a, a + shift])
        yield np.stack([a, a[::-1] + 0.3 * (a[1] - a[0])])
        for tilt in np.logspace(-9, -5, 9):
            part = a.mean(axis=0) + 0.5 * (a - a.mean(axis=0))
            yield np.stack([part, a + shift + tilt * rng.normal(size=(2, 3))])
        yield np.stack([a, np.stack([shift, shift])])
        yield np.stack([a, a + 1e-9 * shift])
        yield np.stack([a, np.stack([a[1], shift])])


@pytest.mark.long
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_distance_is_that_of_the_nearest_points(scale, rng):
    distance = jax.jit(lambda x: segments_apart(segment(x[0]), segment(x[1])))
    for ends in pairs(rng):
        spacing = sum(np.linalg.norm(x[1] - x[0]) for x in ends) / (POINTS.size - 1)
        nearest = np.min(np.linalg.norm(on(ends[0])[:, None] - on(ends[1])[None], axis=2))
        nearest = min(nearest, *(from_end(end, ends[1 - i]) for i in (0, 1) for end in ends[i]))
        found = float(distance(scale * ends)) / scale
        assert nearest - 0.5 * spacing - 1e-12 <= found <= nearest + 1e-12
