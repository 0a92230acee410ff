"""`jc.simd`: batches of any size and any arrays, bad input, programs that are kept, and robots."""

import functools
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.batching import simd
from jaxcontact.batching.world_code import mark_seldom
from jaxcontact.native import llvm_worker, machine_code, object_files, operations
from jaxcontact.native.operations import Block
from jaxcontact.status import Status
from tests.helpers.by_lanes import close


@pytest.mark.float32
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 9, 13, 700])
def test_batches_of_any_size(size):
    x = np.linspace(-1.0, 1.0, 3 * size).reshape(size, 3)
    close(lambda x, n: {"a": jnp.sum(x) * n, "b": (x > 0, n - 1)}, x, np.arange(size))


@pytest.mark.float32
def test_nothing_depends_on_the_other_worlds_nor_on_the_number_of_cores(monkeypatch):
    def function(x, n):
        return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]

    run = jc.simd(function)
    x, n = np.linspace(0.1, 3.0, 37), np.arange(37) % 11
    found = run(x, n)
    monkeypatch.setattr(simd, "SHARE", 1)
    monkeypatch.setattr(simd, "workers", lambda devices: list(devices) * 5)
    np.testing.assert_array_equal(run(x, n), found)
    order = np.random.default_rng(0).permutation(37)
    np.testing.assert_array_equal(run(x[order], n[order]), found[order])


def test_a_function_without_numbers_of_the_batch():
    found = jc.simd(lambda x: (jnp.arange(3), x[:0], jnp.float64(2.0)))(np.ones((2, 4)))
    np.testing.assert_array_equal(found[0], [[0, 1, 2]] * 2)
    assert found[1].shape == (2, 0) and found[2].tolist() == [2.0, 2.0]


def test_a_batch_needs_one_first_axis():
    run = jc.simd(lambda *x: x[0])
    for batch in ((), (np.ones(()),), (np.ones(0),), (np.ones(2), np.ones(3))):
        with pytest.raises(ValueError, match="batch: expected"):
            run(*batch)


def test_it_is_traced_once_for_each_kind_of_batch():
    traces = []

    def function(x):
        traces.append(x.shape)
        return 2 * x

    run = jc.simd(function)
    for size, width in ((3, 2), (5, 2), (900, 2), (3, 1), (4, 1)):
        np.testing.assert_array_equal(run(np.ones((size, width))), 2 * np.ones((size, width)))
    assert traces == [(2,), (1,)]


def test_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxcontact\[simd\]'"):
        jc.simd(jnp.sin)


def test_a_program_that_is_too_large(monkeypatch):
    monkeypatch.setattr(operations, "MOST_OPERATIONS", 1000)
    with pytest.warns(UserWarning, match="at most 1000 operations of one world, got more; it runs as jc.on"):
        found = jc.simd(lambda x: x @ x @ x)(np.ones((2, 12, 12)))
    np.testing.assert_array_equal(found, np.full((2, 12, 12), 144.0))


def test_a_long_program_warns_the_caller(monkeypatch):
    monkeypatch.setattr(machine_code, "MANY", 100)
    with pytest.warns(UserWarning, match="operations of one world, which may take minutes") as caught:
        jc.simd(lambda x: x @ x)(np.ones((2, 5, 5)))
    assert caught[0].filename == __file__


@pytest.fixture
def levels(monkeypatch):
    """The levels at which the modules of each program are compiled, as a set per program."""
    levels, compiled = [], machine_code.object_files.read_or_compile

    def watched(modules, workers):
        levels.append({level for _, level in modules})
        return compiled(modules, workers)

    monkeypatch.setattr(machine_code.object_files, "read_or_compile", watched)
    return levels


