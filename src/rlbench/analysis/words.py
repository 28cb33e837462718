"""Numbers and names as a person reads them.

In:      one value, or one row.
Out:     a short text.
"""

from typing import Any

import numpy as np
import pandas as pd

MINUS = "\N{MINUS SIGN}"


def readable(value: Any) -> str:
    """One value of a table: thousands apart, about three digits, empty where there is no number."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return ""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int | np.integer) else str(value)
    if abs(value) >= 1000 or value == int(value):
        text = f"{value:,.0f}"
    else:
        text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return text.replace("-", MINUS)


def count_of_environments(count: int) -> str:
    """`1 environment`, `8 environments`."""
    return "1 environment" if count == 1 else f"{count} environments"


def arm_label(row: "pd.Series[Any]") -> str:
    """An arm for a person: algorithm, environment, num_envs, device."""
    return (
        f"{row['algorithm'].upper()}, {row['environment']}, "
        f"{count_of_environments(row['num_envs'])}, {row['device']}"
    )


def bar_label(row: "pd.Series[Any]") -> str:
    """An arm where its environment is known: algorithm, num_envs, device."""
    return f"{row['algorithm'].upper()}, {count_of_environments(row['num_envs'])}, {row['device']}"


def thousands(value: float, _: int) -> str:
    """A tick label: 50k for 50,000, 2M for 2,000,000."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"
