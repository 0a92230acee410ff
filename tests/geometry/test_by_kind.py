"""What is computed of all shapes of a kind at once is what is computed of each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact import geometry
from jaxcontact.geometry.by_kind import by_kind, of_shapes
from jaxcontact.geometry.cores import extents
from jaxcontact.geometry.manifold import CONTACTS
from jaxcontact.geometry.support import core_in_body, cores_in_bodies

DTYPE = jnp.zeros(0).dtype


def scattered_shapes(rng):
    """Shapes of five kinds in mixed order, on three bodies and the world, and their numbers."""
    shapes, constants = [], {}
    for i, kind in enumerate(rng.permutation(np.repeat(np.arange(5), 3)).tolist()):
        name, body = f"s{i}", rng.choice(["a", "b", "c", None])
        pose = {"at": f"{name}/at", "rotation": f"{name}/turn"}
        numbers = {"at": rng.normal(size=3), "turn": rng.normal(size=4)}
        if kind == 0:
            shapes.append(geometry.Box(name=name, body=body, size=f"{name}/size", **pose))
            numbers["size"] = rng.uniform(0.1, 1.0, 3)
        elif kind == 1:
            shapes.append(geometry.Box(name=name, body=body, size=f"{name}/size"))
            numbers["size"] = rng.uniform(0.1, 1.0, 3)
        elif kind == 2:
            shapes.append(geometry.Capsule(name=name, body=body, radius=f"{name}/r", ends=f"{name}/ends"))
            numbers |= {"r": rng.uniform(0.1, 1.0), "ends": rng.normal(size=(2, 3))}
        elif kind == 3:
            shapes.append(geometry.Ellipsoid(name=name, body=body, semi_axes=f"{name}/axes", **pose))
            numbers["axes"] = rng.uniform(0.1, 1.0, 3)
        else:
            count = 8 + int(rng.integers(3))
            shapes.append(geometry.ConvexMesh(name=name, body=body, vertices=f"{name}/v", count=count))
            numbers["v"] = rng.normal(size=(count, 3))
        constants |= {f"{name}/{key}": jnp.asarray(value) for key, value in numbers.items()}
    return shapes, constants


@pytest.mark.long
def test_shapes_keep_their_order(rng):
    shapes, constants = scattered_shapes(rng)
    cores, radii = cores_in_bodies(shapes, constants, DTYPE)
    for i, shape in enumerate(shapes):
        core, radius = core_in_body(shape, constants, DTYPE)
        np.testing.assert_allclose(cores.vertices[i, : len(core.vertices)], core.vertices, atol=1e-14)
        assert np.all(np.asarray(cores.vertices[i, len(core.vertices) :]) == np.asarray(core.vertices[-1]))
        np.testing.assert_allclose(cores.ellipsoid[i], core.ellipsoid, atol=1e-14)
        assert radii[i] == radius


def test_one_kind_is_computed_once(rng):
    shapes, constants = scattered_shapes(rng)
    calls = []

    def volume(shape, numbers):
        calls.append(shape)
        return jnp.prod(numbers[shape.size])

    boxes = [shape for shape in shapes if isinstance(shape, geometry.Box)]
    found = of_shapes(volume, boxes, constants)
    np.testing.assert_allclose(found, [jnp.prod(constants[box.size]) for box in boxes], rtol=1e-15)
    assert len(calls) == 2  # with a pose and without
    assert sorted(i for members, _ in by_kind(volume, boxes, constants) for i in members) == list(range(6))


@pytest.mark.long
def test_extents_bound_every_point(rng):
    shapes, constants = scattered_shapes(rng)
    lengths = extents(shapes, constants, DTYPE)
    for shape, length in zip(shapes, lengths, strict=True):
        core, radius = jax.tree.map(np.asarray, core_in_body(shape, constants, DTYPE))
        sphere = rng.normal(size=(200, 3))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        of_ellipsoid = sphere @ core.ellipsoid.T + radius * sphere
        points = core.vertices[:, None] + of_ellipsoid[None]
        assert np.max(np.linalg.norm(points, axis=-1)) <= length * (1 + 1e-12)


def cloud(rng, count):
    """Corners of a hull: points on an ellipsoid."""
    points = rng.normal(size=(count, 3))
    return 0.05 * points / np.linalg.norm(points, axis=1, keepdims=True) * [1.0, 0.8, 0.6]


@pytest.mark.slow
def test_pairs_of_many_sizes_touch_as_each_alone(rng):
    """Hulls of 6 to 300 corners, a box and a cylinder, every two of which meet: three searches for all."""
    counts = (6, 12, 40, 300)
    shapes = {
        f"m{k}": geometry.ConvexMesh(name=f"m{k}", body=f"m{k}", vertices=f"m{k}", count=count)
        for k, count in enumerate(counts)
    }
    constants = {f"m{k}": jnp.asarray(cloud(rng, count)) for k, count in enumerate(counts)}
    shapes["box"] = geometry.Box(name="box", body="box", size="size")
    shapes["drum"] = geometry.Cylinder(name="drum", body="drum", radius="r", half_length="h")
    constants |= {"size": jnp.array([0.08, 0.06, 0.1]), "r": jnp.asarray(0.03), "h": jnp.asarray(0.05)}
    names = tuple(shapes)
    pairs = tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    positions = jnp.asarray(0.06 * rng.normal(size=(len(names), 3)))
    turns = jnp.asarray(np.stack([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in names]))
    turns = turns * jnp.sign(jnp.linalg.det(turns))[:, None, None]

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def touch(pairs, near_pairs=None):
        return geometry.candidates(3, names, shapes, pairs, positions, turns, constants, near_pairs)

    found, near = touch(pairs), touch(pairs, geometry.NearPairs(16, None))
    np.testing.assert_allclose(near.gaps[near.place], found.phi[near.place], atol=1e-9)
    start = dict(zip(pairs, range(0, len(found.phi), CONTACTS), strict=True))
    for pair in (("m2", "m3"), ("m0", "box"), ("m1", "drum")):
        alone = touch((pair,))
        np.testing.assert_allclose(
            found.phi[start[pair] :][:CONTACTS], alone.phi, atol=1e-9, err_msg=str(pair)
        )
