"""The checks by name."""

from __future__ import annotations

from benchmarks.fuzz import (
    elastic,
    events,
    families,
    gradients,
    impacts,
    lcp,
    mechanics,
    motion,
    programs,
    shapes,
    stiff,
    surfaces,
)
from benchmarks.fuzz.tally import Check

CHECKS: dict[str, Check] = {
    "lcp": lcp.lcp,
    "simultaneous": impacts.simultaneous,
    "every_outcome": impacts.every_outcome,
    "step": impacts.step,
    "sample": impacts.sample,
    "spatial": impacts.spatial,
    "elastic": elastic.elastic,
    "every_order": elastic.every_order,
    "unique_order": elastic.unique_order,
    "contains": families.contains,
    "hopper": events.hopper,
    "plate": events.plate,
    "compliant": stiff.compliant,
    "spin": stiff.spin,
    "variational": motion.variational,
    "trees": mechanics.trees,
    "energies": mechanics.energies,
    "rows": mechanics.rows,
    "motions": mechanics.motions,
    "programs": programs.programs,
    "shapes": shapes.shapes,
    "gradients": gradients.gradients,
    "simd": gradients.simd,
    "files": surfaces.files,
    "inputs": surfaces.inputs,
}
