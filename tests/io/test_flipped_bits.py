"""A wrong bit in any file of a long run: loading and resuming give the same numbers or name the file."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.stability_bodies import fig2
from inputs import valid_calls as valid

import jaxcontact as jc


def samples(path, stop_at=None):
    def progress(done, total):
        if done == stop_at:
            raise KeyboardInterrupt

    start = valid.gait().initial_state().v
    run = jc.Run(checkpoint=path, chunk=6, progress=progress)
    return jc.impact.sample(valid.terms(), start, valid.LAW, num_samples=16, run=run)


def stopped_samples(path):
    with pytest.raises(KeyboardInterrupt):
        samples(path, stop_at=12)


def worlds(path):
    model = valid.block()
    return jc.simulate.ensemble(
        model, model.initial_state(),
        jc.simulate.MotionSettings(
            stepper=jc.simulate.TimeStepping(impact=jc.impact.AnitescuPotra()), duration=0.02, dt=0.01
        ),
        num_worlds=140, run=jc.Run(checkpoint=path),
    )  # fmt: skip


def objective(z):
    return jnp.sum((z - 1.0) ** 2)


def optimum(path):
    run = jc.Run(checkpoint=path)
    return jc.optimize.trajectory(
        objective, jnp.array([1.5, 0.7]), optimizer=optax.adam(0.05), num_steps=12, run=run
    )


def optima(path):
    def search(z):
        return jc.optimize.trajectory(objective, z, optimizer=optax.adam(0.05), num_steps=2)

    starts = jnp.array([[1.5, 0.7], [0.2, 0.1], [2.0, 1.0]])
    run = jc.Run(checkpoint=path, about={"search": "two steps"})
    return jc.optimize.search_from_starts(search, starts, run=run)


def chart(path):
    grid = {"d": [0.4, 0.5], "mu1": [0.2, 0.8]}
    return jc.stability.chart(fig2, grid, num_samples=4, run=jc.Run(checkpoint=path))


def save_trajectory(path):
    valid.trajectory(valid.block()).save(path)


def save_worlds(path):
    worlds(None).save(path)


# The file or folder, what makes it, what reads it, and the number of flips of the long test.
KINDS = {
    "samples loaded": ("run", samples, jc.impact.load_samples, 20_000),
    "samples resumed": ("run", samples, samples, 15_000),
    "stopped samples loaded": ("run", stopped_samples, jc.impact.load_samples, 10_000),
    "stopped samples resumed": ("run", stopped_samples, samples, 5_000),
    "worlds resumed": ("run", worlds, worlds, 300),
    "chart resumed": ("chart.npz", chart, chart, 20_000),
    "optimiser resumed": ("run.npz", optimum, optimum, 1_500),
    "optimisers resumed": ("run", optima, optima, 15_000),
    "trajectory loaded": ("motion.npz", save_trajectory, jc.simulate.Trajectory.load, 15_000),
    "saved worlds loaded": ("worlds.npz", save_worlds, jc.simulate.Ensemble.load, 15_000),
}


def numbers(value):
    """Copies of all arrays; those of a store are mapped."""
    return [np.array(leaf) for leaf in jax.tree.leaves(value)]


def same(one, other):
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(one, other, strict=True)
    )


def check_flips(kind, folder, count, seed):
    """Flip bits one at a time; the numbers are as before, or a ValueError names the file or the run."""
    name, make, read, _ = KINDS[kind]
    path = folder / name
    make(path)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    contents = {file: file.read_bytes() for file in files}

    def restore():
        for file, data in contents.items():
            if file.read_bytes() != data:
                file.write_bytes(data)

    expected = numbers(read(path))
    restore()
    rng = np.random.default_rng(seed)
    sizes = np.array([len(data) for data in contents.values()])
    refused = 0
    for _ in range(count):
        file = files[rng.choice(len(files), p=sizes / sizes.sum())]
        data = bytearray(contents[file])
        place = int(rng.integers(8 * len(data)))
        data[place // 8] ^= 1 << place % 8
        file.write_bytes(data)
        message = ""
        try:
            assert same(numbers(read(path)), expected), (file.name, place)
        except ValueError as error:
            message, refused = str(error), refused + 1
        assert not message or file.name in message, (file.name, place, message)
        restore()
    return refused


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_refused_or_harmless(kind, tmp_path):
    assert check_flips(kind, tmp_path, max(4, KINDS[kind][3] // 500), 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_flipped_bits_are_refused_or_harmless(kind, tmp_path):
    check_flips(kind, tmp_path, KINDS[kind][3], 1)


def test_the_long_test_flips_a_hundred_thousand_bits():
    assert sum(count for *_, count in KINDS.values()) >= 100_000