def test_a_large_program_is_compiled_quickly(monkeypatch, levels):
    """Its code differs, its results by rounding at most; what calls its pieces is small."""
    x = np.random.default_rng(0).normal(size=(9, 5, 5))
    products = []
    for large in (100_000, 100):
        monkeypatch.setattr(machine_code, "LARGE", large)
        products.append(jc.simd(lambda x: jnp.sin(x @ x) @ x)(x))
    assert levels == [{1}, {0, 1}]
    np.testing.assert_allclose(products[0], products[1], rtol=1e-13, atol=1e-14)


def test_a_body_that_runs_seldom_is_compiled_quickly(levels):
    """The loops inside of it run often when it does; the numbers are XLA's."""

    def function(x, mark):
        def seldom(x):
            return jax.lax.fori_loop(0, 3, lambda _, y: y + jnp.sin(y @ y), mark(x))

        return jax.lax.cond(jnp.sum(x) > 2, seldom, lambda x: x, x)

    x = np.random.default_rng(0).normal(size=(9, 4, 4))
    for mark, expected in ((lambda x: x, {1}), (mark_seldom, {0, 1})):
        run = functools.partial(function, mark=mark)
        np.testing.assert_allclose(jc.simd(run)(x), jax.vmap(run)(x), rtol=1e-12, atol=1e-12)
        assert levels.pop() == expected


def test_the_loops_of_a_search_are_compiled_well_in_the_largest_program(monkeypatch):
    """A motion of many operations a step, a search in each step, and another that runs seldom."""
    monkeypatch.setattr(machine_code, "LARGE", 100)
    motion = Block(parent=Block(), is_of_loop=True)
    search = Block(parent=motion, is_of_loop=True)
    seldom = Block(parent=search, is_marked_seldom=True)
    loop = Block(parent=seldom, is_of_loop=True)
    for block, straight, level in (
        (motion, 99, 1), (motion, 101, 0), (search, 101, 1), (seldom, 99, 0), (loop, 101, 1),
        (Block(parent=loop), 99, 0),
    ):  # fmt: skip
        assert machine_code._level_of(block, straight) == level


@pytest.mark.parametrize("setting", ["jax_enable_x64", "jax_threefry_partitionable"])
def test_a_program_follows_the_settings_of_jax(setting):
    def function(key, x):
        return jax.random.uniform(key, (5,), dtype=np.float32), x.sum() + jnp.arange(3) / 3

    batch = jax.random.split(jax.random.key(0), 2), np.ones((2, 4), np.float32)
    run, before = jc.simd(function), getattr(jax.config, setting)
    try:
        for value in (not before, before, not before):
            jax.config.update(setting, value)
            found, expected = run(*batch), jax.vmap(function)(*batch)
            np.testing.assert_array_equal(found[0], expected[0])
            assert found[1].dtype == expected[1].dtype
    finally:
        jax.config.update(setting, before)


def test_many_sizes_of_batches_need_no_further_memory(monkeypatch):
    """One program serves them all, and JAX compiles nothing for a size."""
    run = jc.simd(lambda key, x: (jax.random.uniform(key), 2 * x, jax.random.fold_in(key, 1)))
    run(jax.random.split(jax.random.key(0), 2), np.ones(2))
    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    for size in range(3, 20):
        keys = jax.random.wrap_key_data(jax.device_put(np.zeros((size, 2), np.uint32)))
        events.clear()
        run(keys, np.ones(size))
        assert not [name for name in events if "compile" in name]


