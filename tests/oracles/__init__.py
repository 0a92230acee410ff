"""Independent answers that the tests compare with; none of them computes by the functions that it judges.

| file | what it proves |
|---|---|
| `reference` | mechanisms derived by hand, and impacts by brute force over contact modes, in the plane |
| `lcp_bases` | every solution of a step in space: all complementary bases of its LCP |
| `mode_programs` | every solution of a step in space: a linear program for each assignment of modes |
| `problems` | what a right answer satisfies: laws of contact, energy, momentum, of random problems |
| `compliant_reference` | forces and motions of compliant contact, by SciPy's programs and equations |
| `mujoco_mechanics` | M, bias, frames, gaps and passive forces of a robot, by MuJoCo's C |
| `pair_judge` | signed distances of convex bodies, by support functions |
| `shape_cases` | gaps, normals and places of contacts between shapes, by support functions |
"""
