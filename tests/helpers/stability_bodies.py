"""Bodies that the tests of stability share."""

import jax
import numpy as np

from jaxcontact.stability import LocalTerms, PlanarBiped
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.falsify import run_many
from jaxcontact.stability.motion import motion_path

# Points of Fig. 3, 30 by 30, that one form does not prove: columns by row.
UNDECIDED_FIG3 = {2: range(7), 3: range(6), 4: range(5), 5: range(4), 6: (1, 2)}
ALPHA2, ALPHA3 = np.deg2rad(30.0), np.deg2rad(20.0)


def fig2(d, mu1, h=1.0):
    """Varkonyi, Fig. 2; foot 1 is uphill."""
    middle = h * np.tan(ALPHA2)
    return PlanarBiped(alpha=ALPHA2, h=h, L1=middle - d, L2=middle + d, mu1=mu1, mu2=2.0)


def fig3(d, mu, e=0.1, h=1.0):
    """Varkonyi, Fig. 3; foot 1 is uphill."""
    middle = h * np.tan(ALPHA3)
    return PlanarBiped(alpha=ALPHA3, h=h, L1=middle - d, L2=middle + d, mu1=mu, mu2=mu, e1=e, e2=e)


def particle(alpha, mu, e):
    """A point mass on a slope."""
    return LocalTerms(
        M=np.eye(2), J_n=np.array([[0.0, 1.0]]), J_t=np.array([[1.0, 0.0]]), mu=np.array([mu]),
        e=np.array([e]), force=np.array([np.sin(alpha), -np.cos(alpha)]),
    )  # fmt: skip


def three_feet(alpha, mu, e=0.0):
    """A body on three feet in a line on a slope."""
    x = np.tan(alpha) + np.array([-0.6, 0.1, 0.5])
    one, zero = np.ones(3), np.zeros(3)
    return LocalTerms(
        M=np.eye(3), J_n=np.stack([zero, one, x], axis=1), J_t=np.stack([one, zero, one], axis=1),
        mu=np.array(mu), e=np.full(3, e), force=np.array([np.sin(alpha), -np.cos(alpha), 0.0]),
    )  # fmt: skip


def energy_and_function_along(body, certificate, samples=32, events=60):
    """Largest rise of V between the events of random motions, at the size of the state, and how many."""
    terms = jax.tree.map(np.asarray, as_terms(body))
    V = certificate.V[0]
    linear = np.array([float(x) for x in V.linear])
    quadratic = np.array([[float(x) for x in row] for row in V.quadratic])
    turns = np.array([[float(x) for x in row] for row in V.turns])
    kinds = len(turns) // len(terms.J_n)
    rows = zip(np.repeat(terms.J_n, kinds, axis=0), turns)
    parts = [quadratic, *(quadratic + np.outer(n, b) + np.outer(b, n) for n, b in rows)]
    many = jax.tree.map(lambda x: x[None], terms)
    starts, _ = run_many(many, samples, 3, 1)
    path, note = jax.vmap(lambda start: motion_path(terms, start, num_events=events))(
        jax.tree.map(lambda x: x[0], starts)
    )
    path, note = jax.tree.map(np.asarray, (path, note))
    worst, compared = -np.inf, 0
    for lane in range(samples):
        q, last = np.linalg.pinv(terms.J_n) @ path.gaps[lane, 0], None
        for k in range(events - 1):
            if path.outcome[lane, k] or np.abs(q).max() > 1e3:
                break
            seen = []
            before, after = path.v[lane, k], note["v"][lane, k]
            contact, time = note["contact"][lane, k], note["duration"][lane, k]
            flight = note["mode"][lane, k] == 0
            if contact >= 0:
                slip = terms.J_t[contact] @ after
                kind = 0 if kinds == 1 or abs(slip) < 1e-9 else 1 if slip > 0 else 2
                which = 1 + kinds * contact + kind if terms.e[contact] > 0 else 0
                seen = [linear @ q + 0.5 * after @ parts[which] @ after]
            elif not flight and last is not None:
                seen = [linear @ q + 0.5 * before @ quadratic @ before]
            q = q + before * time + 0.5 * note["acceleration"][lane, k] * time**2
            if contact < 0 and not flight and last is not None:
                seen.append(linear @ q + 0.5 * after @ quadratic @ after)
            for value in seen:
                if last is not None:
                    worst, compared = max(worst, value - last), compared + 1
                last = value
            shrink = np.exp(path.log_size[lane, k + 1] - path.log_size[lane, k])
            q, last = q / shrink**2, None if last is None else last / shrink**2
    return worst, compared


def random_biped(rng, restitutions):
    """A body on two inclined grounds, of any friction; the first foot has one of the restitutions."""
    return PlanarBiped(
        alpha=rng.uniform(-0.6, 0.6), h=rng.uniform(0.3, 1.5), L1=rng.uniform(-1.5, -0.1),
        L2=rng.uniform(0.1, 1.5), phi1=rng.uniform(-0.5, 0.5), phi2=rng.uniform(-0.5, 0.5),
        mu1=rng.uniform(0.1, 1.5), mu2=rng.uniform(0.1, 1.5), e1=rng.choice(restitutions),
        e2=rng.choice([0, 0.1, 0.4]),
    )  # fmt: skip
