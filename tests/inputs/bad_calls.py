"""Bad calls of every public function, made from its signature and its valid call; what became of each.

A case is the name of a function, what is wrong, and the arguments. `outcome` runs it and says whether the
error is clear: it names the argument, what was expected and what came.
"""

import dataclasses
import functools
import inspect
import itertools
import re
import signal
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers.signatures import public_names, rooms

import jaxcontact as jc
from inputs.valid_calls import RECORDS, arguments, gait

SECONDS = 30  # a case that takes longer has no end
FREE_TEXT = {"title", "name", "xlabel", "ylabel", "what", "color", "key"}
COUNTS = re.compile(r"num_|max_|frames|starts|order\b|degree|^n$|stages")
NOT_NEGATIVE = re.compile(
    r"^(dt|duration|eps|tol|tolerance|probability|confidence|width|fps|slower|area|side|radius|modulus|depth|"
    r"rtol|atol|timestep|lipschitz|stiffness|damping_ratio|curvature_step|slip_speed|touching|reach|mu|length|"
    r"restitution|mass|damping|friction|friction_damping|coefficient|kappa|corner_tol|impulse_step|impulse_max|zeno|"
    r"rates|mu1|mu2|e1|e2|stop_speed|exponent|masses|youngs_modulus|frequency|arrow_scale|floor_|timeconst|dampratio|impratio)$"
)
# Arguments whose values the function hands to the caller's code, or to anything that JAX can take.
ANYTHING = {
    "control", "params0", "data", "optimizer", "controls0", "params", "free", "free0",
    "direction", "mj_model", "mj_data", "grid", "per_motion0",
}  # fmt: skip
TREES = {
    "control",
    "params0",
    "data",
    "free",
    "per_motion0",
}  # of numbers, for the caller's code
# Cases that are no mistakes: batches of any axes, numbers of any size, infinity as a default.
FINE = {
    ("raise_if_failed", "info", "a number"),
    ("ess.unpack", "x", "one axis more"), ("rotations.planar_matrix", "angle", "one axis more"),
    ("impact.sample", "seed", "a number"), ("simulate.time_augmented", "longest", "inf"),
    ("ess.DormandPrince", "longest", "inf"),
    ("to_mujoco", "v_plus", "one number more"), ("optimize.trajectory", "controls0", "one axis more"),
    ("optimize.identify", "data", "complex numbers"), ("optimize.identify", "data", "one axis more"),
    ("optimize.identify_motions", "data", "complex numbers"), ("optimize.identify_motions", "data", "one axis more"),
    ("optimize.one_sided_descent", "gradient", "one number more"), ("optimize.risk_of", "costs", "one number more"),
    ("ess.pack", "state", "q of another size"), ("ess.pack", "state", "v of another size"),
    ("impact.dense_sampling", "lipschitz", "inf"),
    *(("optimize.search_from_starts", "starts", wrong) for wrong in ("one axis more", "one number more")),
    *(("geometry.rows", "array", wrong) for wrong in (
        "complex numbers", "one axis more", "one number more", "no numbers")),
}  # fmt: skip
# Records whose texts name numbers of the mechanism, and one whose arrays are compared with it later.
SHAPES = {
    "Point", "Points", "Sphere", "Capsule", "Cylinder", "Disc", "Box", "Ellipsoid", "Polygon", "ConvexMesh",
    "HalfSpace",
}  # fmt: skip
LATER = re.compile(r"None|one axis more|one number more|no numbers")
# Shapes that disagree blame the second of two arguments, of which either may be wrong.
PARTNERS = {
    ("geometry.products", "matrices"): "vectors", ("geometry.check_pair", "a"): "pairs",
    ("solve_lcp", "W"): "w", ("impact.reset_map", "M"): "u", ("viz.plot_order", "widths"): "errors",
    ("viz.plot_paradox", "x"): "kind", ("viz.plot_paradox", "y"): "kind",
    ("compliant.estimate_forces", "states"): "tau", ("solve_friction", "q"): "W",
}  # fmt: skip
HOST = re.compile(r"viz\.|stability\.|optimize\.|io\.|models\.|impact\.(contains|coverage|extreme|kelvin|load|net|"
                  r"approx|dissip|impulse|mirror|pointed|sample$|step_b|unique|dense|time_b|reflection_b|coupling|invariant|"
                  r"refine|bounds)|peers|load_mjcf|simulate\.(run|"
                  r"ensemble)|hull_faces|from_mujoco|to_mujoco|ess\.(rescale|from_system)|geometry\.(check|num|contact)|raise_if")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """A call with one wrong argument."""

    path: str
    parameter: str
    wrong: str
    function: Callable[..., Any]
    positional: tuple
    named: dict
    traced: bool = False

    @property
    def name(self):
        return f"{self.path}({self.parameter}): {self.wrong}"


