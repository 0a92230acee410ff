"""What a user chooses of a compliant step, and what it hands to the next one: `Settings` and `StepMemory`."""

from __future__ import annotations

import dataclasses

import jax

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_count, check_number
from jaxcontact.front_door import checked

CONES = ("coulomb", "associated", "pyramid", "coupled")
FORMULATIONS = ("complementary", "min_norm")


@checked(max_iters=check_count)
@dataclasses.dataclass(frozen=True)
class Newton:
    """Newton's method in velocity space.

    Attributes:
        max_iters: most steps of one convex problem, at least 1. Robots on many contacts that are about to
            slip need tens.
        early_exit: stop when the problem is solved. False does the same steps in loops of static length,
            `max_iters` each: choose a small one. The answer and its derivative are the same. The default is
            True on every device: a batch needs as many steps as its hardest problem, a small part of the
            limit.
    """

    max_iters: int = 500
    early_exit: bool = True


NEWTON = Newton()


@checked(max_contacts=check_count)
@dataclasses.dataclass(frozen=True)
class Settings:
    """Choose the friction law, the program and the limits of a compliant step; static under `jit`.

    Attributes:
        cone: "coulomb", "associated", "pyramid", or "coupled" with "min_norm"; see `solve`.
        formulation: "complementary", or "min_norm" for the paper's programs, which have no derivative.
        solver: limits of the search.
        max_contacts: the step sees so many contacts, those of least gap; the others have no force. One that
            closes within a step is seen at the next. None is `Model.max_contacts`, which a robot's file
            suggests; a number that is not less than that of the candidates is all of them.
        zeta: weight of normal forces and limits in the paper's programs (99) and (109), > 0; None is the
            paper's 1/dt. A larger one presses less on what slides; none makes the programs the law.

    Raises:
        TypeError, ValueError: unknown names, combinations that make no sense, numbers out of range.
    """

    cone: str = "coulomb"
    formulation: str = "complementary"
    solver: Newton = NEWTON
    max_contacts: int | None = None
    zeta: float | None = None

    def __post_init__(self) -> None:
        if self.cone not in CONES:
            raise ValueError(f"cone: expected one of {CONES}, got {self.cone!r}")
        if self.formulation not in FORMULATIONS:
            raise ValueError(f"formulation: expected one of {FORMULATIONS}, got {self.formulation!r}")
        if self.cone == "coupled" and self.formulation != "min_norm":
            raise ValueError(
                "cone: 'coupled' belongs to formulation='min_norm'; use 'coulomb' or 'associated'"
            )
        if self.cone == "pyramid" and self.formulation == "min_norm":
            raise ValueError(f"cone: with contacts 'min_norm' has the cone 'coupled' only, got {self.cone!r}")
        if self.zeta is None:
            return
        if self.formulation != "min_norm":
            raise ValueError("zeta: expected None, for only formulation='min_norm' has one, got a number")
        check_number("zeta", self.zeta)
        if not self.zeta > 0:
            raise ValueError(f"zeta: expected a positive number, got {self.zeta}")


DEFAULT = Settings()


class StepMemory(Record):
    """What a step hands to the next one: `info.memory` of the step before.

    Attributes:
        forces: (nr,) of the constraints, N: where the search of a convex step starts, and in which modes.
            None starts anew. A step with Coulomb's law starts from the state alone.
        stretch: (nc, nt) of the friction springs, m, along the tangents of each contact. None is zero:
            in a loop that does not hand it on, springs start anew at every step, and what they hold creeps.
    """

    forces: jax.Array | None = None
    stretch: jax.Array | None = None


START = StepMemory()
