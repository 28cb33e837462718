"""One thread per test process: the tests share two cores, and results must not depend on it."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("DISPLAY", None)

import torch

torch.set_num_threads(1)
