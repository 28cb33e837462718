"""Two groups of reference runs, paired by seed: what the one thing that differs does to learning.

`python benchmarks/paired.py pendulum pendulum-eager [QUANTITY]` reads the tables that
`learning_gates.py` has written, and prints per arm the mean difference with its 95 % interval.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

TABLES = Path(__file__).parents[1] / "docs" / "reference" / "learning"
PAIR = ["algorithm", "environment", "num_envs", "device", "seed"]


def differences(one: str, other: str, quantity: str) -> pd.DataFrame:
    """First minus second, a row per pair that both have."""
    first, second = (pd.read_csv(TABLES / f"{name}.csv").set_index(PAIR) for name in (one, other))
    return (first[quantity] - second[quantity]).dropna().rename("difference").reset_index()


def main() -> None:
    """Print a row per arm."""
    one, other, *rest = sys.argv[1:]
    quantity = rest[0] if rest else "regret"
    print(f"{quantity}: {one} minus {other}, paired by seed")
    for arm, rows in differences(one, other, quantity).groupby(PAIR[:-1]):
        found = rows["difference"].to_numpy()
        half = stats.t.ppf(0.975, len(found) - 1) * stats.sem(found)
        middle = float(np.mean(found))
        print(
            f"  {' '.join(map(str, arm)):<32} {middle:+.2f} "
            f"[{middle - half:+.2f}, {middle + half:+.2f}], n = {len(found)}"
        )


if __name__ == "__main__":
    main()
