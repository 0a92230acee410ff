"""TREX made such that tail and foot strike with one outcome, and what that does to its motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.optimize import DesignTask
from jaxcontact.optimize.design_equations import DesignEquations

LENGTHS = ("front_radius", "rear_radius", "thigh", "shank")
TASK = DesignTask(design=LENGTHS, rebuild=jc.models.trex_params, hold=(0,), clearance=1e-3, friction="none")


def cosine(terms, i=0, j=1):
    gram = np.asarray(terms.J_n) @ np.linalg.solve(np.asarray(terms.M), np.asarray(terms.J_n).T)
    return gram[i, j] / np.sqrt(gram[i, i] * gram[j, j])


def outcomes(terms, v, first, second):
    """Elastic single impacts in NumPy, starting with either of two contacts."""
    found = []
    for order in ((first, second), (second, first)):
        x, k = np.asarray(v), 0
        while np.min(np.asarray(terms.J_n)[[first, second]] @ x) < -1e-12:
            u = np.asarray(terms.J_n)[order[k % 2]]
            if u @ x < 0:
                response = np.linalg.solve(np.asarray(terms.M), u)
                x = x - 2.0 * (u @ x) / (u @ response) * response
            k += 1
        found.append(x)
    return found


@pytest.fixture(scope="module")
def designed():
    model = jc.models.trex()
    params, state, report = jc.optimize.impact_design(
        model, model.initial_state(), TASK
    )  # fmt: skip
    return model, params, state, report


def test_trex_is_the_machine_of_the_paper():
    """Radii, lengths and angles of Table I give its height, 12.38 cm, and masses follow from densities."""
    model = jc.models.trex()
    np.testing.assert_allclose(model.initial_state().q[1], 0.1238, atol=5e-5)
    np.testing.assert_allclose(model.initial_state().q[4], 5.24, atol=0.02)
    ball, rod = 4.0 / 3.0 * np.pi * 1000.0, 0.25
    tail = 0.04 * 0.11 / 0.03
    expected = [ball * 0.07**3, ball * 0.04**3, rod * tail, rod * 0.08, rod * 0.1, rod * 0.08, rod * 0.1]
    np.testing.assert_allclose(model.params.mass, expected, rtol=1e-14)
    terms = jc.contact_terms(model, model.initial_state())
    assert np.asarray(terms.active).tolist() == [True, True, False]
    np.testing.assert_allclose(terms.phi[:2], 0.0, atol=1e-15)
    # Kinetic energy of a turn about the front centre, by hand: rigid bodies and rods along two lines.
    assert abs(float(cosine(terms)) - 3.95e-3) < 1e-5


@pytest.mark.slow
def test_design_makes_the_normals_orthogonal(designed):
    model, params, state, report = designed
    terms = jc.contact_terms(model.replace(params=params), state)
    assert int(report.status) == 0
    assert abs(cosine(terms)) < 1e-12 and abs(report.cosine) < 1e-12
    np.testing.assert_allclose(terms.phi[:2], 0.0, atol=1e-14)
    assert float(terms.phi[2]) > 1e-3 and float(state.q[0]) == 0.0
    np.testing.assert_allclose(report.cosine_before, cosine(jc.contact_terms(model, model.initial_state())))
    # Masses follow the lengths that were found.
    rebuilt = jc.models.trex_params(params.constants)
    np.testing.assert_array_equal(rebuilt.mass, params.mass)
    assert 0.0 < report.distance < 0.3
    computed = ("half_tail", "half_shank", "rod_radius", "tail_ends", "thigh_ends", "shank_ends")
    kept = [name for name in params.constants if name not in (*LENGTHS, *computed)]
    for name in kept:
        np.testing.assert_array_equal(params.constants[name], model.params.constants[name])


@pytest.mark.slow
def test_the_design_is_the_nearest_one(designed):
    """Along the equations the distance does not fall: its gradient is a combination of theirs."""
    model, params, state, report = designed
    problem = DesignEquations(model, model.initial_state(), TASK)
    numbers = [np.asarray(params.constants[name]) for name in LENGTHS]
    z = np.concatenate([np.array(numbers), np.asarray(state.q - model.initial_state().q)[1:]]) / problem.size
    a = problem.jacobian(z)[:3]
    gradient = z - problem.start
    multipliers = np.linalg.lstsq(a.T, gradient, rcond=None)[0]
    assert np.linalg.norm(gradient - a.T @ multipliers) < 1e-4 * np.linalg.norm(gradient)
    steps = 1e-6 * np.eye(z.size)
    differences = np.stack([(problem.values(z + s) - problem.values(z - s)) / 2e-6 for s in steps], axis=1)
    np.testing.assert_allclose(problem.jacobian(z), differences, atol=1e-8)


def line_poses(structure, q, params):
    return jnp.stack([q, jnp.zeros_like(q)], axis=1), jnp.zeros_like(q)


def line_params(constants):
    return jc.Params(
        mass=constants["masses"],
        inertia=jnp.ones(3),
        mu=jnp.array(0.0),
        gravity=jnp.zeros(2),
        constants=constants,
    )


LINE = jc.System(
    jc.Structure(
        dim=2,
        bodies=("a", "b", "c"),
        num_positions=3,
        shapes=tuple(jc.Disc(name=f"ball_{x}", body=x, radius="radius") for x in "abc"),
        pairs=(("ball_b", "ball_a"), ("ball_c", "ball_b")),
    ),
    line_poses,
)


def test_three_stages_in_a_row_of_balls():
    """Theorem 3: <u, v> = -1/2 for masses with m_b^2 + m_b (m_a + m_c) = 3 m_a m_c; the balls are moved together."""
    params = line_params({"masses": jnp.array([1.0, 2.0, 3.0]), "radius": jnp.array(0.05)})
    state = jc.State(q=jnp.array([0.0, 0.11, 0.25]), v=jnp.array([2.0, -1.0, -2.0]), t=jnp.array(0.0))
    params, state, report = jc.optimize.impact_design(
        jc.Model(system=LINE, params=params),
        state,
        DesignTask(
            contacts=(0, 1), stages=3, design=("masses",), rebuild=line_params, bounds={"masses": (0.5, 2.5)}
        ),
    )
    assert int(report.status) == 0 and report.target == pytest.approx(-0.5)
    a, b, c = np.asarray(params.mass)
    assert abs(b * b + b * (a + c) - 3.0 * a * c) < 1e-11 and max(a, b, c) <= 2.5 + 1e-9
    np.testing.assert_allclose(np.diff(np.asarray(state.q)), 0.1, atol=1e-14)
    one, other = outcomes(jc.contact_terms(jc.Model(system=LINE, params=params), state), state.v, 0, 1)
    np.testing.assert_allclose(one, other, atol=1e-12)


def orthogonal_balls(lightest=0.5, run=jc.Run(), heaviest=4.0):
    """Seek masses of three balls in a row whose normals are orthogonal; the middle one is never heavy enough."""
    params = line_params({"masses": jnp.array([1.0, 2.0, 3.0]), "radius": jnp.array(0.05)})
    state = jc.State(q=jnp.array([0.0, 0.1, 0.2]), v=jnp.zeros(3), t=jnp.array(0.0))
    task = DesignTask(design=("masses",), rebuild=line_params, bounds={"masses": (lightest, heaviest)})
    return jc.optimize.impact_design(jc.Model(system=LINE, params=params), state, task, run=run)


def test_a_design_that_cannot_be_is_reported():
    *_, report = orthogonal_balls()
    assert int(report.status) & jc.Status.UNTERMINATED and report.cosine < -0.1
    params, _, report = orthogonal_balls(lightest=2.0, heaviest=2.0)  # equal bounds hold a number
    assert int(report.status) & jc.Status.UNTERMINATED
    np.testing.assert_allclose(params.mass, 2.0, rtol=1e-8)


def test_a_design_killed_after_every_search_resumes_to_the_same_bits(tmp_path):
    path, reports = tmp_path / "design.npz", []

    def kill(done, number, at):
        reports.append((done, number, at.residual))
        assert at.cost >= 0.0 and np.isfinite(at.slope)
        raise KeyboardInterrupt

    for _ in range(13):
        with pytest.raises(KeyboardInterrupt):
            orthogonal_balls(run=jc.Run(checkpoint=path, progress=kill))
    found = orthogonal_balls(run=jc.Run(checkpoint=path, progress=lambda *_: pytest.fail("searched again")))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(orthogonal_balls()), strict=True):
        np.testing.assert_array_equal(one, other)
    done, numbers, least = zip(*reports, strict=True)
    assert done == tuple(range(1, 14)) and set(numbers) == {13} and min(least) > 0.1
    with pytest.raises(ValueError, match="of another run and was left as it is; these differ: task$"):
        orthogonal_balls(lightest=0.4, run=jc.Run(checkpoint=path))
    with pytest.raises(ValueError, match="run.chunk: expected None"):
        orthogonal_balls(run=jc.Run(chunk=2))


@pytest.mark.long
def test_a_start_without_a_mechanism_ends_its_search_alone():
    """With every impulse of friction no design is exact; from some starts legs do not join."""
    model = jc.models.trex()
    *_, report = jc.optimize.impact_design(model, model.initial_state(), TASK._replace(friction="all"))
    assert int(report.status) & jc.Status.UNTERMINATED and report.coupling < 1e-9


@pytest.mark.long
def test_orders_agree_at_the_first_impact_of_the_design_and_not_in_the_straight_stance(designed):
    model, params, state, _ = designed
    fall = np.zeros(8)
    fall[1] = -np.sqrt(2 * 9.81 * 0.17)
    apart = []
    for q in (state.q, jc.models.trex_straight(params, state.q[2])):
        terms = jc.contact_terms(model.replace(params=params), state.replace(q=q))
        assert np.asarray(terms.active).tolist() == [True, True, False]
        one, other = outcomes(terms, fall, 0, 1)
        sizes = [np.sqrt(x @ np.asarray(terms.M) @ x) for x in (one - other, fall)]
        apart.append(sizes[0] / sizes[1])
    assert apart[0] < 1e-12 and apart[1] > 1e-3 and apart[1] / max(apart[0], 1e-16) > 1e5


def test_mistakes_are_named():
    model = jc.models.trex()
    problem = (model, model.initial_state())
    with pytest.raises(ValueError, match="contacts: expected different ones of 0..2"):
        jc.optimize.impact_design(*problem, DesignTask(contacts=(0, 3)))
    with pytest.raises(ValueError, match="stages: expected an integer >= 2"):
        jc.optimize.impact_design(*problem, DesignTask(stages=1))
    with pytest.raises(ValueError, match="design: no constant and no body 'leg'"):
        jc.optimize.impact_design(*problem, DesignTask(design=("leg",)))
    with pytest.raises(ValueError, match="bounds: 'thigh' is not in design"):
        jc.optimize.impact_design(*problem, DesignTask(bounds={"thigh": (0.0, 1.0)}))


@pytest.mark.slow
def test_drop_of_17_cm_under_the_hip_torques(designed):
    """Fig. 8: two orders of single impacts, from the optimised and from the straight stance."""
    _, params, state, _ = designed
    curves = []
    for q in (state.q, jc.models.trex_straight(params, state.q[2])):
        drop = jc.models.trex_drop(params, q)
        runs = [
            jc.simulate.variational(
                drop, drop.initial_state(), jc.simulate.Variational(order=order), dt=1e-3, duration=0.5
            )
            for order in ("most_violated", "least_violated")
        ]
        for found in runs:
            assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)
            assert int(found.impacts.count) > 10 and np.asarray(found.impacts.approaching[0]).tolist() == [
                True,
                True,
                False,
            ]
        curves.append(np.asarray(jc.simulate.momentum_difference(drop, *runs)))
    optimised, straight = curves
    after = slice(188, None)
    assert np.all(optimised[:186] < 1e-14) and np.all(straight[:186] < 1e-14)
    assert np.max(optimised[after]) < 1e-7 and np.min(straight[after]) > 1e-4
    assert np.median(straight[after]) / np.median(optimised[after]) > 1e5
