"""Algorithms of other libraries as cells: their own rollouts and updates, our clock and rows."""
