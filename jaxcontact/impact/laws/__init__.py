"""Impact laws, which map contact terms and a velocity before the impact to velocities after it."""
