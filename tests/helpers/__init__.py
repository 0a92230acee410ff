"""What several tests share: reference solutions, random problems, mechanisms."""
