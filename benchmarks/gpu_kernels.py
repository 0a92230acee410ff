"""`python -m benchmarks kernels`: what programs launch on an H100, counted without one.

XLA compiles them for the card that `data/h100.txtpb` describes. That needs `jax[cuda12]` (5.5 GB) in an
environment of its own, and `JAX_PLATFORMS=cpu`. Nothing runs on a GPU: kernels, waits and bytes are facts of
the compiled programs, times are not.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

from benchmarks import gpu, report, robots, runner
from benchmarks.compiled_text import NAME, CompiledText, body_of, branches_of
from jaxcontact.batching import platforms

CARD = Path(__file__).with_name("data") / "h100.txtpb"
BITS = {"f64": 64, "f32": 32, "s64": 64, "u64": 64, "s32": 32, "u32": 32, "s8": 8, "u8": 8, "pred": 8}
NO_KERNEL = frozenset(("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"))
WORLDS = 4096
Make = Callable[[int], tuple[gpu.Work, tuple[jax.Array, ...]]]
ASSIGNMENT = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = (.+?) ([\w\-]+)\((.*?)\)(?:, |$)")


@dataclasses.dataclass(frozen=True)
class Count:
    """Of one pass through a computation; a loop whose length the data decide counts as one turn.

    Attributes:
        kernels: launched.
        waits: times that the host waits for the device: turns of such loops, and branches.
        bytes: read and written.
    """

    kernels: float = 0.0
    waits: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.kernels + other.kernels, self.waits + other.waits, self.bytes + other.bytes)

    def __mul__(self, turns: float) -> Count:
        return Count(turns * self.kernels, turns * self.waits, turns * self.bytes)


def count(program: CompiledText, name: str) -> Count:
    """Count one pass through a computation."""
    total, types = Count(), dict[str, str]()
    for line in program.computations[name]:
        if not (found := ASSIGNMENT.match(line)):
            continue
        types[found[1]], kind = found[2], found[3]
        if kind == "while":
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            turn = count(program, body_of(line))
            total += turn * int(turns[1]) if turns else turn + Count(waits=1.0)
        elif kind == "conditional":
            branches = [count(program, each) for each in branches_of(line)]
            total += max(branches, key=lambda branch: branch.kernels) + Count(waits=1.0)
        elif kind in ("call", "async-start"):
            for each in re.findall(f"(?:to_apply|calls)={NAME}", line):
                total += count(program, each)
        elif kind not in NO_KERNEL:
            operands = [types.get(each, "") for each in re.findall(NAME, found[4])]
            total += Count(1.0, 0.0, sum(map(_bytes, [found[2], *operands])))
    return total


def _bytes(shapes: str) -> float:
    """Add up the bytes of all arrays in the text of a type."""
    arrays = re.findall(r"\b(" + "|".join(BITS) + r")\[([\d,]*)\]", shapes)
    return sum(BITS[kind] / 8 * math.prod(int(n) for n in dims.split(",") if n) for kind, dims in arrays)


def compile_for_card(work: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return the text of the program of `work` for one card."""
    topology = topologies.get_topology_desc("one", "cuda", topology="1x1x1", target_config=CARD.read_text())
    mesh = jax.sharding.Mesh(np.array(topology.devices).reshape(1), ("one",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    traced = jax.jit(work, in_shardings=whole, out_shardings=whole).trace(*shapes)
    lowered = traced.lower(lowering_platforms=("cuda",))
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError:  # XLA finds tiles for some products by trying, which needs a card
        compiled = lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": False})
    text: str = compiled.as_text()
    return text


def _gradients(name: str, worlds: int) -> tuple[gpu.Work, tuple[jax.Array, ...]]:
    """The gradient of the sum of final positions of a robot by its velocities at first."""
    robot = next(each for each in robots.ROBOTS if each.name == name)
    scene, steps = robots.scene_of(robot, worlds), robots.steps_of(robot)

    def work(q: jax.Array, v: jax.Array, dt: jax.Array) -> Any:
        return jax.vmap(jax.grad(lambda v, q, dt: jnp.sum(steps(q, v, dt)[0].q[-1])))(v, q, dt)

    return work, (jnp.asarray(scene.q), jnp.asarray(scene.v), jnp.full(worlds, robots.DT))


PROGRAMS = (
    *((each.name, each.make) for each in gpu.PROGRAMS if each.name != "steps box"),
    *(
        (f"gradient of steps {name}", functools.partial(_gradients, name))
        for name in ("quadruped", "humanoid")
    ),
)


def counted(make: Make, worlds: int, loops: int) -> dict[str, Any]:
    """Count one turn of the outermost loop with the most kernels; of a gradient of two such loops."""
    begin = time.perf_counter()
    program = CompiledText.read(compile_for_card(*make(worlds)))
    compile_s = time.perf_counter() - begin
    turns = [count(program, body) for body in program.loops(program.entry)]
    turns.sort(key=lambda turn: turn.kernels)
    turn = sum(turns[-loops:], start=Count())
    each = {"kernels": turn.kernels, "waits": turn.waits, "bytes": turn.bytes / worlds}
    return each | {"compile_s": compile_s}


def main(arguments: list[str]) -> int:
    """Print a line for each program, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kernels", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only programs whose name matches")
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--results", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    lines = []
    with platforms.as_elsewhere():
        for name, make in PROGRAMS:
            if not re.search(options.k, name):
                continue
            line = runner.header() | {"name": name, "dtype": "float64", "worlds": options.worlds}
            try:
                line |= counted(make, options.worlds, 2 if "gradient" in name else 1)
            except Exception as error:  # the compiler's, say; the others go on
                line["skipped"] = f"{type(error).__name__}: {error}"
            lines.append(line)
            print(json.dumps(line), flush=True)
    if options.results:
        report.put(options.results, "gpu kernels", report.kernels(lines))
    return 0
