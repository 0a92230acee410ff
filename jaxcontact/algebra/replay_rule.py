"""The derivative of a search by its replay, one operation of a program until it is compiled.

Owns two JAX primitives, push (forward) and pull (reverse); the entry is `differentiate_by_replay`. Loops,
branches and batches of a caller carry the operation, not the many operations of the derivative; JAX
differentiates the replay when it compiles it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.dtypes import float0
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxcontact._pytree import PyTree
from jaxcontact.precision import all_digits


class PieceEnd(NamedTuple):
    """What determines the length of a piece: an event if `is_event`, where `value` is zero; else `length`."""

    value: jax.Array
    is_event: jax.Array
    length: jax.Array


def differentiate_by_replay(
    run: Callable[..., tuple[PyTree, PyTree]],
    replay: Callable[..., PyTree],
    value: Callable[..., PyTree] | None = None,
    has_end: bool = False,
) -> Callable[..., PyTree]:
    """Give the function of `run` the derivative of `replay`; return the new function.

    Args:
        run: (*args) -> (out, log), a search; the log says how to repeat it.
        replay: (*args, log) -> out, the same values. Neither may close over traced arrays.
        value: (*args) -> out, the search without a log, for calls without derivatives.
        has_end: whether `replay` is (*args, log, late) -> (out, `PieceEnd`), with a length longer by `late`,
            which is zero. Its derivative follows from the end by the implicit rule, in the same pass.

    Derivative: that of `replay` at a fixed log, forward and reverse, traced when a program is compiled.
        Second derivatives are those of `replay` as well.
    """
    replay = all_digits(replay)

    @jax.custom_jvp
    def call(*args: PyTree) -> PyTree:
        return run(*args)[0] if value is None else value(*args)

    @functools.partial(call.defjvp, symbolic_zeros=True)
    @all_digits
    def _(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
        out, log = run(*primals)
        leaves, structure = jax.tree.flatten((*primals, log))
        changes = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
        moving = tuple(i for i, x in enumerate(changes) if not isinstance(x, SymbolicZero) and _is_real(x))
        out_leaves, out_structure = jax.tree.flatten(out)
        real = [_is_real(x) for x in out_leaves]

        def repeat(*arrays: PyTree) -> PyTree:
            arguments = jax.tree.unflatten(structure, arrays[: len(leaves)])
            again = replay(*arguments, *arrays[len(leaves) :])
            values, end = again if has_end else (again, None)
            outs = [x for x, is_real in zip(jax.tree.leaves(values), real, strict=True) if is_real]
            return outs if end is None else ((outs, end.value, end.length), end.is_event)

        outputs = tuple(_aval(x) for x, is_real in zip(out_leaves, real, strict=True) if is_real)
        rates = iter(
            _push.bind(
                *leaves,
                *(changes[i] for i in moving),
                repeat=repeat,
                moving=moving,
                has_end=has_end,
                axes=(),
                outputs=outputs,
                inputs=(),
            )
            if moving
            else [jnp.zeros(x.shape, x.dtype) for x in outputs]
        )
        out_changes = [
            next(rates) if is_real else np.zeros(np.shape(x), float0)
            for x, is_real in zip(out_leaves, real, strict=True)
        ]
        return out, jax.tree.unflatten(out_structure, out_changes)

    return call


def differentiate_at_once(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Give a function a derivative that is one operation, like `differentiate_by_replay`; return it."""
    return differentiate_by_replay(lambda *args: (function(*args), ()), lambda *args: function(*args[:-1]))


def _is_real(x: PyTree) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _aval(x: PyTree) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))


def _batch_function(
    function: Callable[..., list[PyTree]], axes: Sequence[tuple[PyTree, ...]]
) -> Callable[..., list[PyTree]]:
    for axis in axes:
        function = jax.vmap(function, in_axes=axis)
    return function


def _push_forward(
    *arrays: PyTree,
    repeat: Callable[..., PyTree],
    moving: tuple[int, ...],
    has_end: bool,
    axes: tuple,
    **_: object,
) -> list[PyTree]:
    """Compute tangents of the real outputs from the leaves and the tangents of those that are `moving`."""

    def push(*arrays: PyTree) -> list[PyTree]:
        leaves, changes = arrays[: len(arrays) - len(moving)], arrays[len(arrays) - len(moving) :]
        by, at = _fix_leaves(repeat, leaves, moving), tuple(leaves[i] for i in moving)
        if not has_end:
            return jax.jvp(by, at, tuple(changes))[1]
        zero = jnp.zeros((), at[0].dtype)

        def rates(changes: tuple[PyTree, ...], late: jax.Array) -> PyTree:
            return jax.jvp(by, (*at, zero), (*changes, late), has_aux=True)[1:]

        # Two directions: that of the arguments, and that of the length.
        both = tuple(jnp.stack([x, jnp.zeros_like(x)]) for x in changes)
        (outs, value, length), is_event = jax.vmap(rates)(both, jnp.stack([zero, zero + 1.0]))
        late = jnp.where(is_event[0], -value[0] / jnp.where(value[1] != 0, value[1], 1.0), length[0])
        return [x[0] + late * x[1] for x in outs]

    return _batch_function(push, axes)(*arrays)


