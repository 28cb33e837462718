"""On-policy trust-region reinforcement learning, measured in steps and in seconds."""

import os

__version__ = "0.1.0"

# Two OpenMP runtimes in one process is the usual cause of "undefined symbol:
# __kmpc_global_thread_num"; GNU's layer works with both. It counts only before NumPy is imported.
os.environ.setdefault("MKL_THREADING_LAYER", "GNU")
