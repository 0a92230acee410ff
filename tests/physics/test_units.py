"""Units: a problem written in other units of mass, length and time has the same answer and the same status."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import impact
from jaxcontact.compliant import Material

# Factors of the numbers of masses, lengths and times; the first row is the problem itself.
CHANGES = np.array(
    [
        [1.0, 1.0, 1.0],
        [1e-6, 1.0, 1.0],
        [1e6, 1.0, 1.0],
        [1.0, 1e-6, 1.0],
        [1.0, 1e6, 1.0],
        [1.0, 1.0, 1e-6],
        [1.0, 1.0, 1e6],
        [1e-6, 1e-6, 1e6],
        [1e6, 1e6, 1e-6],
        [3e5, 2e-4, 7e3],
    ]
)
PROBLEMS = 3
STEPS = 6


class Impacts:
    """Random impacts of rigid bodies, each in all units: (PROBLEMS, CHANGES) in front."""

    def __init__(self, dim: int) -> None:
        rng = np.random.default_rng(20 + dim)
        nc, turns = 2, 2 * dim - 3
        linear = np.arange(dim + turns) < dim
        mass, length, time = (CHANGES[:, i] for i in range(3))
        size = np.where(linear, 1.0, length[:, None])  # of a coordinate, against a length
        shape = (PROBLEMS, nc, dim, dim + turns)
        rows = rng.normal(size=shape)
        mixed = rng.normal(size=(PROBLEMS, 8, dim + turns))
        M = np.einsum("pki,pkj->pij", mixed, mixed)
        v = rng.normal(size=(PROBLEMS, dim + turns))
        v -= np.einsum("pvc,pc->pv", np.linalg.pinv(rows[:, :, 0]), np.einsum("pcv,pv->pc", rows[:, :, 0], v))
        v -= np.einsum("pvc,pc->pv", np.linalg.pinv(rows[:, :, 0]), rng.uniform(0.2, 1.0, (PROBLEMS, nc)))
        self.speed = length / time  # of a contact
        self.per_speed = size / self.speed[:, None]  # of the coordinates
        impulse = mass * self.speed
        ones = np.ones((PROBLEMS, len(CHANGES), nc))
        rows = rows[:, None] * size[:, None, None]
        self.terms = jc.ContactTerms(
            M=jnp.asarray(M[:, None] * mass[:, None, None] * size[:, :, None] * size[:, None]),
            J_n=jnp.asarray(rows[:, :, :, 0]),
            J_t=jnp.asarray(rows[:, :, :, 1:]),
            phi=jnp.zeros(ones.shape),
            mu=jnp.asarray(rng.choice([0.1, 0.5, 1.0, 3.0], (PROBLEMS, 1, nc)) * ones),
            active=jnp.asarray(ones > 0),
        )
        self.v = jnp.asarray(v[:, None] / self.per_speed)
        caps = rng.uniform(0.0, 2.0, (PROBLEMS, 1, STEPS, nc))
        self.caps = jnp.asarray(caps * impulse[:, None, None])
        self.picks = jnp.asarray(rng.random((PROBLEMS, STEPS)))

    def check(self, v_plus, status, rtol: float = 1e-9) -> None:
        """The same status and velocity in all units, v_plus (PROBLEMS, CHANGES, ..., nv)."""
        status = np.asarray(status)
        assert np.array_equal(status, np.broadcast_to(status[:, :1], status.shape))
        between = (1,) * (np.ndim(v_plus) - 3)
        found = np.asarray(v_plus) * self.per_speed.reshape(len(CHANGES), *between, -1)
        scale = np.abs(np.asarray(self.v[:, 0])).max()
        np.testing.assert_allclose(
            found, np.broadcast_to(found[:, :1], found.shape), rtol=0, atol=rtol * scale
        )


PLANE, SPACE = Impacts(2), Impacts(3)


def valid_only(v_plus, valid):
    return np.where(np.asarray(valid)[:, None], v_plus, 0.0)


def law(name):
    """Every law as (terms, v, caps, picks) -> (velocities, status and other integers)."""

    def plain(function, **options):
        def run(terms, v, caps, picks):
            v_plus, info = function(terms, v, **options)
            return np.asarray(v_plus), np.array([info.status, info.num_iters])

        return run

    def simultaneous(terms, v, caps, picks):
        (v_plus, valid), info = impact.outcomes(terms, v, impact.AnitescuPotra())
        return valid_only(v_plus, valid), np.append(valid, info.status)

    def steps(terms, v, caps, picks):
        (v_plus, valid), info = impact.outcomes(terms, v, impact.RouthStep(impulse_max=caps[0]))
        return valid_only(v_plus, valid), np.append(valid, info.status)

    def orders(terms, v, caps, picks):
        v_plus, info, valid = impact.propagate_all(terms, v, max_outcomes=4, max_reflections=16)
        return valid_only(v_plus, valid), np.append(valid, info.status)

    def step(terms, v, caps, picks):
        return plain(impact.routh_step, impulse_max=caps[0], pick=picks[0], selection=selection(terms))(
            terms, v, caps, picks
        )

    def selection(terms):
        return "all" if terms.J_t.shape[1] == 1 else "lemke"

    def resolve(restitution):
        def run(terms, v, caps, picks):
            options = {"restitution": restitution, "selection": selection(terms)}
            return plain(impact.resolve, impulse_max=caps, pick=picks, **options)(terms, v, caps, picks)

        return run

    return {
        "anitescu_potra": plain(impact.anitescu_potra),
        "outcomes": simultaneous,
        "sequential": plain(impact.sequential, order=(0, 1), max_impacts=8),
        "routh_step": step,
        "outcomes of a step": steps,
        "resolve": resolve(None),
        "resolve with restitution": resolve(0.5),
        "routh_path": plain(impact.routh_path, rates=jnp.array([1.0, 0.6]), max_events=12),
        "propagate": plain(impact.propagate, restitution=0.5, max_reflections=16),
        "propagate_all": orders,
        "plastic": plain(impact.plastic),
    }[name]


ANYWHERE = ("anitescu_potra", "resolve with restitution", "propagate")
PARTS = ("sequential", "routh_step", "resolve", "propagate_all", "plastic")  # of those, or much like them
PLANAR = ("outcomes", "outcomes of a step", "routh_path")


def answers(impacts, name):
    """Velocities and integers (PROBLEMS, CHANGES, ...) of a law; problem by problem, as users call it."""
    run, found = law(name), []
    for i in range(PROBLEMS):
        for j in range(len(CHANGES)):
            terms, v, caps = jax.tree.map(
                lambda leaf, at=(i, j): leaf[at], (impacts.terms, impacts.v, impacts.caps)
            )
            found.append(run(terms, v, caps, impacts.picks[i]))
    return [
        np.stack(parts).reshape(PROBLEMS, len(CHANGES), *parts[0].shape) for parts in zip(*found, strict=True)
    ]


@pytest.mark.slow_cases(
    "anitescu_potra",
    "outcomes",
    "plastic",
    "propagate",
    "propagate_all",
    "resolve with restitution",
    "resolve",
    "routh_path",
    "routh_step",
    "outcomes of a step",
    "sequential",
)
@pytest.mark.parametrize("name", ANYWHERE + PARTS + PLANAR)
def test_laws_in_the_plane(name):
    PLANE.check(*answers(PLANE, name))


@pytest.mark.slow_cases("anitescu_potra", "resolve with restitution")
@pytest.mark.parametrize("name", [*ANYWHERE, *(pytest.param(n, marks=pytest.mark.slow) for n in PARTS)])
def test_laws_in_space(name):
    SPACE.check(*answers(SPACE, name))


@pytest.mark.slow_cases("impacts2-lemke")
@pytest.mark.parametrize(("impacts", "selection"), [(PLANE, "all"), (PLANE, "visited"), (SPACE, "lemke")])
def test_samples(impacts, selection):
    found = []
    for change in (0, 3, 8, 9):
        terms, v = jax.tree.map(lambda leaf, at=change: leaf[0, at], (impacts.terms, impacts.v))
        step = float(CHANGES[change, 0] * impacts.speed[change])
        samples = impact.sample(
            terms, v, impact.Routh(impulse_step=step, max_steps=4, selection=selection), num_samples=64
        )
        found.append((np.asarray(samples.v_plus) * impacts.per_speed[change], samples))
    for v_plus, samples in found[1:]:
        assert np.array_equal(samples.status, found[0][1].status)
        assert np.array_equal(samples.num_iters, found[0][1].num_iters)
        np.testing.assert_allclose(v_plus, found[0][0], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_complementarity_problems(rng):
    n, count = 6, 8
    half = rng.normal(size=(count, n, n))
    W, w = half @ half.transpose(0, 2, 1) + 0.1 * np.eye(n), rng.normal(size=(count, n))
    rows, columns = 10.0 ** rng.uniform(-3, 3, (2, count, n)), 10.0 ** rng.uniform(-3, 3, (2, count, n))
    rows[0], columns[0] = 1.0, 1.0
    for factor in (1e-6, 1.0, 1e6):
        scaled = W[None] * rows[..., :, None] * columns[..., None, :] * factor
        z, info = jax.vmap(jax.vmap(jc.solve_lcp))(jnp.asarray(scaled), jnp.asarray(w[None] * rows))
        assert not np.any(info.status)
        z = np.asarray(z) * columns * factor
        np.testing.assert_allclose(z[1], z[0], rtol=0, atol=1e-9 * np.abs(z).max())


@pytest.mark.slow_cases("box_on_incline-associated", "rocking_block-associated", "rocking_block-coulomb")
@pytest.mark.parametrize(
    ("name", "cone"),
    [("rocking_block", "associated"), ("rocking_block", "coulomb"), ("box_on_incline", "associated")],
)
def test_compliant_steps(name, cone):
    """A pushed body on springs, dampers and friction, with its material in the same units."""
    model = getattr(jc.models, name)()
    dim = model.structure.dim
    turns = 2 * dim - 3
    quaternion = np.array([1.0] * dim + [0.0] * (model.initial_state().q.size - dim))

    def step(mass, length, time):
        force, size = mass * length / time**2, jnp.where(jnp.arange(dim + turns) < dim, length, 1.0)
        params = model.params.replace(
            mass=model.params.mass * mass,
            inertia=model.params.inertia * mass * length**2,
            gravity=model.params.gravity * length / time**2,
            constants=jax.tree.map(lambda leaf: leaf * length, model.params.constants),
            material=Material(
                stiffness=1e5 * force / length,
                damping=30.0 * force / length * time,
                friction_damping=1e4 * force / length * time,
            ),
        )
        unit = jnp.asarray(quaternion) * length + (1.0 - quaternion)
        state = jc.State(
            q=model.initial_state().q * unit,
            v=jnp.linspace(0.3, -0.4, dim + turns) * size / time,
            t=jnp.zeros(()),
        )
        tau = jnp.linspace(1.0, -2.0, dim + turns) * force * length / size
        after, info = jc.compliant.step(
            model.replace(params=params),
            state,
            tau,
            dt=5e-3 * time,
            settings=jc.compliant.Settings(cone=cone),
        )
        return after.q / unit, after.v * time / size, info.lam / force, info.status

    *numbers, status = jax.jit(jax.vmap(step))(*jnp.asarray(CHANGES.T))
    assert not np.any(status)
    for each in numbers:
        each = np.asarray(each)
        np.testing.assert_allclose(
            each, np.broadcast_to(each[:1], each.shape), rtol=0, atol=1e-7 * np.abs(each).max()
        )
