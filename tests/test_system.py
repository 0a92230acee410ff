"""Mechanics by autodiff against hand-derived mechanisms, built here from public names only."""

import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference

import jaxcontact as jc

FLOOR = jc.HalfSpace(name="floor", normal=(0.0, 1.0))
GROUND = jc.HalfSpace(name="ground", normal=(0.0, 0.0, 1.0))
TRACES = {"walker": 0}
SIZE = (1.0, 0.6, 0.4)


# --- the three-link walker


def walker_poses(structure, q, params):
    TRACES["walker"] += 1
    along = jnp.stack([jnp.sin(q[2:]), -jnp.cos(q[2:])], axis=-1)
    reach = jnp.stack([-params.constants["trunk"], *2 * [params.constants["leg"] / 2]])
    links = q[None, :2] + reach[:, None] * along
    return jnp.concatenate([q[None, :2], links]), jnp.concatenate([jnp.zeros(1, q.dtype), q[2:]])


def hip_spring(structure, q, v, params):
    """A torsional spring between the legs: potential k (q4 - q3)^2 / 2."""
    torque = params.constants["stiffness"] * (q[4] - q[3])
    return jnp.zeros_like(v).at[3].add(torque).at[4].add(-torque)


def walker(forces=None, order=("foot_1", "foot_2")):
    """A fresh system on every call, from the same functions."""
    return jc.System(
        jc.Structure(
            dim=2,
            bodies=("hip", "trunk", "leg_1", "leg_2"),
            num_positions=5,
            shapes=(
                jc.Point(name="foot_1", body="leg_1", at="foot"),
                jc.Point(name="foot_2", body="leg_2", at="foot"),
                FLOOR,
            ),
            pairs=tuple((foot, "floor") for foot in order),
        ),
        walker_poses,
        forces,
    )


def walker_params(stiffness=0.0):
    return jc.Params(
        mass=jnp.array([15.0, 10.0, 5.0, 5.0]),
        inertia=jnp.array([0.0, 0.0, 0.4, 0.4]),
        mu=jnp.array(0.6),
        gravity=jnp.array([0.0, -9.81]),
        constants={
            "trunk": jnp.array(0.5),
            "leg": jnp.array(1.0),
            "foot": jnp.array([0.0, -0.5]),
            "stiffness": jnp.array(stiffness),
        },
    )


# --- a free box in space


def free_poses(structure, q, params):
    """Any number of free bodies, seven coordinates each."""
    bodies = q.reshape(-1, 7)
    return bodies[:, :3], jax.vmap(jc.rotations.quaternion_matrix)(bodies[:, 3:])


# Corners of `reference.BOX_SIGNS`: there x varies slowest, in `Box` fastest.
X_SLOWEST = tuple(int(f"{k:03b}"[::-1], 2) for k in range(8))


def box(corners=X_SLOWEST):
    return jc.System(
        jc.Structure(
            dim=3,
            bodies=("box",),
            num_positions=7,
            quaternions=(3,),
            shapes=(jc.Box(name="corners", body="box", size="size", corners=corners), GROUND),
            pairs=(("corners", "ground"),),
        ),
        free_poses,
    )


def box_params(mass=1.0):
    return jc.Params(
        mass=jnp.array([mass]),
        inertia=jnp.array([reference.box3d_inertia(SIZE, mass)]),
        mu=jnp.array(0.5),
        gravity=jnp.array([0.0, 0.0, -9.81]),
        constants={"size": jnp.array(SIZE)},
    )


def model_of(system, params):
    return jc.Model(system=system, params=params)


def random_pose(rng, bodies=1):
    """Positions and unit quaternions of free bodies."""
    q = rng.normal(size=(bodies, 7))
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    return q.ravel()


def random_q(rng, system):
    structure = system.structure
    return random_pose(rng) if structure.dim == 3 else rng.normal(size=structure.num_positions)


def state(q, v=None, nv=None):
    v = np.zeros(nv) if v is None else v
    return jc.State(q=jnp.array(q), v=jnp.array(v), t=jnp.array(0.0))


mass_matrix_of = jax.jit(jc.mass_matrix)
bias_of = jax.jit(jc.bias)


# --- mass and bias


@pytest.mark.float32
def test_walker_mass_matrix_and_bias(rng, tolerance):
    expected, model = reference.three_link_walker(), model_of(walker(), walker_params())
    for _ in range(10):
        q, v = rng.normal(size=5), rng.normal(size=5)
        M, b = mass_matrix_of(model, jnp.array(q)), bias_of(model, state(q, v))
        np.testing.assert_allclose(M, expected.mass_matrix(q), rtol=0, atol=tolerance(1e-12, 1e-4))
        np.testing.assert_allclose(b, expected.bias(q, v), rtol=0, atol=tolerance(3e-12, 1e-3))


