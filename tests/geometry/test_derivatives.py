"""Gaps, normals and points have finite, right derivatives at poses where a formula divides by zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import shape_cases as cases

from jaxcontact import geometry
from jaxcontact.algebra import rotations
from jaxcontact.geometry import cylinders

NUMBERS = {
    "radius": 0.3,
    "half": 0.4,
    "ends": {2: [[-0.4, 0.0], [0.4, 0.0]], 3: [[-0.4, 0.0, 0.0], [0.4, 0.0, 0.0]]},
    "size": {2: [0.6, 0.8], 3: [0.6, 0.8, 1.0]},
    "axes": [0.3, 0.4, 0.5],
    "vertices": {2: 0.5 * cases.POLYGON, 3: cases.MESH},
    "offset": 0.0,
}
PAIRS = [
    (2, "capsule", "capsule"),
    (2, "polygon", "box"),
    (2, "disc", "polygon"),
    (3, "cylinder", "plane"),
    (3, "ellipsoid", "plane"),
    (3, "point", "box"),
    (3, "sphere", "mesh"),
    (3, "sphere", "ellipsoid"),
    (3, "sphere", "cylinder"),
    (3, "capsule", "capsule"),
    (3, "capsule", "box"),
    (3, "box", "box"),
    (3, "capsule", "cylinder"),
    (3, "capsule", "ellipsoid"),
    (3, "capsule", "mesh"),
]
QUICK = {
    (2, "capsule", "capsule"), (3, "cylinder", "plane"), (3, "point", "box"), (3, "sphere", "ellipsoid"),
    (3, "capsule", "capsule"), (3, "capsule", "box"),
}  # fmt: skip


def shape_of(kind, dim, name):
    return bare(cases.make(kind, dim, name, posed=False).shape)


def bare(shape):
    return type(shape)(**{**vars(shape), "at": None}) if hasattr(shape, "at") else shape


def constants_of(dim):
    values = {key: value[dim] if isinstance(value, dict) else value for key, value in NUMBERS.items()}
    return {f"{name}_{key}": jnp.asarray(value, float) for name in "ab" for key, value in values.items()}


def poses_of(dim, gap):
    """Offsets (k, dim) and turns (k, dim, dim): concentric, parallel, crossed, coaxial; touching and deep."""
    if dim == 2:
        quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
        some = np.array([[0.8, -0.6], [0.6, 0.8]])
    else:
        quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        some = np.asarray(cases.quaternion_matrix(np.array([0.8, 0.2, -0.4, np.sqrt(0.16)])))
    found = []
    for turn in (np.eye(dim), quarter, some):
        for axis in (0, dim - 1):
            unit = np.eye(dim)[axis]
            touching = 3.0 - gap(3.0 * unit, turn)
            found += [
                (s * unit, turn) for s in (0.0, touching, touching - 0.1, 0.5 * touching, touching + 0.2)
            ]
    return np.stack([x for x, _ in found]), np.stack([x for _, x in found])


@pytest.mark.long
@pytest.mark.slow_cases("2d-capsule-capsule", "3d-capsule-box", "3d-capsule-capsule", "3d-sphere-ellipsoid")
@pytest.mark.float32
@pytest.mark.parametrize(
    ("dim", "kind_a", "kind_b"),
    [
        pytest.param(*pair, id="{}d-{}-{}".format(*pair), marks=[] if pair in QUICK else [pytest.mark.slow])
        for pair in PAIRS
    ],
)
def test_derivatives_are_finite_and_right(dim, kind_a, kind_b, tolerance):
    shapes = {"a": shape_of(kind_a, dim, "a"), "b": shape_of(kind_b, dim, "b")}
    constants = constants_of(dim)
    spins = 1 if dim == 2 else 3

    def turned(angle):
        if dim == 2:
            return rotations.planar_matrix(angle[0])
        return rotations.quaternion_matrix(rotations.quaternion_exp(angle))

    def found(delta, offset, turn):
        """(phi, normal, point, point_b) of each contact, where a is moved and turned by delta."""
        positions = jnp.stack([offset + delta[:dim], jnp.zeros(dim)])
        orientations = jnp.stack([turn @ turned(delta[dim:]), jnp.eye(dim)])
        each = geometry.candidates(dim, ("a", "b"), shapes, (("a", "b"),), positions, orientations, constants)
        return jnp.concatenate([each.phi[:, None], each.normal, each.point, each.point_b], axis=1)

    def all_of_it(delta, offset, turn, weight):
        value, back = jax.vjp(lambda x: found(x, offset, turn), delta)
        forward = jax.vmap(lambda e: jax.jvp(lambda x: found(x, offset, turn), (delta,), (e,))[1])(
            jnp.eye(dim + spins)
        )
        return value, forward, back(jnp.broadcast_to(weight, value.shape))[0]

    program = jax.jit(jax.vmap(all_of_it, in_axes=(0, 0, 0, None)))
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3 * dim + 1)))
    still = jnp.zeros((30, dim + spins))

    def gap(offset, turn):
        one = (jnp.asarray(np.broadcast_to(x, (30, *x.shape)), float) for x in (offset, turn))
        return float(program(still, *one, weight)[0][0, :, 0].min())

    offsets, turns = (jnp.asarray(x, float) for x in poses_of(dim, gap))
    value, forward, backward = (np.asarray(x) for x in program(still, offsets, turns, weight))
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(forward)) and np.all(np.isfinite(backward))
    # A direction that only rounding determines has no derivative of one over the rounding.
    assert max(np.abs(forward).max(), np.abs(backward).max()) < 1e3
    np.testing.assert_allclose(
        np.linalg.norm(value[:, :, 1 : dim + 1], axis=2), 1.0, rtol=tolerance(1e-12, 1e-5)
    )
    expected = np.einsum("pick,k->pi", forward, np.asarray(weight)[0])
    scale = 1.0 + np.abs(forward).max(axis=(1, 2, 3))[:, None]
    assert np.max(np.abs(backward - expected) / scale) < tolerance(1e-11, 1e-3)
    # The gap grows with the velocity of the points along the normal: dphi = n . (dx + w x arm).
    point, normal = value[..., dim + 1 : 2 * dim + 1], value[..., 1 : dim + 1]
    arm = point - np.asarray(offsets)[:, None]
    local = np.einsum("pji,pcj->pci", np.asarray(turns), arm)
    about = np.einsum("pji,pcj->pci", np.asarray(turns), normal)
    spin = (
        local[..., :1] * about[..., 1:] - local[..., 1:] * about[..., :1]
        if dim == 2
        else np.cross(local, about)
    )
    rates = np.concatenate([normal, spin], axis=2)
    real = np.abs(
        np.einsum("pcd,pcd->pc", point - value[..., 2 * dim + 1 :], normal) - value[..., 0]
    ) < tolerance(1e-12, 1e-5)
    # Where the axis of a capsule crosses a face its gap is constant: zero, or round-off, is right there.
    there = real & (np.abs(forward[..., 0]).max(axis=1) > tolerance(1e-12, 1e-5))
    assert there.any(axis=1).sum() >= 24
    error = np.abs(np.moveaxis(forward[..., 0], 1, 2) - rates).max(axis=2)
    assert np.max(np.where(there, error, 0.0)) < tolerance(1e-9, 2e-3)


@pytest.mark.long
def test_the_gap_of_a_cylinder_has_a_derivative_however_it_is_rounded():
    """Compiled so that the same sum is rounded in two ways, after which the largest is nowhere among them."""
    odd = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

    def gap(x):
        return cylinders.signed_distance(x[:3] * x[3], jnp.array([0.3, 0.5]) * x[4])[0]

    points = np.random.default_rng(0).normal(size=(2000, 5))
    forward = jax.jit(jax.vmap(jax.jacfwd(gap)), compiler_options=odd)(points)
    np.testing.assert_allclose(forward, jax.vmap(jax.jacrev(gap))(points), rtol=1e-9, atol=1e-12)


def test_centres_that_only_rounding_tells_apart_count_as_one():
    shapes = {"a": shape_of("sphere", 3, "a"), "b": shape_of("sphere", 3, "b")}

    def found(position):
        positions = jnp.stack([position, jnp.array([0.3, 0.0, 0.0])])
        turns = jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
        each = geometry.candidates(3, ("a", "b"), shapes, (("a", "b"),), positions, turns, constants_of(3))
        return each.normal[0]

    position = jnp.array([0.1 + 0.2, 0.0, 0.0])
    assert position[0] != 0.3
    np.testing.assert_array_equal(found(position), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(jax.jacfwd(found)(position), np.zeros((3, 3)))
    np.testing.assert_allclose(found(position + 1e-9), np.full(3, 1 / np.sqrt(3.0)), rtol=1e-6)
