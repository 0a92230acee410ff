"""Bands that are too wide for the motion in them, the error of bands, and settings that are none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.ess_systems import CORNER, HOPPER, HOPPER_PARAMS, corner_params

import jaxcontact as jc
from jaxcontact.ess import (
    DormandPrince,
    EventSystem,
    b_derivative,
    flow,
    ordering_map,
    rescale_guards,
    saltation_matrix,
)

START, END = np.array([2.0, 0.0]), 2.2
STIFF = HOPPER_PARAMS | {"k": 1000.0}


@jax.jit
def hop(eps, params, tol):
    """The hopper's state at the end of two hops."""
    x1, info = flow(
        jc.Model(system=HOPPER, params=params),
        START,
        0.0,
        END,
        settings=jc.ess.Settings(eps=eps, max_steps=256, max_events=8, tol=tol),
    )
    return x1, info


def height(params):
    """Exact height at END, by energy: equal hops of a fall, a stance and a rise."""
    k, g = params["k"], params["g"]
    w, fall = np.sqrt(k), np.sqrt(2.0 / g)
    deep, speed = g / k, g * fall
    stance = 2.0 / w * (np.pi - np.arctan2(speed / w, deep))
    s = abs((END + fall) % (2 * fall + stance) - fall)
    assert s < fall
    return 2.0 - 0.5 * g * s**2


@pytest.mark.long
def test_a_wide_band_is_told_and_its_guards_are_located():
    """A stance only 0.15 m deep: bands of most of it, in which the flow is anything but straight."""
    exact = height(STIFF)
    found = {eps: hop(eps, STIFF, 1.0) for eps in (0.01, 0.05, 0.08, 0.1, 0.13, 0.2)}
    error = {eps: abs(float(x1[0]) - exact) for eps, (x1, _) in found.items()}
    status = {eps: int(info.status) for eps, (_, info) in found.items()}
    assert error[0.01] < 1e-4 and status[0.01] == 0
    for eps in (0.08, 0.1, 0.13, 0.2):
        assert status[eps] == int(jc.Status.WIDE_BAND)
        assert error[eps] < 1e-3
    # Between them lies what only a tolerance can tell.
    for eps in (0.01, 0.05):
        info = found[eps][1]
        assert 0.8 * error[eps] < float(info.band_error[0]) < 1.2 * error[eps]
    assert error[0.05] > 1e-3 and status[0.05] == int(jc.Status.WIDE_BAND)


@pytest.mark.parametrize("stiffness", [200.0, 1000.0])
def test_a_hopper_that_is_off_by_a_centimetre_after_ten_seconds_is_told(stiffness):
    @jax.jit
    def end(eps):
        params = HOPPER_PARAMS | {"k": stiffness}
        x1, info = flow(
            jc.Model(system=HOPPER, params=params),
            START,
            0.0,
            10.0,
            settings=jc.ess.Settings(eps=eps, max_steps=1024, max_events=32),
        )
        return x1[0], info.status

    exact, _ = end(1e-4)
    for eps in (0.01, 0.03, 0.05, 0.07, 0.1):
        height, status = end(eps)
        assert abs(height - exact) < 0.01 or int(status) & int(jc.Status.WIDE_BAND)


