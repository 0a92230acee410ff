"""Faults that the fuzzer must find: `python -m tests.fuzz_faults [-k REGEX]`, run by `make test-all`.

Each fault is put into a copy of the package; rounds of the check that is named then follow, from seed 0, until
one fails. Without a fault the same rounds find nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutant_list import Mutant
from tests.mutants import apply, copy_to

ROUNDS = 10  # of a check at most

FAULTS = [  # in the place of a test: the check that must find it
    # geometry
    Mutant("balls: two balls keep one radius", "geometry/balls.py",
        "phi = distance - radius_a - radius_b", "phi = distance - radius_a", "shapes"),
    Mutant("cylinders: the cap is nearer than it is", "geometry/cylinders.py",
        "cap_sign * point[2] - sizes[1]]", "cap_sign * point[2] - 0.9 * sizes[1]]", "shapes"),
    Mutant("ellipsoids: the axes of another", "geometry/ellipsoids.py",
        "(semi_axes - width) * (semi_axes + width)", "(semi_axes - width) * (1.02 * semi_axes + width)", "shapes"),
    # rows of contacts
    Mutant("contacts: the other body does not move", "terms/contacts.py",
        "sides = zip((1.0, -1.0), bodies, (places.point, places.point_b), strict=True)",
        "sides = zip((1.0, -0.0), bodies, (places.point, places.point_b), strict=True)", "rows"),
    Mutant("contacts: rows at the point of the first body alone", "terms/contacts.py",
        "sides = zip((1.0, -1.0), bodies, (places.point, places.point_b), strict=True)",
        "sides = zip((1.0, -1.0), bodies, (places.point, places.point), strict=True)", "rows"),
    Mutant("frames: the second tangent leans", "geometry/frames.py",
        "return jnp.stack([first, jnp.cross(normal, first)])",
        "return jnp.stack([first, jnp.cross(normal, first) + 0.01 * normal])", "rows"),
    # mechanics
    Mutant("spatial: no coupling of spin and force", "mechanics/spatial.py",
        "return add(cross3(a[0], b[0]), cross3(a[1], b[1])), cross3(a[0], b[1])",
        "return cross3(a[0], b[0]), cross3(a[0], b[1])", "trees"),
    Mutant("spatial: inertia off the axis has the wrong sign", "mechanics/spatial.py",
        "product = dot3(rotation[i], turned[j]) - mass * centre[i] * centre[j]",
        "product = dot3(rotation[i], turned[j]) + mass * centre[i] * centre[j]", "trees"),
    Mutant("mechanics: the weight pulls with half its force", "mechanics/motion_equations.py",
        "-jnp.sum(model.params.mass * (x @ model.params.gravity))",
        "-0.5 * jnp.sum(model.params.mass * (x @ model.params.gravity))", "energies"),
    # impacts
    Mutant("contact problem: sliding friction forgets mu", "solvers/contact_problem.py",
        "(problem.mu[:, None] * modes.direction)[:, :, None]", "modes.direction[:, :, None]", "motions"),
    Mutant("inputs: NaN in v passes", "impact/inputs.py",
        "finite = numbers_finite & jnp.all(jnp.isfinite(v)) & jnp.isfinite(v @ (terms.M @ v))",
        "finite = numbers_finite", "simultaneous"),
    Mutant("inputs: negative friction passes", "impact/inputs.py",
        "valid = symmetric & (pivot > 0) & jnp.all(terms.mu >= 0)",
        "valid = symmetric & (pivot > 0)", "step"),
    Mutant("friction: fast motions are given up", "impact/laws/circular_cone.py",
        "return v_plus, impulse, worst, jnp.where(solved, jnp.uint32(0), info.status | residual_status(worst))",
        "return v_plus, impulse, worst, residual_status(worst + jnp.where(jnp.max(jnp.abs(u)) < 1e3, 0.0, 1.0))",
        "spatial"),
    Mutant("Routh: an impulse beyond its largest", "impact/laws/routh_steps.py",
        "cap = jnp.where(space.active, impulse_max / space.scale[::rows], 0.0)",
        "cap = jnp.where(space.active, 1.5 * impulse_max / space.scale[::rows], 0.0)", "step"),
    Mutant("outcomes: a third of the modes is not tried", "impact/laws/every_outcome.py",
        "    count = jnp.int32(0)\n", "    feasible, count = feasible.at[::3].set(False), jnp.int32(0)\n",
        "every_outcome"),
    Mutant("restitution: gives back more than was stored", "impact/laws/energetic_restitution.py",
        "spent = jnp.where(spends, 2.0 * stored /", "spent = jnp.where(spends, 2.2 * stored /", "sample"),
    Mutant("reflections: a hundredth too far", "impact/laws/reflections.py",
        "return weights * (-2.0 * (weights @ rate)", "return weights * (-2.02 * (weights @ rate)", "elastic"),
    Mutant("containment: samples in another metric", "impact/analysis/containment.py",
        ", (v_plus[good] - start) @ root.T\n", ", v_plus[good] - start\n", "contains"),
    # compliant steps
    Mutant("compliant: the damper does not see the end of the step", "compliant/problem.py",
        "base = -springs * phi - rate * drift", "base = -springs * phi", "compliant"),
    Mutant("compliant: limits pull", "solvers/cone_program.py",
        "pushes = z[:equalities], slope[:equalities], z[equalities:singles] > 0",
        "pushes = z[:equalities], slope[:equalities], z[equalities:singles] > -jnp.inf", "compliant"),
    # motion
    Mutant("events: the way through a band takes no time", "ess/event_step.py",
        "        t=done.t,\n        x=done.x,\n", "        t=c.t,\n        x=done.x,\n", "hopper"),
    Mutant("variational: restitution is squared", "simulate/variational/impact_event.py",
        "jnp.where(plastic, 0.0, restitution))", "jnp.where(plastic, 0.0, restitution**2))", "motions"),
    Mutant("event driven: friction of sliding is too strong", "simulate/events/stretch.py",
        "vdot = at.free + small_dense.apply_matrix(at.space.response, force)", "vdot = at.free + 1.01 * small_dense.apply_matrix(at.space.response, force)",
        "motions"),
    # machine code
    Mutant("native: sums in reverse run forward", "native/rules_sums.py",
        "return np.moveaxis(stacked[:: -1 if backwards else 1], 0, axis)",
        "return np.moveaxis(stacked[::-1], 0, axis)", "programs"),
    Mutant("native: starts outside are not held", "native/rules_places.py",
        "address = ops.binary(\"add\", address, ops.binary(\"mul\", held, stride))",
        "address = ops.binary(\"add\", address, ops.binary(\"mul\", ops.binary(\"max\", held, "
        "ops.constant(1, kind)), stride))", "programs"),
    Mutant("native: of two cases always the first", "native/rules_elementwise.py",
        "return program.each(lambda w, no, yes: ops.select(w, yes, no), which, *cases)",
        "return program.each(lambda w, no, yes: no, which, *cases)", "simd"),
    # derivatives
    Mutant("implicit rule: the sign of the right-hand side", "algebra/implicit.py",
        "return unravel(-moved)", "return unravel(moved)", "gradients"),
    Mutant("implicit rule: a solve without the change of the matrix", "algebra/implicit.py",
        "        lambda x: matrix @ x,\n        rhs,\n        lambda _, b: inverse @ b,",
        "        lambda x: lax.stop_gradient(matrix) @ x,\n        rhs,\n        lambda _, b: inverse @ b,", "gradients"),
    # files and arguments
    Mutant("store: blocks are believed", "io/run_store.py",
        "if hashlib.sha256(data).hexdigest() != entry.digests.get(name):", "if False:", "files"),
    Mutant("store: a swapped line is believed", "io/run_store.py",
        'if fields.pop("line") != self._line_digest(fields) or fields["begin"] != begin:',
        'if not fields.pop("line"):', "files"),
    Mutant("sealed arrays: the digest is not compared", "io/sealed_arrays.py",
        "if mark != MARK or _digest(file, size) != digest:", "if mark != MARK:", "files"),
    Mutant("front door: shapes are not compared", "shape_rules.py",
        "if not any(_match(option, shape, sizes) for option in options):", "if False:", "inputs"),
    Mutant("arguments: NaN is a number", "arguments.py",
        "    if not np.all(np.isfinite(array)):\n        raise ValueError(f\"{name}: expected finite numbers, "
        "got NaN or inf\")\n    if np.any(array < minimum):",
        "    if np.any(array < minimum):", "inputs"),
]  # fmt: skip


def rounds(folder: Path, check: str) -> tuple[int, str]:
    """Exit code of the fuzzer in a copy, and the end of what it printed."""
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")
        + " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["--only", check, "--rounds", str(ROUNDS), "--first"]
    command = [sys.executable, "-m", "benchmarks", "fuzz", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def main() -> int:
    """Put in the faults one by one; exit code 1 if the fuzzer misses one, or finds one that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_faults", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only faults whose name matches")
    parser.add_argument("--no-clean", action="store_true", help="leave out the rounds without a fault")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if re.search(options.k, fault.name)]
    begin, bad = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        folder.mkdir()
        copy_to(folder, more=("benchmarks",))
        for check in () if options.no_clean else sorted({fault.test for fault in chosen}):
            code, text = rounds(folder, check)
            bad += code != 0
            print(
                f"{time.perf_counter() - begin:5.0f} s  {check} without a fault: exit code {code}", flush=True
            )
            if code:
                print(text)
        for fault in chosen:
            path = folder / "jaxcontact" / fault.file
            good = path.read_text()
            apply(fault, folder)
            code, text = rounds(folder, fault.test)
            path.write_text(good)
            bad += code != 1
            line = next((line for line in text.splitlines() if "--seed" in line), text)
            word = "found" if code == 1 else "MISSED"
            print(f"{time.perf_counter() - begin:5.0f} s  {fault.name}: {word}; {line[:240]}", flush=True)
    print(f"{len(chosen)} faults, {bad} missed or found where none is, {time.perf_counter() - begin:.0f} s")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
