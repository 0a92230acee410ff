"""The laws of impact on the paper's five mechanisms, checked in NumPy from what `sample` returns.

Energy, momentum, friction cone and non-penetration of every sample and step; every step a solution of the
reference's step problem; the families of outcomes; impacts in sequence and all at once.
"""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import drawing
from oracles import reference as ref
from scipy.optimize import nnls

import jaxcontact as jc
from jaxcontact.impact.sampling import stream
from jaxcontact.impact.sampling.draws import sobol
from tests.oracles import problems

TWO_CONTACTS = ("rocking_block", "compass_gait", "box_and_wall", "ramone")
NAMES = (*TWO_CONTACTS, "disk_stack")
# LCPs per sample, measured over all solutions of every step.
SOLVES = {
    "rocking_block": 2.47,
    "compass_gait": 2.25,
    "box_and_wall": 1.535,
    "ramone": 3.00,
    "disk_stack": 2.355,
}
WALK = 150  # samples followed step by step in the reference


def load(name):
    """A model: its terms as the package has them and in NumPy, its velocity, its settings."""
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    return SimpleNamespace(
        name=name,
        model=model,
        terms=terms,
        v=model.initial_state().v,
        v0=np.asarray(model.initial_state().v),
        planar=(
            np.asarray(terms.M), np.asarray(terms.J_n), np.asarray(terms.J_t)[:, 0], np.asarray(terms.mu)
        ),
    )  # fmt: skip


def draw(case, **options):
    """Samples with the paper's settings; always with the path, so that one program serves all tests."""
    settings = {
        "impulse_step": case.model.impulse_step,
        "max_steps": case.model.max_steps,
        "keep_path": True,
    } | options
    return drawing.draw(case.terms, case.v, **settings)