@pytest.mark.slow
def test_the_error_of_the_bands_is_compared_with_a_tolerance():
    x1, info = hop(0.02, STIFF, jnp.array(1e-6))
    assert int(info.status) == int(jc.Status.INACCURATE) and 1e-6 < float(info.band_error[0]) < 1e-3
    plain, without = flow(
        jc.Model(system=HOPPER, params=STIFF),
        START,
        0.0,
        END,
        settings=jc.ess.Settings(eps=0.02, max_steps=256, max_events=8),
    )
    assert np.array_equal(x1, plain) and int(without.status) == 0 and np.all(np.isnan(without.band_error))
    # Each lane for itself, one number or one per component.
    allowed = jnp.array([[1e-6, 1e-6], [1e-1, 1.0], [1e-1, 1e-6], [jnp.nan, 1.0]])
    many = jax.vmap(lambda tol: hop(0.02, STIFF, tol)[1].status)(allowed)
    bad, wrong = int(jc.Status.INACCURATE), int(jc.Status.INVALID)
    assert many.tolist() == [bad, 0, bad, bad | wrong]
    for tol in (-1.0, np.nan, np.inf, np.ones(3)):
        with pytest.raises(ValueError, match="tol: expected"):
            flow(
                jc.Model(system=HOPPER, params=STIFF),
                START,
                0.0,
                END,
                settings=jc.ess.Settings(eps=0.05, tol=tol),
            )

    def end(x, tol=None):
        return flow(
            jc.Model(system=HOPPER, params=STIFF),
            x,
            0.0,
            0.8,
            settings=jc.ess.Settings(eps=0.01, tol=tol, max_steps=64, max_events=4),
        )[0][0]

    assert np.array_equal(jax.grad(end)(START), jax.grad(lambda x: end(x, tol=1e-6))(START))


def bending_field(t, x, signs, control, params):
    """x = (a, b, w): a at a constant rate, b at the growing rate w; each slows the other when it has crossed."""
    past = signs > 0
    return jnp.stack([1.0 - 0.5 * past[1], x[2] * (1.0 - 0.5 * past[0]), jnp.full_like(x[2], 4.0)])


def bending_guards(x, params):
    return x[:2]


def test_a_guard_that_overtakes_another_inside_their_bands_is_crossed_first():
    es = EventSystem(bending_field, bending_guards)
    x0 = jnp.array([-0.15, -0.11, 0.5])

    @jax.jit
    def run(eps):
        return flow(
            jc.Model(system=es, params=None),
            x0,
            0.0,
            0.4,
            settings=jc.ess.Settings(eps=eps, max_steps=64, max_events=4),
        )

    narrow, told = run(1e-5)
    wide, info = run(0.1)
    assert int(told.status) == 0 and int(info.status) == int(jc.Status.WIDE_BAND)
    assert told.order[:2].tolist() == info.order[:2].tolist() == [1, 0]
    assert np.abs(np.asarray(wide - narrow)).max() < 1e-6


@pytest.mark.slow
def test_settings_that_are_none_are_refused_and_set_a_bit_inside_jit():
    arguments = (jc.Model(system=HOPPER, params=HOPPER_PARAMS), jnp.array([2.0, 0.0]), 0.0, 0.1)
    for name, value in (("rtol", -1.0), ("atol", np.nan), ("dt", 0.0), ("dt", np.inf), ("longest", -1.0)):
        with pytest.raises(ValueError, match=f"ode.{name}: expected"):
            flow(*arguments, settings=jc.ess.Settings(eps=1e-3, ode=DormandPrince(**{name: value})))
    with pytest.raises(ValueError, match="eps: expected a finite number > 0"):
        flow(*arguments, settings=jc.ess.Settings(eps=np.inf))
    with pytest.raises(TypeError, match="ode: expected DormandPrince"):
        flow(*arguments, settings=jc.ess.Settings(eps=1e-3, ode=1e-6))
    for corner_tol in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="corner_tol: expected"):
            b_derivative(
                *arguments[:2],
                jnp.ones(2),
                0.0,
                0.1,
                settings=jc.ess.Settings(eps=1e-3, corner_tol=corner_tol),
            )

    @jax.jit
    @jax.vmap
    def status(rtol, eps, corner_tol):
        _, info = b_derivative(
            *arguments[:2], jnp.ones(2), 0.0, 0.1,
            settings=jc.ess.Settings(eps=eps, corner_tol=corner_tol, ode=DormandPrince(rtol=rtol), max_steps=32, max_events=2),
        )  # fmt: skip
        return info.status

    good = jnp.full(6, 1e-3)
    found = status(
        good.at[1].set(-1.0).at[2].set(jnp.nan),
        good.at[3].set(jnp.inf),
        good.at[4].set(-1.0).at[5].set(jnp.nan),
    )
    assert found.tolist() == [0] + 5 * [int(jc.Status.INVALID)]


