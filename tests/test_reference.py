"""Checks of the reference mechanisms and solvers themselves, against independent kinematics and each other."""

import numpy as np
import pytest
from oracles import reference as ref

NAMES = sorted(ref.MODELS)
EPS = 1e-30  # complex step


def arm(length, psi):
    """A link of given length at angle psi, as (x, y)."""
    return length * np.array([np.sin(psi), -np.cos(psi)])


def bodies(name, q):
    """(mass, inertia, centre of mass, angle) of every body, written out joint by joint."""
    if name == "rocking_block":
        return [(1.0, 5.0 / 12.0, q[:2], q[2])]
    if name == "box_and_wall":
        return [(1.0, 1.0 / 6.0, q[:2], q[2])]
    if name == "disk_stack":
        return [(1.0, 0.5, q[3 * i : 3 * i + 2], q[3 * i + 2]) for i in range(3)]
    if name == "compass_gait":
        return [(1.0, 0.0, q[:2] + arm(0.5, q[i]), q[i]) for i in (2, 3)]
    if name == "three_link_walker":
        return [
            (15.0, 0.0, q[:2], 0 * q[2]),
            (10.0, 0.0, q[:2] - arm(0.5, q[2]), q[2]),
            (5.0, 0.4, q[:2] + arm(0.5, q[3]), q[3]),
            (5.0, 0.4, q[:2] + arm(0.5, q[4]), q[4]),
        ]
    out, hip = [(7.9026, 0.08, q[:2], q[2])], q[:2] + arm(0.137675, q[2])
    for a, b in ((3, 4), (5, 6)):
        thigh, shank = q[2] + q[a], q[2] + q[a] + q[b]
        knee = hip + arm(0.2, thigh)
        out += [
            (0.7887, 0.00221, hip + arm(0.019399, thigh), thigh),
            (0.510, 0.00652, knee + arm(0.2385 - 0.073265, shank), shank),
        ]
    return out


def contact_points(name, q):
    """Contact points as functions of p: the material points that touch at q."""
    if name in ("rocking_block", "box_and_wall"):
        marks = {"rocking_block": ((-0.5, -1.0), (0.5, -1.0)), "box_and_wall": ((0.5, -0.5), (0.5, 0.5))}[
            name
        ]
        return [
            lambda p, c=c: (
                p[:2]
                + np.array(
                    [np.cos(p[2]) * c[0] - np.sin(p[2]) * c[1], np.sin(p[2]) * c[0] + np.cos(p[2]) * c[1]]
                )
            )
            for c in marks
        ]
    if name == "compass_gait":
        return [lambda p, i=i: p[:2] + arm(1.0, p[i]) for i in (2, 3)]
    if name == "three_link_walker":
        return [lambda p, i=i: p[:2] + arm(1.0, p[i]) for i in (3, 4)]

    def sole(p, a, b):
        psi = p[2] + p[a] + p[b]
        turn = psi - (q[2] + q[a] + q[b])  # the material point below the centre at q turns with the shank
        centre = p[:2] + arm(0.137675, p[2]) + arm(0.2, p[2] + p[a]) + arm(0.2385, psi)
        return centre + arm(0.0563 / 2, turn)

    return [lambda p, a=a, b=b: sole(p, a, b) for a, b in ((3, 4), (5, 6))]


def mechanism(name):
    """The reference mechanism of that name."""
    return ref.three_link_walker() if name == "three_link_walker" else ref.MODELS[name]()


def kinetic(name, q, v):
    """Kinetic energy from the complex-step velocities of the bodies."""
    return sum(
        0.5 * m * (np.imag(c) @ np.imag(c)) / EPS**2 + 0.5 * i * (np.imag(a) / EPS) ** 2
        for m, i, c, a in bodies(name, q + 1j * EPS * v)
    )


def potential(name, q):
    """Potential energy of the bodies."""
    return sum(m * 9.81 * c[1] for m, _, c, _ in bodies(name, q))


def slope(f, x, h=1e-6):
    """Central-difference gradient."""
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


@pytest.mark.parametrize("name", NAMES + ["three_link_walker"])
def test_equations_of_motion(name):
    mech, rng = mechanism(name), np.random.default_rng(1)
    for _ in range(5):
        q, v = mech.q0 + 0.3 * rng.normal(size=mech.q0.size), rng.normal(size=mech.q0.size)
        M = mech.mass_matrix(q)
        assert np.allclose(M, M.T, atol=1e-15) and np.linalg.eigvalsh(M)[0] > 0
        pairs = [(a, b) for a in np.eye(q.size) for b in np.eye(q.size)]
        polar = [(kinetic(name, q, a + b) - kinetic(name, q, a - b)) / 2 for a, b in pairs]
        assert np.abs(M.ravel() - polar).max() < 1e-13 * np.abs(M).max()

        def momentum(x, v=v):
            return np.array([kinetic(name, x, v + e) - kinetic(name, x, v - e) for e in np.eye(x.size)]) / 2

        h = 1e-5
        lagrange = (momentum(q + h * v) - momentum(q - h * v)) / (2 * h)
        lagrange += slope(lambda x: potential(name, x) - kinetic(name, x, v), q, h)
        assert np.abs(mech.bias(q, v) - lagrange).max() < 1e-8 * (1 + np.abs(lagrange).max())


