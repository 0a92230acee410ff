"""Pairs of convex shapes by support functions: gaps against brute force, contacts of flat parts, derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import shape_cases as cases

import jaxcontact as jc
from jaxcontact import geometry
from jaxcontact.algebra import rotations

KINDS = ("box", "cylinder", "ellipsoid", "mesh")
COMBINATIONS = [("cylinder", "box"), ("ellipsoid", "box"), ("mesh", "box"), ("cylinder", "cylinder")]
COMBINATIONS += [
    ("cylinder", "ellipsoid"),
    ("mesh", "cylinder"),
    ("ellipsoid", "ellipsoid"),
    ("ellipsoid", "mesh"),
]
COMBINATIONS += [("mesh", "mesh")]
WEDGE = np.array(
    [
        (-1, -1, 0),
        (1, -0.8, 0.1),
        (0.9, 1, 0),
        (-1, 1.1, 0.1),
        (0.1, 0, 1),
        (0.3, 0.1, -0.4),
        (0, -1.2, 0),
        (1.2, 0.4, 0.2),
    ]
)


def case(kind, name):
    """A shape of a kind; meshes have eight vertices, as boxes have, so that all pairs share one program."""
    if kind != "mesh":
        return cases.make(kind, 3, name)
    shape = geometry.ConvexMesh(name=name, body=name, vertices=f"{name}_vertices", count=len(WEDGE))
    return cases.Case(
        shape, lambda rng: {f"{name}_vertices": WEDGE * np.exp(rng.uniform(np.log(0.2), np.log(0.6), 3))}
    )


SHAPES = {side + kind: case(kind, side + kind) for side in "ab" for kind in KINDS}
PAIRS = tuple(("a" + first, "b" + second) for first, second in COMBINATIONS)
COUNT = 8  # poses at once, always as many, so that there is one program
TABLE = {name: each.shape for name, each in SHAPES.items()}


def contacts(positions, turns, numbers):
    """Contacts (pair, contact, ...) of all pairs: every shape a at one pose, every shape b at the other."""
    names = tuple(TABLE)
    side = [0 if name[0] == "a" else 1 for name in names]
    found = geometry.candidates(
        3, names, TABLE, PAIRS, positions[jnp.array(side)], turns[jnp.array(side)], numbers
    )
    return tuple(
        x.reshape(len(PAIRS), -1, *x.shape[1:]) for x in (found.point, found.point_b, found.phi, found.normal)
    )


def moved(delta, positions, turns):
    """The poses after a moves by delta[:3] and turns by delta[3:] about its own axes, and b after delta[6:]."""
    turn = [rotations.quaternion_matrix(rotations.quaternion_exp(delta[k : k + 3])) for k in (3, 9)]
    return positions + jnp.stack([delta[:3], delta[6:9]]), turns @ jnp.stack(turn)


@functools.cache
def program():
    """Contacts of all pairs at poses, and their rates along a direction (12,)."""

    def one(direction, positions, turns, numbers):
        at = lambda delta: contacts(*moved(delta, positions, turns), numbers)  # noqa: E731
        return jax.jvp(at, (jnp.zeros(12),), (direction,))

    return jax.jit(jax.vmap(one))


def sampled(count, seed, reach):
    rng = np.random.default_rng(seed)
    positions = np.zeros((count, 2, 3))
    step = rng.normal(size=(count, 3))
    positions[:, 0] = step * (rng.uniform(*reach, count) / np.linalg.norm(step, axis=1))[:, None]
    turns = np.array([[cases.rotation(rng, 3) for _ in range(2)] for _ in range(count)])
    numbers = [{k: v for each in SHAPES.values() for k, v in each.numbers(rng).items()} for _ in range(count)]
    directions = rng.normal(size=(count, 12))
    return positions, turns, {k: np.stack([each[k] for each in numbers]) for k in numbers[0]}, directions


@pytest.mark.long
def test_gaps_and_derivatives_of_all_pairs():
    positions, turns, numbers, directions = sampled(COUNT, 3, (0.1, 1.4))
    value, first = (jax.tree.map(np.asarray, x) for x in program()(directions, positions, turns, numbers))
    assert all(np.all(np.isfinite(x)) for x in (*value, *first))
    point, point_b, phi, normal = value
    step = 1e-5
    ends = []
    for sign in (1.0, -1.0):
        pose = jax.jit(jax.vmap(moved))(sign * step * directions, positions, turns)
        ends.append(jax.tree.map(np.asarray, program()(directions, *pose, numbers)[0]))
    deep = apart = 0
    for k, pair in itertools.product(range(COUNT), range(len(PAIRS))):
        a, b = (SHAPES[name] for name in PAIRS[pair])
        own = {key: each[k] for key, each in numbers.items()}
        nearest = np.argmin(phi[k, pair])
        gap, n = phi[k, pair, nearest], normal[k, pair, nearest]
        deep, apart = deep + (gap < -0.05), apart + (gap > 0)
        # No direction separates more, and this one separates by the gap.
        assert abs(cases.separation(a, b, own, positions[k], turns[k], n[None])[0] - gap) < 1e-12
        assert cases.signed_distance(a, b, own, positions[k], turns[k]) < gap + 1e-12, (k, PAIRS[pair])
        np.testing.assert_allclose(point[k, pair, nearest] - point_b[k, pair, nearest], gap * n, atol=1e-12)
        # The gap changes as the points move along the normal.
        velocity = []
        for body, x in enumerate((point, point_b)):
            linear, angular = (
                directions[k, 6 * body : 6 * body + 3],
                directions[k, 6 * body + 3 : 6 * body + 6],
            )
            velocity.append(
                linear + np.cross(turns[k, body] @ angular, x[k, pair, nearest] - positions[k, body])
            )
        assert abs(n @ (velocity[0] - velocity[1]) - first[2][k, pair, nearest]) < 1e-9, (k, PAIRS[pair])
        near = [np.argmin(end[2][k, pair]) for end in ends]
        slope = (ends[0][2][k, pair, near[0]] - ends[1][2][k, pair, near[1]]) / (2 * step)
        assert abs(slope - first[2][k, pair, nearest]) < 1e-4, (k, PAIRS[pair])
    assert deep > 20 and apart > 20


CUBE = 0.1 * np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


def resting(numbers, kind_a, kind_b, offset, turn):
    """Places and gaps of the contacts within 1e-6 m of a at `offset` on b at the origin, their numbers."""
    constants = {**{k: v[0] for k, v in sampled(1, 0, (1.0, 1.0))[2].items()}, **numbers}
    for name in TABLE:
        if f"{name}_at" in constants:
            constants |= {f"{name}_at": np.zeros(3), f"{name}_rotation": np.array([1.0, 0.0, 0.0, 0.0])}
    pair = COMBINATIONS.index((kind_a, kind_b))
    pose = [np.stack([np.array(x, float)] * COUNT) for x in ([offset, np.zeros(3)], [turn, np.eye(3)])]
    stacked = {k: np.stack([np.asarray(v, float)] * COUNT) for k, v in constants.items()}
    value, first = program()(np.ones((COUNT, 12)), *pose, stacked)
    assert all(np.all(np.isfinite(x)) for x in (*value, *first))
    point, _, phi, normal = (np.asarray(x[0, pair]) for x in value)
    touching = phi < 1e-6
    np.testing.assert_allclose(np.abs(normal @ [0, 0, 1]), 1.0, atol=1e-12)
    return point[touching], phi[touching], np.flatnonzero(touching)


def about_z(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


@pytest.mark.long
@pytest.mark.parametrize("depth", [0.0, 1e-4, -5e-7])
def test_meshes_that_lie_on_one_another_touch_at_corners(depth):
    meshes = {"amesh_vertices": CUBE, "bmesh_vertices": CUBE}
    for angle, shift in ((0.0, (0.05, 0.03)), (np.pi / 2, (0, 0)), (0.0, (1e-9, 0))):
        point, phi, _ = resting(meshes, "mesh", "mesh", (*shift, 0.2 - depth), about_z(angle))
        corners = sorted((x, y) for x in (shift[0] - 0.1, 0.1) for y in (shift[1] - 0.1, 0.1))
        np.testing.assert_allclose(sorted(map(tuple, np.round(point[:, :2], 6) + 0.0)), corners, atol=2e-9)
        np.testing.assert_allclose(phi, -depth, atol=1e-12)
    point, _, _ = resting(meshes, "mesh", "mesh", (0, 0, 0.2 - depth), about_z(np.pi / 4))
    assert len(point) == 8
    np.testing.assert_allclose(np.max(np.abs(point[:, :2]), axis=1), 0.1, atol=1e-9)


@pytest.mark.long
def test_a_cylinder_on_its_end_and_on_its_side():
    numbers = {"acylinder_radius": 0.05, "acylinder_half": 0.1, "bbox_size": np.array([0.3, 0.1, 0.2])}
    point, phi, _ = resting(numbers, "cylinder", "box", (0, 0, 0.2), about_z(0.3))
    np.testing.assert_allclose(np.linalg.norm(point[:, :2], axis=1), 0.05, atol=1e-12)
    assert len(point) == 8
    lying = np.array([[1, 0, 0], [0, 0, -1], [0, 1.0, 0]])
    rows = set()
    for roll in np.arange(0.0, 6.3, 0.7):  # it overhangs the box on both sides, and rolls
        point, phi, index = resting(numbers, "cylinder", "box", (0, 0, 0.15), lying @ about_z(roll))
        np.testing.assert_allclose(sorted(point[:, 1]), [-0.05, 0.05], atol=1e-12)
        np.testing.assert_allclose(point[:, 0], 0.0, atol=1e-12)
        np.testing.assert_allclose(phi, 0.0, atol=1e-12)
        rows.add(tuple(index[np.argsort(point[:, 1])]))
    assert len(rows) == 1  # each end keeps its number


@pytest.mark.slow
def test_coaxial_round_bodies_part_sideways():
    """Nearly alike in every direction: a capsule of 0.1 m in a cylinder of 0.2 m leaves after 0.3 m - offset."""
    model = jc.load_mjcf("""<mujoco><worldbody>
      <body><freejoint/><geom type="capsule" size=".1 .3" mass="1"/></body>
      <body><freejoint/><geom type="cylinder" size=".2 .15" mass="1"/></body></worldbody></mujoco>""")
    cases = itertools.product((0.0, 1e-9, 1e-6, 1e-3, 0.02), (0.0, 1e-7, 0.01), np.linspace(0.0, 6.0, 7))
    offset, height, turn = np.array(list(cases)).T
    q = np.zeros((len(offset), 14))
    q[:, [3, 10]] = 1.0
    q[:, :3] = np.stack([offset * np.cos(turn), offset * np.sin(turn), height], axis=1)
    start = model.initial_state()
    gaps = jax.jit(jax.vmap(lambda q: jnp.min(jc.contact_terms(model, start.replace(q=q)).phi)))(q)
    np.testing.assert_allclose(gaps, offset - 0.3, atol=1e-12)
