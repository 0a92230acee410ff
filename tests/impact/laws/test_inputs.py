"""Bad input: an error that names it where it can be seen, else a status bit on exactly the worlds affected."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, with_law
from oracles import reference

import jaxcontact as jc
from jaxcontact import Status, impact
from jaxcontact.impact import inputs

CAP = np.array([0.15, 0.1])
FLOATS = ("M", "J_n", "J_t", "phi", "mu")


def block_terms(**changes):
    """The rocking block at its impact, by hand."""
    block = reference.rocking_block()
    phi, J_n, J_t = block.contacts(block.q0)
    fields = {"M": block.mass_matrix(block.q0), "J_n": J_n, "J_t": J_t[:, None], "phi": phi, "mu": block.mu}
    return jc.ContactTerms(**{"active": np.ones(2, bool)} | fields | changes)


def spatial_terms():
    """A box on one face: four contacts in space."""
    q = np.array([0.0, 0.0, 0.2, 1.0, 0.0, 0.0, 0.0])
    phi, J_n, J_t = reference.box3d_contacts(q)
    low = phi < 0.1
    return jc.ContactTerms(
        M=reference.box3d_mass_matrix(q),
        J_n=J_n[low],
        J_t=J_t[low],
        phi=phi[low],
        mu=np.full(4, 0.5),
        active=np.ones(4, bool),
    )


V = np.array([0.3, -0.5, 0.2])
SAMPLING = {"impulse_step": 0.3, "max_steps": 3, "num_samples": 4}
LAWS = {
    "anitescu_potra": impact.anitescu_potra,
    "outcomes": lambda terms, v: impact.outcomes(terms, v, impact.AnitescuPotra())[0],
    "sequential": functools.partial(impact.sequential, order=(0, 1), max_impacts=3),
    "routh_step": lambda terms, v, cap=CAP: impact.routh_step(terms, v, cap),
    "outcomes of a step": lambda terms, v, cap=CAP: impact.outcomes(
        terms, v, impact.RouthStep(impulse_max=cap)
    )[0],
    "resolve": lambda terms, v, cap=CAP: impact.resolve(
        terms, v, jnp.broadcast_to(cap, (3, 2)) * jnp.array([[1.0], [0.5], [20.0]]), jnp.full(3, 0.4)
    ),
    "routh_path": lambda terms, v: impact.routh_path(terms, v, CAP, max_events=8),
    "sample": functools.partial(draw, **SAMPLING),
    "approximate_set": functools.partial(with_law, impact.approximate_set, **SAMPLING, tolerance=0.1),
}
ENUMERATING = set(LAWS) - {"anitescu_potra", "sequential"}
CAPPED = ("routh_step", "outcomes of a step", "resolve")

# --- errors seen at once

SHAPES = {
    "M": ((3, 2), r"terms.M: expected shape \(3, 3\), got \(3, 2\)"),
    "J_n": ((3,), r"terms.J_n: expected shape \(nc, nv\), got \(3,\)"),
    "J_t": ((2, 3), r"terms.J_t: expected shape \(2, nt, 3\), got \(2, 3\)"),
    "J_t ": ((2, 3, 3), r"terms.J_t: expected nt = 1 \(plane\) or 2 \(space\), got 3"),
    "J_t  ": ((2, 1, 4), r"terms.J_t: expected shape \(2, nt, 3\), got \(2, 1, 4\)"),
    "phi": ((3,), r"terms.phi: expected shape \(2,\), got \(3,\)"),
    "mu": ((), r"terms.mu: expected shape \(2,\), got \(\)"),
    "v": ((2,), r"v: expected shape \(3,\), got \(2,\)"),
    "v ": ((5, 3), r"v: expected shape \(3,\), got \(5, 3\); use vmap for batches"),
}


def changed(name, array):
    """(terms, v) with the named array replaced."""
    if name == "v":
        return block_terms(), array
    return block_terms(**{name: array}), V


def value(name):
    return V if name == "v" else getattr(block_terms(), name)


@pytest.mark.parametrize("law", LAWS)
def test_wrong_shapes_are_named(law):
    for name, (shape, message) in SHAPES.items():
        with pytest.raises(ValueError, match=message):
            LAWS[law](*changed(name.strip(), np.ones(shape)))
    with pytest.raises(ValueError, match=r"terms.active: expected shape \(2,\), got \(3,\)"):
        LAWS[law](*changed("active", np.ones(3, bool)))
    nothing = block_terms(
        J_n=np.ones((0, 3)), J_t=np.ones((0, 1, 3)), phi=np.ones(0), mu=np.ones(0), active=np.ones(0, bool)
    )
    with pytest.raises(ValueError, match="terms: at least one candidate contact is needed, got none"):
        LAWS[law](nothing, V)


@pytest.mark.parametrize("law", LAWS)
def test_wrong_dtypes_are_named(law):
    for name in (*FLOATS, "v"):
        label = name if name == "v" else f"terms.{name}"
        with pytest.raises(TypeError, match=rf"{label}: expected a floating dtype, got int"):
            LAWS[law](*changed(name, np.asarray(value(name)).astype(int)))
    with pytest.raises(TypeError, match="terms.active: expected booleans, got float"):
        LAWS[law](*changed("active", np.ones(2)))


@pytest.mark.parametrize("law", LAWS)
def test_numbers_that_are_not_finite_are_named(law):
    for name in (*FLOATS, "v"):
        for bad in (np.nan, np.inf, -np.inf):
            array = np.array(value(name))
            array.ravel()[-1] = bad
            label = name if name == "v" else f"terms.{name}"
            with pytest.raises(ValueError, match=rf"{label}: expected finite numbers, got NaN or inf"):
                LAWS[law](*changed(name, array))


INDEFINITE = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
ASYMMETRIC = np.diag([1.0, 1.0, 0.4]) + 1e-3 * np.eye(3, k=1)


@pytest.mark.parametrize("law", LAWS)
def test_numbers_without_a_meaning_are_named(law):
    for name, array, message in (
        ("mu", np.array([0.5, -0.1]), r"terms.mu: friction must be >= 0, got -0.1"),
        ("M", INDEFINITE, r"terms.M: .* positive definite, its lowest eigenvalue is -1"),
        ("M", np.diag([1.0, 0.0, 1.0]), r"terms.M: .* lowest eigenvalue is 0"),
        ("M", ASYMMETRIC, r"terms.M: the mass matrix is not symmetric"),
        ("phi", np.array([0.0, -2e-3]), r"terms.phi: contact 1 penetrates by 0.002 m \(allowed: 1e-06 m\)"),
    ):
        with pytest.raises(ValueError, match=message):
            LAWS[law](*changed(name, array))


@pytest.mark.float32
def test_shapes_and_dtypes_are_checked_inside_jit_too():
    with pytest.raises(ValueError, match=r"v: expected shape \(3,\), got \(2,\)"):
        jax.jit(impact.anitescu_potra)(block_terms(), jnp.zeros(2))
    with pytest.raises(TypeError, match="v: expected a floating dtype"):
        jax.jit(impact.anitescu_potra)(block_terms(), jnp.zeros(3, int))
    with pytest.raises(ValueError, match=r"v: expected shape \(3,\), got \(2,\)"):
        jax.vmap(lambda v: impact.anitescu_potra(block_terms(), v))(jnp.zeros((4, 2)))


def test_round_off_is_not_a_mistake():
    nearly = block_terms(M=ASYMMETRIC * (1 + 1e-15), phi=np.array([0.0, -0.9e-6]))
    nearly = nearly.replace(M=nearly.M - 0.99999e-3 * np.eye(3, k=1))
    inputs.check(nearly, V)
    with pytest.raises(ValueError, match="not symmetric"):
        inputs.check(nearly.replace(M=nearly.M + 2e-6 * np.eye(3, k=1)), V)
    with pytest.raises(ValueError, match="penetrates"):
        inputs.check(nearly.replace(phi=np.array([0.0, -1.1e-6])), V)


@pytest.mark.parametrize("law", sorted(law for law in ENUMERATING if not law.startswith("outcomes")))
def test_enumeration_is_for_few_contacts(law):
    message = r"(up to 3 spatial contacts with num_directions=8|planar .* up to 5 contacts), got .*spatial"
    with pytest.raises(ValueError, match=message):
        call = {
            "routh_step": lambda t, v: impact.routh_step(t, v, np.ones(len(t.mu))),
            "resolve": lambda t, v: impact.resolve(t, v, np.ones((3, len(t.mu))), np.zeros(3)),
        }.get(law, LAWS[law])
        call(spatial_terms(), np.array([0.1, 0.0, -1.0, 0.0, 0.0, 0.0]))
    many = block_terms()
    many = jax.tree.map(lambda leaf: np.concatenate([leaf] * 3), many).replace(M=many.M)
    with pytest.raises(ValueError, match=r"up to 5 contacts, got 6 contacts"):
        call(many, V)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: impact.sequential(t, V, (), max_impacts=3), r"order: expected contact indices in 0..1"),
        (lambda t: impact.sequential(t, V, (0, 2), max_impacts=3), r"order: .* got \(0, 2\)"),
        (lambda t: impact.sequential(t, V, (-1,), max_impacts=3), r"order: .* got \(-1,\)"),
        (
            lambda t: impact.sequential(t, V, (0,), max_impacts=0),
            "max_impacts: expected an integer >= 1, got 0",
        ),
        (lambda t: impact.routh_step(t, V, np.ones(3)), r"impulse_max: expected shape \(2,\), got \(3,\)"),
        (lambda t: impact.routh_step(t, V, -CAP), "impulse_max: expected finite numbers >= 0"),
        (lambda t: impact.routh_step(t, V, CAP * np.nan), "impulse_max: expected finite numbers"),
        (
            lambda t: impact.outcomes(t, V, impact.RouthStep(impulse_max=np.array(0.1)))[0],
            r"impulse_max: expected shape \(2,\), got",
        ),
        (
            lambda t: impact.outcomes(t, V, impact.RouthStep(impulse_max=CAP * np.inf))[0],
            "impulse_max: expected finite numbers",
        ),
        (
            lambda t: impact.routh_step(t, V, CAP, selection="visited"),
            "selection: expected one of all, lemke, got 'visited'",
        ),
        (lambda t: impact.resolve(t, V, CAP, np.zeros(1)), r"impulse_max: .* \(N, nc\) with N >= 1, got"),
        (lambda t: impact.resolve(t, V, np.ones((0, 2)), np.zeros(0)), r"impulse_max: .* N >= 1"),
        (lambda t: impact.resolve(t, V, np.ones((4, 3)), np.zeros(4)), r"impulse_max: .* shape \(4, 2\)"),
        (lambda t: impact.resolve(t, V, np.ones((4, 2)), np.zeros(3)), r"pick: expected shape \(4,\)"),
        (
            lambda t: impact.resolve(t, V, np.ones((4, 2)), np.zeros(4), selection="any"),
            "selection: expected one of all, lemke, got 'any'",
        ),
        (
            lambda t: impact.routh_path(t, V, np.ones(3)),
            r"rates: expected shape \(2,\) or \(k, 2\), got \(3,\)",
        ),
        (lambda t: impact.routh_path(t, V, -CAP), "rates: expected finite numbers >= 0"),
        (lambda t: impact.routh_path(t, V, CAP * np.nan), "rates: expected finite numbers >= 0"),
    ],
)
def test_mistakes_in_other_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(block_terms())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_samples": 0}, "num_samples: expected an integer >= 1, got 0"),
        ({"num_samples": -3}, "num_samples: expected an integer >= 1, got -3"),
        ({"num_samples": 4.0}, "num_samples: expected an integer >= 1, got 4.0"),
        ({"num_samples": True}, "num_samples: expected an integer >= 1, got True"),
        ({"max_steps": 0}, "max_steps: expected an integer >= 1, got 0"),
        ({"impulse_step": 0.0}, "impulse_step: expected a finite number > 0"),
        ({"impulse_step": -0.1}, "impulse_step: expected a finite number > 0"),
        ({"impulse_step": np.nan}, "impulse_step: expected finite numbers"),
        ({"impulse_step": np.array([0.1, 0.0])}, "impulse_step: expected a finite number > 0"),
        ({"impulse_step": np.ones(3)}, r"impulse_step: expected a finite number > 0, or \(2,\) of them"),
        ({"selection": "some"}, "selection: expected one of all, visited, lemke, got 'some'"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
    ],
)
@pytest.mark.parametrize("law", ["sample", "approximate_set"])
def test_mistakes_in_the_settings_of_sampling_are_named(law, changes, message):
    with pytest.raises(ValueError, match=message):
        LAWS[law](block_terms(), V, **changes)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: impact.routh_step(t, V, CAP, pick=np.nan),
        lambda t: impact.routh_step(t, V, CAP, pick=1.0),
        lambda t: impact.routh_step(t, V, CAP, pick=-0.1),
        lambda t: impact.resolve(t, V, np.ones((2, 2)), np.array([0.5, np.nan])),
    ],
)
def test_picks_out_of_range_are_named(call):
    with pytest.raises(ValueError, match="pick"):
        call(block_terms())


@pytest.mark.parametrize(
    ("order", "max_impacts", "message"), [((0.5, 1), 3, "order"), ((0, 1), 1.5, "max_impacts")]
)
def test_fractions_where_integers_are_meant_are_named(order, max_impacts, message):
    with pytest.raises((ValueError, TypeError), match=message):
        impact.sequential(block_terms(), V, order, max_impacts=max_impacts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: impact.anitescu_potra(t, list(V)), "^v: "),
        (lambda t: impact.routh_step(t, V, list(CAP)), "^impulse_max: "),
    ],
)
def test_lists_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call(block_terms())


def test_sampling_says_that_it_is_no_traceable_function():
    with pytest.raises(ValueError, match="sample: a driver for the host, not traceable; use sample_in_jit"):
        jax.jit(lambda v: LAWS["sample"](block_terms(), v).v_plus)(V)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan, np.inf, "0.1"])
def test_tolerance_of_the_set_is_checked(tolerance):
    with pytest.raises(
        (TypeError, ValueError), match="tolerance: expected (a finite number|finite numbers|a number)"
    ):
        with_law(impact.approximate_set, block_terms(), V, **SAMPLING, tolerance=tolerance)


@pytest.mark.parametrize("number", [3, 5, 2, 0])
def test_friction_cones_in_space_need_an_even_number_of_sides(number):
    terms, v = spatial_terms(), np.array([0.1, 0.0, -1.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=f"num_directions: expected an even number >= 4, got {number}"):
        impact.anitescu_potra(terms, v, num_directions=number)


# --- status bits, one world at a time


def spoiled(name, bad):
    def change(lane):
        array = np.array(lane[name])
        array.ravel()[-1] = bad
        return lane | {name: array}

    return change


def put(**arrays):
    return lambda lane: lane | {name: np.array(array) for name, array in arrays.items()}


GOOD = {
    "good": put(),
    "inactive": put(active=[False, False]),
    "separating": put(v=[0.1, 0.5, 0.2]),
    "at rest": put(v=np.zeros(3)),
    "nearly symmetric": lambda lane: lane | {"M": lane["M"] + 1e-9 * np.eye(3, k=1)},
    "nearly touching": put(phi=[0.5e-6, -0.5e-6]),
    "good too": put(v=[-0.2, -1.0, 0.4]),
}
BAD = {
    **{f"{name} NaN": (spoiled(name, np.nan), Status.NONFINITE) for name in (*FLOATS, "v")},
    **{f"{name} inf": (spoiled(name, np.inf), Status.NONFINITE) for name in (*FLOATS, "v")},
    "negative friction": (put(mu=[1.0, -1e-3]), Status.INVALID),
    "indefinite": (put(M=INDEFINITE), Status.INVALID),
    "massless": (put(M=np.diag([1.0, 0.0, 1.0])), Status.INVALID),
    "asymmetric": (put(M=ASYMMETRIC), Status.INVALID),
    "penetrating": (put(phi=[-2e-6, 0.0]), Status.PENETRATION),
    "two mistakes": (put(phi=[-1.0, 0.0], mu=[-1.0, 1.0]), Status.INVALID | Status.PENETRATION),
}
BAD_CAPS = {
    "cap NaN": (spoiled("cap", np.nan), Status.NONFINITE),
    "cap inf": (spoiled("cap", np.inf), Status.NONFINITE),
    "negative cap": (put(cap=[-0.1, 0.1]), Status.INVALID),
}


def lanes(law, replace_bad):
    """Names, bits and a batch in which good and bad worlds alternate; bad ones are good if so asked."""
    bad = BAD | (BAD_CAPS if law in CAPPED else {})
    names, bits, worlds = [], [], []
    start = block_terms()
    base = {name: np.asarray(getattr(start, name)) for name in (*FLOATS, "active")} | {"v": V, "cap": CAP}
    good = list(GOOD.items())
    for i, (name, (change, bit)) in enumerate(bad.items()):
        good_name, good_change = good[i % len(good)]
        names += [good_name, name]
        bits += [0, int(bit)]
        worlds += [good_change(base), base if replace_bad else change(base)]
    batch = {key: np.stack([world[key] for world in worlds]) for key in base}
    return np.array(names), np.array(bits, np.uint32), batch


WEIGHT = np.array([1.0, -2.0, 0.5])


@functools.cache
def program(law):
    """(batch) -> v_plus, info, and the gradient of a weighted v_plus by all floats; compiled once."""

    def loss(floats, active):
        terms = jc.ContactTerms(**{name: floats[name] for name in FLOATS}, active=active)
        extra = (floats["cap"],) if law in CAPPED else ()
        v_plus, info = LAWS[law](terms, floats["v"], *extra)
        return jnp.dot(WEIGHT, v_plus), (v_plus, info)

    run = jax.jit(jax.vmap(jax.value_and_grad(loss, has_aux=True)))

    def call(batch):
        floats = {name: jnp.array(x) for name, x in batch.items() if name != "active"}
        (_, (v_plus, info)), gradient = run(floats, jnp.array(batch["active"]))
        return jax.tree.map(np.asarray, (v_plus, info, gradient))

    return call


DIFFERENTIABLE = ["anitescu_potra", "sequential", "routh_step", "resolve", "routh_path"]


@pytest.mark.slow_cases("anitescu_potra", "resolve", "routh_path", "routh_step", "sequential")
@pytest.mark.parametrize("law", DIFFERENTIABLE)
def test_bad_worlds_are_told_apart_and_leave_the_others_alone(law):
    names, bits, batch = lanes(law, replace_bad=False)
    _, _, clean_batch = lanes(law, replace_bad=True)
    v_plus, info, gradient = program(law)(batch)
    clean_v_plus, clean_info, clean_gradient = program(law)(clean_batch)
    bad = bits != 0

    np.testing.assert_array_equal(clean_info.status, 0)
    # Without a usable cap no step is taken: `resolve` may add that the contacts still approach.
    no_cap = np.isin(names, list(BAD_CAPS))
    status = np.where(no_cap, info.status & ~np.uint32(Status.UNTERMINATED), info.status)
    told = {str(n): Status.describe(s) for n, s in zip(names, status, strict=True)}
    assert told == {str(n): Status.describe(s) for n, s in zip(names, bits, strict=True)}
    np.testing.assert_array_equal(v_plus[bad], batch["v"][bad])  # as it came, NaN and all
    np.testing.assert_array_equal(info.impulse[bad], 0.0)
    # The good worlds: the same bits, values and derivatives.
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a[~bad], b[~bad]),
        (v_plus, info, gradient),
        (clean_v_plus, clean_info, clean_gradient),
    )
    # A shared parameter sums its derivative over the worlds: no NaN may come out of a bad one.
    for name, slope in gradient.items():
        assert np.all(np.isfinite(slope)), name
        if name == "v":
            np.testing.assert_array_equal(slope[bad], np.broadcast_to(WEIGHT, slope[bad].shape))
        else:
            np.testing.assert_array_equal(slope[bad], 0.0)


@pytest.mark.slow_cases("anitescu_potra", "resolve", "routh_path", "routh_step", "sequential")
@pytest.mark.parametrize("law", DIFFERENTIABLE)
def test_without_an_active_contact_nothing_happens(law):
    names, _, batch = lanes(law, replace_bad=True)
    v_plus, info, gradient = program(law)(batch)
    for quiet in ("inactive", "separating", "at rest"):
        lane = names == quiet
        np.testing.assert_array_equal(info.status[lane], 0)
        np.testing.assert_array_equal(v_plus[lane], batch["v"][lane])
        np.testing.assert_array_equal(info.impulse[lane], 0.0)
        np.testing.assert_array_equal(info.energy_ratio[lane], 1.0)
    np.testing.assert_array_equal(gradient["v"][names == "inactive"], [WEIGHT] * np.sum(names == "inactive"))
    hit = names == "good"
    assert np.all(np.abs(v_plus[hit] - batch["v"][hit]).max(axis=1) > 0.1)  # the others do collide


@pytest.mark.slow
@pytest.mark.slow_cases("outcomes of a step")
@pytest.mark.parametrize("law", ["outcomes", "outcomes of a step"])
def test_enumerations_have_no_valid_outcome_for_bad_worlds(law):
    names, bits, batch = lanes(law, replace_bad=False)
    _, _, clean_batch = lanes(law, replace_bad=True)

    @jax.jit
    @jax.vmap
    def run(batch):
        terms = jc.ContactTerms(**{name: batch[name] for name in (*FLOATS, "active")})
        return LAWS[law](terms, batch["v"], *((batch["cap"],) if law in CAPPED else ()))

    v_plus, valid = (np.asarray(x) for x in run({k: jnp.array(x) for k, x in batch.items()}))
    clean = [np.asarray(x) for x in run({k: jnp.array(x) for k, x in clean_batch.items()})]
    assert not valid[bits != 0].any()
    assert clean[1].any(axis=1).all()
    for ours, theirs in zip((v_plus, valid), clean, strict=True):
        np.testing.assert_array_equal(ours[bits == 0], theirs[bits == 0])
    for quiet in ("inactive", "separating", "at rest"):
        lane = int(np.flatnonzero(names == quiet)[0])
        assert valid[lane].tolist() == [True] + [False] * (valid.shape[1] - 1)
        np.testing.assert_allclose(v_plus[lane, 0], batch["v"][lane], atol=1e-15)


@pytest.mark.parametrize("selection", ["all", "visited", "lemke"])
def test_sampling_without_an_active_contact(selection):
    idle = block_terms(active=np.zeros(2, bool))
    up = np.array([0.1, 0.5, 0.2])
    for terms, v in ((idle, V), (block_terms(), up), (block_terms(), np.zeros(3))):
        samples = LAWS["sample"](terms, v, selection=selection, keep_path=True)
        np.testing.assert_array_equal(samples.v_plus, np.tile(v, (4, 1)))
        np.testing.assert_array_equal(samples.path, np.tile(v, (4, 4, 1)))
        np.testing.assert_array_equal(samples.status, np.zeros(4, np.uint32))
        np.testing.assert_array_equal(samples.impulse, np.zeros((4, 2, 2)))
        np.testing.assert_array_equal(samples.energy_ratio, np.ones(4))
        found = LAWS["approximate_set"](terms, v, selection=selection)
        np.testing.assert_array_equal(found.v_plus, np.tile(v, (4, 1)))
        assert found.valid.all()


@pytest.mark.float32
def test_prepare_makes_bad_worlds_harmless(tolerance):
    names, bits, batch = lanes("anitescu_potra", replace_bad=False)

    @jax.jit
    @jax.vmap
    def run(batch):
        terms = jc.ContactTerms(**{name: batch[name] for name in (*FLOATS, "active")})
        return inputs.prepare(terms, batch["v"])

    safe, v, status = run({k: jnp.array(x) for k, x in batch.items()})
    assert dict(zip(names, status.tolist(), strict=True)) == dict(zip(names, bits.tolist(), strict=True))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((safe, v)))
    bad = bits != 0
    with np.errstate(all="ignore"):
        energy = np.einsum(
            "bi,bij,bj->b", batch["v"].astype(v.dtype), batch["M"].astype(v.dtype), batch["v"].astype(v.dtype)
        )
    fast = np.isfinite(batch["M"]).all(axis=(1, 2)) & ~np.isfinite(
        energy
    )  # bad velocities leave the terms alone
    assert fast.any() and not np.asarray(safe.active)[bad & ~fast].any()
    assert not np.asarray(v)[bad].any()
    np.testing.assert_array_equal(np.asarray(v)[~bad], batch["v"][~bad].astype(v.dtype))
    for name in (*FLOATS, "active"):
        ours, theirs = np.asarray(getattr(safe, name)), batch[name]
        np.testing.assert_array_equal(ours[~bad], theirs[~bad].astype(ours.dtype))
