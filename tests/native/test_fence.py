"""What the room knows of JAX, and what other rooms tell it."""

import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

import jaxcontact as jc
from jaxcontact.batching.once import computed_once
from jaxcontact.native import registry

ROOM = Path(registry.__file__).parent
JAXPR = re.compile(r"\b(eqns|invars|outvars|constvars|consts|aval|make_jaxpr|ClosedJaxpr|primitive\.bind)\b")


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_one_file_knows_jaxprs(path):
    assert bool(JAXPR.search(path.read_text())) == (path.stem == "jaxprs")


def test_no_rule_names_what_another_room_defines():
    importlib.import_module("jaxcontact.algebra.implicit")
    text = "".join(path.read_text() for path in ROOM.glob("rules_*.py"))
    for name in ("root", "once"):
        assert name in registry.RULES and f'"{name}"' not in text


def test_a_primitive_of_ones_own_gets_a_rule(monkeypatch):
    halve = Primitive("halve")
    halve.def_abstract_eval(lambda x: x)
    mlir.register_lowering(halve, mlir.lower_fun(lambda x: x / 2, multiple_results=False))
    batching.defvectorized(halve)
    monkeypatch.setattr(registry, "RULES", dict(registry.RULES))
    monkeypatch.setattr("jaxcontact.native.interpreter.RULES", registry.RULES)
    x = np.arange(5.0)
    with pytest.warns(UserWarning, match="no rule for the JAX primitive 'halve'"):
        np.testing.assert_array_equal(jc.simd(lambda x: halve.bind(x))(x), x / 2)

    @registry.rule("halve")
    def halved(program, equation, inputs):
        return program.each(lambda n: program.ops.binary("mul", n, program.ops.constant(0.5, "f8")), *inputs)

    np.testing.assert_array_equal(jc.simd(lambda x: halve.bind(x))(x), x / 2)


def test_computed_once_is_the_same_number_with_its_derivatives():
    x = jnp.array([1.5, jnp.nan, -jnp.inf, 0.0])
    function = lambda x: computed_once({"a": jnp.sin(x)})["a"] * x  # noqa: E731
    plain = lambda x: jnp.sin(x) * x  # noqa: E731
    for by in (jax.jit, lambda f: jax.vmap(f), lambda f: jax.jit(jax.vmap(f)), jc.simd):
        np.testing.assert_allclose(by(function)(x), plain(x), rtol=1e-14)
    for by in (jax.grad, lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f))):
        np.testing.assert_allclose(jax.vmap(by(function))(x[:1]), jax.vmap(by(plain))(x[:1]), rtol=1e-14)
    assert "divide" in jax.jit(function).lower(x).as_text()
