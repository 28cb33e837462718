"""What is to be run: settings, grid, presets. Imports neither torch nor pandas."""
