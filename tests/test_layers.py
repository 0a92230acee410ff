"""The house rules that can be read off the source: layers, names, docstrings, silent imports."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxcontact

ROOT = Path(jaxcontact.__file__).parent
LAYERS = (
    (
        "_lazy",
        "_pytree",
        "arguments",
        "shape_rules",
        "front_door",
        "costs",
        "status",
        "precision",
        "tolerances",
    ),
    ("native",),
    ("batching",),
    ("algebra",),
    ("geometry",),
    ("mechanics",),
    ("terms",),
    ("io",),
    ("solvers",),
    ("models",),
    ("impact", "compliant", "ess"),
    ("simulate",),
    ("optimize", "stability"),
    ("peers", "viz"),
    ("cli",),
)
RANK = {name: rank for rank, name in enumerate(name for row in LAYERS for name in row)}
# Mechanisms know nothing of methods.
ONLY = {"models": {"_pytree", "arguments", "front_door", "algebra", "geometry", "mechanics", "io"}}
VAGUE = {"utils", "helpers", "common", "base"}
FILES = {".".join(p.relative_to(ROOT.parent).with_suffix("").parts): p for p in sorted(ROOT.rglob("*.py"))}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items()}
PUBLIC_FILES = [name for name in FILES if not name.endswith("__main__")]


def imported(source, module, modules, is_package=False):
    """Dotted names of the package's modules that the source of `module` imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "jaxcontact"}
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            if base.split(".")[0] == "jaxcontact":
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    found.add(whole if whole in modules else base)
    return found


def complaints(module, targets):
    """What is wrong with the imports of one module."""
    parts = module.split(".")
    if len(parts) == 1:  # the package itself re-exports everything
        return []
    own, wrong = parts[1], []
    if own == "__main__":
        return [f"{module} imports {t}" for t in targets if not t.startswith("jaxcontact.cli")]
    if own not in RANK:
        return [f"{module} is in no layer; add it to LAYERS"]
    for target in sorted(targets):
        if target == "jaxcontact":
            wrong.append(f"{module} imports a public name of the whole package, not a module")
            continue
        other = target.split(".")[1]
        if other not in RANK:
            wrong.append(f"{module} imports {target}, which is in no layer")
        elif other == own:
            continue
        elif own in ONLY and other not in ONLY[own]:
            wrong.append(f"{module} imports {target}; {own} may import {sorted(ONLY[own])} only")
        elif RANK[other] > RANK[own]:
            wrong.append(f"{module} imports {target} from a layer below")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_imports_come_from_layers_above(module):
    path = MODULES[module]
    targets = imported(path.read_text(), module, MODULES, path.name == "__init__.py")
    assert complaints(module, targets) == []


@pytest.mark.parametrize(
    ("module", "source", "good"),
    [
        ("jaxcontact.algebra.small_dense", "from jaxcontact import status", True),
        ("jaxcontact.algebra.small_dense", "import jaxcontact.terms", False),
        ("jaxcontact.algebra.small_dense", "from jaxcontact import terms", False),
        ("jaxcontact.algebra.small_dense", "from ..terms import ContactTerms", False),
        ("jaxcontact.algebra.small_dense", "def f():\n    from jaxcontact.terms import ContactTerms", False),
        ("jaxcontact.status", "from jaxcontact import _pytree", True),
        ("jaxcontact._pytree", "from jaxcontact import status", False),
        ("jaxcontact.impact.laws.routh", "from . import anitescu_potra", True),
        ("jaxcontact.impact.laws.routh", "from ...terms import ContactTerms", True),
        ("jaxcontact.impact.laws.routh", "from ...simulate import stepping", False),
        ("jaxcontact.impact.laws.routh", "from jaxcontact import contact_terms", False),
        ("jaxcontact.models.ramone", "from jaxcontact.terms import contact_terms", False),
        ("jaxcontact.models.ramone", "from jaxcontact.impact import sample", False),
        ("jaxcontact.models.ramone", "from jaxcontact.mechanics.system import System", True),
        ("jaxcontact.__main__", "from jaxcontact import models", False),
        ("jaxcontact.misc", "import jax", False),
        ("jaxcontact.viz.mechanism", "import jax, numpy.linalg", True),
    ],
)
def test_the_layer_check_itself(module, source, good):
    names = MODULES.keys() | {f"jaxcontact.{name}" for name in RANK} | {"jaxcontact.simulate.stepping"}
    assert (complaints(module, imported(source, module, names)) == []) is good


