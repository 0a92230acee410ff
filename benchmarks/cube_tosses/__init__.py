"""The impact laws against 350 tracked tosses of a real cube: `python -m benchmarks.cube_tosses`."""
