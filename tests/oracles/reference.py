"""Hand-derived mechanisms and brute-force impact solvers, in NumPy only, for the tests to compare against.

Nothing here shares code with the package and nothing is differentiated automatically.

Conventions: x right, y up, angles counter-clockwise, g = 9.81 in -y (planar) or -z (spatial). A link angle psi
points the link from its joint along (sin psi, -cos psi): zero hangs straight down. The contact normal points
from body b to body a (floor and wall are b), the tangent is the normal turned by -90 degrees,
t = (n_y, -n_x), and J_t is the velocity of the material point of a relative to that of b.
Equation of motion: M(q) vdot + bias(q, v) = tau + J_n^T lam_n + J_t^T lam_t, with gravity inside bias.
Impact functions take planar terms M (nv,nv), J_n (m,nv), J_t (m,nv), mu (m,) and return contact impulses in N s.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

G = 9.81


class Mechanism(NamedTuple):
    """One example: its terms as functions of (q) or (q, v), its initial state and the paper's settings."""

    mass_matrix: Callable
    bias: Callable
    contacts: Callable  # q -> phi (m,), J_n (m,nv), J_t (m,nv)
    q0: np.ndarray
    v0: np.ndarray
    mu: np.ndarray
    step: float | None = None  # largest normal impulse of one step, N s
    max_steps: int | None = None


# --- one rigid body in the plane


def body_mass_matrix(q, m, inertia):
    """Mass matrix of one rigid body with q = (x, y, theta) of its centre of mass."""
    return np.diag([m, m, inertia])


def body_bias(q, v, m):
    """Gravity on one rigid body; a centre-of-mass frame has no Coriolis terms."""
    return np.array([0.0, m * G, 0.0])


def corner_rows(q, corner):
    """World position of a body-fixed point and the rows of its x and y velocity, q = (x, y, theta)."""
    c, s = np.cos(q[2]), np.sin(q[2])
    rx, ry = c * corner[0] - s * corner[1], s * corner[0] + c * corner[1]
    return (q[0] + rx, q[1] + ry), np.array([1.0, 0.0, -ry]), np.array([0.0, 1.0, rx])


def rocking_block_contacts(q, w=1.0, h=2.0):
    """A = lower left corner, B = lower right corner, both with the floor."""
    (_, ya), xa_row, ya_row = corner_rows(q, (-w / 2, -h / 2))
    (_, yb), xb_row, yb_row = corner_rows(q, (w / 2, -h / 2))
    return np.array([ya, yb]), np.stack([ya_row, yb_row]), np.stack([xa_row, xb_row])


def rocking_block(w=1.0, h=2.0, m=1.0, drop=0.01, mu=1.0):
    """Uniform block dropped flat from height `drop`, at the instant both lower corners touch."""
    return Mechanism(
        partial(body_mass_matrix, m=m, inertia=m * (w**2 + h**2) / 12),
        partial(body_bias, m=m),
        partial(rocking_block_contacts, w=w, h=h),
        np.array([0.0, h / 2, 0.0]),
        np.array([0.0, -np.sqrt(2 * G * drop), 0.0]),
        np.full(2, mu),
        0.3,
        10,
    )


def box_and_wall_contacts(q, w=1.0):
    """A = body corner (+,-) with the floor y = 0; B = body corner (+,+) with the wall x = 0, n = (-1,0), t = (0,1)."""
    (_, ya), xa_row, ya_row = corner_rows(q, (w / 2, -w / 2))
    (xb, _), xb_row, yb_row = corner_rows(q, (w / 2, w / 2))
    return np.array([ya, -xb]), np.stack([ya_row, -xb_row]), np.stack([xa_row, yb_row])


def box_and_wall(w=1.0, m=1.0, tilt=np.deg2rad(10.0), speed=1.0, mu=1.0):
    """Square box turned by -tilt: lower corner on the floor, right corner at the wall, moving towards the wall."""
    reach = w / 2 * (np.cos(tilt) + np.sin(tilt))
    return Mechanism(
        partial(body_mass_matrix, m=m, inertia=m * w**2 / 6),
        partial(body_bias, m=m),
        partial(box_and_wall_contacts, w=w),
        np.array([-reach, reach, -tilt]),
        np.array([speed, 0.0, 0.0]),
        np.full(2, mu),
        2.0,
        5,
    )


