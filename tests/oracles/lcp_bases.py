"""Every solution of a step in space by brute force: all complementary bases of its linear complementarity problem.

Independent of the package: NumPy, unscaled, one column per corner of the friction polygon.
"""

import itertools

import numpy as np

SMALL = 1e-10  # violation that round-off explains, relative


def polygon(k):
    """Corners (k, 2) of the friction polygon."""
    angle = 2 * np.pi * np.arange(k) / k
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def step_lcp(M, J_n, J_t, mu, v, cap, k):
    """(W, w) of z = (beta, lam_n, lam_D, gamma) contact by contact, and the map from z to impulse J^T lam."""
    nc = len(mu)
    inverse = np.linalg.inv(M)
    fan = np.einsum("di,civ->cdv", polygon(k), J_t)
    size = k + 3 if cap is not None else k + 2
    n = nc * size
    W, w, push = np.zeros((n, n)), np.zeros(n), np.zeros((len(v), n))
    for c in range(nc):
        at = c * size + (cap is not None)
        push[:, at], push[:, at + 1 : at + 1 + k] = J_n[c], fan[c].T
    for c in range(nc):
        at = c * size + (cap is not None)
        rows = np.concatenate([J_n[c][None], fan[c]])
        W[at : at + 1 + k] = rows @ inverse @ push
        w[at : at + 1 + k] = rows @ v
        W[at + 1 : at + 1 + k, at + 1 + k] = 1.0
        W[at + 1 + k, at], W[at + 1 + k, at + 1 : at + 1 + k] = mu[c], -1.0
        if cap is not None:
            W[at, at - 1], W[at - 1, at], w[at - 1] = 1.0, -1.0, cap[c]
    return W, w, inverse @ push


def bases(nc, k, capped):
    """(number, n) bool: which z are basic. Four columns of lam_D of one contact are dependent, always."""
    one = [
        (*b, n, *d, g)
        for b in itertools.product((False, True), repeat=int(capped))
        for n in (False, True)
        for d in itertools.product((False, True), repeat=k)
        if sum(d) <= 3
        for g in (False, True)
    ]
    return np.array([sum(each, ()) for each in itertools.product(one, repeat=nc)])


def solutions(M, J_n, J_t, mu, v, cap, k, chunk=2**14):
    """Distinct velocities (s, nv) after the step, of all regular bases."""
    W, w, response = step_lcp(M, J_n, J_t, mu, v, cap, k)
    n = len(w)
    found = []
    sets = bases(len(mu), k, cap is not None)
    size = np.abs(w).max()
    for begin in range(0, len(sets), chunk):
        basic = sets[begin : begin + chunk]
        # Columns: W z - s = -w with z basic or s basic.
        columns = np.where(basic[:, None, :], W[None], -np.eye(n)[None])
        _, logdet = np.linalg.slogdet(columns)
        columns, basic = columns[np.isfinite(logdet)], basic[np.isfinite(logdet)]
        values = np.linalg.solve(columns, np.broadcast_to(-w, (len(columns), n))[..., None])[..., 0]
        z = np.where(basic, values, 0.0)
        rest = np.abs(np.einsum("kij,kj->ki", columns, values) + w).max(axis=1)
        good = (rest <= 1e-9 * size) & (values >= -SMALL * size).all(axis=1)
        found += list(v + z[good] @ response.T)
    distinct = []
    for each in found:
        if all(np.abs(each - other).max() > 1e-7 for other in distinct):
            distinct.append(each)
    return np.array(distinct).reshape(-1, len(v))
