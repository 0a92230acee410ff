"""`ensemble`: the bits of every world, whatever the chunk, the neighbours and the interruptions."""

import dataclasses
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drifting import Drift
from helpers.sliding_disc import PARAMS, STATE, SYSTEM

import jaxcontact as jc
from jaxcontact.io.run_store import num_finished
from jaxcontact.simulate import ensemble

DRIFT = jc.simulate.MotionSettings(stepper=Drift(size=0.1), dt=0.01, duration=0.05)


def run(num_worlds=10, state=STATE, motion=DRIFT, chunk=None, checkpoint=None, progress=None, **more):
    return jc.simulate.ensemble(
        jc.Model(system=SYSTEM, params=PARAMS),
        state,
        motion,
        run=jc.Run(chunk=chunk, checkpoint=checkpoint, progress=progress),
        **({"seed": 3, "num_worlds": num_worlds} | more),
    )


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setattr(sys.modules[ensemble.__module__], "WIDTH", 4)


def test_worlds_have_the_same_bits_in_any_chunk():
    seen = []
    whole = run(keep_path=True, progress=lambda *at: seen.append(at), chunk=4)
    assert seen == [(4, 10), (8, 10), (10, 10)] and whole.path.q.shape == (10, 6, 3)
    assert len(np.unique(whole.states.q[:, 0])) == 10 and not np.any(jc.Status.failed(whole.status))
    assert whole.summary == "0 of 10 worlds failed"
    other = run(keep_path=True, chunk=3)
    chex.assert_trees_all_equal(whole, other)
    single = jc.simulate.rollout(
        jc.Model(system=SYSTEM, params=PARAMS), STATE, jnp.zeros((5, 3)), stepper=DRIFT.stepper, dt=0.01,
        key=jax.random.fold_in(jax.random.key(3), 7),
    )  # fmt: skip
    np.testing.assert_allclose(whole.path.q[7], single.states.q, rtol=1e-12, atol=1e-14)
    closed = np.asarray(whole.path.v[..., 0] > 1.0)
    closed[:, 0] = True
    np.testing.assert_array_equal(whole.closings, np.sum(closed[:, 1:] & ~closed[:, :-1], axis=1))
    means = run(reduce=lambda total, part: (total or 0.0) + part.states.q[:, 0].sum(), chunk=3)
    np.testing.assert_allclose(means, np.sum(whole.states.q[:, 0]), rtol=1e-14)


def test_a_failed_world_is_named_and_touches_no_other():
    v = np.tile(np.asarray(STATE.v), (10, 1))
    states = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (10, *leaf.shape)), STATE)
    good = run(state=states)
    v[5, 0] = np.nan
    bad = run(state=states.replace(v=v))
    assert bad.summary.splitlines()[:2] == [
        "1 of 10 worlds failed",
        "  world 5 at step 0: " + jc.Status.describe(bad.status[5] & int(jc.Status.FAILURES)),
    ]
    others = np.arange(10) != 5
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda leaf: leaf[others], (each.states, each.status)) for each in (good, bad))
    )


def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path):
    whole = run()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "run", progress=stop, chunk=4)
    assert num_finished(tmp_path / "run") == 4
    chex.assert_trees_all_equal(run(checkpoint=tmp_path / "run", chunk=3), whole)
    chex.assert_trees_all_equal(run(checkpoint=tmp_path / "run"), whole)  # read alone
    with pytest.raises(ValueError, match="is of another run and was left as it is; these differ: program"):
        run(checkpoint=tmp_path / "run", seed=4)
    with pytest.raises(ValueError, match="run.devices: expected None; this driver has no use for it"):
        jc.simulate.ensemble(
            jc.Model(system=SYSTEM, params=PARAMS),
            STATE,
            DRIFT,
            run=jc.Run(devices=jax.local_devices()),
            num_worlds=2,
        )


def test_swapped_blocks_are_refused(tmp_path):
    """Two blocks whose rows, in every array, changed places."""
    run(checkpoint=tmp_path)
    for file in tmp_path.glob("*.npy"):
        rows = np.load(file)
        np.save(file, rows[[4, 5, 6, 7, 0, 1, 2, 3, 8, 9]])
    with pytest.raises(ValueError, match=r"\.npy is not as it was written in worlds 0 to 3"):
        run(checkpoint=tmp_path)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="num_worlds: expected an integer >= 1, got 0"):
        run(0)
    with pytest.raises(ValueError, match="seed: expected an integer >= 0, got -1"):
        run(seed=-1)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), STATE)
    with pytest.raises(ValueError, match=r"state: expected one state, or a first axis of 10, got \[\(3,\)\]"):
        run(state=states)
    with pytest.raises(TypeError, match="reduce: expected a function or Reduction, got 1"):
        run(reduce=1)
    with pytest.raises(TypeError, match="motion: expected MotionSettings, got None"):
        run(motion=None)
    with pytest.raises(TypeError, match="stepper: expected a Stepper"):
        jc.simulate.MotionSettings(stepper=None, dt=0.01, duration=0.05)


@pytest.mark.long
def test_worlds_take_wrenches():
    """All worlds get the wrench of a step, as `rollout` does."""
    push = {"disc": jnp.zeros((5, 3)).at[:, 0].set(2.0)}
    motion = dataclasses.replace(
        DRIFT, stepper=jc.simulate.Compliant(), controls=jc.simulate.Inputs(applied=push)
    )
    found = run(2, motion=motion)
    model = jc.Model(system=SYSTEM, params=PARAMS)
    one = jc.simulate.rollout(model, STATE, motion.controls, num_steps=5, stepper=motion.stepper, dt=0.01)
    rest = jc.simulate.rollout(model, STATE, None, num_steps=5, stepper=motion.stepper, dt=0.01)
    np.testing.assert_allclose(found.states.v, np.tile(one.states.v[-1], (2, 1)), rtol=1e-12, atol=1e-15)
    assert abs(found.states.v[0, 0] - rest.states.v[-1, 0]) > 1e-3