@pytest.fixture
def settings():
    """JAX's settings of its folder of compiled programs, as they were at the end; no folder at first."""
    names = ["dir", "max_size"]
    names = [f"jax_compilation_cache_{name}" for name in names] + [
        "jax_enable_compilation_cache",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_raise_persistent_cache_errors",
    ]
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_long_programs_are_compiled_in_other_processes(monkeypatch, settings):
    monkeypatch.setattr(object_files, "APART", 0)
    started = []
    start = subprocess.Popen

    def watched(*arguments, **options):
        started.append(arguments)
        return start(*arguments, **options)

    monkeypatch.setattr(object_files.subprocess, "Popen", watched)
    np.testing.assert_allclose(jc.simd(jnp.sin)(np.ones(3)), np.sin(np.ones(3)), rtol=1e-15)
    assert len(started) > 1
    # A program without an interpreter of its own compiles in its process.
    monkeypatch.setattr(object_files.sys, "executable", "/bin/false")
    np.testing.assert_allclose(jc.simd(jnp.cos)(np.ones(3)), np.cos(np.ones(3)), rtol=1e-15)
    monkeypatch.setattr(object_files.sys, "executable", "/no/such/file")
    np.testing.assert_allclose(jc.simd(jnp.tan)(np.ones(3)), np.tan(np.ones(3)), rtol=1e-15)


