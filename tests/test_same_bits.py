"""The same seed has the same bits: on devices, cores, threads, in chunks, other processes, after a stop."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import concurrent.futures, hashlib, json, multiprocessing, os, sys, tempfile
import jax, jax.numpy as jnp, numpy as np

devices, cores, chunk, processes, stops = json.loads(sys.argv[1])

def digest(tree):
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()

def stop(done, total):
    if done < total:
        raise KeyboardInterrupt

def resumed(function, folder):
    if stops:
        try:
            function(checkpoint=folder, progress=stop)
        except KeyboardInterrupt:
            pass
    return function(checkpoint=folder)

def main():
    jax.config.update("jax_enable_x64", True)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import jaxcontact as jc
    from jaxcontact.batching import all_cores, work_queue
    all_cores.workers = lambda devices: list(devices) * cores
    SETTINGS = jc.compliant.Settings(cone="associated")
    assert len(jax.local_devices()) == devices
    context = multiprocessing.get_context("spawn")
    executor = concurrent.futures.ProcessPoolExecutor(processes, context) if processes else None
    model = jc.load_mjcf('''<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.11">
        <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>
        <geom type="sphere" size="0.1"/></body></worldbody></mujoco>''', planar=True)
    gait = jc.models.compass_gait()
    terms, v = jc.contact_terms(gait, gait.initial_state()), gait.initial_state().v
    law, start = jc.impact.Routh(impulse_step=0.25, max_steps=5), model.initial_state()

    def samples(**run):
        settings = jc.Run(chunk=chunk, executor=executor, **run)
        return jc.impact.sample(terms, v, law, num_samples=1000, seed=3, run=settings)

    def worlds(**run):
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (150, *leaf.shape)), start)
        states = states.replace(v=states.v + jnp.arange(150.0)[:, None] / 100)
        found = jc.simulate.ensemble(model, states, jc.simulate.MotionSettings(stepper=jc.simulate.Compliant(settings=SETTINGS), dt=0.01, duration=0.04),
                                     num_worlds=150, run=jc.Run(chunk=chunk, executor=executor, **run))
        return found.states, found.status

    def step(v):
        return jc.compliant.step(model, start.replace(v=v), jnp.zeros(model.num_controls), dt=0.01, settings=SETTINGS)[0].v

    speeds = jnp.asarray(np.random.default_rng(0).standard_normal((61, 3)))
    with tempfile.TemporaryDirectory() as folder:
        drawn = resumed(samples, folder + "/samples")
        print(json.dumps({
            "sample": digest((drawn.v_plus, drawn.impulse, drawn.status)),
            "ensemble": digest(resumed(worlds, folder + "/worlds")),
            "on_all_cores": digest(jc.on_all_cores(jax.vmap(step))(speeds)),
            "simd": digest(jc.simd(step)(speeds)),
        }))

if __name__ == "__main__":
    main()
"""

# devices, cores, chunk, processes, whether it stops
CASES = [(1, 1, 64, 0, False), (8, 8, 300, 0, True), (3, 2, 97, 0, False), (1, 2, 50, 2, False)]


@pytest.mark.slow
def test_the_bits_of_a_seed_hang_on_nothing_else(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    found = []
    for case in CASES:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={case[0]}"
        done = subprocess.run(
            [sys.executable, tmp_path / "program.py", json.dumps(case)],
            env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
        assert found[-1] == found[0], case
