"""Numbers that every search for impulses with friction shares: traced, on the host, and in machine code.

Problems are scaled: mobilities and velocities are near one.
"""

from __future__ import annotations

HALF = 0.5  # of the merit or the complementarity; a step that leaves more is a miss
FIRST_LEVEL_POWER = 0.4  # of eps: scaled complementarity at which Newton's method is tried first
LOWER_LEVEL_POWER = 0.2  # of eps: fraction of the complementarity for the next try
MIN_SHIFT_POWER = 0.7  # of eps: smallest shift of the diagonal of W; with it redundant contacts share loads
SUCCESS_POWER = 0.6  # of eps: residual of a success; 4e-10, in float32 7e-5
LARGEST_SHIFT = 0.1  # of the diagonal of W
SHIFT_FACTOR = 10.0  # by which the shift falls after a good step and rises after a miss
SMALLEST_FRICTION = 4.0  # eps; smaller friction is none
PROXIMAL_STEPS = 2  # of Newton's method, in a proximal step
PROXIMAL_SHARE = 0.7  # of the merit times the weight; a proximal step ends with less
PROXIMAL_LIMIT = 600  # steps of Newton's method in a proximal search
EXTRAPOLATION = 0.5  # of the last proximal step, for the next centre
WEIGHT_RISE, WEIGHT_FALL = 1.6, 0.6  # of the proximal weight after a step that failed, or succeeded early