def test_every_module_is_found():
    assert {
        "jaxcontact",
        "jaxcontact.impact",
        "jaxcontact.impact.laws.routh",
        "jaxcontact.cli",
    } <= MODULES.keys()


@pytest.mark.parametrize("module", FILES)
def test_module_has_a_docstring_and_a_name_that_says_something(module):
    docstring = ast.get_docstring(ast.parse(FILES[module].read_text()))
    assert docstring, f"{module} does not say what it owns"
    assert not VAGUE & set(module.split("."))


@pytest.mark.parametrize("module", PUBLIC_FILES)
def test_public_names_have_docstrings(module):
    def silent(body, prefix=""):
        names = []
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                overload = "overload" in [ast.unparse(each) for each in node.decorator_list]
                if node.name.startswith("_") or overload:
                    continue
                if not ast.get_docstring(node):
                    names.append(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    names += silent(node.body, f"{node.name}.")
        return names

    assert silent(ast.parse(FILES[module].read_text()).body) == []


@pytest.mark.parametrize("module", [name for name in FILES if name.endswith("__init__")])
def test_init_files_only_re_export(module):
    tree = ast.parse(FILES[module].read_text())
    for node in tree.body[1:]:  # the docstring comes first
        if isinstance(node, ast.Assign):
            assert ast.unparse(node.targets[0]) in ("__version__", "(__getattr__, __dir__, __all__)")
            continue
        assert isinstance(node, ast.Import | ast.ImportFrom), ast.unparse(node)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0


def test_type_checkers_and_python_see_the_same_names():
    """The names in the stub are those that are loaded on first use, each from its module."""
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    told = {(node.module, alias.asname) for node in lines for alias in node.names}
    assert set(jaxcontact.__all__) == {name for _, name in told} <= set(dir(jaxcontact))
    for home, name in told:
        value = getattr(jaxcontact, name)
        assert value is getattr(importlib.import_module(home), name)
    assert isinstance(jaxcontact.__version__, str)
    with pytest.raises(AttributeError, match="module 'jaxcontact' has no attribute 'nonesuch'"):
        _ = jaxcontact.nonesuch


def test_importing_loads_jax_numpy_and_the_package_alone():
    """`import jaxcontact` loads not even JAX; everything in it together neither pictures nor optimisers."""
    fresh = """
import sys
import jaxcontact as jc
assert not {"jax", "numpy"} & set(sys.modules)
for name in jc.__all__:
    getattr(jc, name)
assert "jax" in sys.modules
heavy = {"matplotlib", "scipy", "optax", "mujoco", "clarabel"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", fresh],
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_program_is_made_once_where_its_modules_load_while_it_is_traced():
    """A context of the user that came into being then would be a new key, and the second call a new program."""
    code = """
import jax
import jaxcontact as jc
model = jc.models.box_on_incline(0.2)
program = jax.jit(lambda v: jc.compliant.step(model, model.initial_state().replace(v=v), v, dt=0.01)[0].q)
first, second = (program.trace(jax.ShapeDtypeStruct((6,), float)).jaxpr for _ in range(2))
assert first is second
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]


def test_importing_changes_no_setting_and_starts_no_backend():
    code = """
import jax
before = dict(jax.config.values)
import jaxcontact, jaxcontact.cli
for name in jaxcontact.__all__:
    getattr(jaxcontact, name)
after = dict(jax.config.values)
changed = {name for name in before if before[name] != after[name]}
assert not changed, changed
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "an array was made at import time"
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment["PYTHONPATH"] = str(ROOT.parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
