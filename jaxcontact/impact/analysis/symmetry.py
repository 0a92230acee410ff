"""Mirror images of samples of symmetric impacts (`mirrored`), and the test of the symmetry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_type
from jaxcontact.front_door import checked
from jaxcontact.impact.inputs import check_terms
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.mechanics.system import Symmetry
from jaxcontact.terms import ContactTerms


@checked()
def mirrored(samples: ImpactSamples, terms: ContactTerms, symmetry: Symmetry) -> ImpactSamples:
    """Return the n samples followed by their n mirror images.

    If the impact is its own mirror image (see `check_symmetry`), so is its set of outcomes: S v_plus, with
    the impulses exchanged between the contacts, obeys the law as v_plus does. The measure is its own image if
    exchanged contacts have the same `step` and density. Then averages over the 2 n samples have no more
    variance than averages over n samples, and averages that vanish by symmetry are exact. The 2 n samples are
    not independent.

    Args:
        samples: of the impact, n of them.
        terms: the contact terms that were sampled.
        symmetry: `model.symmetry`, or a `Symmetry` built by hand.

    Returns:
        ImpactSamples of 2 n samples; sample n + i is the image of sample i.

    Raises:
        ValueError: the impact is not symmetric; shapes that do not fit.

    Derivative: none; a host-level function.
    """
    check_type("samples", samples, ImpactSamples, "; draw them with sample(terms, v, ...)")
    sign = check_symmetry(terms, samples.v_minus, symmetry)
    image = np.asarray(symmetry.velocity).T
    order = np.argsort(symmetry.contacts)  # contact i comes from contact order[i]
    impulse = np.asarray(samples.impulse) * np.stack([np.ones_like(sign), sign], axis=-1)
    images = samples.replace(
        v_plus=np.asarray(samples.v_plus) @ image,
        impulse=impulse[:, order],
        path=None if samples.path is None else np.asarray(samples.path) @ image,
    )
    doubled = jax.tree.map(
        lambda a, b: jnp.concatenate([jnp.asarray(a), jnp.asarray(b, jnp.asarray(a).dtype)]),
        samples.replace(v_minus=None),
        images.replace(v_minus=None),
    )
    return doubled.replace(v_minus=samples.v_minus, independent=False)


def check_symmetry(terms: ContactTerms, v: jax.Array, symmetry: Symmetry) -> np.ndarray:
    """Check that a planar impact is its own mirror image within round-off; raise ValueError otherwise.

    With S = symmetry.velocity and contact i going to c(i): S^T M S = M, J_n[c(i)] S = J_n[i],
    J_t[c(i)] S = +-J_t[i], mu and active the same at i and c(i), and S v = v.

    Returns:
        (nc,) the signs of the tangential directions.
    """
    check_terms(terms)
    check_type("symmetry", symmetry, Symmetry, "; a symmetric model has .symmetry")
    mass, J_n, J_t, mu = (np.asarray(getattr(terms, name), float) for name in ("M", "J_n", "J_t", "mu"))
    S, image_contact = np.asarray(symmetry.velocity, float), np.array(symmetry.contacts)
    nc, nt, nv = J_t.shape
    if S.shape != (nv, nv) or sorted(symmetry.contacts) != list(range(nc)):
        raise ValueError(
            f"symmetry: expected velocity ({nv}, {nv}) and a permutation of {nc} contacts, got "
            f"{S.shape} and {symmetry.contacts}"
        )
    if nt != 1:
        raise ValueError("symmetry: expected planar terms, got spatial ones")
    tolerance = 1e3 * float(np.finfo(np.asarray(terms.M).dtype).eps)
    image = J_t[image_contact, 0] @ S
    sign = np.where(np.sum(image * J_t[:, 0], axis=1) < 0, -1.0, 1.0)
    active = np.asarray(terms.active)
    pairs = {
        "the mass matrix": (S.T @ mass @ S, mass),
        "J_n": (J_n[image_contact] @ S, J_n),
        "J_t": (image, sign[:, None] * J_t[:, 0]),
        "mu": (mu[image_contact], mu),
        "active": (active[image_contact].astype(float), active.astype(float)),
        "v": (S @ np.asarray(v, float), np.asarray(v, float)),
    }
    for name, (image_value, original) in pairs.items():
        error = float(np.max(np.abs(image_value - original)))
        if not error <= tolerance * max(float(np.max(np.abs(original))), 1e-300):
            raise ValueError(f"symmetry: {name} is not its own mirror image, it differs by {error:.2g}")
    return sign