@pytest.mark.parametrize("name", NAMES + ["three_link_walker"])
def test_contacts(name):
    mech, rng = mechanism(name), np.random.default_rng(2)
    phi, J_n, J_t = mech.contacts(mech.q0)
    assert np.abs(phi[1:] if name == "three_link_walker" else phi).max() < 1e-12
    for _ in range(5):
        q = mech.q0 + 0.2 * rng.normal(size=mech.q0.size)
        phi, J_n, J_t = mech.contacts(q)
        assert np.abs(J_n - slope(lambda x: mech.contacts(x)[0], q).T).max() < 1e-8
        if name == "disk_stack":
            continue
        normals, tangents = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
        if name == "box_and_wall":
            normals[1], tangents[1] = (-1.0, 0.0), (0.0, 1.0)
        for i, point in enumerate(contact_points(name, q)):
            rate = slope(point, q).T
            assert np.abs(J_n[i] - normals[i] @ rate).max() < 1e-8
            assert np.abs(J_t[i] - tangents[i] @ rate).max() < 1e-8


def test_disk_tangents():
    """Relative velocity of the two surface points by omega x r, body by body."""
    rng, mech = np.random.default_rng(3), ref.disk_stack()
    q, v = mech.q0 + 0.1 * rng.normal(size=9), rng.normal(size=9)
    _, _, J_t = mech.contacts(q)
    for k, (a, b) in enumerate([(0, None), (1, None), (1, 0), (2, 0), (2, 1)]):
        n = np.array([0.0, 1.0])
        if b is not None:
            n = q[3 * a : 3 * a + 2] - q[3 * b : 3 * b + 2]
            n = n / np.linalg.norm(n)
        rate = v[3 * a : 3 * a + 2] + v[3 * a + 2] * np.array([n[1], -n[0]])  # arm -n
        if b is not None:
            rate = rate - v[3 * b : 3 * b + 2] - v[3 * b + 2] * np.array([-n[1], n[0]])  # arm +n
        assert abs(J_t[k] @ v - rate @ (n[1], -n[0])) < 1e-14


def test_initial_states():
    """The paper's tables, and resting trailing feet."""
    for name in ("compass_gait", "ramone"):
        mech = ref.MODELS[name]()
        _, J_n, J_t = mech.contacts(mech.q0)
        assert abs(J_n[1] @ mech.v0) + abs(J_t[1] @ mech.v0) < 1e-15 and J_n[0] @ mech.v0 < 0
    assert np.allclose(ref.ramone().v0[:2], (-0.4114, -0.2105), atol=5e-5)
    assert np.isclose(np.rad2deg(ref.ramone().q0[6]), -92.48, atol=0.01)
    assert np.isclose(ref.rocking_block().v0[1], -0.4429, atol=5e-5)


def test_box3d():
    """Contacts by finite differences along the flow of v; torque-free spin keeps its angular momentum."""
    rng = np.random.default_rng(4)
    q, v = np.concatenate([rng.normal(size=3), rng.normal(size=4)]), rng.normal(size=6)
    q[3:] /= np.linalg.norm(q[3:])

    def flow(q, v, dt):
        angle = np.linalg.norm(v[3:]) * dt / 2
        w, (x, y, z) = np.cos(angle), np.sin(angle) * v[3:] / np.linalg.norm(v[3:])
        right = np.array([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])
        return np.concatenate([q[:3] + dt * v[:3], right @ q[3:]])

    def corners(q):
        return q[:3] + ref.BOX_SIGNS * (0.5, 0.3, 0.2) @ ref.rotation(q[3:]).T

    h = 1e-6
    phi, J_n, J_t = ref.box3d_contacts(q)
    rate = (corners(flow(q, v, h)) - corners(flow(q, v, -h))) / (2 * h)
    assert np.allclose(phi, corners(q)[:, 2], atol=1e-15)
    assert np.abs(np.concatenate([J_t @ v, (J_n @ v)[:, None]], axis=1) - rate).max() < 1e-8
    M, acc = ref.box3d_mass_matrix(q), np.linalg.solve(ref.box3d_mass_matrix(q), -ref.box3d_bias(q, v))
    spin = [ref.rotation(flow(q, v, s)[3:]) @ (M[3:, 3:] @ (v + s * acc)[3:]) for s in (h, -h)]
    assert np.abs(spin[0] - spin[1]).max() / (2 * h) < 1e-8 and np.allclose(acc[:3], (0, 0, -9.81))


def impact_terms(mech):
    """M, J_n, J_t, mu at the initial state."""
    _, J_n, J_t = mech.contacts(mech.q0)
    return mech.mass_matrix(mech.q0), J_n, J_t, mech.mu


