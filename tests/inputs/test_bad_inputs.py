"""Bad input of every public function and record: an error that names the argument, or a status bit."""

import functools
import inspect
import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from inputs.bad_calls import Case, cases_of, judge_error, outcome, public_functions, public_records
from inputs.valid_calls import CALLS, EPS, RECORDS, affine, gait, terms
from jaxcontact import ess, geometry, impact, models
from jaxcontact.arguments import check_count, check_positive
from jaxcontact.front_door import POSITIVE, checked

ALL = public_functions() | public_records()
del ALL["terms.touch_tolerance"]  # any number of arrays of any shapes
# Their valid calls take seconds to make: a certificate, samples on the disk, a gait, a robot's file.
DEAR = {
    "stability.check", "stability.excursion_bounds", "impact.load_samples", "optimize.gait", "from_mujoco",
    "optimize.gait_outcome", "optimize.gait_outcome_rate", "viz.animate_gait", "viz.plot_coverage", "load_mjcf",
    "mechanics.tree_system", "models.trex_drop", "models.trex_params", "models.trex_straight", "compliant.solve",
    "peers.mujoco_outcome", "geometry.candidates", "geometry.contact_bodies", "geometry.num_contacts",
    "viz.plot_spatial_impact", "impact.mirrored", "impact.sample", "ess.b_derivative", "viz.draw_bodies", "viz.draw_mechanism", "io.load_friction_problem",
}  # fmt: skip
STRIDE = 3  # of the functions of the sample that every run of the tests has


def judge(path):
    """What became of the bad calls of one function, the good endings aside."""
    found = {case.name: outcome(case) for case in cases_of(path, ALL[path], inspect.signature(ALL[path]))}
    return {name: end for name, end in found.items() if end not in ("clear", "marked")}


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(set(ALL) - DEAR)[::STRIDE])
def test_bad_input_is_named(path):
    """Without the cases that are no errors, which would compute."""
    assert not judge(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({*DEAR, *ALL} - set(sorted(set(ALL) - DEAR)[::STRIDE])))
def test_bad_input_is_named_in_all_functions(path):
    assert not judge(path)


def test_every_public_function_is_checked():
    """What takes arguments stands behind the front door, and the table has a call of it."""
    # `solve_friction` goes through the door only where machine code, of some microseconds, has no answer.
    outside = [
        path
        for path, function in ALL.items()
        if not hasattr(function, "checked") and path != "solve_friction"
    ]
    assert not outside
    assert set(CALLS) <= set(public_functions())
    assert set(RECORDS) <= set(public_records())


@checked(q="nq", v="nv", dt=POSITIVE, count=check_count)
def step(model: jc.Model, q: jax.Array, v: jax.Array, dt: float, *, count: int = 1) -> jax.Array:
    """Move a mechanism."""
    return q.at[: v.size].add(dt * v)


def test_the_front_door_keeps_signature_doc_and_pickle():
    assert list(inspect.signature(step).parameters) == ["model", "q", "v", "dt", "count"]
    assert step.__doc__ == "Move a mechanism." and inspect.signature(jc.bias).parameters["model"]
    for function in (step, jc.bias, impact.sample, jc.compliant.step):
        assert pickle.loads(pickle.dumps(function)) is function
    law = impact.Routh(impulse_step=0.2, max_steps=3)
    assert pickle.loads(pickle.dumps(law)).max_steps == 3


def test_the_front_door_costs_less_than_a_millisecond_and_nothing_in_a_program():
    model = gait()
    state = model.initial_state()
    call, inside = (
        functools.partial(function, model, state.q, state.v, 0.1, count=2)
        for function in (step, step.__wrapped__)
    )
    assert str(jax.make_jaxpr(call)()) == str(jax.make_jaxpr(inside)())

    def seconds(function, count=100):
        begin = time.process_time()
        for _ in range(count):
            function()
        return (time.process_time() - begin) / count

    call(), inside()
    assert seconds(call) - seconds(inside) < 1e-3


@pytest.mark.long
def test_arrays_of_numpy_stand_for_those_of_jax():
    model = affine()
    x, crossed = np.array([-0.2, -0.1, -0.3]), np.zeros(3, bool)
    for function, arguments in (
        (ess.flow, {"x0": x, "t0": 0.0, "t1": 0.1, "settings": EPS}),
        (ess.saltation_matrix, {"x": x, "guard": 0, "crossed": crossed}),
    ):
        found = function(model.replace(params=jax.tree.map(np.asarray, model.params)), **arguments)
        jax.tree.map(np.testing.assert_array_equal, found, function(model, **arguments))
    q = np.asarray(models.trex().initial_state().q)
    assert models.trex_drop(models.trex().params, q).initial_state().q[1] > q[1]


def test_flat_points_and_bodies_that_are_not_there_are_named():
    with pytest.raises(ValueError, match="vertices: expected four points or more that are not in one plane"):
        jc.hull_faces(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.0]]))
    shapes = {
        "foot": jc.Point(name="foot", body="leg"),
        "floor": jc.HalfSpace(name="floor", normal=(0.0, 1.0)),
    }
    with pytest.raises(ValueError, match="bodies: expected the body 'leg' of 'foot' among them"):
        geometry.contact_bodies(2, ("arm",), shapes, (("foot", "floor"),))


