"""From a Gymnasium id to N environments in step. Imports no torch."""
