"""Numbers that every search for impulses with friction shares: traced, on the host, and in machine code.

Problems are scaled: mobilities and velocities are near one.
"""

from __future__ import annotations

HALF = 0.5  # of the merit or the complementarity; a step that leaves more is a miss
LARGEST_SHIFT = 0.1  # of the diagonal of W
SHIFT_FACTOR = 10.0  # by which the shift falls after a good step and rises after a miss
SMALLEST_FRICTION = 4.0  # eps; smaller friction is none
PROXIMAL_STEPS = 2  # of Newton's method, in a proximal step
PROXIMAL_SHARE = 0.7  # of the merit times the weight; a proximal step ends with less
PROXIMAL_LIMIT = 600  # steps of Newton's method in a proximal search
EXTRAPOLATION = 0.5  # of the last proximal step, for the next centre
WEIGHT_RISE, WEIGHT_FALL = 1.6, 0.6  # of the proximal weight after a step that failed, or succeeded early
