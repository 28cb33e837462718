"""Which devices can be used, and the reason why not: one test per reason."""

import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlbench import devices
from rlbench.devices import Sighting, choose_device, devices_here, look, why_no_cuda
from rlbench.errors import InputError
from rlbench.records import Gpu

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
GOOD = Sighting(
    kernel_driver=True,
    container=False,
    driver="580.65.06",
    driver_cuda=(13, 0),
    gpus=1,
    torch_cuda="13.0",
)
NOTHING = Sighting(kernel_driver=False, container=False)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (GOOD, ""),
        (replace(GOOD, container=True), ""),
        (replace(GOOD, driver_cuda=(13, 1)), ""),
        (replace(GOOD, torch_cuda="13.4"), ""),  # minor versions are compatible
        (NOTHING, "no NVIDIA driver on this machine"),
        (replace(NOTHING, container=True), "the host of this container has no NVIDIA driver"),
        (replace(NOTHING, container=True, kernel_driver=True), "use `docker run --gpus all`"),
        (replace(NOTHING, kernel_driver=True), "half installed, or updated without a restart"),
        (replace(GOOD, gpus=0), "lists no GPU"),
        (replace(GOOD, torch_cuda=""), "this PyTorch is the CPU build"),
        (
            replace(GOOD, driver="535.183.01", driver_cuda=(12, 2)),
            "driver 535.183.01 is too old: it runs CUDA up to 12.2, this PyTorch was built for "
            "13.0. Update the driver of the host, 580 or later",
        ),
        (replace(GOOD, hidden=True), "CUDA_VISIBLE_DEVICES hides every GPU"),
    ],
)
def test_each_obstacle_has_its_reason(seen: Sighting, reason: str) -> None:
    found = why_no_cuda(seen)
    assert reason in found
    assert bool(found) == bool(reason)


class NoAnswer(Exception):
    """NVML's error."""


def library(**answers: Any) -> types.ModuleType:
    """NVIDIA's library with one H200, as its Python module; a missing answer is its error."""

    def refuse(*_: Any) -> Any:
        raise NoAnswer

    given: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12020,
        "nvmlSystemGetDriverVersion": lambda: "535.183.01",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda _: types.SimpleNamespace(total=141 * 2**30),
        "nvmlDeviceGetMaxClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
    } | answers
    module = types.ModuleType("pynvml")
    for name, answer in given.items():
        setattr(module, name, answer or refuse)
    vars(module).update(NVMLError=NoAnswer, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2)
    return module


def test_what_the_driver_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    seen = look()
    assert (seen.driver, seen.driver_cuda, seen.gpus) == ("535.183.01", (12, 2), 1)
    assert (seen.hidden, seen.torch_cuda) == (True, torch.version.cuda or "")
    gpu = Gpu(
        name="NVIDIA H200",
        memory_mib=141 * 1024,
        max_sm_clock_mhz=1980,
        max_memory_clock_mhz=3201,
        power_limit_w=700,
        driver="535.183.01",
        driver_cuda="12.2",
    )
    assert devices.gpus() == (gpu,)
    silent = library(nvmlDeviceGetMemoryInfo=None, nvmlDeviceGetEnforcedPowerLimit=None)
    monkeypatch.setitem(sys.modules, "pynvml", silent)
    expected = gpu.model_copy(update={"memory_mib": None, "power_limit_w": None})
    assert devices.gpus() == (expected,)
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=None))
    assert (look().driver, devices.gpus()) == ("", ())


@WITHOUT_GPU
def test_cuda_asked_for_and_missing_names_the_reason_and_the_way_out() -> None:
    reason = devices_here().missing["cuda"]
    assert choose_device("auto") == "cpu"
    with pytest.raises(InputError) as error:
        choose_device("cuda")
    assert str(error.value) == (
        f"device: got 'cuda', which cannot be used here: {reason}. Available: cpu. Use 'auto' or "
        "'cpu', or see to the reason"
    )


def test_auto_is_cuda_where_pytorch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "look", lambda: GOOD)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == choose_device("cuda") == "cuda"


def test_pytorchs_own_reason_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA unknown error\nand more")

    monkeypatch.setattr(devices, "look", lambda: GOOD)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", fail)
    here = devices_here()
    assert here.present == ("cpu",)
    assert here.missing == {"cuda": "PyTorch cannot start CUDA: CUDA unknown error"}
