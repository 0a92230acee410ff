"""Impact laws: from contact terms and a velocity before to velocities after."""