def test_box_mass_matrix_and_bias(rng):
    params = box_params(2.5)
    for _ in range(10):
        q, v = random_pose(rng), rng.normal(size=6)
        M, b = (
            mass_matrix_of(model_of(box(), params), jnp.array(q)),
            bias_of(model_of(box(), params), state(q, v)),
        )
        np.testing.assert_allclose(M, reference.box3d_mass_matrix(q, SIZE, 2.5), rtol=0, atol=1e-12)
        np.testing.assert_allclose(b, reference.box3d_bias(q, v, SIZE, 2.5), rtol=0, atol=1e-12)


def test_forces_enter_the_bias_once_and_with_their_sign(rng):
    params, plain, sprung = walker_params(30.0), walker(), walker(hip_spring)
    q, v = rng.normal(size=5), rng.normal(size=5)
    force = np.array([0, 0, 0, 1, -1]) * 30.0 * (q[4] - q[3])
    difference = bias_of(model_of(sprung, params), state(q, v)) - bias_of(
        model_of(plain, params), state(q, v)
    )
    np.testing.assert_allclose(difference, -force, atol=1e-12)
    np.testing.assert_array_equal(
        mass_matrix_of(model_of(sprung, params), jnp.array(q)),
        mass_matrix_of(model_of(plain, params), jnp.array(q)),
    )


# --- velocity and q


def test_velocity_map_of_a_quaternion(rng):
    for _ in range(5):
        q = random_pose(rng)
        w, x, y, z = q[3:]
        expected = np.zeros((7, 6))
        expected[:3, :3] = np.eye(3)
        expected[3:, 3:] = 0.5 * np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])
        np.testing.assert_allclose(jc.velocity_map(model_of(box(), None), jnp.array(q)), expected, atol=1e-16)
    np.testing.assert_array_equal(jc.velocity_map(model_of(walker(), None), jnp.zeros(5)), np.eye(5))


def mixed_system():
    """A slide, a body with a quaternion, and one more slide: N is not block diagonal by luck."""
    return jc.System(jc.Structure(dim=3, bodies=("a",), num_positions=6, quaternions=(1,)), free_poses)