def test_an_interrupt_ends_the_compiling(monkeypatch, settings, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(object_files, "APART", 0)
    monkeypatch.setattr(object_files.llvm_worker, "__file__", str(slow))
    processes = []
    start = subprocess.Popen

    def watched(*arguments, **options):
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(object_files.subprocess, "Popen", watched)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    begin = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            jc.simd(jnp.sin)(np.ones(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert time.perf_counter() - begin < 20
    assert processes and all(process.poll() is not None for process in processes)


def none(text, level):
    raise AssertionError("compiled again")


def test_code_is_kept_in_the_folder_of_jax(monkeypatch, settings, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "kept"))
    first = jc.simd(jnp.tanh)(np.ones(3))
    kept = sorted((tmp_path / "kept").glob("jaxcontact-native-*"))
    assert len(kept) == 2
    with monkeypatch.context() as patched:
        patched.setattr(llvm_worker, "compile_text", none)
        np.testing.assert_array_equal(jc.simd(jnp.tanh)(np.ones(3)), first)
        with pytest.raises(AssertionError, match="compiled again"):
            jc.simd(jnp.cosh)(np.ones(3))
    jax.config.update("jax_raise_persistent_cache_errors", True)
    jax.config.update("jax_compilation_cache_dir", str(kept[0]))  # no folder
    with pytest.raises(OSError, match="jaxcontact-native"):
        jc.simd(jnp.sinh)(np.ones(3))


@pytest.mark.parametrize(
    "damage",
    [
        lambda code, other: code[: len(code) // 2],
        lambda code, other: b"",
        lambda code, other: bytes(c ^ (k == 100) for k, c in enumerate(code)),
        lambda code, other: bytes(c ^ (k == 5) for k, c in enumerate(code)),
        lambda code, other: other,
    ],
    ids=["half", "empty", "code", "digest", "of another program"],
)
def test_damaged_files_of_the_folder_are_compiled_again(settings, tmp_path, damage):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    right = jc.simd(jnp.tanh)(np.ones(3))
    whole = {path: path.read_bytes() for path in tmp_path.glob("*.o")}
    assert len(whole) == 2
    for path, other in zip(whole, list(whole.values())[::-1], strict=True):
        path.write_bytes(damage(whole[path], other))
        with pytest.warns(UserWarning, match="Error reading persistent compilation cache entry of jc.simd"):
            np.testing.assert_array_equal(jc.simd(jnp.tanh)(np.ones(3)), right)
        assert path.read_bytes() == whole[path]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("jax_compilation_cache_dir", ""),
        ("jax_enable_compilation_cache", False),
        ("jax_persistent_cache_min_compile_time_secs", 1000.0),
        ("jax_persistent_cache_min_entry_size_bytes", 10**9),
        ("jax_compilation_cache_max_size", 0),
    ],
)
def test_nothing_is_kept_where_jax_keeps_nothing(settings, monkeypatch, tmp_path, setting, value):
    monkeypatch.chdir(tmp_path)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update(setting, value)
    jc.simd(jnp.tanh)(np.ones(3))
    assert not list(tmp_path.glob("**/*"))


def starts(model, count, spread=0.3):
    """States (q, v) of worlds that differ in velocity."""
    rng = np.random.default_rng(0)
    q = np.tile(model.initial_state().q, (count, 1))
    return q, spread * rng.normal(size=(count, model.structure.num_velocities))


def steps_of(model, steps, **options):
    """The motion of one world without controls, and what its last step says."""
    controls = jnp.zeros((steps, model.num_controls))

    def motion(q, v):
        state = model.initial_state().replace(q=q, v=v)
        states, info = jc.compliant.rollout(model, state, controls, dt=0.004, **options)
        last = jax.tree.map(lambda leaf: leaf[-1], info)
        return states.q[-1], states.v[-1], info.status, last.lam, last.gap, last.num_iters

    return motion


@pytest.mark.slow
def test_a_robot_steps_as_by_xla_and_a_poisoned_world_is_flagged_alone():
    model = jc.models.half_cheetah()
    q, v = starts(model, 6)
    v[3, 0] = np.nan
    motion = steps_of(model, 12)
    found, expected = jc.simd(motion)(q, v), jax.jit(jax.vmap(motion))(q, v)
    np.testing.assert_array_equal(found[2], expected[2])
    assert found[2][3].all() and not np.delete(found[2], 3, axis=0).any()
    assert found[2][3, 0] & Status.NONFINITE
    for a, b in zip(found[:5], expected[:5], strict=True):
        scale = np.nanmax(np.abs(b)) if b.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(np.delete(a, 3, 0), np.delete(b, 3, 0), rtol=1e-9, atol=1e-10 * scale)
    more = np.delete(found[5], 3).astype(int) - np.delete(expected[5], 3)
    assert np.max(np.abs(more)) <= 1  # rounding may decide about the last iteration


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("quadruped", {}),
        ("ant", {}),
        ("hopper", {}),
        ("planar_walker", {"settings": jc.compliant.Settings(max_contacts=4)}),
    ],
)
def test_all_robots_step_as_by_xla(name, options):
    model = getattr(jc.models, name)()
    q, v = starts(model, 9)
    motion = steps_of(model, 20, **options)
    found, expected = jc.simd(motion)(q, v), jax.jit(jax.vmap(motion))(q, v)
    np.testing.assert_array_equal(found[2], expected[2])
    for a, b in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_steps_under_random_controls_settle():
    """A quadruped lands and is moved at random: fewer than one step of a thousand is unsettled in machine code."""
    model = jc.models.quadruped()
    start, draws, worlds = model.initial_state(), np.random.default_rng(1), 64

    def step(q, v, controls):
        state, info = jc.compliant.step(model, start.replace(q=q, v=v), controls, dt=0.005)
        return state.q, state.v, info.status

    steps, unsettled = jc.simd(step), []
    q = np.tile(start.q, (worlds, 1))
    q[:, 2] += draws.uniform(0.0, 0.2, worlds)
    v = draws.normal(0.0, 0.5, (worlds, start.v.size))
    for _ in range(500):
        q, v, status = steps(q, v, draws.uniform(-1.0, 1.0, (worlds, model.num_controls)))
        unsettled.append(np.mean(np.asarray(status) & Status.MAX_ITERS != 0))
    assert np.mean(unsettled) < 1e-3


@pytest.mark.slow
def test_the_gradient_of_a_robot_s_steps():
    model = jc.models.half_cheetah()
    q, v = starts(model, 4)
    controls = jnp.zeros((10, model.num_controls))

    def reach(q, v, push):
        state = model.initial_state().replace(q=q, v=v)
        states, _ = jc.compliant.rollout(model, state, controls + push, dt=0.004)
        return states.q[-1, 0]

    gradient = jax.value_and_grad(reach, argnums=(1, 2))
    push = np.random.default_rng(2).normal(size=(4, *controls.shape))
    close(gradient, q, v, push, rtol=1e-8, atol=1e-9)
