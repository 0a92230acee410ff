"""Shapes in signatures are those of valid calls: `jaxtyping` and `beartype` compare arguments and results."""

import inspect
import re
import sys
import types

import jax
import jaxtyping
import pytest
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from inputs.bad_calls import HOST, public_functions
from inputs.valid_calls import arguments

DTYPES = {name: getattr(jaxtyping, name) for name in ("Float", "Real", "Bool", "Int")}
SHAPED = re.compile(r"\b(Float|Real|Bool|Int)\[")


def shaped(function):
    """The parameters, and the result, whose annotations have shapes."""
    annotations = inspect.unwrap(function).__annotations__
    return {name: text for name, text in annotations.items() if SHAPED.search(str(text))}


ON_HOST = re.compile(rf"{HOST.pattern}|ess\.(choose|one_sided)")
FUNCTIONS = {path: function for path, function in public_functions().items() if shaped(function)}


def typed(function):
    """The function with its shapes alone, which are checked."""
    plain = inspect.unwrap(function)
    home = vars(sys.modules[plain.__module__])
    copy = types.FunctionType(
        plain.__code__, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = (
        plain.__kwdefaults__,
        plain.__module__,
        plain.__qualname__,
    )
    copy.__annotations__ = {name: eval(text, home | DTYPES) for name, text in shaped(plain).items()}
    return jaxtyping.jaxtyped(typechecker=beartype)(copy)


@pytest.mark.long
@pytest.mark.slow_cases(
    "optimize.track", "optimize.gait_outcome", "optimize.gait_outcome_rate", "viz.plot_corner"
)
@pytest.mark.parametrize("path", FUNCTIONS)
def test_arrays_have_the_shapes_of_the_signature(path):
    values = arguments(path, inspect.signature(FUNCTIONS[path]))
    call = typed(FUNCTIONS[path])
    if ON_HOST.match(path):
        call(**values)
    else:
        jax.eval_shape(lambda: call(**values))  # nothing is compiled


def test_many_functions_have_shapes():
    assert len(FUNCTIONS) >= 30


def scaled(x, y):
    return y[0, :1] * x


scaled.__annotations__ = {
    "x": "Float[jax.Array, ' n']", "y": "Float[jax.Array, 'n n']", "return": "Float[jax.Array, ' n']",
}  # fmt: skip


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (2, 2)])
def test_a_wrong_shape_is_found(sizes):
    call = typed(scaled)
    n, m = sizes
    if n == m:
        assert call(jax.numpy.ones(n), jax.numpy.ones((m, m))).shape == (n,)
        return
    with pytest.raises((BeartypeCallHintViolation, jaxtyping.TypeCheckError)):
        call(jax.numpy.ones(n), jax.numpy.ones((m, m)))
