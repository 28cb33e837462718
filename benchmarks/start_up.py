"""How soon `rlbench train` takes its first environment step, beside importing what it stands on.

Interleaved pairs of whole processes, training with one CPU thread, from their start to the first
step of any environment (it belongs to the evaluation before training), or to the end of `import
torch, gymnasium`. Prints medians and their ratio, also of CPU seconds, which other work on the
machine moves less; the first pair reads the disk and is left out. The target is below 1.5.
"""

import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter

PAIRS = 5
IMPORTS = "import torch, gymnasium, os; os._exit(0)"
TRAIN = """
import os, sys
from rlbench import cli
from rlbench.training.envs import vector
vector.Environments.step = lambda *_: os._exit(0)
cli.main(sys.argv[1:])
"""
FLAGS = [
    "train",
    "--total-steps",
    "10000",
    "--compile",
    "never",
    "--device",
    "cpu",
    "--cpu-threads",
    "1",
]


def seconds(program: str, *arguments: str) -> tuple[float, float]:
    """From the start of a Python process to its end, and what it had of the CPU."""
    start, before = perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True)
    wall_s, after = perf_counter() - start, os.times()
    cpu_s = after.children_user + after.children_system
    return wall_s, cpu_s - before.children_user - before.children_system


def main() -> None:
    """Print medians and ratios, of seconds and of CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        train_here = (TRAIN, *FLAGS, "--output-dir", folder)
        pairs = [(seconds(IMPORTS), seconds(*train_here)) for _ in range(PAIRS + 1)]
    for i, kind in enumerate(("s", "s of CPU")):
        imports, train = (median(pair[j][i] for pair in pairs[1:]) for j in (0, 1))
        print(
            f"import torch, gymnasium {imports:.2f} {kind}; first environment step {train:.2f} "
            f"{kind}: {train / imports:.2f} x (target below 1.5)"
        )


if __name__ == "__main__":
    main()
