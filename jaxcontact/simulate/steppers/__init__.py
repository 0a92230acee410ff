"""Methods of motion in time, one per file, all with the protocol of `simulate.stepper`.

Page: docs/methods/motion.md.
"""
