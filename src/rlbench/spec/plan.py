"""What is to be run: a benchmark on the devices of one machine.

In:      a Benchmark and the devices here.
Out:     a frozen Plan, every cell of which has been tried as a Job; its JSON goes with the results.
"""

from rlbench.errors import InputError
from rlbench.spec.config import Benchmark
from rlbench.spec.grid import Cell, Devices, cells, expand_devices, job
from rlbench.spec.settings import Settings


class Plan(Settings):
    """A benchmark with `auto` resolved."""

    benchmark: Benchmark
    devices: tuple[str, ...]
    """Devices of the grid."""
    left_out: dict[str, str] = {}
    """Device that `auto` would have used, and why it cannot be."""
    config: str = ""
    """The file it came from."""

    @property
    def cells(self) -> list[Cell]:
        """Every cell that is to be run."""
        return cells(self.benchmark, Devices(present=self.devices))


def make_plan(benchmark: Benchmark, here: Devices, config: str) -> Plan:
    """The plan of a benchmark.

    Raises:
        InputError: a device that is not here, or a cell that cannot run.
    """
    devices = expand_devices(benchmark.devices, here, config)
    plan = Plan(
        benchmark=benchmark,
        devices=devices,
        left_out=here.missing if "auto" in benchmark.devices else {},
        config=config,
    )
    for cell in plan.cells:
        job(benchmark, cell, config)
    return plan


def named_devices(benchmark: Benchmark, config: str) -> Devices:
    """The devices of a benchmark whose jobs run on other machines: those it names, unseen.

    Raises:
        InputError: it leaves the choice to a machine that is not this one.
    """
    if "auto" in benchmark.devices:
        raise InputError(
            f"{config}: devices: got 'auto', but the jobs run on other machines, whose devices are "
            "not known here; name them, 'cpu' or 'cuda' or both, in the file or by "
            "--config devices=cpu"
        )
    return Devices(present=benchmark.devices)
