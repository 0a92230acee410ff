"""A batch over the devices of many hosts, inside one program: the bits of one process, and no gather.

Two processes with four devices of a CPU each stand for two hosts; `jax.shard_map` maps a function of some worlds
over the devices. Collectives are counted in the compiled program.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

PROGRAM = """
import hashlib, json, re, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
if len(sys.argv) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
import jaxcontact as jc

mesh = jax.make_mesh((8,), ("worlds",))
worlds, everywhere = P("worlds"), P()
NUM_WORLDS = 8

def on_all_devices(function, inputs, outputs):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False))

def placed(array, spec):
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])

gait = jc.models.compass_gait()
terms, v = jc.contact_terms(gait, gait.initial_state()), gait.initial_state().v
law = jc.impact.Routh(impulse_step=0.25, max_steps=5)

def draw(v, seed):
    return jc.impact.sample_in_jit(terms, v, law, jax.random.key(seed), num_samples=4)[0]

ball = jc.load_mjcf('''<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.11"><joint type="slide"
axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/><geom type="sphere" size="0.1"/></body>
</worldbody></mujoco>''', planar=True)

def move(q, mass):
    model = ball.replace(params=ball.params.replace(mass=ball.params.mass * mass))
    start = ball.initial_state().replace(q=ball.initial_state().q + q, v=jnp.array([1.0, -1.0, 0.5]))
    return jc.compliant.rollout(model, start, jnp.zeros((2, ball.num_controls)), dt=0.01)[0].q[-1]

def mean_gradient(q, mass):
    of_these = jax.grad(lambda mass: jnp.sum(jax.vmap(move, (0, None))(q, mass) ** 2))(mass)
    return jax.lax.psum(of_these, "worlds") / NUM_WORLDS

speeds = placed(np.asarray(v) * (1.0 + 0.01 * np.arange(NUM_WORLDS))[:, None], worlds)
seeds = placed(np.arange(NUM_WORLDS), worlds)
q = placed(0.001 * np.random.default_rng(0).standard_normal((NUM_WORLDS, 3)), worlds)
mass = placed(np.float64(1.0), everywhere)
programs = {
    "samples": (on_all_devices(jax.vmap(draw), (worlds, worlds), worlds), (speeds, seeds)),
    "motion": (on_all_devices(jax.vmap(move, (0, None)), (worlds, everywhere), worlds), (q, mass)),
    "gradient": (on_all_devices(mean_gradient, (worlds, everywhere), everywhere), (q, mass)),
}
report = {}
for name, (function, arguments) in programs.items():
    compiled = function.lower(*arguments).compile()
    text = compiled.as_text()
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    report[name] = {
        "collectives": {kind: len(re.findall(rf" {kind}(?:-start)?[(]", text)) for kind in kinds},
        "shards": {
            str(shard.index): hashlib.sha256(np.asarray(shard.data).tobytes()).hexdigest()
            for shard in compiled(*arguments).addressable_shards
        },
        "bytes": sum(shard.data.nbytes for shard in arguments[0].addressable_shards),
    }
print(json.dumps(report))
"""


def start(devices, *arguments):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], env=os.environ | {"XLA_FLAGS": flags},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def reports(processes):
    try:
        outputs = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.mark.slow
def test_two_processes_of_four_devices_give_the_bits_of_one_with_eight():
    (one,) = reports([start(8)])
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    two = reports([start(4, port, str(k)) for k in range(2)])
    for name, expected in (("samples", 0), ("motion", 0), ("gradient", 1)):
        for report in (one, *two):
            counted = report[name]["collectives"]
            assert counted.pop("all-reduce") == expected, name
            assert not any(counted.values()), (name, counted)
        shards = [report[name]["shards"] for report in two]
        assert shards[0] | shards[1] == one[name]["shards"], name
        assert all(2 * report[name]["bytes"] == one[name]["bytes"] for report in two)  # no host has the batch