def test_quaternions_may_stand_anywhere_in_q(rng):
    system = mixed_system()
    q = np.concatenate([[0.3], random_pose(rng)[3:], [-2.0]])
    N = np.asarray(jc.velocity_map(model_of(system, None), jnp.array(q)))
    assert N.shape == (6, 5)
    np.testing.assert_array_equal(N[0], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(N[5], [0, 0, 0, 0, 1])
    delta = jnp.array([0.5, 0.0, 0.0, 0.0, -1.0])
    np.testing.assert_allclose(
        jc.retract(model_of(system, None), jnp.array(q), delta), q + [0.5, 0, 0, 0, 0, -1], atol=1e-15
    )


@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("make", [walker, box, mixed_system])
def test_retract_follows_the_velocity_map_to_first_order(make, rng, tolerance):
    system = make()
    nq, nv = system.structure.num_positions, system.structure.num_velocities
    q = rng.normal(size=nq)
    for start in system.structure.quaternions:
        q[start : start + 4] /= np.linalg.norm(q[start : start + 4])
    q, v = jnp.array(q), jnp.array(rng.normal(size=nv))
    atol = tolerance(1e-15, 1e-6)
    here, rate = jax.jvp(lambda h: jc.retract(model_of(system, None), q, h * v), (0.0,), (1.0,))
    np.testing.assert_allclose(here, q, atol=atol)
    np.testing.assert_allclose(rate, jc.velocity_map(model_of(system, None), q) @ v, atol=atol)
    slope = jax.jit(jax.jacfwd(lambda d: jc.retract(model_of(system, None), q, d)))(jnp.zeros(nv))
    np.testing.assert_allclose(slope, jc.velocity_map(model_of(system, None), q), atol=atol)


def test_retract_turns_about_body_axes_and_keeps_the_length(rng):
    q, turn = random_pose(rng), rng.normal(size=3)
    moved = np.asarray(jc.retract(model_of(box(), None), jnp.array(q), jnp.array([1.0, 2.0, 3.0, *turn])))
    np.testing.assert_allclose(moved[:3], q[:3] + [1.0, 2.0, 3.0], atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(moved[3:]), 1.0, rtol=1e-15)
    angle = np.linalg.norm(turn)
    axis = turn / angle
    K = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    step = np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K
    expected = reference.rotation(q[3:]) @ step
    np.testing.assert_allclose(reference.rotation(moved[3:]), expected, atol=1e-14)
    # A quaternion that has drifted off the unit sphere comes back to it.
    q[3:] *= 1.001
    moved = np.asarray(jc.retract(model_of(box(), None), jnp.array(q), jnp.zeros(6)))
    np.testing.assert_allclose(np.linalg.norm(moved[3:]), 1.0, rtol=1e-15)


# --- energy


def flow(model, potential, steps, dt):
    """(state) -> (state after `steps` of Runge-Kutta 4, total energy before and after)."""

    def energy(q, v):
        return 0.5 * v @ jc.mass_matrix(model, q) @ v + potential(q)

    def rate(q, v):
        M = jc.mass_matrix(model, q)
        b = jc.bias(model, jc.State(q=q, v=v, t=jnp.array(0.0)))
        return jc.velocity_map(model, q) @ v, -jnp.linalg.solve(M, b)

    def step(carry, _):
        q, v = carry
        k1 = rate(q, v)
        k2 = rate(q + 0.5 * dt * k1[0], v + 0.5 * dt * k1[1])
        k3 = rate(q + 0.5 * dt * k2[0], v + 0.5 * dt * k2[1])
        k4 = rate(q + dt * k3[0], v + dt * k3[1])
        move = [dt / 6.0 * (a + 2.0 * b + 2.0 * c + d) for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
        return (q + move[0], v + move[1]), None

    @jax.jit
    def run(q, v):
        (q_end, v_end), _ = jax.lax.scan(step, (q, v), length=steps)
        return (q_end, v_end), jnp.stack([energy(q, v), energy(q_end, v_end)])

    return run


@pytest.mark.long
@pytest.mark.parametrize("stiffness", [0.0, 200.0])
def test_free_motion_of_the_walker_conserves_energy(stiffness, rng):
    params = walker_params(stiffness)

    def potential(q):
        y = q[1] - jnp.array([0.0, -0.5, 0.5, 0.5]) * jnp.cos(jnp.concatenate([jnp.zeros(1), q[2:]]))
        return 9.81 * params.mass @ y + 0.5 * stiffness * (q[4] - q[3]) ** 2

    q, v = jnp.array(rng.normal(size=5)), jnp.array(rng.normal(size=5))
    (q_end, _), energy = flow(model_of(walker(hip_spring), params), potential, 200, 5e-4)(q, v)
    np.testing.assert_allclose(energy[1], energy[0], rtol=1e-10)
    assert np.abs(q_end - q).max() > 0.05


@pytest.mark.slow
def test_a_spinning_box_conserves_energy_and_angular_momentum(rng):
    params = box_params()
    inertia = reference.box3d_inertia(SIZE, 1.0)
    q, v = jnp.array(random_pose(rng)), jnp.array([1.0, -0.5, 2.0, 1.0, 3.0, -2.0])
    run = flow(model_of(box(), params), lambda q: 9.81 * q[2], 100, 2e-3)
    (q_end, v_end), energy = run(q, v)
    np.testing.assert_allclose(energy[1], energy[0], rtol=1e-10)
    before = reference.rotation(np.asarray(q[3:])) @ (inertia * np.asarray(v[3:]))
    after = reference.rotation(np.asarray(q_end[3:])) @ (inertia * np.asarray(v_end[3:]))
    np.testing.assert_allclose(after, before, rtol=1e-9)
    assert np.abs(v_end[3:] - v[3:]).max() > 0.1  # it tumbles: the gyroscopic term is at work


# --- structures and systems


def test_equal_constructions_compile_once():
    params, here = walker_params(), state(np.zeros(5), np.zeros(5))
    first, second = walker(), walker()
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    function = jax.jit(
        lambda system, q: jc.mass_matrix(jc.Model(system=system, params=params), q), static_argnums=0
    )
    function(first, here.q)
    jc.contact_terms(model_of(first, params), here)
    traced = TRACES["walker"]
    assert traced > 0
    function(second, here.q + 1.0)
    jc.contact_terms(model_of(second, walker_params(1.0)), state(np.ones(5), np.ones(5)))
    assert TRACES["walker"] == traced
    jc.contact_terms(model_of(walker(order=("foot_1", "foot_1")), params), here)  # no other test has this one
    assert TRACES["walker"] > traced


def test_fingerprint_tells_systems_apart():
    prints = [
        walker().fingerprint,
        walker(hip_spring).fingerprint,
        walker(order=("foot_2", "foot_1")).fingerprint,
        box().fingerprint,
        box(None).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert walker().fingerprint == prints[0]
    assert all(len(text) == 16 and set(text) <= set("0123456789abcdef") for text in prints)


def test_fingerprint_is_the_same_in_another_process():
    here = Path(__file__).resolve().parent
    code = (
        f"import {__name__} as t, jaxcontact as jc; print(t.walker(t.hip_spring).fingerprint, "
        "t.box().fingerprint, jc.models.ramone().system.fingerprint)"
    )
    path = os.pathsep.join([str(here), str(Path(jc.__file__).resolve().parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "7"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    model = jc.models.ramone().system
    expected = [walker(hip_spring).fingerprint, box().fingerprint, model.fingerprint]
    assert done.stdout.split() == expected


def test_sizes_follow_from_the_structure():
    structure = box(None).structure
    assert (structure.num_positions, structure.num_velocities, structure.num_contacts) == (7, 6, 8)
    assert structure.shape("ground") == GROUND
    assert list(structure.shape_table) == ["corners", "ground"]
    assert box((0, 5)).structure.num_contacts == 2
    assert walker().structure.num_velocities == 5
    two = jc.Structure(
        dim=2,
        bodies=("a", "b"),
        num_positions=6,
        shapes=(
            jc.Points(name="a", body="a", at="p", count=4),
            jc.Disc(name="b", body="b", radius="r"),
            jc.Box(name="c", body="b", size="s", corners=(0, 1, 2)),
            FLOOR,
        ),
        pairs=(("a", "b"), ("c", "floor")),
    )
    assert two.num_contacts == 7


TIP = jc.Point(name="tip", body="b")


def structure(**changes):
    settings = {
        "dim": 2,
        "bodies": ("a", "b"),
        "num_positions": 6,
        "shapes": (jc.Disc(name="rim", body="a", radius="r"), FLOOR),
        "pairs": (("rim", "floor"),),
    }
    return jc.Structure(**settings | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 4}, r"dim: expected 2 \(plane\) or 3 \(space\), got 4"),
        ({"bodies": "ab"}, "bodies: expected a sequence of strings, got 'ab'"),
        ({"bodies": ("a", "a")}, r"bodies: names must differ, got \['a', 'a'\]"),
        ({"shapes": (FLOOR, FLOOR)}, r"shapes: names must differ, got \['floor', 'floor'\]"),
        ({"bodies": ("c",)}, r"shapes: 'rim' is on body 'a'; bodies are \('c',\)"),
        (
            {"shapes": (jc.Sphere(name="ball", body="a", radius="r"),), "pairs": ()},
            r"shapes: 'ball' is a Sphere in the plane; use Disc",
        ),
        (
            {"shapes": (GROUND,), "pairs": ()},
            r"shapes: normal of 'ground' needs 2 numbers of length one, got \(0.0, 0.0, 1.0\)",
        ),
        ({"pairs": (("rim", "wall"),)}, r"pairs: no shape 'wall'; shapes are \['rim', 'floor'\]"),
        ({"pairs": (("floor", "rim"),)}, r"pairs: expected the half-space second, got \('floor', 'rim'\)"),
        (
            {"shapes": (TIP, jc.Points(name="feet", body="a", at="p", count=2)), "pairs": (("feet", "tip"),)},
            "pairs: 'feet' and 'tip' are points, which never meet; give one of them a radius",
        ),
        ({"quaternions": (3,)}, r"quaternions: index 3 leaves no room for four numbers in q"),
        ({"quaternions": (-1,)}, r"quaternions: index -1 leaves no room for four numbers in q"),
    ],
)
def test_mistakes_in_a_structure_are_named(changes, message):
    structure()  # good as it stands
    with pytest.raises((TypeError, ValueError), match=message):
        structure(**changes)


def test_a_disc_may_belong_to_the_world(rng):
    """A fixed disc is a bump on the floor: gap and tangential rows see the moving body only."""
    system = jc.System(
        structure(
            bodies=("a",),
            num_positions=3,
            shapes=(
                jc.Disc(name="rim", body="a", radius="r"),
                jc.Disc(name="bump", body=None, radius="r", at="place"),
            ),
            pairs=(("rim", "bump"),),
        ),
        planar_body,
    )
    params = jc.Params(
        mass=jnp.ones(1),
        inertia=jnp.ones(1),
        mu=jnp.array(0.3),
        gravity=jnp.array([0.0, -9.81]),
        constants={"r": jnp.array(0.25), "place": jnp.array([1.0, 2.0])},
    )
    angle = 0.7
    n = np.array([math.cos(angle), math.sin(angle)])
    q = np.concatenate([np.array([1.0, 2.0]) + 0.6 * n, [0.4]])
    terms = jc.contact_terms(jc.Model(system=system, params=params), state(q, np.zeros(3)))
    np.testing.assert_allclose(terms.phi, [0.1], atol=1e-15)
    np.testing.assert_allclose(terms.J_n, [[*n, 0.0]], atol=1e-15)
    np.testing.assert_allclose(terms.J_t, [[[n[1], -n[0], 0.25]]], atol=1e-15)


def planar_body(structure, q, params):
    return q[None, :2], q[2:3]
