"""One thread per test process: the tests share two cores, and results must not depend on it.

The commands under test are those beside this Python, whether or not its environment is activated.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("DISPLAY", None)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

import torch

torch.set_num_threads(1)
