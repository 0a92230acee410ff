"""`simd`: turns a function of one world into a function of batches, in lanes and on all cores.

The page is docs/understand/performance.md.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching.all_cores import on_all_cores, workers
from jaxcontact.batching.simd_primitive import World, batch_of
from jaxcontact.front_door import checked
from jaxcontact.native.compiler import compile_function
from jaxcontact.native.jaxprs import function_of, is_key, keys_of, numbers_of
from jaxcontact.native.kinds import BOOL, kind_of
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.machine_code import MachineCode, check_llvmlite

if TYPE_CHECKING:
    import jax.extend

SHARE = 64  # groups of worlds whose arguments and results are laid out at once; limits the memory of a share


@checked()
def simd(function: Callable[..., PyTree], *, nan: bool = True) -> Callable[..., PyTree]:
    """Make a function of batches from one of a single world: worlds in the lanes of a CPU, on all cores.

    The function is traced once for each kind of batch and compiled by LLVM, without XLA: a step of a robot
    becomes a list of operations on numbers, without the zeros of its tree, and runs in registers. Values that
    it closes over, such as `model.params`, are known when it is compiled. Worlds in the lanes of one group
    wait for each other in loops, as under `vmap`, and for no others.

    A function that uses a primitive without a rule (decompositions, callbacks, complex numbers, draws of
    normal numbers, large sorts), or more than four million operations, runs as
    `jc.on_all_cores(jax.vmap(function))`; a warning says so once, and names the reason.

    Args:
        function: maps pytrees of arrays to a pytree of arrays, for one world: a rollout, a step, the gradient
            of one. Keys of random numbers are arrays like others; draws are bit by bit those of JAX.
        nan: whether a known zero times NaN or infinity is NaN, as it is in JAX. If not (`nan=False`), it is
            zero, and so is a known zero divided by any number: programs with many known zeros, such as steps
            of robots, are shorter.

    Returns:
        A function of batches, the first axis of all arrays. Called with arrays it returns NumPy arrays, or
        keys. Inside `jit`, `scan`, `vmap` and derivatives it is one operation of their program, on a CPU by
        XLA's foreign function interface, elsewhere `jax.vmap(function)`; values that `function` closes over
        may be traced then. Results differ from those of XLA by rounding.

    Raises:
        ImportError: if llvmlite is missing.
        ValueError: when called with no arrays, an empty batch, or first axes that differ.

    Derivative: forward and reverse, any order, as that of `jax.vmap(function)`: a batch of the derivative of
    `function`, which is compiled like any other. The reverse mode evaluates again rather than storing.
    """
    check_llvmlite()
    return _Batched(function, nan)


class _Batched:
    """The function of batches that `simd` returns: a program for each kind of batch."""

    def __init__(self, function: Callable[..., PyTree], nan: bool) -> None:
        self._function, self._nan = function, nan
        self._jitted = jax.jit(lambda *world: function(*world))  # traces again if the settings of JAX change
        self._by_xla = on_all_cores(jax.vmap(function))
        self._programs: dict[Hashable, _CompiledFunction | None] = {}
        self._worlds: dict[Hashable, tuple[World, list[PyTree]]] = {}
        self._kinds: dict[Hashable, list[PyTree]] = {}

    def __call__(self, *batch: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(batch)
        is_traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
        pairs = zip(leaves, is_traced, strict=True)
        leaves = [leaf if traced or is_key(leaf) else _canonical(np.asarray(leaf)) for leaf, traced in pairs]
        sizes = {leaf.shape[:1] for leaf in leaves}
        if len(sizes) != 1 or not min(sizes) or min(sizes) == (0,):
            raise ValueError(f"batch: expected arrays with one first axis, not empty, got {sorted(sizes)}")
        world = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        trace = self._jitted.trace(*jax.tree.unflatten(structure, world))
        # A function inside another trace takes the values that it closes over as further arguments.
        if any(is_traced) or len(trace.jaxpr.in_avals) != len(leaves):
            results = self._inside_a_trace(trace, leaves, structure)
        else:
            if trace.jaxpr not in self._programs:
                self._programs[trace.jaxpr] = self._compiled(trace.jaxpr)
            program = self._programs[trace.jaxpr]
            if program is None:
                return jax.tree.map(lambda x: x if is_key(x) else np.asarray(x), self._by_xla(*batch))
            results = program.run([numbers_of(leaf) for leaf in leaves])
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), results)

    def _compiled(self, jaxpr: jax.extend.core.ClosedJaxpr) -> _CompiledFunction | None:
        """Compile a function; return its program, or None, with a warning at the first time."""
        try:
            return _CompiledFunction.of(jaxpr, self._nan)
        except NotImplementedError as error:
            if None not in self._programs.values():
                warnings.warn(f"{error}; it runs as jc.on_all_cores(jax.vmap(function))", stacklevel=3)
            return None

    def _inside_a_trace(
        self,
        trace: Any,  # JAX's, not public
        leaves: list[jax.Array],
        structure: jax.tree_util.PyTreeDef,
    ) -> list[jax.Array]:
        """Run a batch as one operation of the program that is being traced; return its results."""
        arrays = [jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf) for leaf in leaves]
        world, closed_over = self._worlds.get(trace.jaxpr, (None, []))
        if world is None:
            kinds = [jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in leaves]
            inputs = [jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in arrays]
            flat = _Flat(self._function, structure, kinds)
            world, closed_over = World.of(flat, inputs, self._nan)
            self._kinds[trace.jaxpr] = flat.kinds_of_results
            if not closed_over:
                self._worlds[trace.jaxpr] = world, []
        shared = (*(True for _ in closed_over), *(False for _ in arrays))
        results = batch_of(world, [*closed_over, *arrays], shared)
        return [_as_keys(x, kind) for x, kind in zip(results, self._kinds[trace.jaxpr], strict=True)]


class _Flat:
    """A function of the numbers of its arguments that returns those of its results."""

    def __init__(
        self, function: Callable[..., PyTree], structure: jax.tree_util.PyTreeDef, kinds: list[PyTree]
    ) -> None:
        self._function, self._structure, self._kinds = function, structure, kinds
        self.kinds_of_results: list[PyTree] = []  # generators of keys, None for other arrays

    def __call__(self, *numbers: PyTree) -> list[PyTree]:
        leaves = [_as_keys(x, kind) for x, kind in zip(numbers, self._kinds, strict=True)]
        results = jax.tree.leaves(self._function(*jax.tree.unflatten(self._structure, leaves)))
        self.kinds_of_results = [jax.random.key_impl(x) if is_key(x) else None for x in results]
        return [jax.random.key_data(x) if is_key(x) else jnp.asarray(x) for x in results]


def _as_keys(numbers: PyTree, kind: PyTree) -> PyTree:
    """Wrap numbers as keys of a generator; without a generator return the numbers."""
    return numbers if kind is None else jax.random.wrap_key_data(numbers, impl=kind)


def _canonical(array: np.ndarray) -> np.ndarray:
    """Convert an array to the dtype that JAX's settings allow."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


