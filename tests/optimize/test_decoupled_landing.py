"""Robots of files changed by stance and masses until a landing has one outcome, checked by samples."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.models.robots import file_of
from jaxcontact.optimize import DesignTask
from jaxcontact.optimize.design_equations import DesignEquations

FEET = (8, 14)  # hind and fore foot of half_cheetah


def landing(v=(0.5, -1.0, 0.5)):
    """The package's half_cheetah on both feet, falling."""
    model = jc.models.half_cheetah()
    state, info = jc.place_on_ground(model, model.initial_state(), contacts=["hind_foot", "fore_foot"])
    jc.raise_if_failed(info)
    return model, state.replace(v=jnp.zeros(9).at[:3].set(jnp.array(v)))


def spread(model, state, contacts, *, friction, restitution=0.5):
    """Largest distance of a sampled outcome from the first one, relative to the speed."""
    terms = jc.contact_terms(model, state)
    assert np.flatnonzero(terms.active).tolist() == list(contacts)
    terms = terms.take(list(contacts))
    terms = terms if friction else terms.replace(mu=0.0 * terms.mu)
    law = jc.impact.Routh(impulse_step=1.0, max_steps=60, restitution=restitution)
    samples = jc.impact.sample(terms, state.v, law, num_samples=256)
    jc.raise_if_failed(samples)
    root = np.linalg.cholesky(np.asarray(terms.M))
    apart = (np.asarray(samples.v_plus) - np.asarray(samples.v_plus)[0]) @ root
    return np.max(np.linalg.norm(apart, axis=1)) / np.linalg.norm(np.asarray(state.v) @ root)


def products(model, state, contacts, impulses):
    """Cosines between the normal of each contact and an impulse of each other, by NumPy."""
    terms = jc.contact_terms(model, state)
    normals = np.asarray(terms.J_n)[list(contacts)]
    pushes = normals + np.asarray(impulses)[:, None] * np.asarray(terms.J_t)[list(contacts), 0]
    inverse = np.linalg.inv(np.asarray(terms.M))
    sizes = [np.sqrt(np.einsum("ci,ij,cj->c", rows, inverse, rows)) for rows in (normals, pushes)]
    found = normals @ inverse @ pushes.T / sizes[0][:, None] / sizes[1]
    return found[~np.eye(len(contacts), dtype=bool)]


def check_stance(model, start, state):
    """Joints are within their limits, feet on the ground and nothing else."""
    limits, joints = np.asarray(model.params.tree.limits)[3:], np.asarray(state.q)[3:]
    assert np.all((joints >= limits[:, 0] - 1e-9) & (joints <= limits[:, 1] + 1e-9))
    gaps = np.asarray(jc.contact_terms(model, state).phi)
    assert np.max(np.abs(gaps[list(FEET)])) < 1e-9
    assert np.min(np.delete(gaps, FEET)) >= 1e-3 - 1e-9
    np.testing.assert_array_equal(state.v, start.v)


@pytest.mark.long
def test_stance_of_a_robot_of_a_file_with_one_frictionless_outcome():
    model, start = landing()
    params, state, report = jc.optimize.impact_design(model, start, DesignTask(friction="none"))
    assert int(report.status) == 0 and abs(report.cosine) < 1e-12 < abs(report.cosine_before)
    assert report.coupling < 1e-24 and report.distance < 0.5
    np.testing.assert_array_equal(params.mass, model.params.mass)
    check_stance(model, start, state)
    assert np.max(np.abs(products(model, state, FEET, (0.0, 0.0)))) < 1e-12
    assert spread(model, start, FEET, friction=False) > 1e-3
    assert spread(model, state, FEET, friction=False) < 1e-12


@pytest.mark.long
def test_stance_and_masses_with_one_outcome_of_sliding_feet():
    """With friction: no impulse of a sliding foot changes the approach of the other."""
    model, start = landing((4.0, -0.5, 0.25))
    bodies = model.structure.bodies
    params, state, report = jc.optimize.impact_design(
        model, start, DesignTask(design=bodies, friction="sliding")
    )
    assert int(report.status) == 0
    designed = model.replace(params=params)
    check_stance(designed, start, state)
    factors = np.asarray(params.mass / model.params.mass)
    assert np.all((factors >= 1 / 3 - 1e-9) & (factors <= 3 + 1e-9)) and np.ptp(factors) > 1e-3
    np.testing.assert_allclose(params.inertia / model.params.inertia, factors, rtol=1e-13)
    assert np.max(np.abs(products(designed, state, FEET, -np.asarray(params.mu)[list(FEET)]))) < 1e-12
    assert spread(model, start, FEET, friction=True) > 1e-4
    assert spread(designed, state, FEET, friction=True) < 1e-12


@pytest.mark.long
def test_what_cannot_be_decoupled_ends_at_the_least_and_says_so():
    """A foot is rigid: a push along the ground at its heel moves its toe as much, whatever the masses are."""
    model = jc.models.planar_walker()
    start, _ = jc.place_on_ground(model, model.initial_state())
    _, state, report = jc.optimize.impact_design(model, start, DesignTask(design=model.structure.bodies))
    assert int(report.status) & jc.Status.UNTERMINATED and report.coupling >= 1.0 - 1e-9
    assert np.max(np.abs(report.gaps)) < 1e-9
    assert report.coupling < report.coupling_before
    np.testing.assert_allclose(jc.contact_terms(model, state).phi, report.gaps, atol=1e-12)


