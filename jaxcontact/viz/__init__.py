"""Pictures of impacts and mechanisms; every function returns a matplotlib figure."""
