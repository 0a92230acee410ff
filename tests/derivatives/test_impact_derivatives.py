"""Derivatives of the impact laws: by differences, in closed form, on both sides of kinks, and never NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.impact_points import (
    LAWS,
    NV,
    PICKS,
    STEPS,
    differences,
    forward,
    model_case,
    pad,
    point_mass_terms,
    pulled,
    reverse,
    touching_terms,
)
from jax.flatten_util import ravel_pytree

import jaxcontact as jc
from jaxcontact import impact
from jaxcontact.algebra import rotations

TOLERANCE = 1e-6
CAPS = jnp.full((STEPS, 2), 5.0)
TWO_CONTACTS = ("rocking_block", "box_and_wall", "compass_gait", "ramone")


def agree(function, x, *, minimum=1.0):
    """Forward, reverse and central differences agree; `minimum` is the share of smooth directions.

    Forward and reverse are compared column by column, a dot-product test over a basis.
    """
    ahead, back = forward(function, x), reverse(function, x)
    assert np.all(np.isfinite(ahead))
    assert abs(ahead - back).max() <= 1e-10 * (1 + abs(ahead).max())
    agree_with_differences(ahead, function, x, minimum)
    return ahead


def agree_with_differences(jacobian, function, x, minimum):
    estimate, smooth = differences(function, x)
    assert smooth.mean() >= minimum
    error = abs(jacobian - estimate)[..., smooth] / (1 + abs(estimate[..., smooth]).max())
    assert error.max() <= TOLERANCE


def by_velocity(law, terms, v, caps=CAPS):
    """Outcome and its Jacobian by v, the first two velocities of a padded point."""
    v = jnp.zeros(NV).at[: len(v)].set(jnp.asarray(v))
    value, info = LAWS[law](terms, v, caps)
    return np.asarray(value), info, forward(lambda v: LAWS[law](terms, v, caps)[0], v)


# ------------------------------------------------------------------------------- mechanisms, every variable


QUICK = (("resolve", "rocking_block"), ("resolve", "compass_gait"))
CASES = [
    pytest.param(law, name, marks=[] if (law, name) in QUICK else pytest.mark.slow)
    for law in LAWS
    for name in TWO_CONTACTS
]


@pytest.mark.slow_cases(
    "2-None-resolve-compass_gait",
    "2-None-resolve-rocking_block",
    "3-None-resolve-compass_gait",
    "3-None-resolve-rocking_block",
    "5-0.1-resolve-compass_gait",
    "5-0.1-resolve-rocking_block",
)
@pytest.mark.parametrize(("law", "name"), CASES)
@pytest.mark.parametrize(("seed", "mu"), [(2, None), (3, None), (5, 0.1)])
def test_by_v_q_params_and_caps(law, name, seed, mu):
    x, arguments = model_case(name, seed, mu=mu)

    def outcome(x):
        return LAWS[law](*arguments(x))[0]

    # A few directions may meet a mode change within the stencil; those are the business of other tests.
    jacobian = agree(outcome, x, minimum=0.9)
    if name != "ramone":
        assert np.any(jacobian)


@pytest.mark.slow
def test_five_contacts():
    x, arguments = model_case("disk_stack", 1)

    def outcome(x):
        return LAWS["anitescu_potra"](*arguments(x))[0]

    agree_with_differences(forward(outcome, x), outcome, x, minimum=0.9)


# ------------------------------------------------------------------------------------- point mass, closed form


@pytest.mark.slow_cases(
    "0.5-anitescu_potra",
    "0.5-resolve",
    "0.5-routh_path",
    "0.5-routh_step",
    "0.5-sequential",
    "100000.0-anitescu_potra",
    "100000.0-resolve",
    "100000.0-routh_path",
    "100000.0-routh_step",
    "100000.0-sequential",
)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mu", [0.5, 1e5])
def test_vertical_drop_sticks_with_zero_tangential_derivative(law, mu):
    v_plus, info, jacobian = by_velocity(law, point_mass_terms(mu), [0.0, -1.0])
    assert int(info.status) == 0
    assert abs(v_plus).max() <= 1e-12
    assert abs(jacobian[:2, :2]).max() <= 1e-12


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(
    ("v", "mu"),
    [((0.2, -1.0), 0.5), ((2.0, -1.0), 0.5), ((2.0, -1.0), 0.0), ((0.3, 1.0), 0.5)],
    ids=["stick", "slide", "frictionless", "separate"],
)
def test_point_mass_closed_form(law, side, v, mu):
    v = (side * v[0], v[1])
    _, info, jacobian = by_velocity(law, point_mass_terms(mu), v)
    if v[1] > 0:
        expected = np.eye(2)
    elif abs(v[0]) < mu * abs(v[1]):
        expected = np.zeros((2, 2))
    else:
        expected = np.array([[1.0, side * mu], [0.0, 0.0]])  # u_t+ = u_t + side mu u_n
    np.testing.assert_allclose(jacobian[:2, :2], expected, atol=1e-12)
    assert int(info.status) == 0


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_sliding_by_friction_and_mass(law, side):
    v = jnp.zeros(NV).at[:2].set(jnp.array([side * 2.0, -1.0]))
    terms = point_mass_terms(0.5)

    def outcome(x):
        scaled = terms.replace(M=terms.M * x[0], mu=terms.mu.at[0].set(x[1]))
        return LAWS[law](scaled, v, CAPS)[0]

    jacobian = forward(outcome, jnp.array([1.0, 0.5]))
    np.testing.assert_allclose(jacobian[:2], [[0.0, -side], [0.0, 0.0]], atol=1e-12)  # by mass, by mu


@pytest.mark.long
@pytest.mark.parametrize("law", ["routh_step", "resolve"])
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(("speed", "sticks"), [(0.05, True), (2.0, False)])
def test_capped_by_impulse_max(law, side, speed, sticks):
    """M = 2: a step of normal impulse c adds c / 2 to u_n and, while it slides, -side mu c / 2 to u_t."""
    terms, v = point_mass_terms(0.5), jnp.zeros(NV).at[:2].set(jnp.array([side * speed, -10.0]))
    caps = jnp.full((STEPS, 2), 0.4)
    jacobian = forward(lambda c: LAWS[law](terms, v, c.reshape(STEPS, 2))[0], caps.reshape(-1))
    steps = 1 if law == "routh_step" else STEPS
    expected = np.zeros((2, STEPS, 2))
    expected[1, :steps, 0] = 0.5
    expected[0, :steps, 0] = 0.0 if sticks else -side * 0.25
    np.testing.assert_allclose(jacobian[:2].reshape(2, STEPS, 2), expected, atol=1e-12)
    _, _, by_v = by_velocity(law, terms, v[:2], caps)
    np.testing.assert_allclose(by_v[:2, :2], np.diag([0.0 if sticks else 1.0, 1.0]), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_both_sides_of_the_kink_between_stick_and_slide(law, side):
    """|u_t| = mu |u_n|: the derivative a little to either side is that of its branch; at the kink, of one."""
    terms, edge = point_mass_terms(0.5), np.array([side * 0.5, -1.0])
    stick, slide = np.zeros((2, 2)), np.array([[1.0, side * 0.5], [0.0, 0.0]])
    for shift, branch in ((-1e-4, stick), (1e-4, slide)):
        _, _, jacobian = by_velocity(law, terms, edge + np.array([side * shift, 0.0]))
        np.testing.assert_allclose(jacobian[:2, :2], branch, atol=1e-12)
        # The one-sided difference over the step into this branch.
        a, _, _ = by_velocity(law, terms, edge)
        b, _, _ = by_velocity(law, terms, edge + np.array([side * shift, 0.0]))
        np.testing.assert_allclose((b - a)[:2] / (side * shift), branch[:, 0], atol=1e-9)
    _, _, at_kink = by_velocity(law, terms, edge)
    assert min(abs(at_kink[:2, :2] - branch).max() for branch in (stick, slide)) <= 1e-12


@pytest.mark.parametrize("law", ["anitescu_potra", "routh_step"])
def test_kink_takes_stick_before_slide(law):
    _, _, jacobian = by_velocity(law, point_mass_terms(0.5), [0.5, -1.0])
    np.testing.assert_allclose(jacobian[:2, :2], 0.0, atol=1e-12)


@pytest.mark.parametrize("law", ["anitescu_potra", "routh_step"])
def test_both_sides_of_touch_and_separation(law):
    terms = point_mass_terms(0.5)
    for u_n, expected in ((-1e-4, [[1.0, 0.5], [0.0, 0.0]]), (1e-4, np.eye(2))):
        _, _, jacobian = by_velocity(law, terms, [2.0, u_n])
        np.testing.assert_allclose(jacobian[:2, :2], expected, atol=1e-12)


# --------------------------------------------------------------------------------------- at rest, and redundant


def block_terms(mu=1.0, q=(0.0, 1.0, 0.0)):
    model = jc.models.rocking_block()
    params = model.params.replace(mu=jnp.full(2, mu))
    return pad(touching_terms(model.replace(params=params), jnp.asarray(q)), jnp.zeros(3))[0]


@pytest.mark.parametrize("law", ["anitescu_potra", "routh_step", "resolve"])
def test_block_at_rest_stays_at_rest(law):
    v_plus, info, jacobian = by_velocity(law, block_terms(), np.zeros(3))
    assert abs(v_plus).max() == 0
    assert abs(jacobian[:3, :3]).max() <= 1e-12
    assert int(info.status) == 0


@pytest.mark.parametrize("law", ["anitescu_potra", "routh_step"])
@pytest.mark.parametrize("v", [(0.0, -0.4, 0.0), (0.1, -0.5, 0.2), (-0.05, -1.0, -0.1)])
def test_block_landing_on_both_corners_stops(law, v):
    """Two sticking corners are four equations of rank three: v+ = 0 and dv+/dv- = 0 all the same."""
    v_plus, info, jacobian = by_velocity(law, block_terms(), v)
    assert int(info.status) == 0
    assert abs(v_plus).max() <= 1e-12
    assert abs(jacobian[:3, :3]).max() <= 1e-12


@pytest.mark.parametrize("law", ["sequential", "routh_path"])
def test_no_approaching_contact_is_the_branch_of_separation(law):
    """These laws take no step at v = 0: the derivative is that towards separation, where v+ = v."""
    terms = block_terms()
    _, _, jacobian = by_velocity(law, terms, np.zeros(3))
    lift, _, _ = by_velocity(law, terms, [0.0, 1e-3, 0.0])
    np.testing.assert_allclose(jacobian[:3, 1], lift[:3] / 1e-3, atol=1e-12)


def feet_terms(places, mu, mass=1.5, inertia=0.4, height=0.7):
    """A block on feet at x = places below its centre."""
    places = jnp.asarray(places)
    one, zero = jnp.ones_like(places), jnp.zeros_like(places)
    return jc.ContactTerms(
        M=jnp.diag(jnp.array([mass, mass, inertia])),
        J_n=jnp.stack([zero, one, places], axis=1),
        J_t=jnp.stack([one, zero, height * one], axis=1)[:, None, :],
        phi=zero,
        mu=mu * one,
        active=places < jnp.inf,
    )


def projected(terms, rows):
    """I - M^-1 J^T (J M^-1 J^T)^+ J for the rows that are held: plain linear algebra, any rank."""
    mass, rows = np.asarray(terms.M), np.asarray(rows)
    response = np.linalg.solve(mass, rows.T)
    return np.eye(len(mass)) - response @ np.linalg.pinv(rows @ response) @ rows


@pytest.mark.slow
@pytest.mark.slow_cases("places0-0.9-v0", "places1-0.0-v1")
@pytest.mark.parametrize(
    ("places", "mu", "v"),
    [
        ((-1.0, 0.0, 1.0), 0.9, (0.1, -1.0, 0.05)),
        ((-1.0, 0.0, 1.0), 0.0, (0.1, -1.0, 0.05)),
        ((-1.0, 0.0, 1.0), 0.1, (3.0, -1.0, 0.05)),
        ((-1.0, 0.0, 1.0), 0.1, (-3.0, -1.0, 0.05)),
        ((0.3, 0.3, 0.3), 2.0, (0.1, -1.0, 0.2)),
        ((0.3, 0.3, 0.3), 0.0, (0.1, -1.0, 0.2)),
        ((0.3, 0.3, 0.3), 0.1, (3.0, -1.0, 0.2)),
    ],
)
def test_redundant_contacts_by_projector(places, mu, v):
    """Three feet on a line, or one contact three times: impulses are not unique, v+ and dv+ are."""
    terms, v = feet_terms(places, mu), jnp.asarray(v)

    def outcome(v):
        return LAWS["anitescu_potra"](terms, v, CAPS)[0]

    info = LAWS["anitescu_potra"](terms, v, CAPS)[1]
    ahead, back = forward(outcome, v), reverse(outcome, v)
    tangent = np.asarray(terms.J_t[:, 0])
    if mu == 0 or abs(v[0]) < 1:
        held = np.asarray(terms.J_n) if mu == 0 else np.concatenate([np.asarray(terms.J_n), tangent])
        expected = projected(terms, held)
    else:  # sliding: J_n v+ = 0 and the impulse along J_n - sign mu J_t
        normal = np.asarray(terms.J_n)
        push = np.linalg.solve(np.asarray(terms.M), (normal - np.sign(v[0]) * mu * tangent).T)
        expected = np.eye(3) - push @ np.linalg.pinv(normal @ push) @ normal
    assert int(info.status) == 0
    np.testing.assert_allclose(ahead, expected, atol=1e-11)
    np.testing.assert_allclose(back, expected, atol=1e-11)


@pytest.mark.long
def test_redundant_contacts_by_geometry():
    """Feet stay collinear when the block is scaled: v+ is smooth though its equations are singular."""
    v = jnp.array([3.0, -1.0, 0.05])

    def outcome(x):
        places = x[0] * jnp.array([-1.0, 0.0, 1.0]) + x[1]
        return LAWS["anitescu_potra"](feet_terms(places, x[2], x[3], x[4], x[5]), v, CAPS)[0]

    agree(outcome, jnp.array([1.0, 0.2, 0.1, 1.5, 0.4, 0.7]))


@pytest.mark.parametrize("law", ["anitescu_potra", "routh_step"])
@pytest.mark.parametrize("v", [(0.1, -0.5, 0.2), (0.4, -0.6, 1.5)])
def test_duplicated_contact_changes_nothing(law, v):
    single = feet_terms((0.3,), 0.4)
    double = feet_terms((0.3, 0.3), 0.4)
    one, _, by_one = by_velocity(law, pad(single, jnp.zeros(3))[0], v)
    two, _, by_two = by_velocity(law, pad(double, jnp.zeros(3))[0], v)
    np.testing.assert_allclose(two, one, atol=1e-12)
    np.testing.assert_allclose(by_two[:3, :3], by_one[:3, :3], atol=1e-12)


# ------------------------------------------------------------------------------------------------------ in space


def _box_poses(structure, q, params):
    return q[None, :3], rotations.quaternion_matrix(q[3:])[None]


SPATIAL_BOX = jc.System(
    jc.Structure(
        dim=3,
        bodies=("box",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            jc.Box(name="corners", body="box", size="size", corners=(0, 1)),
            jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(("corners", "floor"),),
    ),
    _box_poses,
)


@pytest.mark.parametrize(
    "v",
    [
        (0.4, 0.1, -1.0, 0.1, -0.2, 0.3),
        (2.0, 0.9, -1.0, 0.3, -0.1, 0.2),
        (-1.0, 2.5, -0.5, 0.0, 0.4, -0.6),
        (0.8, -0.8, -1.5, 0.5, 0.1, 0.0),
    ],
)
@pytest.mark.slow
def test_spatial_box_by_v_q_and_params(v):
    """q by its tangent: retract(q, delta)."""
    turn = rotations.quaternion_exp(jnp.array([0.2, -0.1, 0.3]))
    q = jnp.concatenate([jnp.array([0.1, -0.2, 0.5]), turn])
    parts = {
        "v": jnp.asarray(v),
        "delta": jnp.zeros(6),
        "mass": jnp.array([1.3]),
        "inertia": jnp.array([[0.11, 0.17, 0.2]]),
        "mu": jnp.array([0.4, 0.6]),
        "size": jnp.array([1.0, 0.6, 0.8]),
    }
    x, unravel = ravel_pytree(parts)

    def outcome(x):
        p = unravel(x)
        params = jc.Params(
            mass=p["mass"],
            inertia=p["inertia"],
            mu=p["mu"],
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={"size": p["size"]},
        )
        model = jc.Model(system=SPATIAL_BOX, params=params)
        terms = touching_terms(model, jc.retract(model, q, p["delta"]))
        return LAWS["anitescu_potra"](*pad(terms, p["v"]), CAPS)[0]

    agree(outcome, x)


def spatial_mass(mu, mass=2.0):
    eye = jnp.eye(3)
    return jc.ContactTerms(
        M=mass * eye,
        J_n=eye[None, 2],
        J_t=eye[None, :2],
        phi=jnp.zeros(1),
        mu=jnp.reshape(mu, (1,)),
        active=jnp.array([True]),
    )


@pytest.mark.slow_cases(
    "0.05--0.3",
    "0.05--1.9",
    "0.05-0.05",
    "0.05-1.0",
    "0.05-2.5",
    "0.05-3.3",
    "0.6--0.3",
    "0.6--1.9",
    "0.6-0.05",
    "0.6-1.0",
    "0.6-2.5",
    "0.6-3.3",
    "3.0--0.3",
    "3.0--1.9",
    "3.0-0.05",
    "3.0-1.0",
    "3.0-2.5",
    "3.0-3.3",
)
@pytest.mark.parametrize("angle", [0.05, 1.0, 2.5, -0.3, 3.3, -1.9])
@pytest.mark.parametrize("speed", [0.05, 0.6, 3.0])
def test_spatial_point_mass_against_the_polygon(angle, speed):
    """Octagonal friction: stick; a vertex d_k, u_t+ = u_t + mu u_n d_k; or an edge, u_t+ along its normal."""
    mu, u_n = 0.5, -1.0
    u_t = speed * np.array([np.cos(angle), np.sin(angle)])
    v = jnp.array([*u_t, u_n])

    def outcome(x):
        return jc.impact.anitescu_potra(*pad(spatial_mass(x[3]), x[:3]), num_directions=8)[0][:3]

    x = jnp.append(v, mu)
    fan = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
    order = np.argsort(fan @ u_t)
    d, other = fan[order[0]], fan[order[1]]  # the two that oppose u_t most
    slipped = u_t - mu * u_n * d
    n = -(d + other) / np.linalg.norm(d + other)
    reach = mu * abs(u_n) * np.cos(np.pi / 8)  # how far an edge of the cone is from its centre
    if np.argmin(fan @ slipped) == order[0] and slipped @ (d - other) < 0:
        expected = np.hstack([np.eye(2), -mu * d[:, None], -u_n * d[:, None]])
    elif u_t @ n > reach:
        along = np.array([mu * np.cos(np.pi / 8), u_n * np.cos(np.pi / 8)])
        expected = np.outer(n, np.concatenate([n, along]))
    else:
        expected = np.zeros((2, 4))
    jacobian = agree(outcome, x)
    np.testing.assert_allclose(jacobian, np.vstack([expected, np.zeros(4)]), atol=1e-11)


# -------------------------------------------------------------------------------------------- second derivatives


@pytest.mark.slow
@pytest.mark.parametrize("law", ["anitescu_potra", "resolve"])
def test_second_derivatives(law):
    """Forward over reverse against differences of reverse: v, q, mass, inertia, mu, geometry and caps."""
    x, arguments = model_case("rocking_block", 3)

    def gradients(x):
        return pulled(lambda x: LAWS[law](*arguments(x))[0], x)

    hessians = forward(gradients, x)
    assert abs(hessians).max() > 0.1
    assert abs(hessians - np.swapaxes(hessians, 1, 2)).max() <= 1e-9 * abs(hessians).max()
    agree_with_differences(hessians, gradients, x, minimum=0.9)


@pytest.mark.slow
def test_second_derivatives_closed_form():
    """u_t+ = u_t + mu u_n slides: the only second derivative is d2 / dmu du_n = 1."""
    terms = point_mass_terms(0.5)

    def outcome(x):
        v = jnp.zeros(NV).at[:2].set(x[:2])
        return LAWS["anitescu_potra"](terms.replace(mu=terms.mu.at[0].set(x[2])), v, CAPS)[0]

    hessians = forward(lambda x: pulled(outcome, x), jnp.array([2.0, -1.0, 0.5]))
    expected = np.zeros((NV, 3, 3))
    expected[0, 1, 2] = expected[0, 2, 1] = 1.0
    np.testing.assert_allclose(hessians, expected, atol=1e-12)


# -------------------------------------------------------------------------------------------------- many samples


def sample_batch(count=64):
    rng = np.random.default_rng(11)
    model = jc.models.rocking_block()
    q = jnp.array([0.0, 1.0, 0.02])
    terms = touching_terms(model, q)
    terms, _ = pad(terms, jnp.zeros(3))
    v = np.zeros((count, NV))
    v[:, :3] = rng.normal([0.0, -1.0, 0.0], 0.5, (count, 3))
    numbers = {
        "v": jnp.asarray(v),
        "mu": jnp.asarray(rng.uniform(0.2, 1.0, (count, 2))),
        "caps": jnp.asarray(rng.uniform(0.05, 0.6, (count, STEPS, 2))),
    }
    weights = jnp.zeros(NV).at[:3].set(jnp.array([1.0, -0.5, 2.0]))

    @jax.jit
    def costs(numbers):
        def one(v, mu, caps):
            return weights @ impact.resolve(terms.replace(mu=mu), v, caps, jnp.asarray(PICKS))[0]

        return jax.vmap(one)(numbers["v"], numbers["mu"], numbers["caps"])

    return numbers, costs


@pytest.mark.slow  # bad lanes of every law: tests/impact/test_inputs.py
def test_mean_over_samples_and_a_bad_lane():
    numbers, costs = sample_batch()
    count = len(numbers["v"])
    mean_gradient = jax.jit(jax.grad(lambda n: jnp.sum(costs(n)) / count))
    gradient = mean_gradient(numbers)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    # One direction per sample and all samples at once: samples do not see each other.
    rng = np.random.default_rng(3)
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), numbers)
    slope = sum(
        np.asarray(jnp.sum((g * d).reshape(count, -1), axis=1)) * count
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )

    def moved(h):
        return np.asarray(costs(jax.tree.map(lambda leaf, d: leaf + h * d, numbers, direction)))

    h = 1e-5
    here, up, down, far_up, far_down = (moved(k * h) for k in (0, 1, -1, 2, -2))
    estimate = (8 * (up - down) - (far_up - far_down)) / (12 * h)
    misfit = abs((far_up - 2 * here + far_down) - 4 * (up - 2 * here + down)) / h
    smooth = misfit <= 1e-6
    assert smooth.mean() >= 0.9
    np.testing.assert_allclose(slope[smooth], estimate[smooth], rtol=1e-6, atol=1e-7)

    bad = {**numbers, "v": numbers["v"].at[7, 0].set(jnp.nan), "mu": numbers["mu"].at[9].set(-1.0)}
    again = mean_gradient(bad)
    others = ~np.isin(np.arange(count), (7, 9))
    for leaf, reference in zip(jax.tree.leaves(again), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(leaf[others], reference[others], rtol=1e-12, atol=1e-14)
        assert np.all(np.isfinite(leaf))


# -------------------------------------------------------------------------------------------------- never a NaN


def awkward_points():
    block = block_terms()
    mass = point_mass_terms(0.5)
    still, fall, slide = np.zeros(3), np.array([0.0, -1.0, 0.0]), np.array([3.0, -1.0, 0.2])
    return {
        "at rest": (block, still),
        "frictionless at rest": (block_terms(mu=0.0), still),
        "frictionless": (block_terms(mu=0.0), slide),
        "no tangent": (mass.replace(J_t=jnp.zeros_like(mass.J_t)), fall),
        "no normal": (mass.replace(J_n=jnp.zeros_like(mass.J_n)), slide),
        "huge friction": (block_terms(mu=1e5), slide),
        "huge friction, flat": (block_terms(mu=1e5), fall),
        "nothing touches": (block.replace(active=jnp.zeros(2, bool)), slide),
        "one touches": (block.replace(active=jnp.array([False, True])), slide),
    }


@pytest.mark.long
@pytest.mark.slow_cases("at rest-anitescu_potra", "at rest-routh_path", "at rest-sequential")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("point", awkward_points())
def test_never_nan(law, point):
    terms, v = awkward_points()[point]
    x, unravel = ravel_pytree(
        {
            "v": jnp.zeros(NV).at[:3].set(jnp.asarray(v)),
            "caps": CAPS,
            "J_n": terms.J_n,
            "J_t": terms.J_t,
            "mu": terms.mu,
            "mass": jnp.ones(()),
        }
    )

    def outcome(x):
        p = unravel(x)
        moved = terms.replace(J_n=p["J_n"], J_t=p["J_t"], mu=p["mu"], M=terms.M * p["mass"])
        return LAWS[law](moved, p["v"], p["caps"])[0]

    value = np.asarray(outcome(x))
    ahead, back = forward(outcome, x), reverse(outcome, x)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(ahead))
    size = 1 + abs(ahead).max()
    assert abs(ahead - back).max() <= 1e-10 * size
    if point == "nothing touches":
        np.testing.assert_allclose(
            ahead @ np.asarray(ravel_pytree(unravel(x) | {"v": jnp.ones(NV)})[0]) * 0, 0
        )
        by_v = forward(lambda v: LAWS[law](terms, v, CAPS)[0], unravel(x)["v"])
        np.testing.assert_array_equal(by_v, np.eye(NV))