# --- planar trees of links


def tree_mass_matrix(q, D, m, inertia, A):
    """Mass matrix of bodies at (x, y) + sum_k D[b,k] (sin psi_k, -cos psi_k), psi = A q[2:]; inertia (one per psi)."""
    psi, first, second = A @ q[2:], m @ D, (D.T * m) @ D
    M = np.zeros((q.size, q.size))
    M[0, 0] = M[1, 1] = m.sum()
    M[0, 2:], M[1, 2:] = first * np.cos(psi) @ A, first * np.sin(psi) @ A
    M[2:, :2] = M[:2, 2:].T
    M[2:, 2:] = A.T @ (second * np.cos(psi[:, None] - psi) + np.diag(inertia)) @ A
    return M


def tree_bias(q, v, D, m, A):
    """Centripetal terms and gravity of the same tree: a_b has -D psidot^2 (sin psi, -cos psi)."""
    psi, w2, first, second = A @ q[2:], (A @ v[2:]) ** 2, m @ D, (D.T * m) @ D
    b_psi = (second * np.sin(psi[:, None] - psi)) @ w2 + G * first * np.sin(psi)
    return np.concatenate(
        [[-first @ (np.sin(psi) * w2), first @ (np.cos(psi) * w2) + m.sum() * G], A.T @ b_psi]
    )


def tree_feet(q, F, disc, r, A):
    """Floor contacts of foot discs of radius r at distances F[i,k]; disc[i] is the link that carries disc i."""
    psi = A @ q[2:]
    phi = q[1] - F @ np.cos(psi) - r
    J_n = np.hstack([np.tile([0.0, 1.0], (len(F), 1)), F * np.sin(psi) @ A])
    J_t = np.hstack([np.tile([1.0, 0.0], (len(F), 1)), (F * np.cos(psi) + r * disc) @ A])
    return phi, J_n, J_t


def compass_gait(leg=1.0, m=1.0, phi=np.deg2rad(78.0), dphi=0.25, mu=5.0):
    """q = (hip x, hip y, phi_le, phi_tr); A = leading foot, B = trailing foot.

    The trailing foot rests at the origin, to the right of the hip (+phi); the leading foot comes down at
    x = -2 leg sin(phi), to its left (-phi): the gait walks towards -x.
    """
    D, F, zero = np.eye(2) * leg / 2, np.eye(2) * leg, np.zeros((2, 2))
    m2, A = np.full(2, m), np.eye(2)
    s, c = np.sin(phi), np.cos(phi)
    return Mechanism(
        partial(tree_mass_matrix, D=D, m=m2, inertia=np.zeros(2), A=A),
        partial(tree_bias, D=D, m=m2, A=A),
        partial(tree_feet, F=F, disc=zero, r=0.0, A=A),
        np.array([-leg * s, leg * c, -phi, phi]),
        dphi * np.array([-leg * c, -leg * s, 1.0, 1.0]),
        np.full(2, mu),
        0.25,
        5,
    )


def ramone_links():
    """Distances, masses and inertias of RAMone; psi = (trunk, thigh l, shank l, thigh t, shank t), absolute."""
    s1, s2, s3, l2, l3 = 0.137675, 0.019399, 0.2385 - 0.073265, 0.2, 0.2385
    D = np.array(
        [[0, 0, 0, 0, 0], [s1, s2, 0, 0, 0], [s1, l2, s3, 0, 0], [s1, 0, 0, s2, 0], [s1, 0, 0, l2, s3]]
    )
    F = np.array([[s1, l2, l3, 0, 0], [s1, 0, 0, l2, l3]])
    m = np.array([7.9026, 0.7887, 0.510, 0.7887, 0.510])
    inertia = np.array([0.08, 0.00221, 0.00652, 0.00221, 0.00652])
    A = np.array(
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 1, 1]], dtype=float
    )
    return D, F, m, inertia, A


