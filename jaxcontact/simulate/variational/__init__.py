"""A momentum-keeping integrator with impacts at their time; entry `integrator.variational`.

Page: docs/methods/motion.md.
"""