@pytest.mark.long
def test_feet_may_start_in_the_ground():
    """The start is any pose, also one that no impact could have; coupling is reported for it, too."""
    model, start = landing()
    deep = start.replace(q=start.q.at[1].add(-0.02))
    _, state, report = jc.optimize.impact_design(model, deep, DesignTask(contacts=FEET, friction="none"))
    assert int(report.status) == 0 and report.coupling < 1e-24 < report.coupling_before
    check_stance(model, start, state)


@pytest.mark.long
def test_two_heels_alone_need_toes_in_the_air():
    """Contacts of the task alone may touch: both toes, on the ground at the start, leave it."""
    model = jc.models.planar_walker()
    start, _ = jc.place_on_ground(model, model.initial_state())
    task = DesignTask(contacts=(0, 2), friction="none")
    _, state, report = jc.optimize.impact_design(model, start, task)
    gaps = np.asarray(jc.contact_terms(model, state).phi)
    assert np.max(np.abs(gaps[[0, 2]])) < 1e-9
    assert int(report.status) == 0 and np.min(gaps[[1, 3]]) >= 1e-3 - 1e-9
    assert np.max(np.abs(products(model, state, (0, 2), (0.0, 0.0)))) < 1e-12


@pytest.mark.long
def test_four_feet_in_space_by_stance_and_masses():
    """All six products of normals of a quadruped vanish, and its feet stay on the ground."""
    model, feet = jc.models.quadruped(), (0, 1, 2, 3)
    start, _ = jc.place_on_ground(model, model.initial_state())
    task = DesignTask(design=model.structure.bodies, friction="none")
    params, state, report = jc.optimize.impact_design(model, start, task)
    assert int(report.status) == 0 and np.max(np.abs(report.gaps)) < 1e-9
    designed = model.replace(params=params)
    assert np.max(np.abs(products(model, start, feet, np.zeros(4)))) > 0.01
    assert np.max(np.abs(products(designed, state, feet, np.zeros(4)))) < 1e-12
    np.testing.assert_allclose(np.linalg.norm(np.asarray(state.q)[3:7]), 1.0, atol=1e-14)
    factors = np.asarray(params.mass / model.params.mass)
    scaled = np.asarray(model.params.inertia) * factors[:, None, None]
    np.testing.assert_allclose(params.inertia, scaled, rtol=1e-13, atol=1e-18)


@pytest.mark.long
def test_factors_of_bodies_give_the_mass_matrix_of_mujoco():
    mujoco = pytest.importorskip("mujoco")
    model, start = landing()
    equations = DesignEquations(model, start, DesignTask(design=("trunk", "fore_foot"), friction="none"))
    z = np.zeros(equations.start.size)
    z[:2] = np.log([1.7, 0.6])
    z[2:] = 0.1 * np.random.default_rng(0).normal(size=z.size - 2)
    params, state = equations.apply(z)
    peer = mujoco.MjModel.from_xml_string(file_of("half_cheetah"))
    for name, factor in (("trunk", 1.7), ("fore_foot", 0.6)):
        body = peer.body(name).id
        peer.body_mass[body] *= factor
        peer.body_inertia[body] *= factor
    data = mujoco.MjData(peer)
    data.qpos[:] = state.q
    mujoco.mj_forward(peer, data)
    expected = np.zeros((9, 9))
    for row, basis in zip(expected, np.eye(9), strict=True):
        mujoco.mj_mulM(peer, data, row, basis)
    np.testing.assert_allclose(jc.contact_terms(model.replace(params=params), state).M, expected, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("friction", ["all", "sliding", "none"])
def test_derivatives_of_the_equations(friction):
    model, start = landing((3.0, -1.0, 0.5))
    equations = DesignEquations(model, start, DesignTask(design=("trunk", "hind_foot"), friction=friction))
    assert equations.num_products == {"all": 4, "sliding": 2, "none": 1}[friction]
    z = 0.1 * np.random.default_rng(1).normal(size=equations.start.size)
    steps = 1e-6 * np.eye(z.size)
    differences = np.stack(
        [(equations.values(z + s) - equations.values(z - s)) / 2e-6 for s in steps], axis=1
    )
    np.testing.assert_allclose(equations.jacobian(z), differences, atol=1e-7)
    params, state = equations.apply(z)
    terms = jc.contact_terms(model.replace(params=params), state).touching(list(FEET))
    terms = terms.replace(phi=0.0 * terms.phi)
    if friction == "none":
        np.testing.assert_allclose(
            equations.values(z)[0], jc.impact.coupling(terms).normals[FEET], atol=1e-14
        )


def test_mistakes_are_named():
    model, start = landing()
    cases = {
        "contacts: expected two or more that touch at `state`": (model.initial_state(), DesignTask()),
        "friction: expected one of all, sliding, none": (start, DesignTask(friction="some")),
        "friction: expected contacts that slide": (
            start.replace(v=0.0 * start.v), DesignTask(friction="sliding")),
        "bounds: expected factors > 0 for body 'trunk'": (
            start, DesignTask(design=("trunk",), bounds={"trunk": (0.0, 2.0)})),
        "expected finite numbers": (start.replace(q=start.q * jnp.nan), DesignTask(contacts=FEET)),
        "no body 'tail'": (start, DesignTask(design=("tail",))),
        "stages: expected 2 with friction": (start, DesignTask(stages=3)),
    }  # fmt: skip
    for message, (state, task) in cases.items():
        with pytest.raises(ValueError, match=message):
            jc.optimize.impact_design(model, state, task)