def ramone(mu=1e5):
    """q = (x, y, theta, a_l, b_l, a_t, b_t); A = leading foot disc (left), B = trailing foot disc (right), floor."""
    D, F, m, inertia, A = ramone_links()
    r, disc = 0.0563 / 2, np.array([[0, 0, 1.0, 0, 0], [0, 0, 0, 0, 1.0]])
    theta, a_l, b_l, a_t = np.deg2rad([16.0, -70.0, -2.0, 70.0])
    below_hip = 0.2 * np.cos(theta + a_l) + 0.2385 * np.cos(theta + a_l + b_l)
    b_t = -np.arccos((below_hip - 0.2 * np.cos(theta + a_t)) / 0.2385) - theta - a_t
    q0 = np.array([0.0, below_hip + 0.137675 * np.cos(theta) + r, theta, a_l, b_l, a_t, b_t])
    contacts = partial(tree_feet, F=F, disc=disc, r=r, A=A)
    _, J_n, J_t = contacts(q0)
    v0 = np.array(
        [-J_t[1, 2], -J_n[1, 2], 1.0, 0, 0, 0, 0]
    )  # trunk at 1 rad/s about the resting trailing foot
    return Mechanism(
        partial(tree_mass_matrix, D=D, m=m, inertia=inertia, A=A),
        partial(tree_bias, D=D, m=m, A=A),
        contacts,
        q0,
        v0,
        np.full(2, mu),
        1.0,
        10,
    )


def three_link_walker(
    leg=1.0, m_leg=5.0, i_leg=0.4, m_hip=15.0, m_trunk=10.0, trunk=0.5, spread=0.25, mu=0.6
):
    """q = (hip x, hip y, trunk, leg 1, leg 2), absolute angles, trunk zero upright; contacts are the point feet."""
    D = np.array(
        [[0, 0, 0], [-trunk, 0, 0], [0, leg / 2, 0], [0, 0, leg / 2]]
    )  # the trunk mass sits above the hip
    F, m = np.array([[0, leg, 0], [0, 0, leg]]), np.array([m_hip, m_trunk, m_leg, m_leg])
    A, c, s = np.eye(3), np.cos(spread), np.sin(spread)
    q0 = np.array([0.0, leg * c, 0.1, -spread, spread])  # leg 2 stands at rest, leg 1 comes down
    return Mechanism(
        partial(tree_mass_matrix, D=D, m=m, inertia=np.array([0, i_leg, i_leg]), A=A),
        partial(tree_bias, D=D, m=m, A=A),
        partial(tree_feet, F=F, disc=np.zeros((2, 3)), r=0.0, A=A),
        q0,
        np.array([-leg * c, -leg * s, 0.0, 1.0, 1.0]),
        np.full(2, mu),
    )


# --- disks


