"""The primitive by which `simd` works inside `jit`, `vmap` and derivatives: a batch of a function.

The entry function is `batch_of`. Its derivatives are such batches again: of the tangent of the function, and
of its transpose, which evaluates the function again and stores no results. On a CPU it is a foreign call of
machine code.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from jaxcontact._pytree import PyTree
from jaxcontact.batching.all_cores import workers
from jaxcontact.native.compiler import compile_function
from jaxcontact.native.foreign_call import Operand, register
from jaxcontact.native.jaxprs import function_of

Arrays = Sequence[PyTree]
Places = tuple[int, ...]


class World:
    """A function of one world on a list of arrays, and its derivatives, each made once.

    Attributes:
        inputs: shape and dtype of each argument.
        outputs: shape and dtype of each result.
        nan: whether a known zero times NaN is NaN.
    """

    def __init__(
        self,
        function: Callable[..., list[jax.Array]],
        inputs: Sequence[jax.ShapeDtypeStruct],
        outputs: Sequence[jax.ShapeDtypeStruct],
        nan: bool,
    ) -> None:
        self.inputs, self.outputs, self.nan = inputs, outputs, nan
        self._function = function
        self._derivatives: dict[Hashable, World] = {}
        self._targets: dict[tuple[bool, ...], str | None] = {}
        self._pull_back: Callable[[Places, Places], Callable[..., list[jax.Array]]] = self._pulled_back

    @staticmethod
    def of(
        function: Callable[..., list[jax.Array]], inputs: Sequence[jax.ShapeDtypeStruct], nan: bool
    ) -> tuple[World, list[PyTree]]:
        """Make a world of a function; return it and the traced values it closes over, its first arguments."""
        closed = jax.make_jaxpr(function)(*inputs)
        is_traced = [isinstance(constant, jax.core.Tracer) for constant in closed.consts]
        others = [constant for constant, traced in zip(closed.consts, is_traced, strict=True) if traced]
        fixed_constants = [
            None if traced else constant for constant, traced in zip(closed.consts, is_traced, strict=True)
        ]

        def moved(*arrays: jax.Array) -> list[jax.Array]:
            rest = iter(arrays)
            choices = zip(fixed_constants, is_traced, strict=True)
            constants = [next(rest) if traced else constant for constant, traced in choices]
            return list(jax.core.eval_jaxpr(closed.jaxpr, constants, *rest))

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in others]
        outputs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in closed.out_avals]
        return World(moved, [*shapes, *inputs], outputs, nan), others

    @functools.cached_property
    def jaxpr(self) -> jax.extend.core.ClosedJaxpr:
        """Return the traced function."""
        return jax.make_jaxpr(self._function)(*self.inputs)

    def evaluate(self, *arrays: jax.Array) -> list[jax.Array]:
        """Compute the results of one world."""
        return list(jaxpr_as_fun(self.jaxpr)(*arrays))

    @property
    def floats(self) -> Places:
        """List the places of results that have derivatives."""
        return tuple(k for k, output in enumerate(self.outputs) if jnp.issubdtype(output.dtype, jnp.floating))

    def tangent(self, changing: Places) -> World:
        """Make the world (arguments, changes of those `changing`) -> changes of the results `floats`."""
        if ("tangent", changing) not in self._derivatives:
            floats, count = self.floats, len(self.inputs)

            def pushed(*arrays: jax.Array) -> list[jax.Array]:
                part = self._part(arrays[:count], changing, floats)
                return list(jax.jvp(part, [arrays[k] for k in changing], list(arrays[count:]))[1])

            inputs = [*self.inputs, *(self.inputs[k] for k in changing)]
            world = World(pushed, inputs, [self.outputs[k] for k in floats], self.nan)

            def pull_back(linear: Places, present: Places) -> Callable[..., list[jax.Array]]:
                """Differentiate the function itself, so that its own rules of the reverse mode hold."""
                if min(linear) < count:
                    return world._pulled_back(linear, present)
                by = tuple(changing[k - count] for k in linear)

                def pulled(*arrays: jax.Array) -> list[jax.Array]:
                    part = self._part(arrays[:count], by, tuple(floats[k] for k in present))
                    return list(jax.vjp(part, *(arrays[k] for k in by))[1](list(arrays[-len(present) :])))

                return pulled

            world._pull_back = pull_back
            self._derivatives["tangent", changing] = world
        return self._derivatives["tangent", changing]

    def transpose(self, linear: Places, present: Places) -> World:
        """Make the world (other arguments, cotangents of `present` results) -> cotangents of `linear`."""
        key = ("transpose", linear, present)
        if key not in self._derivatives:
            others = [x for k, x in enumerate(self.inputs) if k not in linear]
            inputs = [*others, *(self.outputs[k] for k in present)]
            function = self._pull_back(linear, present)
            self._derivatives[key] = World(function, inputs, [self.inputs[k] for k in linear], self.nan)
        return self._derivatives[key]

    def _pulled_back(self, linear: Places, present: Places) -> Callable[..., list[jax.Array]]:
        def pulled(*arrays: jax.Array) -> list[jax.Array]:
            others = iter(arrays[: len(self.inputs) - len(linear)])
            zeros = [jnp.zeros(x.shape, x.dtype) for x in self.inputs]
            arguments = [zeros[k] if k in linear else next(others) for k in range(len(self.inputs))]
            part = self._part(arguments, linear, present)
            return list(jax.vjp(part, *(zeros[k] for k in linear))[1](list(arrays[-len(present) :])))

        return pulled

    def _part(self, arrays: Arrays, changing: Places, results: Places) -> Callable[..., list[jax.Array]]:
        """Make some results a function of some arguments."""

        def part(*changed: jax.Array) -> list[jax.Array]:
            arguments = list(arrays)
            for k, value in zip(changing, changed, strict=True):
                arguments[k] = value
            found = self.evaluate(*arguments)
            return [found[k] for k in results]

        return part

    def target(self, shared: tuple[bool, ...]) -> str | None:
        """Return the name of the foreign function for a batch; None, with a warning, if there is none."""
        if shared not in self._targets:
            try:
                function = function_of(self.jaxpr)
                cores = len(workers(jax.local_devices(backend="cpu")[:1]))
                code, lanes = compile_function(function, self.nan, cores, shared)
                arguments = [Operand(*pair) for pair in zip(function.inputs, shared, strict=True)]
                results = [Operand(array) for array in function.outputs]
                self._targets[shared] = register(code, lanes, arguments, results, cores)
            except NotImplementedError as error:
                warnings.warn(f"{error}; it runs as jax.vmap(function)", stacklevel=2)
                self._targets[shared] = None
        return self._targets[shared]


_simd = Primitive("simd")
_simd.multiple_results = True


def batch_of(world: World, arrays: Arrays, shared: tuple[bool, ...]) -> list[jax.Array]:
    """Compute the results of a batch: worlds along the first axis of the arguments that are not shared."""
    return list(_simd.bind(*arrays, world=world, shared=shared))


def _by_xla(*arrays: jax.Array, world: World, shared: tuple[bool, ...]) -> list[jax.Array]:
    return list(jax.vmap(world.evaluate, [None if is_shared else 0 for is_shared in shared])(*arrays))


@functools.lru_cache(maxsize=64)
def _compiled_alone(world: World, shared: tuple[bool, ...]) -> Callable[..., list[jax.Array]]:
    return jax.jit(lambda *arrays: batch_of(world, arrays, shared))


def _run(*arrays: jax.Array, world: World, shared: tuple[bool, ...]) -> list[jax.Array]:
    return _compiled_alone(world, shared)(*arrays)


def _shapes(*arrays: jax.Array, world: World, shared: tuple[bool, ...]) -> list[jax.core.ShapedArray]:
    size = next(a.shape[0] for a, is_shared in zip(arrays, shared, strict=True) if not is_shared)
    return [jax.core.ShapedArray((size, *output.shape), output.dtype) for output in world.outputs]


def _lower_for_cpu(
    context: mlir.LoweringRuleContext, *arrays: jax.Array, world: World, shared: tuple[bool, ...]
) -> Sequence[PyTree]:
    target = world.target(shared)
    if target is None:
        return mlir.lower_fun(_by_xla, multiple_results=True)(context, *arrays, world=world, shared=shared)
    return jax.ffi.ffi_lowering(target)(context, *arrays)


def _tangents(
    primals: Arrays, tangents: Arrays, *, world: World, shared: tuple[bool, ...]
) -> tuple[list[PyTree], list[PyTree]]:
    outputs = batch_of(world, primals, shared)
    changes: list[PyTree] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    changing = tuple(
        k
        for k, tangent in enumerate(tangents)
        if not isinstance(tangent, ad.Zero) and jnp.issubdtype(world.inputs[k].dtype, jnp.floating)
    )
    if changing and world.floats:
        arrays = [*primals, *(tangents[k] for k in changing)]
        moved = batch_of(world.tangent(changing), arrays, (*shared, *(shared[k] for k in changing)))
        for k, change in zip(world.floats, moved, strict=True):
            changes[k] = change
    return outputs, changes


def _transpose(
    cotangents: Arrays, *arrays: jax.Array, world: World, shared: tuple[bool, ...]
) -> list[PyTree]:
    linear = tuple(k for k, array in enumerate(arrays) if ad.is_undefined_primal(array))
    present = tuple(k for k, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero))
    found: list[PyTree] = [None] * len(arrays)
    if not present:
        return [ad.Zero(array.aval) if k in linear else None for k, array in enumerate(arrays)]
    others = [k for k in range(len(arrays)) if k not in linear]
    operands = [*(arrays[k] for k in others), *(cotangents[k] for k in present)]
    of_operands = (*(shared[k] for k in others), *(False for _ in present))
    for k, output in zip(
        linear, batch_of(world.transpose(linear, present), operands, of_operands), strict=True
    ):
        found[k] = jnp.sum(output, axis=0) if shared[k] else output
    return found


def _batched(
    arrays: Arrays, axes: Arrays, *, world: World, shared: tuple[bool, ...]
) -> tuple[list[jax.Array], list[int]]:
    """Fold the new axis and that of the worlds into one; return the results and their batch axes."""
    folded, keep = [], []
    (count,) = {array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None}
    sizes = zip(arrays, axes, shared, strict=True)
    size = next(
        np.delete(a.shape, axis)[0] if axis is not None else a.shape[0]
        for a, axis, is_shared in sizes
        if not is_shared
    )
    for array, axis, is_shared in zip(arrays, axes, shared, strict=True):
        keep.append(is_shared and axis is None)
        if keep[-1]:
            folded.append(array)
            continue
        moved = (
            jnp.broadcast_to(array, (count, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
        )
        if is_shared:
            moved = jnp.broadcast_to(moved[:, None], (count, size, *moved.shape[1:]))
        folded.append(moved.reshape(count * size, *moved.shape[2:]))
    outputs = batch_of(world, folded, tuple(keep))
    return [output.reshape(count, size, *output.shape[1:]) for output in outputs], [0] * len(outputs)


_simd.def_impl(_run)
_simd.def_abstract_eval(_shapes)
ad.primitive_jvps[_simd] = _tangents
ad.primitive_transposes[_simd] = _transpose
batching.primitive_batchers[_simd] = _batched
mlir.register_lowering(_simd, mlir.lower_fun(_by_xla, multiple_results=True))
mlir.register_lowering(_simd, _lower_for_cpu, platform="cpu")
