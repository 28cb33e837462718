"""Training: from a job to its rows. Writes files through `records` and `checkpoint` only."""