def random_terms(rng, duplicate):
    """A random two-contact system; `duplicate` gives both contacts the same rows."""
    A = rng.normal(size=(4, 4))
    J = rng.normal(size=(2, 2, 4))
    if duplicate:
        J[:, 1] = J[:, 0]
    return A @ A.T + np.eye(4), J[0], J[1], rng.uniform(0.1, 2.0, 2)


def same_set(a, b, M, v, tol=1e-6):
    """Whether two sets of velocities are equal."""
    scale = tol * np.sqrt(2 * ref.energy(M, v))
    gap = (
        np.sqrt(2 * np.abs(ref.energy(M, a[:, None] - b[None])))
        if len(a) and len(b)
        else np.full((1, 1), np.inf)
    )
    return len(a) == len(b) and gap.min(0).max() < scale and gap.min(1).max() < scale


def check_steps(terms, v, caps, tol=1e-9):
    """Modes against brute force along a walk, every solution physical; returns the counts."""
    M, J_n, J_t, mu = terms
    bases, maps, rng, counts = (
        ref.brute_bases(*terms, True),
        ref.mode_maps(*terms),
        np.random.default_rng(0),
        [],
    )
    for cap in caps:
        brute = ref.step_solutions(*terms, v, cap, tol, bases)
        modes = ref.mode_step_solutions(*terms, v, cap, tol, maps)
        assert len(brute[0]) > 0 and same_set(brute[0], modes[0], M, v), (brute[0], modes[0])
        for out in zip(*modes):
            residuals = ref.physical_residuals(*terms, v, *out, cap)
            assert max(residuals.values()) < 1e-7 * (1 + mu.max() * 1e-3), residuals
        counts.append(len(brute[0]))
        v = brute[0][rng.integers(len(brute[0]))]
        if (J_n @ v).min() > -1e-8:
            break
    return counts


@pytest.mark.long
@pytest.mark.parametrize("name", ["rocking_block", "compass_gait", "box_and_wall", "ramone"])
def test_modes_are_complete_on_models(name):
    mech, rng = ref.MODELS[name](), np.random.default_rng(5)
    counts = []
    for _ in range(25):
        counts += check_steps(impact_terms(mech), mech.v0, mech.step * rng.uniform(size=(mech.max_steps, 2)))
    assert (max(counts) > 1) == (name in ("compass_gait", "ramone"))


def test_modes_are_complete_on_random_systems():
    rng = np.random.default_rng(6)
    for k in range(24):
        terms = random_terms(rng, k % 3 == 0)
        v = rng.normal(size=4) - np.linalg.solve(terms[0], terms[1].sum(0))
        check_steps(terms, v, rng.uniform(0.0, 1.0, (3, 2)))


@pytest.mark.parametrize("name", ["rocking_block", "compass_gait", "box_and_wall", "ramone"])
def test_anitescu_potra(name):
    mech = ref.MODELS[name]()
    terms = impact_terms(mech)
    brute, modes = (
        ref.anitescu_potra_solutions(*terms, mech.v0),
        ref.mode_anitescu_potra_solutions(*terms, mech.v0),
    )
    assert len(brute[0]) == {"rocking_block": 1, "box_and_wall": 1}.get(name, 3)
    assert same_set(brute[0], modes[0], terms[0], mech.v0)
    for out in zip(*brute):
        assert max(ref.physical_residuals(*terms, mech.v0, *out).values()) < 1e-8


def test_rocking_block_orders():
    """One corner after the other leaves 0.21 v0 upwards at the first; every sample stays within that spread."""
    mech, rng = ref.rocking_block(), np.random.default_rng(7)
    terms = impact_terms(mech)
    for order, hits in (((0, 1), [0, 1]), ((1, 0), [1, 0])):
        path, hit = ref.sequential(*terms, mech.v0, order, 10)
        assert hit == hits and np.allclose(terms[1][order[0]] @ path[-1], -0.21 * mech.v0[1], rtol=1e-12)
    for _ in range(50):
        path, _, done = ref.simulate_routh(
            *terms, mech.v0, 0.3 * rng.uniform(size=(10, 2)), rng.uniform(size=10)
        )
        if done:
            assert (terms[1] @ path[-1]).max() <= 0.21 * -mech.v0[1] + 1e-9
            assert (np.diff(ref.energy(terms[0], path)) <= 1e-14).all()


def test_disk_stack_steps():
    """Five contacts: solutions exist, are physical and symmetric under exchange of left and right."""
    mech = ref.disk_stack()
    terms = impact_terms(mech)
    v_plus, lam_n, lam_t = ref.mode_anitescu_potra_solutions(*terms, mech.v0)
    assert len(v_plus) > 0
    for out in zip(v_plus, lam_n, lam_t):
        assert max(ref.physical_residuals(*terms, mech.v0, *out).values()) < 1e-8
    mirror = np.kron([[0, 1, 0], [1, 0, 0], [0, 0, 1]], np.diag([-1.0, 1.0, -1.0]))
    assert same_set(v_plus, v_plus @ mirror, terms[0], mech.v0)
