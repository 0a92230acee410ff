"""Checks of `contains` on sets that are known: a large family of outcomes and a tiny one elsewhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.problems import random_batch
from benchmarks.fuzz.tally import Tally

NV, LARGE = 5, 4096


def _family(
    rng: np.random.Generator, J: np.ndarray, modes: np.ndarray, count: int, width: float
) -> np.ndarray:
    """Velocities (count, nv) whose contacts (nc,) are open (0), stick (1) or slide (2), around one place."""
    u = np.zeros((count, *J.shape[:2]))
    place = rng.uniform(1.0, 4.0, J.shape[:2]) * np.where(np.arange(2) == 0, 1.0, rng.choice([-1, 1]))
    loose = place + width * rng.uniform(-0.2, 0.2, u.shape)
    u[:, :, 0] = np.where(modes == 0, loose[:, :, 0], 0.0)
    u[:, :, 1] = np.where(modes == 1, 0.0, loose[:, :, 1])
    return u.reshape(count, -1) @ np.linalg.pinv(J.reshape(-1, J.shape[-1])).T


def contains(seed: int) -> Tally:
    """Nothing is inside that lies much farther from every sample than its family is wide."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    batch = random_batch(rng, 1, 2, 2, NV, None)
    J = rng.normal(size=(1, 2, 2, NV))
    batch = batch._replace(J=J, active=np.ones((1, 2), bool), phi=np.zeros((1, 2)))
    terms, _ = batch.terms(np.float64)
    terms = jax.tree.map(lambda a: a[0], terms)
    first, second = rng.permutation([(0, 0), (1, 1), (0, 2), (2, 1), (0, 1)])[:2]
    width = float(rng.choice([0.0, 1e-3, 0.1]))
    tiny = int(rng.integers(1, 17))
    sets = [_family(rng, J[0], first, LARGE - tiny, width), _family(rng, J[0], second, tiny, width)]
    v_plus = np.concatenate(sets)[rng.permutation(LARGE)]
    root = np.linalg.cholesky(batch.M[0]).T
    far = np.linalg.norm((sets[0].mean(0) - sets[1].mean(0)) @ root.T)
    samples = jc.impact.ImpactSamples(
        v_minus=jnp.asarray(-v_plus[0]), v_plus=jnp.asarray(v_plus), impulse=jnp.zeros((LARGE, 2, 2)),
        status=jnp.zeros(LARGE, jnp.uint32), num_iters=jnp.ones(LARGE, jnp.int32),
        energy_ratio=jnp.ones(LARGE), residual=jnp.zeros(LARGE), independent=True,
    )  # fmt: skip
    centres = np.stack([s.mean(0) for s in sets])
    along = centres[0] + np.linspace(-1.0, 2.0, 13)[:, None] * (centres[1] - centres[0])
    around = centres[rng.integers(0, 2, 24)] + far * rng.normal(size=(24, NV)) @ np.linalg.inv(root).T
    members = np.concatenate([sets[0][:6], sets[1][:6]])
    probes = np.concatenate([along, around, members])
    answer = jc.impact.contains(samples, probes, terms=terms)
    inside = np.asarray(answer.inside)
    distance = np.min(
        [[np.linalg.norm((s - p) @ root.T, axis=1).min() for p in probes] for s in sets], axis=0
    )
    tally.problems += len(probes)
    tally.declined += int(np.sum(~inside[-len(members) :]))
    # A family is no wider than this, and its samples no farther apart.
    spread = max(np.linalg.norm((s - s.mean(0)) @ root.T, axis=1).max() for s in sets)
    limit = 4.0 * spread + 1e-6 * far
    note = f"{LARGE - tiny} and {tiny} samples {far:.3g} apart, width {width:g}"
    tally.judge("inside from afar", distance, limit, inside.astype(bool), note)
    tally.judge("distance", np.abs(np.asarray(answer.distance) - distance), 1e-9 * (1.0 + far))
    if len(sets[0]) >= 17:
        missed = ~inside.astype(bool)[-len(members) :][: min(6, len(sets[0]))]
        tally.judge("member of the large family", missed.astype(float), 0.5)
    return tally
