"""REINFORCE with a baseline, as an algorithm of another package."""
