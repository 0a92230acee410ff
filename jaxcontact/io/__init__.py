"""Files: what is read into the package and what it writes, whole or not at all."""