@dataclasses.dataclass(frozen=True)
class _CompiledFunction:
    """A compiled function: its code, its lanes, and the shapes, dtypes and keys of its results."""

    code: MachineCode
    lanes: Lanes
    results: list[tuple[tuple[int, ...], PyTree]]
    keys: list[bool]

    @staticmethod
    def of(jaxpr: jax.extend.core.ClosedJaxpr, nan: bool) -> _CompiledFunction:
        """Compile a function; return its program."""
        function = function_of(jaxpr)
        code, lanes = compile_function(function, nan, len(workers(jax.local_devices(backend="cpu")[:1])))
        return _CompiledFunction(code, lanes, [(a.shape, a.dtype) for a in function.outputs], function.keys)

    def run(self, arrays: list[np.ndarray]) -> list[PyTree]:
        """Run a batch, the worlds of each core in shares; return its results."""
        size = len(arrays[0])
        found = [np.empty((size, *shape), dtype) for shape, dtype in self.results]
        width = SHARE * self.lanes.count
        cores = len(workers(jax.local_devices(backend="cpu")[:1]))
        width = max(self.lanes.count, min(width, -(-size // cores)))
        begins = range(0, size, width)

        def share(begin: int) -> None:
            end = min(begin + width, size)
            for result, part in zip(found, self._share([a[begin:end] for a in arrays]), strict=True):
                result[begin:end] = part

        if len(begins) == 1:
            share(0)
        else:
            with ThreadPoolExecutor(cores) as pool:
                list(pool.map(share, begins))
        return [keys_of(x) if of_keys else x for x, of_keys in zip(found, self.keys, strict=True)]

    def _share(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Run some worlds, in groups of lanes; the last world fills the last group."""
        lanes, size = self.lanes, len(arrays[0])
        groups = -(-size // lanes.count)
        inputs = np.concatenate([_as_slots(array, groups, lanes) for array in arrays], axis=1)
        count = sum(math.prod(shape) for shape, _ in self.results)
        padded, memory = _aligned(inputs.nbytes), _aligned(self.code.memory_bytes)
        padded[:] = inputs.ravel().view(np.uint8)
        returned = _aligned(groups * count * VECTOR_BYTES)
        self.code.run(padded.ctypes.data, returned.ctypes.data, memory.ctypes.data, groups)
        slots = returned.reshape(groups, count, VECTOR_BYTES)
        ends = np.cumsum([math.prod(shape) for shape, _ in self.results]).tolist()
        return [
            _from_slots(slots[:, end - math.prod(shape) : end], shape, dtype, lanes)[:size]
            for end, (shape, dtype) in zip(ends, self.results, strict=True)
        ]


def _as_slots(array: np.ndarray, groups: int, lanes: Lanes) -> np.ndarray:
    """Arrange numbers of worlds side by side, (groups, numbers, bytes of a slot)."""
    kind = kind_of(array.dtype)
    worlds: np.ndarray = array.reshape(len(array), -1).astype(lanes.numpy(kind))
    if kind == BOOL:
        worlds = -worlds
    padded = np.concatenate([worlds, np.repeat(worlds[-1:], groups * lanes.count - len(worlds), axis=0)])
    side_by_side = padded.reshape(groups, lanes.count, -1).swapaxes(1, 2)
    slots = np.zeros((groups, side_by_side.shape[1], VECTOR_BYTES), np.uint8)
    slots[:, :, : lanes.count * lanes.step(kind)] = np.ascontiguousarray(side_by_side).view(np.uint8)
    return slots


def _from_slots(
    slots: np.ndarray, shape: tuple[int, ...], dtype: jax.typing.DTypeLike, lanes: Lanes
) -> np.ndarray:
    """Invert `_as_slots`, for numbers of one array."""
    kind = kind_of(dtype)
    used = np.ascontiguousarray(slots[:, :, : lanes.count * lanes.step(kind)])
    numbers: np.ndarray = used.view(lanes.numpy(kind)).reshape(len(slots), -1, lanes.count).swapaxes(1, 2)
    worlds: np.ndarray = numbers.reshape(len(slots) * lanes.count, *shape)
    return (worlds != 0) if kind == BOOL else worlds.astype(dtype, copy=False)


def _aligned(size: int) -> np.ndarray:
    """Allocate zero bytes that begin at a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size]
