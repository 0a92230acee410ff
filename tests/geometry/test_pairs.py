"""Which pairs there are, how many contacts they make, and what is refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import geometry

BODY = {"name": "a", "body": "a"}
OTHER = {"name": "b", "body": "b"}
TETRAHEDRON = ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2))


def structure(dim, a, b):
    quaternions = (3, 10) if dim == 3 else ()
    return jc.Structure(
        dim=dim,
        bodies=("a", "b"),
        num_positions=6 if dim == 2 else 14,
        quaternions=quaternions,
        shapes=(a, b),
        pairs=((a.name, b.name),),
    )


def shape(kind, names, **more):
    numbers = {
        jc.Point: {}, jc.Sphere: {"radius": "r"}, jc.Capsule: {"radius": "r", "ends": "e"}, jc.Box: {"size": "s"},
        jc.Cylinder: {"radius": "r", "half_length": "h"}, jc.Ellipsoid: {"semi_axes": "s"},
        jc.ConvexMesh: {"vertices": "v", "count": 4, "faces": TETRAHEDRON},
        jc.Disc: {"radius": "r"}, jc.Polygon: {"vertices": "v", "count": 3},
    }  # fmt: skip
    return kind(**names, **{**numbers[kind], **more})


@pytest.mark.parametrize(
    ("dim", "a", "b", "count"),
    [
        (3, jc.Sphere, jc.Box, 1),
        (3, jc.Box, jc.Point, 1),
        (3, jc.Capsule, jc.Capsule, 5),
        (3, jc.Capsule, jc.Box, 9),
        (3, jc.Box, jc.Box, 9),
        (3, jc.ConvexMesh, jc.Capsule, 9),
        (3, jc.Sphere, jc.ConvexMesh, 1),
        (3, jc.Cylinder, jc.Capsule, 9),
        (3, jc.Ellipsoid, jc.Capsule, 9),
        (3, jc.Ellipsoid, jc.ConvexMesh, 9),
        (3, jc.Cylinder, jc.Box, 9),
        (2, jc.Capsule, jc.Polygon, 5),
        (2, jc.Box, jc.Box, 8),
        (2, jc.Disc, jc.Box, 1),
    ],
)
def test_numbers_of_contacts(dim, a, b, count):
    made = structure(dim, shape(a, BODY), shape(b, OTHER))
    assert made.num_contacts == count
    bodies = geometry.contact_bodies(dim, made.bodies, made.shape_table, made.pairs)
    assert bodies == ((0,) * count, (1,) * count)


@pytest.mark.parametrize(
    ("dim", "a", "b"), [(3, jc.Disc, jc.Polygon), (2, jc.Sphere, jc.Ellipsoid), (3, jc.Polygon, jc.Polygon)]
)
def test_shapes_of_another_dimension_are_refused(dim, a, b):
    with pytest.raises(ValueError, match=r"'[ab]' is a (Polygon in space|Sphere in the plane)"):
        structure(dim, shape(a, BODY), shape(b, OTHER))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="'a' needs faces=hull_faces"):
        structure(3, shape(jc.ConvexMesh, BODY, faces=()), shape(jc.Sphere, OTHER))
    with pytest.raises(ValueError, match="'a' is a Polygon in space; use ConvexMesh"):
        structure(3, shape(jc.Polygon, BODY), shape(jc.Sphere, OTHER))
    with pytest.raises(ValueError, match="'a' is a Cylinder in the plane"):
        structure(2, shape(jc.Cylinder, BODY), shape(jc.Disc, OTHER))
    with pytest.raises(ValueError, match=r"faces of 'a' must be triples of 0\.\.3"):
        structure(3, shape(jc.ConvexMesh, BODY, faces=((0, 1, 4),)), shape(jc.Sphere, OTHER))
    with pytest.raises(ValueError, match="'a' needs three vertices or more, got count=2"):
        structure(2, shape(jc.Polygon, BODY, count=2), shape(jc.Disc, OTHER))
    floor = jc.HalfSpace(name="b", normal=(0.0, 0.0, 1.0))
    assert structure(3, shape(jc.ConvexMesh, BODY, faces=()), floor).num_contacts == 4


def test_numbers_of_a_wrong_shape_are_named():
    made = structure(3, shape(jc.Capsule, BODY), shape(jc.Sphere, OTHER))
    system = jc.System(made, jc.free_poses)
    params = jc.Params(
        mass=jnp.ones(2),
        inertia=jnp.ones((2, 3)),
        mu=jnp.asarray(0.5),
        gravity=jnp.zeros(3),
        constants={"r": jnp.asarray(0.1), "e": jnp.zeros((3, 2))},
    )
    state = jc.State(q=jnp.zeros(14).at[jnp.array([3, 10])].set(1.0), v=jnp.zeros(12), t=jnp.asarray(0.0))
    with pytest.raises(
        ValueError, match=r"'e', the ends of shape 'a': expected shape \(2, 3\), got \(3, 2\)"
    ):
        jc.contact_terms(jc.Model(system=system, params=params), state)
    del params.constants["e"]
    with pytest.raises(ValueError, match="no 'e', the ends of shape 'a'"):
        jc.contact_terms(jc.Model(system=system, params=params), state)


def test_a_hull_without_inner_points():
    faces = jc.hull_faces(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]))
    assert sorted(tuple(sorted(face)) for face in faces) == [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    with pytest.raises(ValueError, match=r"\[4\] are no corners"):
        jc.hull_faces(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0], [0.1, 0.1, 0.1]]))
    with pytest.raises(ValueError, match=r"expected shape \(n, 3\)"):
        jc.hull_faces(np.zeros((4, 2)))


def test_a_hull_with_nearly_twin_corners(rng):
    for _ in range(60):
        corners = np.array(
            [[0.05, 0, 0], [-0.05, 0, 0], [0, 0.04, 0], [0, -0.04, 0], [0, 0, 0.03], [0, 0, -0.03]]
        )
        twin = corners[rng.integers(6)].copy()
        twin[np.flatnonzero(twin == 0)[rng.integers(2)]] = 10.0 ** -rng.uniform(11.5, 15.5)
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        faces = jc.hull_faces(np.vstack([corners, twin]) @ turn.T + rng.normal(size=3))
        assert len({k for face in faces for k in face}) >= 6


def test_a_sphere_rests_on_a_box_of_the_world():
    made = jc.Structure(
        dim=3,
        bodies=("ball",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            jc.Sphere(name="ball", body="ball", radius="r"),
            jc.Box(name="step", body=None, size="s", at="p", rotation="q"),
        ),
        pairs=(("step", "ball"),),
    )
    quarter = np.sqrt(0.5)
    params = jc.Params(
        mass=jnp.ones(1),
        inertia=jnp.ones((1, 3)),
        mu=jnp.asarray(0.5),
        gravity=jnp.zeros(3),
        constants={
            "r": jnp.asarray(0.1),
            "s": jnp.array([0.4, 1.0, 0.2]),
            "p": jnp.array([1.0, 0.0, 0.1]),
            "q": jnp.array([quarter, 0.0, 0.0, quarter]),  # its length of 1 m along x
        },
    )
    state = jc.State(q=jnp.array([1.45, 0.0, 0.3, 1, 0, 0, 0]), v=jnp.zeros(6), t=jnp.asarray(0.0))
    terms = jc.contact_terms(jc.Model(system=jc.System(made, jc.free_poses), params=params), state)
    assert bool(terms.active[0])
    np.testing.assert_allclose(
        terms.J_n[0], [0, 0, 1, 0, 0, 0], atol=1e-12
    )  # the step is a, and does not move
    np.testing.assert_allclose(np.linalg.norm(terms.J_t[0, :, 3:]), 0.1 * np.sqrt(2.0), atol=1e-12)
