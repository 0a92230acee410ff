"""The return map of a body on two feet without restitution, exactly and in intervals: entry `chatter_map`.

After the first impact such a body always has a foot on the ground, so its motion is a sequence of landings.
(w, s) gives the velocity before each: the speed w >= 0 at which one foot lands, the slip s of the foot that
stands; a multiple moves alike. An impact is linear; between impacts accelerations are constant, and a slip
stops at most once. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from jaxcontact.stability.impact_conditions import impact_end, list_impacts
from jaxcontact.stability.intervals import Interval, of_fraction
from jaxcontact.stability.rational import Rational, directions, inverse, joined, null_space
from jaxcontact.stability.rational_modes import Exact, Unprovable, mode_accelerations

SIGNS = {"P": 1, "N": -1, "S": 0}  # sign of the slip by letter of the contact mode
Piece = tuple[np.ndarray, Interval, Interval]  # mask of cells, and their w and s at the next landing


@dataclasses.dataclass(frozen=True)
class Stance:
    """Accelerations (lift of the other foot, slide) of a body on one foot while the other is in the air.

    Attributes:
        slip: by sign of slip, +1 and -1.
        still: pairs (sign of slip, accelerations) that can follow a slip that stops.
    """

    slip: dict[int, tuple[Fraction, Fraction]]
    still: list[tuple[int, tuple[Fraction, Fraction]]]


@dataclasses.dataclass(frozen=True)
class Landing:
    """One kind of impact of a foot: sign of its slip after, map of (w, s), and domain of the map.

    `matrix` gives the rate at which the other foot lifts and the slip of the landed one; rows of `valid`
    must not be negative.
    """

    sign: int
    matrix: list[list[Fraction]]
    valid: list[list[Fraction]]


@dataclasses.dataclass(frozen=True)
class ChatterMap:
    """`landings[i]` of the other foot while foot i stands, `stances[i]` on foot i.

    Rates of gaps are in units of a speed |v|_M = 1 along the gap, slips in units of sliding on both feet
    with |v|_M = 1, the same at both feet; when both slide one way, the slip of foot i has sign `signs[i]`.
    """

    landings: list[list[Landing]]
    stances: list[Stance]
    signs: list[int]


def chatter_map(body: Exact) -> ChatterMap:
    """Compute the return map of a body on two feet.

    Raises:
        Unprovable: not two feet without restitution in the plane, feet that cannot slide together, friction
            so large that an impulse or a motion on one foot is not determined, or a motion on one foot that
            does not end.
    """
    if body.nv != 3 or body.nc != 2 or any(body.e.num):
        raise Unprovable("the return map is of one body on two feet without restitution")
    drift = null_space(body.normal.num)
    slips = (body.tangent.num @ drift.T).T.ravel().tolist()
    if len(drift) != 1 or not all(slips):
        raise Unprovable("the return map is of feet that can slide together")
    mass, back = body.M.floats(), body.M_inv.floats()
    way = directions(drift)[0]
    speed = Fraction(float(body.tangent[0].floats() @ way) / float(np.sqrt(way @ mass @ way)))
    slip = [abs(speed * Fraction(x, slips[0])) for x in slips]
    rate = [Fraction(float(np.sqrt(n @ back @ n))) for n in body.normal.floats()]
    landings, stances = [], []
    for foot in range(2):
        n, t = body.normal[foot], body.tangent[foot]
        across, straight = n.num @ body.M_inv.num @ t.num, n.num @ body.M_inv.num @ n.num
        if Fraction(body.mu.num[foot], body.mu.den) * abs(Fraction(across, t.den)) >= Fraction(
            straight, n.den
        ):
            raise Unprovable(f"friction at contact {foot} is beyond what determines a motion")
    for foot in range(2):
        landings.append(_landings(body, foot, rate, slip))
        stances.append(_stance(body, foot, rate[1 - foot], slip[foot]))
    return ChatterMap(landings, stances, [1 if x > 0 else -1 for x in slips])


def _landings(body: Exact, foot: int, rate: list[Fraction], slip: list[Fraction]) -> list[Landing]:
    """List the kinds of impact of the other foot while `foot` stands."""
    other = 1 - foot
    rows = joined([body.normal[foot][None], body.normal[other][None], body.tangent[foot][None]])
    back = inverse(rows)
    start = joined([-back.T[1][None], back.T[2][None]])  # velocities of w = 1 and of one unit of slip
    found = []
    for kind in list_impacts(body, other):
        after = start @ impact_end(body, other, kind)
        ends = (after @ joined([body.normal[foot][None], body.tangent[other][None]]).T).fractions()
        holds = (start @ Rational(kind.valid).T).fractions()
        scale, units = (rate[other], slip[foot]), (rate[foot], slip[other])
        matrix = [[ends[k][row] * scale[k] / units[row] for k in range(2)] for row in range(2)]
        if kind.kind == "stick":
            matrix[1] = [Fraction(0), Fraction(0)]
        valid = [[holds[k][row] * scale[k] for k in range(2)] for row in range(len(kind.valid))]
        found.append(Landing(SIGNS.get(kind.kind, 0), matrix, valid))
    return found


def _stance(body: Exact, foot: int, rate: Fraction, slip: Fraction) -> Stance:
    """Compute the accelerations of the body on one foot, by sign of its slip."""
    rates = {}
    for letter, sign in SIGNS.items():
        word = letter + "F" if foot == 0 else "F" + letter
        for a in mode_accelerations(body, word):
            pair = (joined([body.normal[1 - foot][None], body.tangent[foot][None]]) @ a).fractions()
            rates[sign] = (pair[0] / rate, pair[1] / slip if sign else Fraction(0))
    if 1 not in rates or -1 not in rates:
        raise Unprovable(f"the body does not stay on contact {foot} while it slips")
    still = [(sign, pair) for sign, pair in rates.items() if sign * pair[1] > 0 or not sign]
    moving = {sign: rates[sign] for sign in (1, -1)}
    endless = [sign for sign, (lift, slide) in moving.items() if lift >= 0 and sign * slide >= 0]
    if endless or not still or any(lift >= 0 for _, (lift, _) in still):
        raise Unprovable(f"a motion on contact {foot} does not end")
    return Stance(moving, still)


def linear(row: list[Fraction], w: Interval, s: Interval) -> Interval:
    """Multiply a row of two numbers by (w, s)."""
    terms = [of_fraction(x) * bounds for x, bounds in zip(row, (w, s), strict=True) if x]
    zero = Interval(np.zeros_like(w.lo), np.zeros_like(w.lo))
    return sum(terms[1:], terms[0]) if terms else zero


def images(
    chatter: ChatterMap, foot: int, w: Interval, s: Interval
) -> Iterator[Piece | tuple[np.ndarray, Interval]]:
    """Yield (mask of cells, w, s) at the next landing, of `foot`, after each landing of the other foot.

    Also yields (mask of cells, slip) if both feet may stay on the ground, sliding.
    """
    stance = chatter.stances[1 - foot]
    for landing in chatter.landings[foot]:
        holds = np.ones(w.lo.shape, bool)
        for row in landing.valid:
            holds &= linear(row, w, s).hi >= 0
        lift, slip = (linear(row, w, s) for row in landing.matrix)
        slip = slip.clipped(0.0 if landing.sign > 0 else -np.inf, 0.0 if landing.sign < 0 else np.inf)
        yield holds & (lift.lo < 0), (-lift).clipped(0.0, np.inf), slip
        if landing.sign:
            yield holds & (lift.lo <= 0) & (lift.hi >= 0), slip
        lift = lift.clipped(0.0, np.inf)
        for piece in flights(stance, landing.sign, lift, slip):
            yield holds & (lift.hi > 0) & piece[0], piece[1], piece[2]


def flights(stance: Stance, sign: int, w: Interval, s: Interval) -> Iterator[Piece]:
    """Yield pieces up to the next landing; w >= 0 is the lift rate of one foot, s the slip of the other."""
    everywhere = np.ones(w.lo.shape, bool)
    if sign == 0:
        zero = Interval(np.zeros_like(w.lo), np.zeros_like(w.lo))
        for way, (lift, slide) in stance.still:
            yield everywhere, w, _slipped(way, slide, (w + w).over(of_fraction(-lift)), zero)
        return
    lift, slide = stance.slip[sign]
    brakes = sign * slide < 0
    stops = s.size().over(of_fraction(abs(slide))) if brakes else None
    lands = (w + w).over(of_fraction(-lift)) if lift < 0 else None
    if lands is not None:
        first = everywhere if stops is None else lands.lo <= stops.hi
        yield first, w, _slipped(sign, slide, lands, s)
    if stops is None:
        return
    first = everywhere if lands is None else stops.lo <= lands.hi
    time = stops if lands is None else stops.clipped(0.0, lands.hi)
    up = of_fraction(lift) * time
    gap = (time * (w + of_fraction(Fraction(1, 2)) * up)).clipped(0.0, np.inf)
    for way, (fall, slide) in stance.still:
        if way == sign:
            continue
        rate = w + up
        square = (rate * rate + of_fraction(-2 * fall) * gap).meet(
            w * w + of_fraction(2 * (lift - fall)) * gap
        )
        end = square.root()
        time_left = (rate + end).over(of_fraction(-fall)).clipped(0.0, np.inf)
        yield first, end, _slipped(way, slide, time_left, Interval(np.zeros_like(w.lo), np.zeros_like(w.lo)))


def _slipped(sign: int, slide: Fraction, time: Interval, s: Interval) -> Interval:
    """Compute the slip of one sign after a time; sign 0 is stick and returns `s`."""
    if not sign:
        return s
    return (s + of_fraction(slide) * time).clipped(0.0 if sign > 0 else -np.inf, 0.0 if sign < 0 else np.inf)