def test_guards_that_there_are_not_are_refused_and_give_nan_inside_jit(rng):
    params = jax.tree.map(jnp.asarray, corner_params(rng, 2, 2))
    x, mask = jnp.zeros(2), jnp.zeros(2, bool)
    for guard in (-1, 2):
        with pytest.raises(ValueError, match=r"guard: expected indices of guards in 0\.\.1"):
            saltation_matrix(jc.Model(system=CORNER, params=params), x, guard, mask)
    for order, message in (([0, 2], r"in 0\.\.1"), ([-1], r"in 0\.\.1"), ([0, 0], "distinct guards")):
        with pytest.raises(ValueError, match=f"order: expected .*{message}"):
            ordering_map(jc.Model(system=CORNER, params=params), x, order)
    one = jax.jit(jax.vmap(lambda k: saltation_matrix(jc.Model(system=CORNER, params=params), x, k, mask)))(
        jnp.array([0, 2, -1])
    )
    orders = jnp.array([[0, 1], [0, 2], [1, 1]])
    all_of = jax.jit(jax.vmap(lambda order: ordering_map(jc.Model(system=CORNER, params=params), x, order)))(
        orders
    )
    assert np.isfinite(one).all(axis=(1, 2)).tolist() == [True, False, False]
    assert np.isfinite(all_of).all(axis=(1, 2)).tolist() == [True, False, False]
    for eps in (-1.0, np.nan):
        with pytest.raises(ValueError, match="eps: expected (a finite number > 0|finite numbers)"):
            rescale_guards(jc.Model(system=CORNER, params=params), x[None], eps=eps)


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_bands_are_as_wide_as_a_tolerance_allows(tol):
    """Against the closed form; bands of twice the width would not do."""
    model = jc.Model(system=HOPPER, params=STIFF)
    ode = DormandPrince(rtol=1e-12, atol=1e-13)
    settings = jc.ess.Settings(eps=0.2, ode=ode, max_steps=1024, max_events=8, tol=tol)
    eps, info = jc.ess.choose_bands(model, START, 0.0, END, settings=settings)
    assert int(info.status) & int(jc.Status.FAILURES) == 0 and np.all(info.band_error <= tol)
    x1, _ = flow(model, START, 0.0, END, settings=settings.replace(eps=eps))
    assert abs(float(x1[0]) - height(STIFF)) < 2 * tol
    _, wider = flow(model, START, 0.0, END, settings=settings.replace(eps=4 * eps))
    assert tol == 1e-3 or np.max(wider.band_error) > tol


def exact_height(p):
    """As `height`, of (k, z0), with derivatives."""
    k, z0 = p
    g, w, fall = HOPPER_PARAMS["g"], jnp.sqrt(k), jnp.sqrt(2.0 * (z0 - 1.0) / HOPPER_PARAMS["g"])
    stance = 2.0 / w * (jnp.pi - jnp.arctan2(g * fall / w, g / k))
    s = jnp.abs((END + fall) % (2 * fall + stance) - fall)
    return z0 - 0.5 * g * s**2


