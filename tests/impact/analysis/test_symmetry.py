"""Mirror images of samples are outcomes; what is not symmetric is refused."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference
from scipy.stats import ks_2samp

import jaxcontact as jc
from jaxcontact.impact import mirrored, sample
from jaxcontact.impact.analysis.symmetry import check_symmetry
from jaxcontact.impact.sampling.draws import Iid


def load(name):
    model = getattr(jc.models, name)()
    return model, jc.contact_terms(model, model.initial_state()), model.initial_state().v


@pytest.mark.long
@pytest.mark.parametrize("name", ["rocking_block", pytest.param("disk_stack", marks=pytest.mark.slow)])
def test_mirror_images_obey_the_law(name):
    """One step: momentum, cones, caps and dissipation of the images, in plain NumPy."""
    model, terms, v = load(name)
    nc, nv = terms.J_n.shape
    key, count = jax.random.key(4), 64
    samples = sample(
        terms, v, jc.impact.Routh(impulse_step=0.6, max_steps=1), num_samples=count, seed=key, keep_path=True
    )
    both = mirrored(samples, terms, model.symmetry)
    assert both.v_plus.shape == (2 * count, nv) and both.path.shape == (2 * count, 2, nv)
    assert not both.independent
    for name in ("status", "num_iters", "energy_ratio", "residual"):
        assert np.array_equal(np.asarray(getattr(both, name)), np.tile(np.asarray(getattr(samples, name)), 2))
    np.testing.assert_allclose(both.path[:, -1], both.v_plus, atol=1e-13)
    caps = 0.6 * np.asarray(Iid(key=key).uniform(jnp.arange(count, dtype=jnp.uint32), 0, nc)).T
    plain = [np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu)]
    swapped = caps[:, list(model.symmetry.contacts)]  # the exchange is its own inverse
    for i in range(count):
        impulse = np.asarray(both.impulse[count + i])
        worst = reference.physical_residuals(
            *plain,
            np.asarray(v),
            np.asarray(both.v_plus[count + i]),
            impulse[:, 0],
            impulse[:, 1],
            swapped[i],
        )
        assert max(worst.values()) < 1e-9


def test_the_distribution_is_its_own_mirror_image():
    """Kolmogorov-Smirnov of half of the samples against the images of the other half, each velocity."""
    model, terms, v = load("rocking_block")
    samples = sample(
        terms,
        v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=4000,
        seed=jax.random.key(1),
    )
    both = np.asarray(mirrored(samples, terms, model.symmetry).v_plus)
    J = np.concatenate([np.asarray(terms.J_n), np.asarray(terms.J_t)[:, 0]])
    one, other = (both[:2000] @ J.T).round(9), (both[6000:] @ J.T).round(9)
    assert min(ks_2samp(one[:, k], other[:, k]).pvalue for k in range(4)) > 1e-3 / 4
    # A symmetric mean is exact: the block turns as often to the left as to the right.
    assert abs(np.mean(both[:, 2])) < 1e-15
    # The second image is the sample itself.
    twice = np.asarray(mirrored(samples.replace(v_plus=both[4000:]), terms, model.symmetry).v_plus)
    np.testing.assert_allclose(twice[4000:], both[:4000], atol=1e-15)


def test_asymmetry_is_refused():
    model, terms, v = load("disk_stack")
    cases = {
        "the mass matrix": (terms.replace(M=terms.M.at[0, 0].mul(1.1)), v),
        "mu": (terms.replace(mu=terms.mu.at[0].set(1.0)), v),
        "active": (terms.replace(active=terms.active.at[3].set(False)), v),
        "J_n": (terms.replace(J_n=terms.J_n.at[0, 0].add(0.1)), v),
        "J_t": (terms.replace(J_t=terms.J_t.at[0, 0, 1].add(0.1)), v),
        "v": (terms, v.at[6].set(0.1)),
    }
    for name, (changed, velocity) in cases.items():
        with pytest.raises(ValueError, match=f"symmetry: {name} is not its own mirror image"):
            check_symmetry(changed, velocity, model.symmetry)
    with pytest.raises(ValueError, match=r"a permutation of 5 contacts, got .*\(0, 0, 2, 3, 4\)"):
        check_symmetry(terms, v, dataclasses.replace(model.symmetry, contacts=(0, 0, 2, 3, 4)))
    assert np.array_equal(np.abs(check_symmetry(terms, v, model.symmetry)), np.ones(5))
    box = jc.models.box_drop_3d()
    spatial = jc.contact_terms(box, box.initial_state())
    with pytest.raises(ValueError, match="expected planar terms"):
        check_symmetry(
            spatial, box.initial_state().v, jc.Symmetry(velocity=jnp.eye(6), contacts=(0, 1, 2, 3))
        )