@pytest.mark.long
def test_lists_stand_for_tuples():
    assert impact.Sequential(order=[0, 1]).order == (0, 1)
    assert geometry.HalfSpace(name="floor", normal=[0.0, 1.0]).normal == (0.0, 1.0)
    record = jc.Structure(
        dim=2, bodies=["a"], num_positions=3, shapes=[jc.Point(name="p", body="a")], pairs=[]
    )
    assert (record.bodies, record.pairs) == (("a",), ()) and hash(record)
    v = gait().initial_state().v
    first = impact.sequential(terms(), v, (0, 1), max_impacts=2)[0]
    np.testing.assert_array_equal(first, impact.sequential(terms(), v, [0, 1], max_impacts=2)[0])


def test_records_check_what_users_pass_and_not_what_jax_puts_into_their_leaves():
    law = impact.Routh(impulse_step=0.2, max_steps=3)
    with pytest.raises(ValueError, match="impulse_step: expected finite numbers, got NaN or inf"):
        law.replace(impulse_step=float("nan"))
    assert jax.tree.map(lambda _: "label", law).impulse_step == "label"
    assert jax.tree.map(lambda _: jnp.nan, law).impulse_step is jnp.nan
    traced = jax.jit(lambda h: law.replace(impulse_step=h).impulse_step)(-1.0)
    assert traced == -1.0


def test_a_traced_shape_names_the_argument():
    model = gait()
    with pytest.raises(ValueError, match=r"q: expected shape \(4,\), got \(3,\)"):
        jax.jit(lambda q: jc.mass_matrix(model, q))(jnp.ones(3))
    with pytest.raises(ValueError, match=r"q: expected shape \(4,\), got \(2, 4\); use vmap for batches"):
        jax.vmap(lambda q: jc.mass_matrix(model, q))(jnp.ones((3, 2, 4)))


@pytest.mark.parametrize("place", [0, 1])
def test_floats_of_two_precisions_that_fail_are_named(place):
    state = gait().initial_state()
    arguments = [np.asarray(state.q, np.float64), np.asarray(state.v, np.float64)]
    arguments[place] = arguments[place].astype(np.float32)
    with pytest.raises(TypeError, match=r"[qv]: expected float64, as model has, got float32"):
        jc.terms.contact_velocities(gait(), *arguments)


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        ("n n", jnp.ones((2, 3)), r"x: expected shape \(n, n\), got \(2, 3\)"),
        (" | n", jnp.ones((2, 3)), r"x: expected shape \(\) or \(n,\), got \(2, 3\); use vmap"),
        ("n+1 2", jnp.ones((0, 2)), r"x: expected shape \(n \+ 1, 2\), got \(0, 2\)"),
        ("bool n", jnp.ones(2), "x: expected booleans, got float"),
        ("int", 2.5, "x: expected an integer, got 2.5"),
        ("real n", jnp.ones(2, complex), "x: expected real numbers, got complex"),
        ("n; n n", jnp.ones(2), "x: expected 2 arrays, got an array of shape"),
        ("n; n n", (jnp.ones(2), jnp.ones((3, 2))), r"x\[1\]: expected shape \(2, 2\), got \(3, 2\)"),
        (("", check_positive), True, "x: expected a number, got True"),
    ],
)
def test_rules_of_shapes(rule, value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        checked(x=rule)(lambda x: x)(value)


def test_a_rule_of_no_parameter_is_a_mistake():
    with pytest.raises(TypeError, match="rules of no parameter"):
        checked(y="n")(lambda x: x)(1)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ValueError("v: expected shape (4,), got (3,)"), "clear"),
        (TypeError("v: expected an array, got list"), "clear"),
        (AttributeError("v: expected an array, got list"), "obscure"),
        (TypeError("dot_general requires contracting dimensions, got (4,) and (3,)"), "obscure"),
        (ValueError("q: expected v of shape (4,), got q"), "clear"),
        (ValueError("v is wrong"), "obscure"),
        (ValueError("q: expected shape (4,), got v"), "obscure"),
    ],
)
def test_the_judge_of_errors(error, verdict):
    case = Case("f", "v", "a word", lambda v: v, (1,), {})
    assert judge_error(case, error).startswith(verdict)


def test_the_judge_of_results():
    def run(result):
        return outcome(Case("f", "v", "a word", lambda v: result, (1,), {}), seconds=1)

    info = jc.LcpInfo(
        status=jnp.uint32(int(jc.Status.NONFINITE)), residual=jnp.zeros(()), num_iters=jnp.int32(0)
    )
    assert run(jnp.ones(2)) == "silent"
    assert run(jnp.array([1.0, jnp.nan])) == run((jnp.ones(2), info)) == "marked"
    assert outcome(Case("f", "v", "a word", lambda v: time.sleep(5), (1,), {}), seconds=1) == "without end"