def some(names, slow=("ramone",)):
    """The mechanisms of a test; RAMone, whose two feet are those of the compass gait, in the long run."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


@pytest.fixture(scope="module", params=some(NAMES))
def case(request):
    found = load(request.param)
    found.samples = draw(found, num_samples=256 if request.param == "disk_stack" else 2**12)
    return found


def norm(M, dv):
    return np.sqrt(2 * ref.energy(M, dv))


def kinds(case, samples):
    """Per sample and contact: 0 sticks, 1 slides, 2 lifts, 3 approaches."""
    _, J_n, J_t, _ = case.planar
    u_n, u_t = np.asarray(samples.v_plus) @ J_n.T, np.asarray(samples.v_plus) @ J_t.T
    return np.select([u_n > 1e-6, u_n < -1e-6, np.abs(u_t) > 1e-6], [2, 3, 1], 0)


def drawn(case, count):
    """Caps (count, N, nc) and picks (count, N) of the first samples of seed 0."""
    nc, steps = len(case.planar[3]), case.model.max_steps
    points = sobol(steps * (nc + 1), 0)
    index = jnp.arange(count, dtype=jnp.uint32)
    x = np.stack([np.asarray(points.uniform(index, k * (nc + 1), nc + 1)).T for k in range(steps)], axis=1)
    return case.model.impulse_step * x[..., :nc], x[..., nc]


# --- laws of the samples


@pytest.mark.long
@pytest.mark.slow_cases("disk_stack")
def test_energy_never_rises_in_any_step(case):
    energy = ref.energy(case.planar[0], np.asarray(case.samples.path))
    assert np.diff(energy, axis=1).max() <= 1e-12 * energy[0, 0]
    ratio = np.asarray(case.samples.energy_ratio)
    np.testing.assert_allclose(ratio, energy[:, -1] / energy[0, 0], atol=1e-12)
    assert ratio.max() < 1.0


@pytest.mark.slow_cases("disk_stack")
def test_paths_begin_before_and_end_after_the_impact(case):
    path, solves = np.asarray(case.samples.path), np.asarray(case.samples.num_iters)
    assert path.shape == (len(solves), case.model.max_steps + 1, case.v0.size)
    assert np.array_equal(path[:, 0], np.broadcast_to(case.v0, path[:, 0].shape))
    np.testing.assert_allclose(path[:, -1], np.asarray(case.samples.v_plus), atol=1e-13)
    approach = (path @ case.planar[1].T).min(axis=2) < -1e-8 * (1 + 1e-6)
    for k in range(case.model.max_steps + 1):  # approaching before the last step, nothing happens after
        assert approach[solves > k, k].all()
        assert np.array_equal(path[solves <= k, k], path[solves <= k, -1])


@pytest.mark.slow_cases("disk_stack")
def test_no_contact_approaches_after_a_success(case):
    status, v_plus = np.asarray(case.samples.status), np.asarray(case.samples.v_plus)
    approach = (v_plus @ case.planar[1].T).min(axis=1)
    assert approach[status == 0].min() >= -1e-8 * (1 + 1e-6)
    assert np.all(approach[status != 0] < -1e-8)
    assert set(status.tolist()) <= {0, int(jc.Status.UNTERMINATED)}
    assert np.all(np.asarray(case.samples.num_iters)[status != 0] == case.model.max_steps)


@pytest.mark.slow_cases("disk_stack")
def test_at_least_98_percent_terminate(case):
    assert np.mean(np.asarray(case.samples.status) == 0) >= 0.98


@pytest.mark.slow_cases("box_and_wall", "compass_gait", "disk_stack", "rocking_block")
def test_residuals_are_small(case):
    assert np.asarray(case.samples.residual).max() <= 1e-9  # required 1e-6; RAMone 2e-11, else 1e-13


@pytest.mark.slow_cases("disk_stack")
def test_momentum_balances(case):
    M, J_n, J_t, _ = case.planar
    impulse = np.asarray(case.samples.impulse)
    change = (np.asarray(case.samples.v_plus) - case.v0) @ M
    given = impulse[..., 0] @ J_n + impulse[..., 1] @ J_t
    assert np.abs(change - given).max() <= 1e-12 * np.abs(M).max() * np.abs(case.v0).max()


@pytest.mark.slow
def test_total_impulse_is_inside_the_friction_cone(case):
    """A sum of elements of a convex cone lies in it."""
    impulse, limit = np.asarray(case.samples.impulse), case.planar[3]
    assert impulse[..., 0].min() >= -1e-12
    limit = limit * impulse[..., 0]
    assert ((np.abs(impulse[..., 1]) - limit) / (np.abs(limit) + 1)).max() <= 1e-9


@pytest.mark.long
def test_every_step_pushes_inside_the_friction_cone(case):
    """Some impulse in the cone explains each step of the path, found by least squares with lam >= 0."""
    M, J_n, J_t, mu = case.planar
    rays = np.concatenate([J_n + mu[:, None] * J_t, J_n - mu[:, None] * J_t])
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    path, solves = np.asarray(case.samples.path), np.asarray(case.samples.num_iters)
    scale = np.linalg.norm(M @ case.v0)
    for i in range(WALK):
        for k in range(solves[i]):
            _, misfit = nnls(rays.T, M @ (path[i, k + 1] - path[i, k]) / scale)
            assert misfit <= 1e-9  # unit rays of mu = 1e5: no cancellation


@pytest.mark.parametrize("case", some(["compass_gait", "ramone"]), indirect=True)
def test_steps_obey_the_law_where_impulses_are_unique(case):
    """Complementarity relative to |v|, cone to mu lam_n + 1, from the impulse recovered from the path."""
    M, J_n, J_t, mu = case.planar
    J = np.concatenate([J_n, J_t])
    assert np.linalg.matrix_rank(J) == len(J)  # the impulses follow from the velocities
    path, solves = np.asarray(case.samples.path)[:WALK], np.asarray(case.samples.num_iters)[:WALK]
    caps, _ = drawn(case, WALK)
    live = np.arange(case.model.max_steps) < solves[:, None]
    before, after = path[:, :-1][live], path[:, 1:][live]
    lam = np.linalg.lstsq(J.T, M @ (after - before).T, rcond=None)[0].T
    m = len(mu)
    z = np.zeros((len(lam), 4 * m))
    z[:, :m] = lam[:, :m]
    z[:, m : 3 * m : 2], z[:, m + 1 : 3 * m : 2] = np.maximum(lam[:, m:], 0), np.maximum(-lam[:, m:], 0)
    shapes = [np.broadcast_to(a, (len(lam), *a.shape)) for a in (M, J_n, J_t)]
    residual = problems.impact_residual(problems.Contacts(*shapes, before, mu), z, caps[live])
    assert residual.max() <= 1e-9


@pytest.mark.slow_cases("disk_stack")
@pytest.mark.long
def test_steps_per_sample_are_as_measured(case):
    assert np.mean(np.asarray(case.samples.num_iters)) == pytest.approx(SOLVES[case.name], rel=0.02)


@pytest.mark.long
def test_every_step_is_a_solution_of_the_reference(case):
    """The package's draws, the reference's enumeration of LCP index sets (modes for five contacts)."""
    path, solves = np.asarray(case.samples.path), np.asarray(case.samples.num_iters)
    if case.name in TWO_CONTACTS:
        count, solve, tables = WALK, ref.step_solutions, {"bases": ref.brute_bases(*case.planar, True)}
    else:
        count, solve, tables = 12, ref.mode_step_solutions, {"maps": ref.mode_maps(*case.planar)}
    caps, _ = drawn(case, count)
    scale = norm(case.planar[0], case.v0)
    for i in range(count):
        for k in range(solves[i]):
            options = solve(*case.planar, path[i, k], caps[i, k], **tables)[0]
            assert norm(case.planar[0], options - path[i, k + 1]).min() <= 1e-9 * scale


@pytest.mark.slow
@pytest.mark.parametrize("case", ["compass_gait", "disk_stack"], indirect=True)
def test_visited_obeys_the_laws_and_counts_the_same_steps(case, monkeypatch):
    """The faster selection, on more samples of the disks than "all" is given time for."""
    monkeypatch.setattr(stream, "PILOT", 256)
    samples = draw(case, num_samples=2048, selection="visited")
    energy = ref.energy(case.planar[0], np.asarray(samples.path))
    assert np.diff(energy, axis=1).max() <= 1e-12 * energy[0, 0]
    status, impulse = np.asarray(samples.status), np.asarray(samples.impulse)
    assert np.mean(status == 0) >= 0.98
    assert np.asarray(samples.residual).max() <= 1e-9
    assert (np.asarray(samples.v_plus) @ case.planar[1].T)[status == 0].min() >= -1e-8 * (1 + 1e-6)
    limit = case.planar[3] * impulse[..., 0]
    assert ((np.abs(impulse[..., 1]) - limit) / (np.abs(limit) + 1)).max() <= 1e-9
    assert np.mean(np.asarray(samples.num_iters)) == pytest.approx(SOLVES[case.name], rel=0.02)


# --- the reference, with the very same draws


@pytest.mark.long
@pytest.mark.parametrize("name", ["rocking_block", "box_and_wall"])
def test_samples_equal_the_reference_with_the_same_draws(name):
    case = load(name)
    samples = draw(case, num_samples=200)
    caps, picks = drawn(case, 200)
    maps = ref.mode_maps(*case.planar)
    for i in range(200):
        path, counts, done = ref.simulate_routh(*case.planar, case.v0, caps[i], picks[i], maps=maps)
        assert set(counts) == {1}  # so that the pick does not matter
        assert len(counts) == int(samples.num_iters[i])
        assert done == (int(samples.status[i]) == 0)
        np.testing.assert_allclose(np.asarray(samples.path[i, : len(path)]), path, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(TWO_CONTACTS))
def test_step_solutions_are_those_of_the_reference(name):
    """Sets of solutions, at every velocity that 40 random walks pass through."""
    case = load(name)
    caps, picks = drawn(case, 40)
    bases, scale = ref.brute_bases(*case.planar, True), norm(case.planar[0], case.v0)
    counts = set()
    for cap, pick in zip(caps, picks, strict=True):
        v = case.v0
        for k in range(case.model.max_steps):
            expected = ref.step_solutions(*case.planar, v, cap[k], bases=bases)[0]
            v_next, valid = jc.impact.outcomes(
                case.terms, jnp.asarray(v), jc.impact.RouthStep(impulse_max=jnp.asarray(cap[k]))
            )[0]
            found = np.asarray(v_next)[np.asarray(valid)]
            assert len(found) == len(expected)
            gap = norm(case.planar[0], expected[:, None] - found[None])
            assert gap.min(axis=0).max() <= 1e-9 * scale
            assert gap.min(axis=1).max() <= 1e-9 * scale
            counts.add(len(found))
            v = expected[int(pick[k] * len(expected))]
            if (case.planar[1] @ v).min() >= -1e-8:
                break
    assert (max(counts) == 3) == (name in ("compass_gait", "ramone"))


@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", some(["compass_gait", "ramone"]))
def test_solutions_of_a_step_are_drawn_equally_often(name):
    """First steps with three solutions: each is chosen by a third of the samples."""
    case = load(name)
    samples = draw(case, num_samples=3000)
    caps, _ = drawn(case, 3000)
    steps, valid = jax.vmap(
        lambda cap: jc.impact.outcomes(case.terms, case.v, jc.impact.RouthStep(impulse_max=cap))[0]
    )(jnp.asarray(caps[:, 0]))
    several = np.asarray(valid).sum(axis=1) == 3
    options, taken = np.asarray(steps)[several, :3], np.asarray(samples.path)[several, 1]
    nearest = norm(case.planar[0], options - taken[:, None]).argmin(axis=1)
    counts = np.bincount(nearest, minlength=3)
    share = counts / counts.sum()
    assert counts.sum() > 1000
    assert np.abs(share - 1 / 3).max() < 4 * np.sqrt(2 / 9 / counts.sum())


# --- families of outcomes


@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", some(["compass_gait", "ramone"]))
def test_the_trailing_foot_sticks_slides_and_lifts(name):
    case = load(name)
    of_b = {k: np.mean(kinds(case, draw(case, num_samples=2**12))[:, 1] == k) for k in range(3)}
    assert min(of_b.values()) > 0.1
    pivoting = draw(case, num_samples=512, selection="lemke")
    assert not pivoting.complete
    assert len(np.unique(kinds(case, pivoting)[:, 1])) == 1  # always the same of them


@pytest.mark.slow
def test_rocking_block_outcomes_fill_the_range_up_to_the_sequential_one():
    case = load("rocking_block")
    samples = draw(case, num_samples=2**14)
    speed, J_n = -case.v0[1], case.planar[1]
    u_n = np.asarray(samples.v_plus) @ J_n.T / speed
    assert u_n.min() >= -1e-12
    assert u_n.max() <= 0.21 * (1 + 1e-9)
    for corner in range(2):
        lifted = u_n[u_n[:, corner] > 1e-9, corner]
        assert lifted.max() >= 0.2
        counts, _ = np.histogram(lifted, bins=20, range=(0.0, 0.2))
        assert counts.min() > 0
        assert np.abs(u_n[u_n[:, corner] > 1e-9, 1 - corner]).max() < 1e-12  # the other one rests
    for order in ((0, 1), (1, 0)):
        v_plus, info = jc.impact.sequential(case.terms, case.v, order, max_impacts=10)
        assert int(info.status) == 0
        assert int(info.num_iters) == 2
        assert (J_n @ np.asarray(v_plus))[order[0]] == pytest.approx(0.21 * speed, rel=1e-12)


@pytest.mark.slow
def test_box_may_slide_faster_than_in_the_sequential_outcome():
    """The sequential outcome is a limit of samples; contact A slides faster in others."""
    case = load("box_and_wall")
    v_plus, info = jc.impact.sequential(case.terms, case.v, (1, 0), max_impacts=10)
    assert int(info.status) == 0
    samples = draw(case, num_samples=2**12)
    M, _, J_t, _ = case.planar
    gap = norm(M, np.asarray(samples.v_plus) - np.asarray(v_plus)) / norm(M, case.v0)
    assert gap.min() < 1e-3
    slide = np.asarray(samples.v_plus) @ J_t[0]
    assert slide.max() > 1.05 * (J_t[0] @ np.asarray(v_plus)) > 0


@pytest.mark.parametrize(
    ("name", "kind", "share"), [("compass_gait", (2, 0), 0.0242), ("box_and_wall", (1, 1), 0.0054)]
)
def test_rare_families_of_the_captions(name, kind, share):
    """Halm & Posa, Sections 5.4.2 and 5.4.3: A lifts and B stays; the box slides on floor and wall."""
    case = load(name)
    samples = draw(case, num_samples=2**14)
    ended = np.asarray(samples.status) == 0
    found = np.mean(np.all(kinds(case, samples)[ended] == kind, axis=1))
    assert found == pytest.approx(share, abs=4 * np.sqrt(share / 2**14))


@pytest.mark.slow
def test_the_top_disk_may_leave_both_others():
    """Section 5.4.5 says it keeps one. It rests on both while these come together; then one impulse, between
    the two, stops them, and the law lets the top disk go on: u_n = w / 2 at both of its contacts.
    """
    case = load("disk_stack")
    w = 0.3
    v = jnp.zeros(9).at[jnp.array([0, 3, 7])].set(jnp.array([w, -w, w / np.sqrt(3)]))
    M, J_n, _, _ = case.planar
    np.testing.assert_allclose(J_n @ v, [0, 0, -2 * w, 0, 0], atol=1e-15)
    v_plus, info = jc.impact.anitescu_potra(case.terms, v)
    assert int(info.status) == 0
    np.testing.assert_allclose(J_n @ v_plus, [0, 0, 0, w / 2, w / 2], atol=1e-12)
    np.testing.assert_allclose(info.impulse[:, 0], [0, 0, w, 0, 0], atol=1e-12)


@pytest.mark.slow
def test_how_often_the_top_disk_leaves_both_others():
    """In one sample of a thousand, and each time by a last impulse between the lower two alone."""
    case = load("disk_stack")
    samples = draw(case, num_samples=2**13, selection="visited")
    J_n, ended = case.planar[1], np.asarray(samples.status) == 0
    u_n = np.asarray(samples.v_plus) @ J_n.T
    leaves = ended & np.all(u_n[:, 3:] > 1e-6, axis=1)
    assert 2e-4 < np.mean(leaves[ended]) < 4e-3
    path, steps = np.asarray(samples.path)[leaves], np.asarray(samples.num_iters)[leaves]
    before = path[np.arange(len(steps)), steps - 1] @ J_n.T
    assert np.all((before < -1e-8) == [False, False, True, False, False])


# --- in sequence, and all at once


@pytest.mark.long
@pytest.mark.parametrize("name", some(NAMES))
def test_sequential_impacts_are_those_of_the_reference(name):
    case = load(name)
    orders = {"rocking_block": [(0, 1), (1, 0)], "disk_stack": [(3, 4, 0, 1, 2)]}.get(name, [(1, 0)])
    for order in orders:
        v_plus, info = jc.impact.sequential(case.terms, case.v, order, max_impacts=10)
        path, hits = ref.sequential(*case.planar, case.v0, order, 10)
        np.testing.assert_allclose(np.asarray(v_plus), path[-1], rtol=0, atol=1e-12)
        assert int(info.num_iters) == len(hits)
        done = (case.planar[1] @ path[-1]).min() >= -1e-8
        assert int(info.status) == (0 if done else int(jc.Status.UNTERMINATED))
        assert float(info.energy_ratio) <= 1.0


@pytest.mark.slow
def test_disks_chatter_in_sequence():
    """No finite number of single impacts ends it; the approach speed falls geometrically."""
    case = load("disk_stack")
    order, speeds = (3, 4, 0, 1, 2), []
    for cap in (10, 20):
        v_plus, info = jc.impact.sequential(case.terms, case.v, order, max_impacts=cap)
        assert int(info.status) == int(jc.Status.UNTERMINATED)
        assert int(info.num_iters) == cap
        speeds.append(-(case.planar[1] @ np.asarray(v_plus)).min())
    assert speeds[0] > 2 * speeds[1] > 0


@pytest.mark.slow
@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", some(NAMES, slow=("box_and_wall", "ramone", "disk_stack")))
def test_simultaneous_outcomes_are_those_of_the_reference(name):
    case = load(name)
    solve = ref.anitescu_potra_solutions if name in TWO_CONTACTS else ref.mode_anitescu_potra_solutions
    expected = solve(*case.planar, case.v0)[0]
    v_plus, valid = (
        np.asarray(a) for a in jc.impact.outcomes(case.terms, case.v, jc.impact.AnitescuPotra())[0]
    )
    assert valid.sum() == len(expected) == (3 if name in ("compass_gait", "ramone") else 1)
    assert valid[: valid.sum()].all()
    gap = np.abs(expected[:, None] - v_plus[valid][None]).max(axis=2)
    assert gap.min(axis=0).max() <= 1e-9
    assert gap.min(axis=1).max() <= 1e-9
    one, info = jc.impact.anitescu_potra(case.terms, case.v)
    assert int(info.status) == 0
    assert np.abs(expected - np.asarray(one)).max(axis=1).min() <= 1e-9
    assert np.diff(ref.energy(case.planar[0], np.stack([case.v0, np.asarray(one)])))[0] <= 0
