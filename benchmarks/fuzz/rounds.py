"""One impact law on one random batch: residuals, brute force, poison, lanes by themselves, other units."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz import oracles
from benchmarks.fuzz.problems import Batch, in_units, poisoned, random_batch, some_units
from benchmarks.fuzz.tally import Tally

SIZE = 128  # problems of a round
PLANE, SPACE = (3, 2, 6), (3, 3, 6)  # nc, 1 + nt, nv
DTYPES = (np.float32, np.float64)
# Limits in single and double precision: ten times what the library itself accepts, so that only plain errors
# count; energies and momenta to rounding.
LAW = {np.float32: 1e-2, np.float64: 1e-5}
EXACT = {np.float32: 2e-4, np.float64: 1e-8}
FORWARD = {np.float32: 1e-2, np.float64: 1e-5}
STEPS = 4  # of a sample
UNBALANCED = 20.0  # chi^2 of searches that end in one of two units alone; by chance one in 10^5 is above


@functools.cache
def compiled(law: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(law))


def failed(status: np.ndarray) -> np.ndarray:
    """Whether each answer has a failing status bit."""
    return (status & np.uint32(int(jc.Status.FAILURES))) != 0


class Round:
    """One law on one random batch: run, judged by residuals, with poison, and lane by lane."""

    def __init__(self, seed: int, law: Callable[..., Any], shape: tuple[int, int, int]) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = DTYPES[int(self.rng.integers(2))]
        self.law = law
        self.tally = Tally()
        units = some_units(self.rng, self.dtype)
        self.batch = random_batch(self.rng, SIZE, *shape, units).rounded(self.dtype)
        self.extra: tuple[np.ndarray, ...] = ()  # further arguments of the law
        self.options: dict[str, np.ndarray] = {}  # of the oracle: cap, fan

    @property
    def bits(self) -> str:
        """For the name of an oracle."""
        return "f32" if self.dtype is np.float32 else "f64"

    def run(self, batch: Batch | None = None, extra: tuple[np.ndarray, ...] | None = None) -> Any:
        """v_plus (B, nv) in double precision and info."""
        terms, v = (self.batch if batch is None else batch).terms(self.dtype)
        more = self.extra if extra is None else extra
        v_plus, info = compiled(self.law)(terms, v, *(jnp.asarray(a, self.dtype) for a in more))
        return np.asarray(v_plus, float), info

    def judge(self, name: str, value: Any, limit: Any, good: Any, note: str = "") -> None:
        """As `Tally.judge`, with the precision in the name of the oracle."""
        self.tally.judge(f"{name} {self.bits}", value, limit, good, note)

    def poison(self, v_plus: np.ndarray, status: np.ndarray) -> None:
        """Spoilt lanes fail and return v; the others do not notice."""
        bad, spoilt = poisoned(self.rng, self.batch)
        found, info = self.run(bad)
        flags = np.asarray(info.status)
        answers = (np.concatenate([x, f[:, None]], axis=1) for x, f in ((found, flags), (v_plus, status)))
        self.tally.poisoned(spoilt, flags, *answers)
        same = np.all((found == bad.v) | np.isnan(bad.v), axis=1)
        self.judge("poisoned lane returns v", (~same).astype(float), 0.5, spoilt)

    def loop(self, v_plus: np.ndarray, good: np.ndarray) -> None:
        """One problem by itself, outside of vmap, has the same answer, or declines."""
        k = int(self.rng.integers(SIZE))
        terms, v = self.batch.terms(self.dtype)
        try:
            single, info = self.law(
                jax.tree.map(lambda a: a[k], terms), v[k],
                *(jnp.asarray(a[k], self.dtype) for a in self.extra),
            )  # fmt: skip
        except ValueError:  # outside of jit bad numbers are named
            return
        fine = good[k] and not int(info.status) & int(jc.Status.FAILURES)
        one = Batch(*(a[k : k + 1] for a in self.batch))
        apart = oracles.mass_norm(one.M, np.asarray(single, float)[None] - v_plus[k : k + 1])
        speed = oracles.mass_norm(one.M, one.v) + 1e-300
        options = {n: a[k : k + 1] if n == "cap" else a for n, a in self.options.items()}
        answer = np.asarray(single, float)[None], np.asarray(info.impulse, float)[None]
        found = oracles.residuals(one, *answer, **options)
        worst = np.max([found[name] for name in ("normal", "cone", "dissipation")], axis=0)
        # Another solution of the same law is no error.
        self.judge(
            "vmap against one", np.minimum(apart / speed, worst), LAW[self.dtype], fine, f"of lane {k}"
        )

    def units(self, v_plus: np.ndarray, status: np.ndarray, good: np.ndarray) -> None:
        """The same problem in other units has the same answer, or another one of the same law.

        A search that ends in one of the units alone hangs on rounding: as many do one way as the other.
        """
        powers = self.rng.integers(-20, 21, (3, 1)) * some_units(self.rng, self.dtype)
        factors = 2.0**powers * np.ones((3, SIZE))  # exact, so that only tolerances can tell
        other = in_units(self.batch, factors, np.ones_like(self.batch.v))
        mass, length, time = factors[:, 0]
        impulse = mass * length / time
        found, info = self.run(other, self.rescaled(impulse))
        flags, unsolved = np.asarray(info.status), np.uint32(int(jc.Status.MAX_ITERS | jc.Status.STALLED))
        self.judge("units: status", (((flags ^ status) & ~unsolved) != 0).astype(float), 0.5, good)
        solved = ~failed(flags)
        lost, won = int(np.sum(good & ~solved)), int(np.sum(solved & ~good))
        self.judge("units: declined", (lost - won) ** 2 / max(lost + won, 1), UNBALANCED, True)
        found = found * time / length
        apart = oracles.mass_norm(self.batch.M, found - v_plus)
        speed = oracles.mass_norm(self.batch.M, self.batch.v) + 1e-300
        law = oracles.residuals(self.batch, found, np.asarray(info.impulse, float) / impulse, **self.options)
        worst = np.max([law[name] for name in ("normal", "cone", "dissipation", "momentum")], axis=0)
        self.judge("units: answer", np.minimum(apart / speed, worst), EXACT[self.dtype], good & solved)

    def rescaled(self, impulse: float) -> tuple[np.ndarray, ...]:
        """The further arguments in other units."""
        return self.extra

    def residuals(self, v_plus: Any, info: Any, good: np.ndarray) -> None:
        """The law itself, momentum and energy."""
        worst = oracles.residuals(self.batch, v_plus, np.asarray(info.impulse, float), **self.options)
        for name in ("normal", "cone", "dissipation"):
            self.judge(name, worst[name], LAW[self.dtype], good)
        for name in ("momentum", "energy"):
            self.judge(name, worst[name], EXACT[self.dtype], good)

    def forward(self, v_plus: np.ndarray, good: np.ndarray) -> None:
        """Distance to the nearest outcome by brute force, where that outcome does not hang on rounding."""
        cap = self.options.get("cap")
        found, valid = oracles.outcomes(self.batch, cap)
        apart = oracles.nearest(self.batch, v_plus, found, valid)
        eps = 16.0 * float(np.finfo(self.dtype).eps)
        close = [oracles.outcomes(self.batch, cap, max(eps, oracles.TOLERANCE))]  # rest is kept to rounding
        for _ in range(2):
            shaken = self.batch._replace(
                J=self.batch.J * (1.0 + eps * self.rng.uniform(-1, 1, self.batch.J.shape)),
                v=self.batch.v * (1.0 + eps * self.rng.uniform(-1, 1, self.batch.v.shape)),
            )
            close.append(oracles.outcomes(shaken, cap))
        known = valid
        for near in close:
            apart = np.minimum(apart, oracles.nearest(self.batch, v_plus, *near))
            same = oracles.same_outcomes(self.batch, (found, valid), near, 0.1 * FORWARD[self.dtype])
            known = known & same[:, None]
        steady = np.any(known, axis=1) & ~oracles.redundant(self.batch)
        self.judge("brute force", apart, FORWARD[self.dtype], good & steady)


class Stepped(Round):
    """A round of a law with caps on the impulses: (B, nc) of a step, (B, N, nc) of a sample."""

    def __init__(
        self, seed: int, law: Callable[..., Any], shape: tuple[int, int, int], steps: int | None = None
    ) -> None:
        super().__init__(seed, law, shape)
        s = oracles.scaled(self.batch)
        by_contact = s.scale.reshape(SIZE, shape[0], shape[1])[..., 0]
        typical = by_contact * s.speed[:, None]  # the impulse that stops this motion, N s
        size = 10.0 ** self.rng.uniform(-1.5, 0.7, (SIZE, 1))
        rows = (SIZE,) if steps is None else (SIZE, steps)
        caps = self.rng.random((*rows, shape[0])) * (
            typical * size if steps is None else (typical * size)[:, None]
        )
        caps = np.where(self.rng.random(caps.shape) < 0.1, 0.0, caps)
        picks = self.rng.random(rows) * 0.999
        self.extra = tuple(np.asarray(np.asarray(a, self.dtype), float) for a in (caps, picks))
        if steps is None:
            self.options["cap"] = self.extra[0]

    def rescaled(self, impulse: float) -> tuple[np.ndarray, ...]:
        """Caps in other units."""
        return (self.extra[0] * impulse, *self.extra[1:])