def _pull_back(
    *arrays: PyTree,
    repeat: Callable[..., PyTree],
    moving: tuple[int, ...],
    has_end: bool,
    axes: tuple,
    outputs: tuple,
    **_: object,
) -> list[PyTree]:
    """Compute cotangents of the leaves that are `moving` from the leaves and those of the real outputs."""

    def pull(*arrays: PyTree) -> list[PyTree]:
        leaves, changes = arrays[: len(arrays) - len(outputs)], arrays[len(arrays) - len(outputs) :]
        by, at = _fix_leaves(repeat, leaves, moving), tuple(leaves[i] for i in moving)
        if not has_end:
            return list(jax.vjp(by, *at)[1](list(changes)))
        (_, value, _), back, is_event = jax.vjp(by, *at, jnp.zeros((), at[0].dtype), has_aux=True)
        # Two outputs: the ones that have cotangents, and the one that determines the length.
        both = [jnp.stack([x, jnp.zeros_like(x)]) for x in changes]
        by_event = jnp.where(is_event, jnp.ones_like(value), 0.0)
        ends = (jnp.stack([jnp.zeros_like(x), x]) for x in (by_event, 1.0 - by_event))
        *rates, late = jax.vmap(back)((both, *ends))
        share = jnp.where(is_event, -late[0] / jnp.where(late[1] != 0, late[1], 1.0), late[0])
        return [x[0] + share * x[1] for x in rates]

    return _batch_function(pull, axes)(*arrays)


def _fix_leaves(
    repeat: Callable[..., PyTree], leaves: Sequence[PyTree], moving: tuple[int, ...]
) -> Callable[..., PyTree]:
    """Make `repeat` a function of the moving leaves, and of the arguments after the leaves."""

    def by(*moved: PyTree) -> PyTree:
        arrays = list(leaves)
        for i, x in zip(moving, moved, strict=False):
            arrays[i] = x
        return repeat(*arrays, *moved[len(moving) :])

    return by


Parameter = Any  # of a primitive: each has a type of its own
_push, _pull = Primitive("push_forward"), Primitive("pull_back")
_LINEAR = {  # the function of each primitive, and the number of its last operands that it is linear in
    _push: (_push_forward, lambda params: len(params["moving"])),
    _pull: (_pull_back, lambda params: len(params["outputs"])),
}


def _shapes(primitive: Primitive, params: dict[str, Parameter]) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes: tuple[jax.ShapeDtypeStruct, ...] = params["outputs" if primitive is _push else "inputs"]
    return shapes


def _abstract(primitive: Primitive, *_: object, **params: Parameter) -> list[PyTree]:
    return [jax.core.ShapedArray(x.shape, x.dtype) for x in _shapes(primitive, params)]


def _tangents(
    primitive: Primitive, primals: Sequence[PyTree], tangents: Sequence[PyTree], **params: Parameter
) -> PyTree:
    function, count = _LINEAR[primitive]
    first = len(primals) - count(params)
    out = primitive.bind(*primals, **params)
    if all(isinstance(x, ad.Zero) for x in tangents[:first]):
        changes = [ad.instantiate_zeros(x) for x in tangents[first:]]
        return out, primitive.bind(*primals[:first], *changes, **params)
    moving = tuple(i for i, x in enumerate(tangents) if not isinstance(x, ad.Zero) and _is_real(x))

    def whole(*arrays: PyTree) -> list[PyTree]:
        return function(*arrays, **params)

    by = _fix_leaves(whole, primals, moving)
    return out, jax.jvp(by, tuple(primals[i] for i in moving), tuple(tangents[i] for i in moving))[1]


def _transposed(
    primitive: Primitive, changes: Sequence[PyTree], *arrays: PyTree, **params: Parameter
) -> list[PyTree]:
    first = len(arrays) - _LINEAR[primitive][1](params)
    changes = [ad.instantiate_zeros(x) for x in changes]
    axes = tuple((*axis[:first], *(0 for _ in changes)) for axis in params["axes"])
    shapes = tuple(jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in arrays[first:])
    other, name = (_pull, "inputs") if primitive is _push else (_push, "outputs")
    back = other.bind(*arrays[:first], *changes, **{**params, "axes": axes, name: shapes})
    return [*(None for _ in range(first)), *back]


def _batched(
    primitive: Primitive, arrays: Sequence[PyTree], dims: Sequence[PyTree], **params: Parameter
) -> tuple[list[PyTree], list[int]]:
    first = len(arrays) - _LINEAR[primitive][1](params)
    (size,) = {a.shape[d] for a, d in zip(arrays, dims, strict=True) if d is not None}
    linear = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(arrays[first:], dims[first:], strict=True)
    ]
    axis = (*dims[:first], *(0 for _ in linear))
    name = "outputs" if primitive is _push else "inputs"
    shapes = tuple(jax.ShapeDtypeStruct((size, *x.shape), x.dtype) for x in params[name])
    batch = {**params, "axes": (*params["axes"], axis), name: shapes}
    out = primitive.bind(*arrays[:first], *linear, **batch)
    return out, [0] * len(out)


for _primitive, (_function, _) in _LINEAR.items():
    _primitive.multiple_results = True
    _names = ("repeat", "moving", "has_end", "axes", "outputs", "inputs")
    _primitive.def_impl(jax.jit(_function, static_argnames=_names))
    _primitive.def_abstract_eval(functools.partial(_abstract, _primitive))
    ad.primitive_jvps[_primitive] = functools.partial(_tangents, _primitive)
    ad.primitive_transposes[_primitive] = functools.partial(_transposed, _primitive)
    batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive)
    mlir.register_lowering(_primitive, mlir.lower_fun(_function, multiple_results=True))
