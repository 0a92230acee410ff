"""Motion over accumulated impulse and time (Halm & Posa, Section 4): closed forms and invariants."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_rod as rod
from scipy.integrate import quad

import jaxcontact as jc
from jaxcontact.simulate import PieceKind, time_augmented

BLOCK = jc.models.rocking_block()
PIECES = 400  # of all motions of the block: one program
G, M, W, H = 9.81, 1.0, 1.0, 2.0
R = np.hypot(W, H) / 2
ALPHA, J = np.arctan2(H, W), M * (W**2 + H**2) / 12 + M * R**2


def block(v, q=(0.0, 1.0, 0.0), *, length, mu=1.0, **settings):
    state = BLOCK.initial_state().replace(q=jnp.array(q, float), v=jnp.array(v, float))
    params = BLOCK.params.replace(mu=jnp.full(2, mu))
    return run(BLOCK.replace(params=params), state, length=length, max_pieces=PIECES, **settings)


def run(model, state, **settings):
    """Path and info, in NumPy, without the rows that are not needed."""
    path, info = jax.device_get(time_augmented(model, state, **settings))
    n = int(info.num_iters)
    nodes = {name: getattr(path, name)[: n + 1] for name in ("s", "t", "q", "v")}
    pieces = {name: getattr(path, name)[:n] for name in ("lam", "t_rate", "kind", "impact", "collision")}
    return path.replace(**nodes, **pieces), info


@functools.cache
def zeno():
    """The block on its left corner, turning at 1 rad/s: Figs. 7 and 8."""
    return block((-H / 2, W / 2, 1.0), length=32.0)


def swing(omega):
    """Time of a swing on one corner that begins with omega: eq (56), by energy; twice the way to its apex.

    theta = apex - x^2 takes the root at the apex out of the integrand.
    """
    k = M * G * R / J
    apex = np.arcsin(omega**2 / (2 * k) + np.sin(ALPHA)) - ALPHA
    top = np.sin(apex + ALPHA)

    def integrand(x):
        # sin(top) - sin(theta) = 2 cos(middle) sin(x^2 / 2)
        middle = apex + ALPHA - 0.5 * x**2
        ratio = 0.5 * np.sinc(x**2 / (2 * np.pi))  # sin(x^2 / 2) / x^2
        return 2.0 / np.sqrt(4 * k * np.cos(middle) * ratio)

    assert top <= 1
    return 2 * quad(integrand, 0.0, np.sqrt(apex), epsabs=1e-15, epsrel=1e-13)[0]


def impact_ends(path):
    """Index of the first node of every impact, and of the node behind it."""
    count = path.impact.max() + 1
    first = np.array([np.flatnonzero(path.impact == k)[0] for k in range(count)])
    return first, np.array([np.flatnonzero(path.impact == k)[-1] + 1 for k in range(count)])


@pytest.mark.slow
def test_zeno_block_follows_its_closed_forms():
    """Swings and impacts one after the other: ends in t and s, and the ratio of the angular velocity.

    A swing lasts T(omega). Its normal force is m (g + dv_y/dt), and v_y = +-omega w / 2 at its ends: s grows by
    (1 + m g) T - m w omega. The impact keeps the angular momentum about the new corner, eq (68): ratio
    (J - m w^2 / 2) / J = 0.7, and takes the impulse m (v_y+ - v_y-) = 0.85 m w omega.
    """
    path, info = zeno()
    first, last = impact_ends(path)
    ratio = (J - M * W**2 / 2) / J
    assert ratio == pytest.approx(0.7, abs=1e-15)
    omega, t, s = 1.0, 0.0, 0.0
    for k in range(40):
        t += swing(omega)
        s += (1 + M * G) * swing(omega) - M * W * omega
        np.testing.assert_allclose([path.t[first[k]], path.s[first[k]]], [t, s], atol=1e-6)
        s += 0.5 * (1 + ratio) * M * W * omega
        omega *= ratio
        np.testing.assert_allclose([path.t[last[k]], path.s[last[k]]], [t, s], atol=1e-6)
        speed = np.abs(path.v[last[k], 2])
        np.testing.assert_allclose(speed, omega, rtol=1e-6, atol=1e-10)
    speeds = np.abs(path.v[[0, *last], 2])[:30]
    np.testing.assert_allclose(speeds[1:] / speeds[:-1], 0.7, rtol=1e-6)
    steps = np.diff(path.s[first[::2]])[8:15]  # over a full cycle, of small swings
    np.testing.assert_allclose(steps[1:] / steps[:-1], 0.49, rtol=1e-5)
    assert int(info.status) == int(jc.Status.ZENO)


@pytest.mark.slow
def test_zeno_block_comes_to_rest_and_time_goes_on():
    """The accumulation point is the sum of all swings; then half the weight is on each corner."""
    path, info = zeno()
    omegas = 0.7 ** np.arange(80)
    swings = np.array([swing(x) for x in omegas])
    t_end, s_end = swings.sum(), ((1 + M * G) * swings - M * W * 0.15 * omegas).sum()
    _, last = impact_ends(path)
    np.testing.assert_allclose([path.t[last[-1]], path.s[last[-1]]], [t_end, s_end], atol=1e-6)
    np.testing.assert_allclose([t_end, s_end], [2.67, 28.4], atol=0.03)  # the paper's figures
    at_rest = path.s[:-1] > s_end + 1e-6
    assert np.sum(at_rest) >= 2
    force = path.lam[at_rest] / path.t_rate[at_rest, None, None]
    np.testing.assert_allclose(force, np.broadcast_to([0.5 * M * G, 0.0], force.shape), atol=1e-9)
    np.testing.assert_allclose(path.t_rate[at_rest], 1 / (1 + M * G), rtol=1e-10)
    np.testing.assert_allclose(path.t[-1], t_end + (32.0 - s_end) / (1 + M * G), atol=1e-6)
    np.testing.assert_allclose(path.v[-1], 0.0, atol=1e-12)
    np.testing.assert_allclose(path.q[-1, 1:], [1.0, 0.0], atol=1e-9)
    assert path.s[-1] == 32.0


@pytest.mark.long
def test_block_at_rest():
    path, info = block((0.0, 0.0, 0.0), length=5.0)
    normal = np.sum(path.lam[:, :, 0], axis=1) / path.t_rate
    np.testing.assert_allclose(normal, M * G, rtol=1e-10)
    np.testing.assert_allclose(np.diff(path.t) / np.diff(path.s), 1 / (1 + M * G), rtol=1e-10)
    np.testing.assert_allclose(path.t[-1], 5.0 / (1 + M * G), rtol=1e-10)
    assert int(info.status) == 0 and int(info.num_impacts) == 0


@pytest.mark.long
def test_sliding_block_stops():
    """It slides for v / (mu g) on two corners that share its weight by the torque of the friction."""
    mu, speed = 0.3, 1.0
    stop = speed / (mu * G)
    path, info = block((speed, 0.0, 0.0), length=8.0, mu=mu)
    assert int(info.status) == 0 and int(info.num_impacts) == 0
    force = path.lam[0] / path.t_rate[0]
    lean = mu * H / W  # the torque mu m g h / 2 shifts weight to the corner in front
    normal = 0.5 * M * G * np.array([1 - lean, 1 + lean])
    np.testing.assert_allclose(force, np.stack([normal, -mu * normal], axis=1), rtol=1e-9)
    ends = np.flatnonzero(np.abs(path.v[:, 0]) < 1e-12)[0]
    np.testing.assert_allclose([path.t[ends], path.s[ends]], [stop, stop * (1 + M * G)], rtol=1e-9)
    np.testing.assert_allclose(path.q[-1], [0.5 * speed * stop, 1.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(path.lam[-1] / path.t_rate[-1], [[0.5 * M * G, 0.0]] * 2, atol=1e-9)


@pytest.mark.long
def test_dropped_block():
    """It falls for T with dt = ds; its impact takes m g T of s, whatever corners share it."""
    height = 0.2
    fall = np.sqrt(2 * height / G)
    path, info = block((0.0, 0.0, 0.0), (0.0, 1.0 + height, 0.0), length=8.0)
    first, last = impact_ends(path)
    assert int(info.status) == 0 and int(info.num_impacts) == 1 and path.collision[first[0]]
    np.testing.assert_allclose([path.t[first[0]], path.s[first[0]]], fall, rtol=1e-9)
    np.testing.assert_allclose(path.s[last[0]], fall + M * G * fall, rtol=1e-9)
    np.testing.assert_allclose(path.t[-1], fall + (8.0 - path.s[last[0]]) / (1 + M * G), rtol=1e-9)


def test_the_mean_of_two_motions_of_a_dropped_block_is_no_motion():
    """Theorem 4 calls the solutions from a state a convex set: open gaps ask for dt/ds = 1, and the mean has 0.1.

    The impact begins at the left corner in one motion and at the right one in the other, its mirror image.
    """
    start = (0.0, 0.0, 0.0), (0.0, 1.2, 0.0)
    both = [block(*start, length=4.0, rates=jnp.array(rates))[0] for rates in ((1.0, 1e-6), (1e-6, 1.0))]
    s = np.linspace(2.6, 3.6, 11)  # beyond the impact
    q = np.mean([[np.interp(s, path.s, x) for x in path.q.T] for path in both], axis=0).T
    t = np.mean([np.interp(s, path.s, path.t) for path in both], axis=0)
    assert max(abs(path.q[-1, 2]) for path in both) > 0.02
    np.testing.assert_allclose(q[:, [0, 2]], 0.0, atol=1e-7)
    assert np.min(q[:, 1] - 1.0) > 3e-3  # its corners are in the air
    assert np.max(np.diff(t) / np.diff(s)) < 0.12


def energy(path):
    return (
        0.5 * np.einsum("ki,i,ki->k", path.v, [M, M, M * (W**2 + H**2) / 12], path.v) + M * G * path.q[:, 1]
    )


STARTS = [
    ((0.3, 0.0, 0.0), (0.0, 1.3, 0.2), 1.0),
    ((-1.5, -0.5, 3.0), (0.0, 1.2, -0.3), 0.4),
    ((4.0, -2.0, -1.0), (0.0, 1.05, 0.02), 0.1),
    ((0.0, -1.0, 0.0), (0.0, 1.0, 0.0), 0.0),
    ((2.0, 0.0, 0.5), (0.0, 1.4, 0.0), 5.0),
]


@pytest.mark.parametrize("start", STARTS)
def test_invariants(start):
    """Time, cones, gaps, energy, and the measure of s, along thrown blocks."""
    v, q, mu = start
    path, info = block(v, q, length=12.0, mu=mu)
    assert not jc.Status.failed(info.status) or int(info.status) == int(jc.Status.MAX_ITERS)
    assert np.all(np.diff(path.s) >= 0) and np.all(np.diff(path.t) >= 0)
    hits = path.kind == PieceKind.IMPACT
    assert hits.any() and np.all(path.t_rate[hits] == 0)
    frozen = np.abs(np.diff(path.t))[hits], np.abs(np.diff(path.q, axis=0))[hits]
    assert max(np.max(x) for x in frozen) <= 1e-12
    normal, friction = path.lam[..., 0], np.abs(path.lam[..., 1])
    assert np.all(normal >= -1e-12) and np.all(friction <= mu * normal + 1e-12)
    np.testing.assert_allclose(path.t_rate + normal.sum(axis=1), 1.0, rtol=1e-12)
    corners = [path.q[:, 1] + np.sin(path.q[:, 2]) * x - np.cos(path.q[:, 2]) for x in (-0.5, 0.5)]
    assert np.min(corners) > -1e-9
    gain = np.diff(energy(path))
    assert np.max(gain) < 1e-9
    np.testing.assert_allclose(
        np.diff(path.s)[path.kind == PieceKind.FREE], np.diff(path.t)[path.kind == PieceKind.FREE], atol=1e-12
    )


@pytest.mark.slow
def test_impacts_are_those_of_the_limit_of_small_steps():
    """`resolve` with caps rates h goes to the impact of the path at first order in h; `routh_path` is it."""
    rates = jnp.array([1.0, 0.4])
    v, q = (0.6, -1.2, 0.4), (0.0, 1.0, 0.0)
    path, _ = block(v, q, length=2.0, mu=0.35, rates=rates)
    _, last = impact_ends(path)
    after = path.v[last[0]]
    terms = jc.contact_terms(
        BLOCK.replace(params=BLOCK.params.replace(mu=jnp.full(2, 0.35))), BLOCK.initial_state()
    )
    exact, _ = jc.impact.routh_path(terms, jnp.array(v), rates)
    np.testing.assert_allclose(after, exact, atol=1e-12)

    @jax.jit
    @jax.vmap
    def stepped(h):
        caps = jnp.broadcast_to(rates[None] * h, (256, 2))
        return jc.impact.resolve(terms, jnp.array(v), caps, jnp.zeros(256))

    h = 0.1 * 2.0 ** jnp.linspace(-1.0, 0.0, 16)  # where steps end beside the events is a matter of luck
    v_plus, info = stepped(jnp.concatenate([h, h / 4]))
    assert not np.any(info.status)
    coarse, fine = np.linalg.norm(v_plus - after[None], axis=1).reshape(2, 16).mean(axis=1)
    assert coarse > 1e-3 and 3.0 < coarse / fine < 5.5  # 4 for order one


@functools.cache
def slid(omega, key):
    """The rod at 1 rad with mu = 3, its end sliding to the left."""
    start = rod.state(jnp.array(1.0), -1.0, omega)
    return run(rod.model(3.0), start, length=1.0, max_pieces=64, key=jax.random.key(key))


def ends(path):
    """Gaps of the ends of the rod, and its energy."""
    gaps = path.q[:, 1] - rod.HALF * np.abs(np.sin(path.q[:, 2]))
    inertia = rod.HALF**2 / 3
    return gaps, 0.5 * path.v**2 @ [1.0, 1.0, inertia] + rod.GRAVITY * path.q[:, 1]


@pytest.mark.slow
def test_impact_without_a_collision_is_recorded():
    """Inconsistent: the end jams and sticks, its normal velocity back at zero, in no time."""
    path, info = slid(0.0, 0)
    assert int(info.status) == 0 and int(info.num_without_collision) == 1
    assert path.kind[0] == PieceKind.IMPACT and path.impact[0] == 0 and not path.collision[0]
    _, last = impact_ends(path)
    after, theta = path.v[last[0]], 1.0
    assert path.t[last[0]] == 0.0 and path.s[last[0]] > 0.1
    # Friction slides until the end sticks, and sticks on: a plastic impact of both rows.
    c, s = rod.HALF * np.cos(theta), rod.HALF * np.sin(theta)
    rows, start = np.array([[0, 1, -c], [1, 0, s]]), np.array([-1.0, 0.0, 0.0])
    inverse = np.diag([1.0, 1.0, 3.0 / rod.HALF**2])
    impulse = np.linalg.solve(rows @ inverse @ rows.T, -rows @ start)
    np.testing.assert_allclose(after, start + inverse @ rows.T @ impulse, atol=1e-12)
    gaps, total = ends(path)
    assert np.min(gaps) > -1e-9 and np.max(np.diff(total)) < 1e-10


@pytest.mark.slow
def test_every_solution_is_offered_by_key():
    """Indeterminate: the end leaves, slides on under a finite force, or jams without a collision."""
    seen = set()
    for key in range(8):
        path, info = slid(12.0, key)
        assert not jc.Status.failed(info.status)
        gaps, total = ends(path)
        assert np.min(gaps) > -1e-9 and np.max(np.diff(total)) < 1e-9
        assert np.all(np.isfinite(path.v))
        seen.add(PieceKind(int(path.kind[0])))
        if path.kind[0] == PieceKind.CONTACT:
            force = path.lam[0, 0] / path.t_rate[0]
            normal = -rod.free(1.0, 12.0) / rod.slope(1.0, 3.0)
            np.testing.assert_allclose(force, [normal, 3.0 * normal], rtol=1e-10)
        assert (int(info.num_without_collision) > 0) == (path.kind[0] == PieceKind.IMPACT)
    assert seen == {PieceKind.FREE, PieceKind.CONTACT, PieceKind.IMPACT}


def test_bad_arguments_are_named():
    model, state = BLOCK, BLOCK.initial_state()
    for given, message in (
        ({"length": 0.0}, "length: expected a finite number > 0"),
        ({"length": 1.0, "rates": jnp.ones(3)}, r"rates: expected shape \(2,\), got \(3,\)"),
        ({"length": 1.0, "rates": jnp.array([1.0, 0.0])}, "rates: expected a finite number > 0"),
        ({"length": 1.0, "max_pieces": 0}, "max_pieces: expected an integer >= 1"),
        ({"length": 1.0, "longest": 0.0}, "longest: expected a finite number > 0"),
    ):
        with pytest.raises(ValueError, match=message):
            time_augmented(model, state, **given)
    with pytest.raises(ValueError, match="planar systems of 1 to 5 candidate contacts, got dim 3"):
        box = jc.models.box_drop_3d()
        time_augmented(box, box.initial_state(), length=1.0)
    with pytest.raises(ValueError, match="contact 0 penetrates by 0.1 m"):
        time_augmented(model, state.replace(q=jnp.array([0.0, 0.9, 0.0])), length=1.0)
    with pytest.raises(NotImplementedError, match="time_augmented has no derivative"):
        jax.jvp(
            lambda v: time_augmented(model, state.replace(v=v), length=1.0)[0].v,
            (state.v,),
            (state.v,),
        )


def test_too_few_pieces_are_told():
    _, info = block((-H / 2, W / 2, 1.0), length=32.0, longest=1e-3)
    assert int(info.status) == int(jc.Status.MAX_ITERS) and int(info.num_iters) == PIECES


@pytest.mark.slow
def test_a_bad_lane_stays_where_it_is():
    def falls(speed):
        state = BLOCK.initial_state().replace(v=jnp.stack([speed, -1.0, 0.0]))
        return time_augmented(BLOCK, state, length=1.0, max_pieces=16)

    path, info = jax.vmap(falls)(jnp.array([0.0, jnp.nan, 0.0]))
    np.testing.assert_array_equal(info.status, [0, int(jc.Status.NONFINITE), 0])
    alone, _ = falls(jnp.array(0.0))
    np.testing.assert_allclose(path.v[0], alone.v, atol=1e-12)
    np.testing.assert_array_equal(path.v[2], path.v[0])


@pytest.mark.slow
@pytest.mark.float32
def test_single_precision(tolerance):
    """The block falls, lands and rests."""
    state = BLOCK.initial_state().replace(q=jnp.array([0.0, 1.2, 0.0]), v=jnp.zeros(3))
    path, info = run(BLOCK, state, length=8.0, max_pieces=64, rtol=tolerance(1e-10, 1e-5))
    assert not jc.Status.failed(info.status)
    fall = np.sqrt(0.4 / G)
    expected = fall + (8.0 - fall - M * G * fall) / (1 + M * G)
    np.testing.assert_allclose(path.t[-1], expected, rtol=tolerance(1e-9, 1e-4))