@pytest.mark.slow
@pytest.mark.parametrize("stiffness", [200.0, 1000.0])
def test_the_rule_of_the_page_holds_for_a_flow_and_its_derivatives(stiffness):
    """rtol = 1e-4 of the error, atol a hundredth of rtol, tol = 1e-2 of the error."""
    p = jnp.array([stiffness, 2.0])
    exact, slopes = jax.value_and_grad(exact_height)(p)
    model = jc.Model(system=HOPPER, params=HOPPER_PARAMS | {"k": stiffness})

    @jax.jit
    @jax.value_and_grad
    def end(p, settings):
        params = HOPPER_PARAMS | {"k": p[0]}
        x0 = jnp.array([p[1], 0.0])
        return flow(jc.Model(system=HOPPER, params=params), x0, 0.0, END, settings=settings)[0][0]

    for error in (1e-4, 1e-5, 1e-6, 1e-7):
        ode = DormandPrince(rtol=1e-4 * error, atol=1e-6 * error)
        settings = jc.ess.Settings(eps=0.1, ode=ode, tol=1e-2 * error, max_steps=2048, max_events=8)
        eps, info = jc.ess.choose_bands(model, START, 0.0, END, settings=settings)
        assert int(info.status) & int(jc.Status.FAILURES) == 0
        value, found = end(p, settings.replace(eps=eps, tol=None))
        assert abs(float(value - exact)) < 0.1 * error
        assert np.max(np.abs(np.asarray(found / slopes - 1.0))) < error


def hexapod_and_plate(name):
    """A model, a start, a duration and options of `flow`: 10 crossings of legs, one tripod, or 12 of springs."""
    if name == "plate":
        model = jc.ess.from_system(jc.models.plate_on_springs(6))
        return model, model.initial_state(), 0.7, {}
    model = jc.models.spring_legged_hexapod()
    options = {"control": {"thrust": jnp.full(6, 8.0)}, "crossed0": jnp.array([False] * 3 + [True] * 15)}
    return model, model.initial_state().at[2].set(0.03), 0.25, options


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hexapod", "plate"])
def test_the_rule_of_the_page_holds_for_the_models_of_the_paper(name):
    """Against bands of 1e-5 and rtol of 1e-13, whose derivative is that of differences of ends."""
    model, x0, end, options = hexapod_and_plate(name)
    sizes = {"max_steps": 4096, "max_events": 64}

    def flown(x, settings):
        return flow(model, x, 0.0, end, settings=settings, **options)

    run, jacobian = jax.jit(flown), jax.jit(jax.jacfwd(lambda x, settings: flown(x, settings)[0]))
    sharp = jc.ess.Settings(eps=jnp.array(1e-5), ode=DormandPrince(rtol=1e-13, atol=1e-15), **sizes)
    (x1, info), slopes = run(x0, sharp), jacobian(x0, sharp)
    assert int(info.num_events) == {"hexapod": 10, "plate": 12}[name]
    direction = jnp.where(jnp.arange(x0.shape[0]) < 6, jnp.cos(jnp.arange(x0.shape[0])), 0.0)
    ends = [run(x0 + step * direction, sharp)[0] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(slopes @ direction, (ends[0] - ends[1]) / 2e-6, rtol=0, atol=2e-7)
    for error in (1e-4, 1e-6, 1e-7):
        ode = DormandPrince(rtol=1e-4 * error, atol=1e-6 * error)
        settings = jc.ess.Settings(eps=0.01, ode=ode, tol=1e-2 * error, **sizes)
        eps, info = jc.ess.choose_bands(model, x0, 0.0, end, settings=settings, **options)
        assert not int(info.status) & int(jc.Status.FAILURES)
        settings = settings.replace(eps=jnp.asarray(eps), tol=None)
        assert np.max(np.abs(run(x0, settings)[0] - x1)) < 0.1 * error * np.max(np.abs(x1))
        assert np.max(np.abs(jacobian(x0, settings) - slopes)) < error * np.max(np.abs(slopes))


def test_bands_need_a_tolerance():
    model = jc.Model(system=HOPPER, params=STIFF)
    for tol in (None, 0.0, -1.0):
        with pytest.raises((TypeError, ValueError), match=r"\btol: expected"):
            jc.ess.choose_bands(model, START, 0.0, END, settings=jc.ess.Settings(eps=0.1, tol=tol))
    settings = jc.ess.Settings(eps=0.1, tol=1e-3)
    with pytest.raises(TypeError, match="x0: expected known numbers, got traced ones; call `choose_bands`"):
        jax.jit(lambda x: jc.ess.choose_bands(model, x, 0.0, END, settings=settings)[0])(jnp.asarray(START))
