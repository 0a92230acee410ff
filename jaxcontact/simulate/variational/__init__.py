"""A momentum-keeping integrator with impacts at their time."""
