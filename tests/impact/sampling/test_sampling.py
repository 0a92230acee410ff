"""`sample`: the same bits for the same sample numbers, selections, draws, what it returns and refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw

import jaxcontact as jc
from jaxcontact.impact import resolve, sample
from jaxcontact.impact.sampling import driver, stream
from jaxcontact.impact.sampling.draws import sobol

NAMES = ("rocking_block", "compass_gait", "box_and_wall", "ramone", "disk_stack")
WIDE = jax.config.jax_enable_x64
BASE = np.dtype("float64" if WIDE else "float32")


class Case:
    def __init__(self, name):
        self.name = name
        self.model = getattr(jc.models, name)()
        self.terms = jc.contact_terms(self.model, self.model.initial_state())
        self.v = self.model.initial_state().v

    def __call__(self, num_samples, **options):
        settings = {"impulse_step": self.model.impulse_step, "max_steps": self.model.max_steps} | options
        return draw(self.terms, self.v, num_samples=num_samples, **settings)


@pytest.fixture(scope="module")
def gait():
    return Case("compass_gait")


@pytest.fixture(scope="module")
def disks():
    return Case("disk_stack")


FIELDS = ("v_plus", "impulse", "status", "num_iters", "energy_ratio", "residual", "path")


def same_bits(a, b, count, fields=FIELDS):
    for name in fields:
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None:
            assert np.asarray(one)[:count].tobytes() == np.asarray(other)[:count].tobytes(), name


# ------------------------------------------------------------------------------------------------- reproducibility


@pytest.mark.float32
def test_same_seed_same_bits_whatever_the_number_of_samples(gait):
    many = gait(3000, seed=4, keep_path=True)
    same_bits(gait(3000, seed=4, keep_path=True), many, 3000)
    for count in (1, 7, 513, 2999):
        part = gait(count, seed=4, keep_path=True)
        assert part.v_plus.shape == (count, 4)
        same_bits(part, many, count)


def test_more_samples_than_one_chunk(gait):
    """2^14 + 100 samples: two calls of the kernel."""
    many = gait(2**14 + 100, keep_path=True)
    same_bits(gait(300, keep_path=True), many, 300)
    assert len(np.unique(np.asarray(many.v_plus)[-100:], axis=0)) > 3
    assert np.mean(np.asarray(many.status) == 0) > 0.98


@pytest.mark.slow_cases("lemke")
@pytest.mark.parametrize("selection", ["visited", "lemke"])
def test_prefixes_of_other_selections(gait, selection):
    many = gait(5000, selection=selection)
    for count in (100, 600, 4500):
        same_bits(gait(count, selection=selection), many, count)


def test_seeds_differ_and_do_not_overlap(gait):
    samples = [np.asarray(gait(500, seed=k, keep_path=True).path)[:, 1] for k in (0, 1)]
    assert np.mean(np.all(samples[0] == samples[1], axis=1)) < 0.5  # a resting foot has one outcome
    caps = [np.asarray(sobol(15, k).uniform(jnp.arange(500, dtype=jnp.uint32), 0, 15)) for k in (0, 1)]
    assert np.mean(caps[0] == caps[1]) < 1e-3


def test_a_path_does_not_change_the_samples(gait):
    """But for rounding: these are two programs, and without optimisation a compiler may round them differently."""
    with_path, without = gait(700, keep_path=True), gait(700)
    same_bits(with_path, without, 700, ("status", "num_iters"))
    for name in ("v_plus", "impulse", "energy_ratio"):
        np.testing.assert_allclose(getattr(with_path, name), getattr(without, name), rtol=0, atol=1e-13)
    assert without.path is None


# ------------------------------------------------------------------------------------------------ what comes back


@pytest.mark.slow_cases("compass_gait-all", "compass_gait-lemke")
@pytest.mark.parametrize("selection", ["all", "lemke"])
@pytest.mark.parametrize("name", ["compass_gait", pytest.param("rocking_block", marks=pytest.mark.slow)])
def test_samples_are_resolve_with_the_same_draws(name, selection):
    """The kernel with batch last and the scan of `routh_step` agree sample by sample."""
    case, count = Case(name), 200
    steps = case.model.max_steps
    samples = case(count, selection=selection, seed=3)
    x = np.asarray(sobol(3 * steps, 3).uniform(jnp.arange(count, dtype=jnp.uint32), 0, 3 * steps))
    x = jnp.asarray(x.T.reshape(count, steps, 3))
    run = jax.vmap(lambda caps, picks: resolve(case.terms, case.v, caps, picks, selection=selection))
    v_plus, info = run(case.model.impulse_step * x[..., :2], x[..., 2])
    np.testing.assert_allclose(samples.v_plus, v_plus, rtol=0, atol=1e-12)
    np.testing.assert_allclose(samples.impulse, info.impulse, rtol=0, atol=1e-12)
    np.testing.assert_allclose(samples.energy_ratio, info.energy_ratio, rtol=0, atol=1e-12)
    assert np.array_equal(samples.num_iters, info.num_iters)
    assert np.array_equal(samples.status, info.status)


@pytest.mark.long
@pytest.mark.slow_cases("lemke")
@pytest.mark.parametrize("selection", ["all", "visited", "lemke"])
def test_the_path_leads_to_v_plus(gait, selection):
    samples = gait(600, selection=selection, keep_path=True)
    path, solves = np.asarray(samples.path), np.asarray(samples.num_iters)
    assert path.shape == (600, 6, 4)
    assert np.array_equal(path[:, 0], np.broadcast_to(gait.v, (600, 4)))
    np.testing.assert_allclose(path[:, -1], samples.v_plus, rtol=0, atol=1e-13)
    for k in range(6):
        over = solves <= k
        assert np.array_equal(path[over, k], path[over, -1])
        assert np.all(np.any(path[solves > k, k] != path[solves > k, min(k + 1, 5)], axis=1))
    assert np.array_equal(samples.v_minus, gait.v)


@pytest.mark.slow
def test_complete_says_whether_all_solutions_were_candidates(gait):
    assert [gait(20, selection=s).complete for s in ("all", "visited", "lemke")] == [True, False, False]


def with_far_contacts(terms, number):
    """The same with candidates that do not touch, before, between and behind those that do."""
    nc = terms.phi.size
    place = np.linspace(1, number + nc - 2, nc).round().astype(int)

    def spread(rows, fill):
        whole = jnp.full((number + nc, *rows.shape[1:]), fill, rows.dtype)
        return whole.at[place].set(rows)

    rows = {name: spread(getattr(terms, name), fill) for name, fill in
            {"J_n": 0.3, "J_t": 0.2, "phi": 0.5, "mu": 0.4, "active": False}.items()}  # fmt: skip
    return terms.replace(**rows), place


@pytest.mark.slow
def test_of_many_candidates_those_that_touch_are_sampled(gait):
    """A robot has dozens of candidate contacts, of which a few touch: no other draws, no other outcomes."""
    terms, place = with_far_contacts(gait.terms, 6)
    settings = {"impulse_step": gait.model.impulse_step, "max_steps": gait.model.max_steps, "num_samples": 32}
    many, few = (draw(each, gait.v, restitution=0.3, **settings) for each in (terms, gait.terms))
    np.testing.assert_array_equal(many.v_plus, few.v_plus)
    np.testing.assert_array_equal(many.impulse[:, place], few.impulse)
    assert many.complete and not np.any(np.delete(many.impulse, place, axis=1))
    every, valid = jc.impact.outcomes(terms, gait.v, jc.impact.AnitescuPotra())[0]
    np.testing.assert_allclose(
        every[valid],
        np.array(jc.impact.outcomes(gait.terms, gait.v, jc.impact.AnitescuPotra())[0][0])[: int(valid.sum())],
        atol=1e-12,
    )
    caps = jnp.full(terms.phi.size, 0.2)
    every, valid = jc.impact.outcomes(terms, gait.v, jc.impact.RouthStep(impulse_max=caps))[0]
    some, right = jc.impact.outcomes(gait.terms, gait.v, jc.impact.RouthStep(impulse_max=caps[:2]))[0]
    np.testing.assert_allclose(every[valid], some[right], atol=1e-12)
    none = draw(terms, jnp.zeros_like(gait.v), **settings)
    assert none.impulse.shape == many.impulse.shape


@pytest.mark.slow
def test_redundant_contacts_are_not_said_to_be_complete():
    """Three points of a bar on the ground: no mode with a unique impulse has all of them at rest."""
    at = jnp.array([-1.0, 0.2, 1.0])
    normals = jnp.stack([jnp.zeros(3), jnp.ones(3), at], axis=1)
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 0.3])), J_n=normals, J_t=jnp.tile(jnp.array([1.0, 0.0, 0.1]), (3, 1, 1)),
        phi=jnp.zeros(3), mu=jnp.full(3, 0.5), active=jnp.ones(3, bool),
    )  # fmt: skip
    two = terms.replace(active=jnp.array([True, False, True]))
    v = jnp.array([0.3, -1.0, 0.2])
    assert not sample(terms, v, jc.impact.Routh(impulse_step=0.5, max_steps=8), num_samples=4).complete
    assert sample(two, v, jc.impact.Routh(impulse_step=0.5, max_steps=8), num_samples=4).complete


@pytest.mark.float32
def test_shapes_and_dtypes(gait):
    samples = gait(16, keep_path=True)
    expected = {
        "v_minus": ((4,), BASE),
        "v_plus": ((16, 4), BASE),
        "impulse": ((16, 2, 2), BASE),
        "status": ((16,), np.uint32),
        "num_iters": ((16,), np.int32),
        "energy_ratio": ((16,), BASE),
        "residual": ((16,), BASE),
        "path": ((16, 6, 4), BASE),
    }
    for name, (shape, dtype) in expected.items():
        assert getattr(samples, name).shape == shape
        assert getattr(samples, name).dtype == dtype


@pytest.mark.slow
@pytest.mark.float32
def test_single_precision_obeys_the_laws(gait):
    """Terms in float32 give samples in float32, whatever the default dtype is."""
    terms = jax.tree.map(lambda a: a if a.dtype == jnp.bool_ else a.astype(jnp.float32), gait.terms)
    samples = sample(
        terms,
        gait.v.astype(jnp.float32),
        jc.impact.Routh(impulse_step=gait.model.impulse_step, max_steps=gait.model.max_steps),
        num_samples=1000,
        keep_path=True,
    )
    assert samples.v_plus.dtype == jnp.float32
    status = np.asarray(samples.status)
    assert np.mean(status == 0) > 0.98
    assert set(status.tolist()) <= {0, int(jc.Status.UNTERMINATED)}
    path, M = np.asarray(samples.path, float), np.asarray(gait.terms.M, float)
    energy = 0.5 * np.einsum("nki,ij,nkj->nk", path, M, path)
    assert np.diff(energy, axis=1).max() < 1e-5 * energy[0, 0]
    approach = np.asarray(samples.v_plus, float) @ np.asarray(gait.terms.J_n, float).T
    assert approach[status == 0].min() > -2e-5
    assert np.max(samples.residual) < 1e-4
    if WIDE:
        wide = gait(1000)
        assert np.mean(samples.num_iters) == pytest.approx(float(np.mean(wide.num_iters)), rel=0.03)


def test_no_approaching_contact_returns_v(gait):
    leaving = gait.v + jnp.linalg.solve(gait.terms.M, gait.terms.J_n[0] + gait.terms.J_n[1]) * 2.0
    idle = gait.terms.replace(active=jnp.zeros(2, bool))
    for terms, v in ((gait.terms, leaving), (idle, gait.v), (gait.terms, jnp.zeros(4))):
        for selection in ("all", "visited", "lemke"):
            samples = sample(
                terms,
                v,
                jc.impact.Routh(impulse_step=0.25, max_steps=5, selection=selection),
                num_samples=9,
                keep_path=True,
            )
            assert np.array_equal(samples.v_plus, np.broadcast_to(v, (9, 4)))
            assert np.array_equal(samples.path, np.broadcast_to(v, (9, 6, 4)))
            assert not np.any(samples.status)
            assert not np.any(samples.num_iters)
            assert not np.any(samples.impulse)
            assert np.all(np.asarray(samples.energy_ratio) == 1.0)


def test_too_few_steps_are_unterminated(gait):
    samples = gait(200, max_steps=1)
    collides = (np.asarray(samples.v_plus) @ np.asarray(gait.terms.J_n).T).min(axis=1) < -1e-8
    assert np.array_equal(collides, np.asarray(samples.status) == int(jc.Status.UNTERMINATED))
    assert 0.2 < collides.mean() < 1.0


def test_step_per_contact(gait):
    """Twice the step of both contacts is (step, step) given twice as large."""
    same_bits(gait(50, impulse_step=0.5), gait(50, impulse_step=np.array([0.5, 0.5])), 50)
    small = gait(300, impulse_step=np.array([0.5, 1e-3]))
    assert np.asarray(small.impulse)[:, 1, 0].max() <= 5e-3


@pytest.mark.slow
def test_progress_is_reported(gait, disks):
    for case, count, options in ((gait, 2**14 + 5, {}), (gait, 3000, {"selection": "lemke"})):
        seen = []
        case(count, progress=lambda done, total, seen=seen: seen.append((done, total)), **options)
        assert [total for _, total in seen] == [count] * len(seen)
        done = [d for d, _ in seen]
        assert done
        assert done == sorted(done)
        assert done[-1] == count


def test_the_result_is_not_copied(gait, monkeypatch):
    """JAX takes over the memory that the chunks were written to."""
    made, empty = [], driver._aligned_empty

    def note(shape, dtype):
        made.append(empty(shape, dtype))
        return made[-1]

    monkeypatch.setattr(driver, "_aligned_empty", note)
    samples = gait(1000, keep_path=True)
    arrays = jax.tree.leaves(samples.replace(v_minus=None))
    assert [a.unsafe_buffer_pointer() for a in arrays] == [a.ctypes.data for a in made]


# ---------------------------------------------------------------------------------------------------- selections


@pytest.mark.slow
def test_visited_equals_all_on_the_disks(disks, monkeypatch):
    """Outcomes of the same sample numbers behind a small pilot; measured: 15 of 768 differ.

    Where a step has a solution in a mode that no earlier sample met, and the others are a set known to be
    complete, the choice is among those. The pilot itself is "all".
    """
    monkeypatch.setattr(stream, "PILOT", 256)
    count = 1024
    everything, visited = disks(count, seed=1), disks(count, seed=1, selection="visited")
    ok = (np.asarray(everything.status) == 0) & (np.asarray(visited.status) == 0)
    assert ok.mean() > 0.98
    gap = np.abs(np.asarray(everything.v_plus) - np.asarray(visited.v_plus)).max(axis=1)
    same = gap < 1e-9
    assert np.all(same[:256])
    assert np.mean(same[ok]) >= 0.98


def test_visited_equals_all_with_two_contacts(gait, monkeypatch):
    """The pilot meets nearly every mode of the compass gait; measured: 1 sample of 2000 differs."""
    monkeypatch.setattr(stream, "PILOT", 1024)
    everything, visited = gait(2000), gait(2000, selection="visited")
    gap = np.abs(np.asarray(everything.v_plus) - np.asarray(visited.v_plus)).max(axis=1)
    assert np.mean(gap < 1e-12) >= 0.999


@pytest.mark.long
def test_lemke_takes_one_of_the_solutions(gait):
    samples = gait(1000, selection="lemke")
    assert not np.any(samples.status)
    assert np.max(samples.residual) < 1e-9
    # It lets the trailing foot lift every time, as "all" does in a part of the samples.
    J_n = np.asarray(gait.terms.J_n)
    assert (np.asarray(samples.v_plus) @ J_n[1]).min() > 0.01
    everything = np.asarray(gait(1000).v_plus) @ J_n[1]
    assert 0.3 < np.mean(everything > 0.01) < 0.7


@pytest.mark.slow  # the law itself: tests/impact/test_routh.py
def test_spatial_contacts_by_pivoting():
    unit = jnp.eye(3)
    terms = jc.ContactTerms(
        M=2.0 * unit, J_n=unit[2:], J_t=unit[None, :2], phi=jnp.zeros(1), mu=jnp.array([0.3]),
        active=jnp.ones(1, bool),
    )  # fmt: skip
    samples = sample(
        terms,
        jnp.array([1.0, 0.0, -1.0]),
        jc.impact.Routh(impulse_step=1.0, max_steps=20, selection="lemke", num_directions=4),
        num_samples=100,
    )
    assert not np.any(samples.status)
    np.testing.assert_allclose(samples.v_plus, np.tile([0.7, 0.0, 0.0], (100, 1)), atol=1e-12)
    assert samples.impulse.shape == (100, 1, 3)


# ---------------------------------------------------------------------------------------------------------- draws


def test_independent_draws_follow_the_key(gait):
    one, again = (gait(400, seed=jax.random.key(1)) for _ in range(2))
    same_bits(one, again, 400)
    same_bits(gait(50, seed=jax.random.key(1)), one, 50)
    other = np.asarray(gait(400, seed=jax.random.key(2)).num_iters)
    assert np.any(other != np.asarray(one.num_iters))


@pytest.mark.slow_cases("box_and_wall")
@pytest.mark.parametrize("name", ["compass_gait", "box_and_wall"])
def test_sobol_and_independent_draws_have_the_same_means(name):
    case, count = Case(name), 4000
    quasi, iid = case(count), case(count, seed=jax.random.key(0))
    for field in (lambda s: s.v_plus, lambda s: s.num_iters[:, None], lambda s: s.energy_ratio[:, None]):
        a, b = np.asarray(field(quasi), float), np.asarray(field(iid), float)
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / count)
        assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) <= 4 * error + 1e-12)


# --------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"impulse_step": 0.0}, "impulse_step: expected a finite number > 0"),
        ({"impulse_step": np.nan}, "impulse_step"),
        ({"impulse_step": np.ones(3)}, r"impulse_step: .*\(2,\) of them"),
        ({"impulse_step": "a"}, "impulse_step: expected a number, got 'a'"),
        ({"chunk": 0}, "chunk: expected an integer >= 1, got 0"),
        ({"chunk": 2.5}, "chunk"),
        ({"max_steps": 0}, "max_steps: expected an integer >= 1"),
        ({"max_steps": 2.0}, "max_steps"),
        ({"num_samples": 0}, "num_samples: expected an integer >= 1"),
        ({"num_samples": True}, "num_samples"),
        ({"selection": "best"}, "selection: expected one of all, visited, lemke, got 'best'"),
    ],
)
def test_mistakes_are_named(gait, options, message):
    settings = {"impulse_step": 0.25, "max_steps": 5, "num_samples": 10} | options
    with pytest.raises((TypeError, ValueError), match=message):
        draw(gait.terms, gait.v, **settings)


@pytest.mark.long
def test_a_body_in_the_air_keeps_its_velocity_whatever_might_touch():
    """Five candidates, more than are enumerated, of which none is active."""
    up, along = jnp.tile(jnp.eye(6)[2], (5, 1)), jnp.tile(jnp.eye(6)[:2], (5, 1, 1))
    terms = jc.ContactTerms(
        M=jnp.eye(6), J_n=up, J_t=along, phi=jnp.ones(5), mu=jnp.ones(5), active=jnp.zeros(5, bool)
    )
    v = jnp.array([0.1, 0.0, -1.0, 0.0, 0.0, 0.0])
    samples = jc.impact.sample(terms, v, jc.impact.Routh(), num_samples=4)
    (values, valid), info = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())
    assert not np.any(samples.status) and int(info.status) == 0 and valid.sum() == 1
    assert np.all(np.asarray(samples.v_plus) == np.asarray(v)) and np.all(np.asarray(values[0] == v))


def test_it_is_not_traceable(gait):
    with pytest.raises(ValueError, match="use sample_in_jit inside jit or vmap"):
        jax.jit(
            lambda v: (
                sample(gait.terms, v, jc.impact.Routh(impulse_step=0.25, max_steps=5), num_samples=4).v_plus
            )
        )(gait.v)
