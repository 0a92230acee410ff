"""Motion over impulse and time under a law: closed forms in the plane, a cube in space, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.simulate import PieceKind, augmented_motion

G = 9.81
BLOCK = jc.models.rocking_block()
DROPPED = BLOCK.initial_state().replace(q=jnp.array([0.0, 1.2, 0.0]), v=jnp.zeros(3))
SMALL, MANY = 24, 160  # pieces of short and of long motions: one program for each


def cut(path, info):
    """The rows in use, in NumPy."""
    path, n = jax.device_get(path), int(info.num_iters)
    nodes = {name: getattr(path, name)[: n + 1] for name in ("s", "t", "q", "v")}
    pieces = {name: getattr(path, name)[:n] for name in ("lam", "t_rate", "kind", "impact", "collision")}
    return path.replace(**nodes, **pieces)


@pytest.mark.slow
def test_a_dropped_block_takes_the_time_and_impulse_of_closed_forms():
    """It falls for T with dt = ds; its impact takes m g T of s; at rest s grows by 1 + m g per second."""
    fall = np.sqrt(0.4 / G)
    path, info = augmented_motion(BLOCK, DROPPED, length=8.0, max_pieces=SMALL)
    path = cut(path, info)
    hit = int(np.flatnonzero(path.kind == PieceKind.IMPACT)[0])
    assert int(info.num_impacts) == 1 and path.collision[hit] and path.impact[hit] == 0
    np.testing.assert_allclose([path.t[hit], path.s[hit]], fall, rtol=1e-10)
    np.testing.assert_allclose([path.t[hit + 1], path.s[hit + 1]], [fall, fall + G * fall], rtol=1e-10)
    np.testing.assert_allclose(path.s[-1], 8.0, rtol=1e-12)
    np.testing.assert_allclose(path.t[-1], fall + (8.0 - fall - G * fall) / (1 + G), rtol=1e-10)
    np.testing.assert_allclose(path.t_rate + path.lam[:, :, 0].sum(axis=1), 1.0, rtol=1e-9)
    start, length = DROPPED, jnp.array(8.0)

    def end(speed, length):
        return augmented_motion(
            BLOCK, start.replace(v=jnp.array([0.0, 1.0, 0.0]) * speed), length=length, max_pieces=SMALL
        )[0].t[-1]

    by_speed, by_length = jax.grad(end, (0, 1))(jnp.array(0.0), length)
    # T = (v + sqrt(v^2 + 2 g h)) / g, and the impact takes m (g T - v): t(8) = T + (8 - T - gT + v) / (1 + g).
    np.testing.assert_allclose(by_length, 1.0 / (1.0 + G), rtol=1e-9)
    np.testing.assert_allclose(by_speed, 1.0 / (1.0 + G), rtol=1e-9)


@pytest.mark.slow
def test_a_ball_of_restitution_ends_its_chatter_in_closed_form():
    """Heights shrink by e^2: t and s of all bounces are geometric series, which the path ends in one piece."""
    e, height = 0.5, 0.2
    law = jc.impact.Newton(restitution=e)
    path, info = augmented_motion(BLOCK, DROPPED, law, length=12.0, max_pieces=64)
    path = cut(path, info)
    assert not jc.Status.failed(info.status) and int(info.status) & int(jc.Status.ZENO)
    chatter = int(np.flatnonzero(path.kind == PieceKind.CHATTER)[0]) + 1
    fall = np.sqrt(2 * height / G)
    rest = fall + 2 * fall * e / (1 - e)
    impulse = (1 + e) * G * fall / (1 - e)
    np.testing.assert_allclose([path.t[chatter], path.s[chatter]], [rest, rest + impulse], rtol=1e-8)
    np.testing.assert_allclose(path.t[-1], rest + (12.0 - rest - impulse) / (1 + G), rtol=1e-8)


def cube(r=0.06, p=0.035):
    """A cube of 1 m and 1 kg, tilted about two axes, its lowest corner 2 cm above the floor."""
    box = jc.models.box_drop_3d()
    params = box.params.replace(constants={"size": jnp.ones(3)}, inertia=jnp.full((1, 3), 1 / 6))
    model = box.replace(params=params)
    turned = [np.cos(r / 2) * np.cos(p / 2), np.sin(r / 2) * np.cos(p / 2), np.cos(r / 2) * np.sin(p / 2),
              -np.sin(r / 2) * np.sin(p / 2)]  # fmt: skip
    state = model.initial_state().replace(q=jnp.array([0.0, 0.0, 0.6, *turned]), v=jnp.zeros(6))
    depth = jnp.min(jc.contact_terms(model, state).phi)
    return model, state.replace(q=state.q.at[2].add(0.02 - depth))


def gaps(model, path):
    state = model.initial_state()
    return jax.vmap(lambda q: jc.contact_terms(model, state.replace(q=q)).phi)(jnp.asarray(path.q))


@pytest.mark.slow
def test_a_cube_in_space_wobbles_to_rest():
    """From corner to corner and edge to edge, until the weight is on the floor; no corner below it."""
    model, state = cube()
    path, info = augmented_motion(model, state, length=14.0, max_pieces=MANY, rtol=1e-8)
    path = cut(path, info)
    assert not jc.Status.failed(info.status) and int(info.num_impacts) >= 5
    height = np.asarray(gaps(model, path))
    assert np.min(height) > -1e-9 and np.max(np.abs(height[-1])) < 1e-9
    np.testing.assert_allclose(path.v[-1], 0.0, atol=1e-9)
    assert np.all(np.diff(path.s) >= 0) and np.all(np.diff(path.t) >= 0)
    hits = path.kind == PieceKind.IMPACT
    assert np.all(np.diff(path.t)[hits] == 0)
    normal, friction = path.lam[:, :, 0], np.linalg.norm(path.lam[:, :, 1:], axis=2)
    excess = np.diff(path.s)[:, None] * (friction - 0.6 * normal)  # N s
    assert np.all(normal >= -1e-9) and np.max(excess) < 1e-7
    is_resolved = path.kind != PieceKind.CHATTER
    np.testing.assert_allclose((path.t_rate + normal.sum(axis=1))[is_resolved], 1.0, atol=1e-7)
    total = 0.5 * path.v**2 @ [1, 1, 1, 1 / 6, 1 / 6, 1 / 6] + G * path.q[:, 2]
    assert np.max(np.diff(total)) < 1e-8
    np.testing.assert_allclose(path.lam[-1, :, 0].sum() / path.t_rate[-1], G, rtol=1e-6)


@functools.cache
def wobble():
    """End (t, q, v) of the cube after seven impacts, by the velocity at the start."""
    model, state = cube()

    def end(v):
        path, _ = augmented_motion(model, state.replace(v=v), length=1.78, max_pieces=MANY, rtol=1e-8)
        return jnp.concatenate([path.t[-1:], path.q[-1], path.v[-1]])

    return end


@pytest.mark.slow
def test_the_derivative_of_a_cube_in_space_is_that_of_differences():
    end, v = wobble(), jnp.zeros(6)
    d, w = jnp.array([0.3, -0.2, 0.1, 0.2, 0.1, -0.3]), jnp.linspace(1.0, 2.0, 14)
    _, rate = jax.jvp(end, (v,), (d,))
    _, back = jax.vjp(end, v)
    differences = (end(1e-4 * d) - end(-1e-4 * d)) / 2e-4
    np.testing.assert_allclose(rate, differences, atol=1e-4 * np.max(np.abs(rate)))
    np.testing.assert_allclose(back(w)[0] @ d, w @ rate, rtol=1e-7)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="length: expected a finite number > 0"):
        augmented_motion(BLOCK, DROPPED, length=0.0)
    with pytest.raises(ValueError, match="max_pieces: expected an integer >= 1"):
        augmented_motion(BLOCK, DROPPED, length=1.0, max_pieces=0)
