"""Solutions of a step in space by brute force: a linear program for each assignment of contact modes.

Independent of the package, and of bases of the complementarity problem: redundant contacts are no trouble. SciPy,
unscaled, one nonnegative number per corner of the friction polygon of each contact.
"""

import itertools

import numpy as np
from scipy.optimize import linprog

from oracles.lcp_bases import polygon


def kinds(k, capped):
    """Modes of a contact: corners that may push, rows of (u_n, u_t1, u_t2) that are zero, and that are >= 0."""
    fan = polygon(k)
    ahead = np.roll(fan, -1, axis=0)
    normal, plane = np.array([[1.0, 0.0, 0.0]]), np.eye(3)[1:]

    def flat(rows):
        return np.concatenate([np.zeros((len(rows), 1)), rows], axis=1)

    slides = [(tuple(range(k)), plane, np.zeros((0, 3)))]
    for i in range(k):
        least = flat(fan - fan[i])  # (d - d_i) . u_t >= 0: corner i opposes most
        slides.append(((i,), np.zeros((0, 3)), least))
        slides.append(((i, (i + 1) % k), flat(ahead[i : i + 1] - fan[i : i + 1]), least))
    found = [("separate", (), np.zeros((0, 3)), normal)]
    found += [("rest", rays, np.concatenate([normal, zero]), least) for rays, zero, least in slides]
    if capped:
        found += [("cap", rays, zero, np.concatenate([-normal, least])) for rays, zero, least in slides]
    return found


def farthest(M, J_n, J_t, mu, v, cap, k, direction):
    """Of every assignment with solutions the velocity farthest along a direction (nv,); generic: a corner."""
    nc, fan = len(mu), polygon(k)
    inverse = np.linalg.inv(M)
    rays = np.stack([J_n[c][None] + mu[c] * fan @ J_t[c] for c in range(nc)])  # (nc, k, nv)
    rows = np.concatenate([J_n[:, None], J_t], axis=1)  # (nc, 3, nv)
    corners = []
    for each in itertools.product(kinds(k, cap is not None), repeat=nc):
        push = np.concatenate([rays[c][list(mode[1])] for c, mode in enumerate(each)])
        response = inverse @ push.T  # (nv, impulses)
        zero = np.concatenate([mode[2] @ rows[c] for c, mode in enumerate(each)])
        least = np.concatenate([mode[3] @ rows[c] for c, mode in enumerate(each)])
        of_contact = np.repeat(np.arange(nc), [len(mode[1]) for mode in each])
        total = of_contact[None] == np.arange(nc)[:, None]
        taken = np.array([mode[0] == "cap" for mode in each])
        rests = np.array([mode[0] == "rest" for mode in each])
        equal, right = zero @ response, -zero @ v
        below, bound = -least @ response, least @ v
        if cap is not None:
            equal, right = np.concatenate([equal, total[taken]]), np.concatenate([right, cap[taken]])
            below, bound = np.concatenate([below, total[rests]]), np.concatenate([bound, cap[rests]])
        if push.shape[0] == 0:
            good = np.all(bound >= -1e-9) and np.all(np.abs(right) < 1e-9)
            corners += [v] if good else []
            continue
        program = linprog(
            -direction @ response, A_ub=below, b_ub=bound, A_eq=equal, b_eq=right, bounds=(0, None)
        )
        assert program.status in (0, 2), program.message  # solved, or no solution
        if program.status == 0:
            corners.append(v + response @ program.x)
    return np.array(corners).reshape(-1, len(v))