def public_functions():
    """Every public function that takes arguments, by the name of its first room."""
    found = {}
    for room, module in rooms().items():
        for name, value in public_names(module).items():
            if isinstance(value, types.ModuleType | type) or not callable(value):
                continue
            if inspect.signature(value).parameters and value not in found.values():
                found[f"{room}.{name}".removeprefix("jaxcontact.")] = value
    return found


def public_records():
    """The public records of settings, by the name of their first room."""
    names = {f"{room}.{name}".removeprefix("jaxcontact."): value
             for room, module in rooms().items() for name, value in public_names(module).items()}  # fmt: skip
    return {path: names[path] for path in RECORDS}


def split(signature, values):
    """Positional and named arguments of a call."""
    positional, named = [], {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [values[name]] if name in values else []
        elif name in values and parameter.kind is not parameter.KEYWORD_ONLY and not named:
            positional.append(values[name])
        elif name in values:
            named[name] = values[name]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            named[name] = parameter.default
    return tuple(positional), named


def is_array(value):
    return isinstance(value, jax.Array | np.ndarray) and value.dtype.kind in "fc"


def wrong_values(path, parameter, value):
    """What is wrong, and the value, of one argument."""
    name, kind = parameter.name, str(parameter.annotation)
    optional = "None" in kind or parameter.default is None
    if name not in ANYTHING:
        if not optional:
            yield "None", None
        if "str" not in kind and "Path" not in kind and name not in ("source",):
            yield "a word", "abc"
        elif (
            name not in FREE_TEXT
            and path not in SHAPES
            and not re.search(r"path|directory|source|checkpoint", name)
        ):
            yield "an unknown word", "no such word"
        yield "an object", object()
        takes_number = re.search(r"int|float", kind) or (
            kind in ("Any", "PyTree") and isinstance(value, int | float)
        )
        if not takes_number and "Array" not in kind and not is_array(value) and value is not None:
            yield "a number", 3
    if name in TREES:
        yield "a tree of words", {"a": ["b"]}
    if isinstance(value, jc.Model):
        yield "a State", value.initial_state() if value.initial is not None else gait().initial_state()
        yield "Params", value.params
    if isinstance(value, jc.State):
        yield "a Model", gait()
        yield "q of another size", value.replace(q=value.q[..., :-1])
        yield "v of another size", value.replace(v=jnp.concatenate([value.v, value.v[..., :1]], axis=-1))
        yield "whole numbers", value.replace(q=jnp.asarray(value.q, jnp.int32))
    if isinstance(value, jc.ContactTerms):
        yield "a Model", gait()
        yield "mu of another size", value.replace(mu=value.mu[:-1])
        yield "M of another size", value.replace(M=value.M[:-1])
    if is_array(value):
        yield "complex numbers", value * 1j
        yield "one axis more", value[None, None]
        yield "a masked array", np.ma.masked_array(np.asarray(value))
        if value.ndim and name not in ANYTHING:
            yield "one number more", jnp.concatenate([value, value[..., :1]], axis=-1)
            yield "no numbers", value[..., :0]
    if "float" in kind or (kind in ("Any", "PyTree") and isinstance(value, float)):
        yield "NaN", float("nan")
        yield "inf", float("inf")
        if NOT_NEGATIVE.match(name):
            yield "a negative number", -1.0
    if kind.startswith("int"):
        yield "half a number", 2.5
        if COUNTS.search(name):
            yield "a negative count", -1
            yield "NaN", float("nan")
    if kind.startswith("bool"):
        yield "a number", 2


def cases():
    """All cases, in the order of the functions."""
    for path, function in (public_functions() | public_records()).items():
        signature = inspect.signature(function)
        yield from cases_of(path, function, signature)


def cases_of(path, function, signature):
    values = arguments(path, signature)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        value = values.get(name, parameter.default)
        for wrong, bad in wrong_values(path, parameter, value):
            if (path, name, wrong) in FINE or (path == "Params" and LATER.match(wrong)):
                continue
            positional, named = split(signature, values | {name: bad})
            yield Case(path, name, wrong, function, positional, named)
            shaped = wrong in ("one axis more", "one number more", "no numbers")
            if shaped and path not in RECORDS and not HOST.match(path):
                yield Case(path, name, wrong + ", traced", function, positional, named, traced=True)
    yield from swapped(path, function, signature, values)


def swapped(path, function, signature, values):
    """Two neighbours in each other's place, if they are of different types."""
    names = [n for n, p in signature.parameters.items() if n in values and p.kind is p.POSITIONAL_OR_KEYWORD]
    for first, second in itertools.pairwise(names):
        a, b = values[first], values[second]
        if type(a) is type(b) or {first, second} & ANYTHING or (is_array(a) and is_array(b)):
            continue
        if isinstance(a, int | float) and isinstance(b, int | float):
            continue
        positional, named = split(signature, values | {first: b, second: a})
        yield Case(path, f"{first}|{second}", "swapped", function, positional, named)


class NoEnd(Exception):
    """A case took too long."""


def _stop(*_):
    raise NoEnd


def run(case):
    if not case.traced:
        return case.function(*case.positional, **case.named)
    bound = inspect.signature(case.function).bind(*case.positional, **case.named)

    def call(x):
        bound.arguments[case.parameter] = x
        return case.function(*bound.args, **bound.kwargs)

    return jax.jit(call)(bound.arguments[case.parameter])


def is_marked(result):
    """Whether a result says that something is wrong: a status bit, or a number that is none."""
    for leaf in jax.tree.leaves(result):
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            leaf = np.asarray(leaf)
            if leaf.dtype.kind == "f" and not np.all(np.isfinite(leaf)):
                return True
        elif isinstance(leaf, float) and not np.isfinite(leaf):
            return True
    info = [
        x for x in jax.tree.leaves(result, is_leaf=lambda x: hasattr(x, "status")) if hasattr(x, "status")
    ]
    return any(np.any(np.asarray(x.status) & int(jc.Status.FAILURES)) for x in info)


def judge_error(case, error):
    """Say whether an error is clear, and if not why."""
    text = str(error)
    names = case.parameter.split("|")
    names += [PARTNERS[case.path, name] for name in names if (case.path, name) in PARTNERS]
    if not isinstance(error, TypeError | ValueError | OSError):
        return f"obscure: {type(error).__name__}: {text[:150]}"
    if not any(re.search(rf"\b{name}\b", text.partition(", got")[0]) for name in names):
        return f"obscure: no name: {type(error).__name__}: {text[:150]}"
    if not re.search(r"\b(expected|must)\b", text) or not re.search(r"\b(got|is|are|has|no)\b", text):
        return f"obscure: what came: {text[:150]}"
    return "clear"


def outcome(case, seconds=SECONDS):
    """Run a case; return "clear", "marked", or what is wrong with what happened."""
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        result = run(case)
        result = jax.block_until_ready(result) if isinstance(result, jax.Array | tuple) else result
        return "marked" if is_marked(result) else "silent"
    except NoEnd:
        return "without end"
    except Exception as error:
        return judge_error(case, error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@functools.cache
def all_cases():
    return list(cases())