def disks_mass_matrix(q, mass=1.0, r=1.0):
    """Uniform disks, q = (x, y, theta) of each."""
    return np.diag(np.tile([mass, mass, mass * r**2 / 2], q.size // 3))


def disks_bias(q, v, mass=1.0):
    """Gravity on each disk."""
    return np.tile([0.0, mass * G, 0.0], q.size // 3)


DISK_PAIRS = ((1, 0), (2, 0), (2, 1))  # (a, b): right-left, top-left, top-right


def disks_contacts(q, r=1.0):
    """A left-floor, B right-floor, C right-left, D top-left, E top-right; both surface points enter J_t with +r."""
    phi, J_n, J_t = np.zeros(5), np.zeros((5, 9)), np.zeros((5, 9))
    for i in range(2):
        phi[i] = q[3 * i + 1] - r
        J_n[i, 3 * i + 1] = 1.0
        J_t[i, [3 * i, 3 * i + 2]] = 1.0, r
    for k, (a, b) in enumerate(DISK_PAIRS, start=2):
        d = q[3 * a : 3 * a + 2] - q[3 * b : 3 * b + 2]
        dist = np.hypot(*d)
        n, phi[k] = d / dist, dist - 2 * r
        t = np.array([n[1], -n[0]])
        J_n[k, 3 * a : 3 * a + 2], J_n[k, 3 * b : 3 * b + 2] = n, -n
        J_t[k, 3 * a : 3 * a + 3], J_t[k, 3 * b : 3 * b + 3] = [*t, r], [*-t, r]
    return phi, J_n, J_t


def disk_stack(mass=1.0, r=1.0, speed=1.0, mu=np.sqrt(3.0)):
    """Left, right and top disk: the lower two on the floor and touching, the top one falling on both."""
    q0 = r * np.array([-1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0 + np.sqrt(3.0), 0.0])
    q0[2::3] = 0.0
    return Mechanism(
        partial(disks_mass_matrix, mass=mass, r=r),
        partial(disks_bias, mass=mass),
        partial(disks_contacts, r=r),
        q0,
        np.array([0, 0, 0, 0, 0, 0, 0, -speed, 0.0]),
        np.full(5, mu),
        1.0,
        10,
    )


MODELS = {f.__name__: f for f in (rocking_block, compass_gait, box_and_wall, ramone, disk_stack)}


# --- a free box in space

BOX_SIGNS = np.array(list(product((-1.0, 1.0), repeat=3)))  # the eight corners, x slowest, z fastest


def rotation(quat):
    """Rotation matrix, body to world, of a unit quaternion (w, x, y, z)."""
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def box3d_inertia(size, m):
    """Body inertia of a uniform box with edge lengths `size`."""
    a, b, c = size
    return m / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])


def box3d_mass_matrix(q, size=(1.0, 0.6, 0.4), m=1.0):
    """diag(m I3, I_body) for v = (world linear velocity, body angular velocity)."""
    return np.diag(np.concatenate([np.full(3, m), box3d_inertia(size, m)]))


def box3d_bias(q, v, size=(1.0, 0.6, 0.4), m=1.0):
    """(0, 0, m g, omega x I omega)."""
    return np.concatenate([[0.0, 0.0, m * G], np.cross(v[3:], box3d_inertia(size, m) * v[3:])])


def box3d_contacts(q, size=(1.0, 0.6, 0.4)):
    """Eight corners against z = 0: phi (8,), J_n (8,6), J_t (8,2,6) with t1 = e_x, t2 = e_y; rate v + R (w x r)."""
    R, r = rotation(q[3:]), BOX_SIGNS * np.asarray(size) / 2
    J = np.zeros((8, 3, 6))
    J[:, :, :3] = np.eye(3)
    for k in range(3):
        J[:, :, 3 + k] = np.cross(np.eye(3)[k], r) @ R.T
    return q[2] + r @ R[2], J[:, 2], J[:, :2]


# --- contact-space algebra


def energy(M, v):
    """Kinetic energy of v (..., nv)."""
    return 0.5 * np.einsum("...i,ij,...j", v, M, v)


def normalised(M, J_n, J_t, mu):
    """Unit-diagonal Delassus matrix, its scales d (u = d u~, lam = lam~ / d), scaled friction, J (normals first)."""
    J, m = np.vstack([J_n, J_t]), len(J_n)
    delassus = J @ np.linalg.solve(M, J.T)
    d = np.sqrt(np.diag(delassus))
    d[d == 0] = 1.0
    return delassus / np.outer(d, d), d, np.asarray(mu) * d[m:] / d[:m], J


def inverses(C, cond=1e11):
    """Inverses of a stack of matrices after row and column equilibration, and which of them are regular."""
    C, rows, cols = C.copy(), np.ones(C.shape[:2]), np.ones(C.shape[:2])
    for _ in range(4):
        for scale, axis in ((rows, 2), (cols, 1)):
            s = np.sqrt(np.abs(C).max(axis=axis))
            s[s == 0] = 1.0
            scale /= s
            C = C / (s[:, :, None] if axis == 2 else s[:, None, :])
    sv = np.linalg.svd(C, compute_uv=False)
    ok = sv[:, -1] * cond > sv[:, 0]
    return cols[ok, :, None] * np.linalg.inv(C[ok]) * rows[ok, None, :], ok


def lcp_bases(W):
    """For every regular index set of 0 <= z, y = W z + w >= 0: the map w -> (z inside, y outside), and the sets."""
    n = len(W)
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    inv, ok = inverses(np.where(sets[:, None, :], -W, np.eye(n)))
    return inv, sets[ok]


def lcp_vertices(bases, w, tol):
    """All basic solutions z (k, n) of the LCP with the bases of `lcp_bases`."""
    inv, sets = bases
    x = inv @ w
    good = (x >= -tol).all(axis=1)
    return np.where(sets, x, 0.0)[good]


def impact_matrix(delassus, mu, capped):
    """W of the planar impact LCP in (lam_n, lam_D+, lam_D-, gamma); `capped` puts beta in front, as in (75).

    A friction row is divided by max(1, mu): positive row scaling leaves the solutions and tames mu = 1e5.
    """
    m = len(mu)
    S = np.vstack([np.eye(2 * m), np.hstack([np.zeros((m, m)), -np.eye(m)])])
    big, I, Z = np.maximum(mu, 1.0)[:, None], np.eye(m), np.zeros((m, m))
    W = np.zeros((4 * m, 4 * m))
    W[: 3 * m, : 3 * m] = S @ delassus @ S.T
    W[: 3 * m, 3 * m :] = np.vstack([Z, I, I])
    W[3 * m :, : 3 * m] = np.hstack([np.diag(mu), -I, -I]) / big
    if not capped:
        return W
    top = np.hstack([Z, -I, Z, Z, Z])
    return np.vstack([top, np.hstack([-top[:, m:].T, W])])


def distinct(M, J, d, v, lam, sep=1e-7):
    """v_plus, lam_n, lam_t of impulses lam (k, 2m), duplicates in v_plus dropped, sorted.

    Distinct means |dv|_M > sep |v|_M. The order is lexicographic in the contact velocities
    (n, t of the first contact, then of the second, ...), rounded so that zeros tie.
    """
    m, scale = len(J) // 2, np.sqrt(2 * energy(M, v)) or 1.0
    v_plus = v + np.linalg.solve(M, (lam @ J).T).T
    keep = []
    for i, vi in enumerate(v_plus):
        if all(np.sqrt(2 * energy(M, vi - v_plus[j])) > sep * scale for j in keep):
            keep.append(i)
    keys = (
        (np.round(v_plus[keep] @ J.T / (d * scale), 6) + 0.0)
        .reshape(-1, 2, m)
        .swapaxes(1, 2)
        .reshape(-1, 2 * m)
    )
    order = [keep[i] for i in sorted(range(len(keep)), key=lambda i: tuple(keys[i]))]
    return v_plus[order], lam[order, :m], lam[order, m:]


# --- every solution, over all LCP index sets


def brute_bases(M, J_n, J_t, mu, capped):
    """The regular bases of an impact LCP; they depend on M, J, mu only, so many steps can share them."""
    delassus, _, mu_s, _ = normalised(M, J_n, J_t, mu)
    return lcp_bases(impact_matrix(delassus, mu_s, capped))


def anitescu_potra_solutions(M, J_n, J_t, mu, v, tol=1e-9, bases=None):
    """All distinct (v_plus, lam_n, lam_t) of the Anitescu-Potra impact LCP, over its 2^(4m) index sets (m <= 3)."""
    bases = bases or brute_bases(M, J_n, J_t, mu, False)
    _, d, _, J = normalised(M, J_n, J_t, mu)
    m, scale, u = len(J_n), np.sqrt(2 * energy(M, v)) or 1.0, J @ v / d
    z = scale * lcp_vertices(bases, np.concatenate([u, -u[m:], np.zeros(m)]) / scale, tol)
    lam = np.hstack([z[:, :m], z[:, m : 2 * m] - z[:, 2 * m : 3 * m]]) / d
    return distinct(M, J, d, v, lam)


def step_solutions(M, J_n, J_t, mu, v, lam_max, tol=1e-9, bases=None):
    """All distinct (v_plus, lam_n, lam_t) of one step LCP (75), over its 2^(5m) index sets (m <= 2; 3 is slow)."""
    bases = bases or brute_bases(M, J_n, J_t, mu, True)
    _, d, _, J = normalised(M, J_n, J_t, mu)
    m, scale, u = len(J_n), np.sqrt(2 * energy(M, v)) or 1.0, J @ v / d
    w = np.concatenate([lam_max * d[:m], u, -u[m:], np.zeros(m)])
    z = scale * lcp_vertices(bases, w / scale, tol)[:, m:]
    lam = np.hstack([z[:, :m], z[:, m : 2 * m] - z[:, 2 * m : 3 * m]]) / d
    return distinct(M, J, d, v, lam)


# --- every solution, over contact modes

CAPPED_MODES = ((None, 0),) + tuple(
    product(("capped", "rest"), (0, 1, -1))
)  # (normal, sign of sliding; 0 sticks)
PLAIN_MODES = tuple(mode for mode in CAPPED_MODES if mode[0] != "capped")


def mode_maps(M, J_n, J_t, mu, kinds=CAPPED_MODES):
    """For each regular combination of contact modes the map (u, lam_max) -> lam, in normalised units, and its modes."""
    delassus, _, mu_s, _ = normalised(M, J_n, J_t, mu)
    m, picks = len(J_n), np.array(list(product(range(len(kinds)), repeat=len(J_n))))
    C, B = np.zeros((len(picks), 2 * m, 2 * m)), np.zeros((len(picks), 2 * m, 3 * m))
    for i, (k, (normal, slide)) in product(range(m), enumerate(kinds)):
        rows, I = picks[:, i] == k, np.eye(2 * m)
        if normal == "rest":
            C[rows, i], B[rows, i, i] = delassus[i], -1.0
        else:
            C[rows, i], B[rows, i, 2 * m + i] = I[i], float(normal == "capped")
        if normal is None:
            C[rows, m + i] = I[m + i]
        elif slide == 0:
            C[rows, m + i], B[rows, m + i, m + i] = delassus[m + i], -1.0
        else:
            C[rows, m + i] = I[m + i] + slide * mu_s[i] * I[i]
    inv, ok = inverses(C)
    capped, slide = np.array([k[0] == "capped" for k in kinds]), np.array([k[1] for k in kinds])
    return inv @ B[ok], capped[picks[ok]], slide[picks[ok]]


def mode_vertices(maps, delassus, mu, u, lam_max, tol):
    """Impulses of the modes that satisfy every sign condition of (72)-(74), normalised units."""
    K, capped, slide = maps
    m, big = len(mu), np.maximum(mu, 1.0)
    lam = (K.reshape(-1, 3 * m) @ np.concatenate([u, np.where(np.isfinite(lam_max), lam_max, 0.0)])).reshape(
        -1, 2 * m
    )
    after = u + lam @ delassus
    lam_n, lam_t, u_n, u_t = lam[:, :m], lam[:, m:], after[:, :m], after[:, m:]
    good = (lam_n >= -tol) & (lam_n <= lam_max + tol) & np.where(capped, u_n <= tol, u_n >= -tol)
    good &= ((mu * lam_n - np.abs(lam_t)) / big >= -tol) & (slide * u_t >= -tol)
    return lam[good.all(axis=1)]


def mode_step_solutions(M, J_n, J_t, mu, v, lam_max, tol=1e-9, maps=None):
    """All distinct (v_plus, lam_n, lam_t) of one step LCP (75), over the 7^m contact modes.

    Complete where every mode is regular. Where a singular mode is feasible v_plus can range over a polyline
    (every step of the disk stack with several solutions): then only isolated corners of it come back, sometimes
    not all, for a corner with u_n = 0 and lam_n = lam_max at one contact may need fewer equations from the others.
    """
    maps = maps or mode_maps(M, J_n, J_t, mu)
    delassus, d, mu_s, J = normalised(M, J_n, J_t, mu)
    m, scale = len(J_n), np.sqrt(2 * energy(M, v)) or 1.0
    lam = mode_vertices(maps, delassus, mu_s, J @ v / d / scale, lam_max * d[:m] / scale, tol)
    return distinct(M, J, d, v, scale * lam / d)


def mode_anitescu_potra_solutions(M, J_n, J_t, mu, v, tol=1e-9):
    """All distinct (v_plus, lam_n, lam_t) of the Anitescu-Potra law, over its 4^m contact modes."""
    maps = mode_maps(M, J_n, J_t, mu, PLAIN_MODES)
    return mode_step_solutions(M, J_n, J_t, mu, v, np.full(len(J_n), np.inf), tol, maps)


# --- impacts


def simulate_routh(M, J_n, J_t, mu, v, lam_max, pick, stop=1e-8, maps=None):
    """Algorithm 1 with all step solutions as candidates: velocities (k+1, nv), candidates per step, terminated.

    lam_max (N, m) holds the caps of each step in N s; pick (N,) in [0, 1) chooses uniformly in the order of `distinct`.
    """
    maps, path, counts = maps or mode_maps(M, J_n, J_t, mu), [np.asarray(v, float)], []
    for cap, p in zip(lam_max, pick):
        if (J_n @ path[-1]).min() >= -stop:
            break
        options = mode_step_solutions(M, J_n, J_t, mu, path[-1], cap, maps=maps)[0]
        counts.append(len(options))
        path.append(options[int(p * len(options))])
    return np.array(path), counts, bool((J_n @ path[-1]).min() >= -stop)


def sequential(M, J_n, J_t, mu, v, order, max_impacts, stop=1e-8):
    """Single-contact impacts along the cycle `order`, skipping contacts not approaching: velocities, contacts hit."""
    path, hits, at = [np.asarray(v, float)], [], 0
    while len(hits) < max_impacts and (J_n[list(order)] @ path[-1]).min() < -stop:
        i, at = order[at % len(order)], at + 1
        if J_n[i] @ path[-1] < -stop:
            one = slice(i, i + 1)
            options = anitescu_potra_solutions(M, J_n[one], J_t[one], np.asarray(mu)[one], path[-1])[0]
            assert len(options) == 1, "a colliding single contact has one inelastic outcome"
            path.append(options[0])
            hits.append(i)
    return np.array(path), hits


def physical_residuals(M, J_n, J_t, mu, v, v_plus, lam_n, lam_t, lam_max=None):
    """Violations of (72) by an impulse: all zero for a solution. lam_max None means the Anitescu-Potra law.

    J_t may be (m, nv) or (m, nt, nv), lam_t (m,) or (m, nt). Units: momentum and cone in N s, energies in J.
    """
    m = len(J_n)
    J_t, lam_t = np.reshape(J_t, (m, -1, len(v))), np.reshape(lam_t, (m, -1))
    u_n, u_t, size = J_n @ v_plus, J_t @ v_plus, np.linalg.norm(lam_t, axis=1)
    out = {
        "momentum": np.abs(M @ (v_plus - v) - J_n.T @ lam_n - np.einsum("mtv,mt->v", J_t, lam_t)).max(),
        "pull": max(0.0, -lam_n.min()),
        "cone": max(0.0, (size - mu * lam_n).max()),
        "dissipation": np.abs((lam_t * u_t).sum(1) + mu * lam_n * np.linalg.norm(u_t, axis=1)).max(),
        "energy": max(0.0, energy(M, v_plus) - energy(M, v)),
    }
    if lam_max is None:
        out |= {"approach": max(0.0, -u_n.min()), "normal": np.abs(lam_n * u_n).max()}
    else:
        beta = np.maximum(0.0, -u_n)
        out |= {
            "cap": max(0.0, (lam_n - lam_max).max()),
            "beta": np.abs(beta * (lam_max - lam_n)).max(),
            "normal": np.abs(lam_n * (u_n + beta)).max(),
        }
    return out
