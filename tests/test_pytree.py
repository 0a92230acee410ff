"""Records: frozen, keyword-only, pytrees with static fields."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact._pytree import Record, static


class Spring(Record):
    """A record with a static field between two data fields."""

    stiffness: jax.Array
    name: str = static(default="spring")
    length: jax.Array


class Pair(Record):
    """A record of records."""

    first: Spring
    second: Spring
    count: int = static()


def spring(k=3.0, name="spring"):
    return Spring(stiffness=jnp.array(k), name=name, length=jnp.arange(2.0))


def test_fields_are_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        Spring(jnp.array(1.0), "a", jnp.zeros(2))
    with pytest.raises(TypeError, match="length"):
        Spring(stiffness=jnp.array(1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spring().stiffness = jnp.array(1.0)


def test_replace_changes_a_copy():
    old = spring()
    new = old.replace(stiffness=jnp.array(5.0), name="b")
    assert (float(old.stiffness), old.name) == (3.0, "spring")
    assert (float(new.stiffness), new.name) == (5.0, "b")
    assert new.length is old.length
    with pytest.raises(TypeError, match="mass"):
        old.replace(mass=1.0)


def test_flatten_gives_data_fields_in_order_and_round_trips():
    record = spring(2.0, "left")
    leaves, tree = jax.tree.flatten(record)
    assert [np.asarray(leaf).tolist() for leaf in leaves] == [2.0, [0.0, 1.0]]
    back = jax.tree.unflatten(tree, leaves)
    assert isinstance(back, Spring)
    assert back.name == "left"
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(record)[0]]
    assert paths == [".stiffness", ".length"]


def test_static_fields_belong_to_the_structure():
    assert jax.tree.structure(spring(1.0)) == jax.tree.structure(spring(2.0))
    assert jax.tree.structure(spring(name="a")) != jax.tree.structure(spring(name="b"))
    pair = Pair(first=spring(name="a"), second=spring(name="b"), count=2)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, pair)
    assert (doubled.count, doubled.first.name, doubled.second.name) == (2, "a", "b")
    assert float(doubled.second.stiffness) == 6.0


def test_jit_traces_again_for_static_fields_only():
    traces = []

    @jax.jit
    def energy(record):
        traces.append(record.name)
        return 0.5 * record.stiffness * jnp.sum(record.length**2)

    assert float(energy(spring(4.0, "a"))) == 2.0
    assert float(energy(spring(8.0, "a"))) == 4.0
    assert traces == ["a"]
    energy(spring(8.0, "b"))
    assert traces == ["a", "b"]


def test_vmap_and_grad_go_through_records():
    batch = jax.vmap(lambda k: spring().replace(stiffness=k))(jnp.arange(3.0))
    assert batch.stiffness.shape == (3,)
    assert batch.length.shape == (3, 2)
    gradient = jax.grad(lambda s: s.stiffness**2 * s.length[1])(spring(3.0, "x"))
    assert isinstance(gradient, Spring)
    assert gradient.name == "x"
    np.testing.assert_allclose(gradient.stiffness, 6.0)
    np.testing.assert_allclose(gradient.length, [0.0, 9.0])
