"""Pictures of README and of the site: each file draws what its name says."""
