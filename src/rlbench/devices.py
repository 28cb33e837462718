"""Which devices a run can use here, and why not the others.

Out:     device names and reasons; torch is imported only where a GPU driver answers.
"""

import os
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.errors import InputError
from rlbench.records import Gpu
from rlbench.spec.grid import Devices

if TYPE_CHECKING:
    import torch

KERNEL_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
"""Signs of a driver in the kernel, seen from inside a container too; the second is WSL's."""
CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/.singularity.d"))
"""Signs of a container: Docker's, Podman's, Apptainer's."""
OLDEST_DRIVER = {12: 525, 13: 580}
"""First driver branch of each major CUDA version; any later one runs all its minor versions.
NVIDIA, CUDA compatibility guide, minor version compatibility."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What can be seen of NVIDIA's driver from here, and what PyTorch needs of it."""

    kernel_driver: bool
    container: bool
    driver: str = ""
    """Version, from the driver's library; empty where it does not answer."""
    driver_cuda: tuple[int, int] = (0, 0)
    """Newest CUDA version that the driver runs."""
    gpus: int = 0
    torch_cuda: str = ""
    """CUDA version that PyTorch was built for; empty in its CPU build."""
    hidden: bool = False
    """Whether CUDA_VISIBLE_DEVICES names no device."""


def devices_here() -> Devices:
    """What a run can use: `cpu`, and `cuda` or the reason why not."""
    reason = why_no_cuda(look())
    if not reason:
        reason = _as_pytorch_sees_it()
    return Devices(present=("cpu",), missing={"cuda": reason}) if reason else Devices.both()


def choose_device(name: str) -> str:
    """The device for a request: `auto` is cuda where there is one.

    Raises:
        InputError: cuda is asked for and cannot be had.
    """
    here = devices_here()
    if name == "auto":
        return here.present[-1]
    if name not in here.present:
        raise InputError(
            f"device: got '{name}', which cannot be used here: {here.missing[name]}. Available: "
            f"{', '.join(here.present)}. Use 'auto' or 'cpu', or see to the reason"
        )
    return name


def device_label(device: "torch.device") -> str:
    """A name for a person: `cpu`, or `cuda (NVIDIA …)`."""
    if device.type == "cpu":
        return "cpu"
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def why_no_cuda(seen: Sighting) -> str:
    """The first reason why PyTorch cannot use a GPU; empty where nothing speaks against it."""
    if not seen.driver:
        return _why_no_driver(seen)
    if not seen.gpus:
        return "NVIDIA's driver lists no GPU; is one passed on to this container or job?"
    if not seen.torch_cuda:
        return (
            "there is a GPU, but this PyTorch is the CPU build; install the CUDA build of the same "
            "version (on Linux `pip install torch` from PyPI is one)"
        )
    needed = int(seen.torch_cuda.partition(".")[0])
    if seen.driver_cuda[0] < needed:
        newest = ".".join(map(str, seen.driver_cuda))
        enough = f", {OLDEST_DRIVER[needed]} or later" if needed in OLDEST_DRIVER else ""
        return (
            f"NVIDIA's driver {seen.driver} is too old: it runs CUDA up to {newest}, this PyTorch "
            f"was built for {seen.torch_cuda}. Update the driver of the host{enough}, or install "
            f"a PyTorch built for CUDA {seen.driver_cuda[0]}"
        )
    if seen.hidden:
        return "CUDA_VISIBLE_DEVICES hides every GPU; unset it or name one"
    return ""


def _why_no_driver(seen: Sighting) -> str:
    if seen.container and seen.kernel_driver:
        return (
            "the host has NVIDIA's driver, but this container was started without it: use "
            "`docker run --gpus all` (the host needs nvidia-container-toolkit) or `apptainer --nv`"
        )
    if seen.container:
        return "the host of this container has no NVIDIA driver"
    if seen.kernel_driver:
        return (
            "NVIDIA's driver is in the kernel, but its library (libnvidia-ml) does not answer: "
            "half installed, or updated without a restart; `nvidia-smi` says more"
        )
    return "no NVIDIA driver on this machine"


def look() -> Sighting:
    """What there is here."""
    container = "APPTAINER_CONTAINER" in os.environ or any(p.exists() for p in CONTAINER)
    kernel_driver = any(path.exists() for path in KERNEL_DRIVER)
    import pynvml

    try:
        pynvml.nvmlInit()
        version = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())  # 12040 is 12.4
        return Sighting(
            kernel_driver=kernel_driver,
            container=container,
            driver=pynvml.nvmlSystemGetDriverVersion(),
            driver_cuda=(version // 1000, version % 1000 // 10),
            gpus=pynvml.nvmlDeviceGetCount(),
            torch_cuda=_torch_cuda(),
            hidden=os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"},
        )
    except pynvml.NVMLError:
        return Sighting(kernel_driver=kernel_driver, container=container)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that NVIDIA's driver lists; empty without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        driver = pynvml.nvmlSystemGetDriverVersion()
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return ()
    return tuple(_gpu(handle, driver, f"{cuda // 1000}.{cuda % 1000 // 10}") for handle in handles)


def _gpu(handle: object, driver: str, driver_cuda: str) -> Gpu:
    """One GPU: what does not change from run to run. None where the driver does not say."""
    import pynvml

    def asked(name: str, *arguments: object) -> int | None:
        try:
            answer = getattr(pynvml, name)(handle, *arguments)
        except pynvml.NVMLError:  # boards that share the host's memory, virtual GPUs
            return None
        return int(getattr(answer, "total", answer))

    memory, limit_mw = asked("nvmlDeviceGetMemoryInfo"), asked("nvmlDeviceGetEnforcedPowerLimit")
    return Gpu(
        name=pynvml.nvmlDeviceGetName(handle),
        memory_mib=memory and memory // 2**20,
        max_sm_clock_mhz=asked("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
        max_memory_clock_mhz=asked("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
        power_limit_w=limit_mw and limit_mw // 1000,
        driver=driver,
        driver_cuda=driver_cuda,
    )


def _torch_cuda() -> str:
    """The CUDA version of the installed PyTorch, without importing it."""
    package = find_spec("torch")
    place = (package and package.submodule_search_locations) or [""]
    spec = spec_from_file_location("torch_version", Path(place[0]) / "version.py")
    if spec is None or spec.loader is None:
        return ""
    version = module_from_spec(spec)
    spec.loader.exec_module(version)
    return str(version.cuda or "")


def _as_pytorch_sees_it() -> str:
    """PyTorch's own reason where nothing else speaks against a GPU; empty if it can use one."""
    import torch

    if torch.cuda.is_available():
        return ""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"PyTorch cannot start CUDA: {str(error).strip().splitlines()[0]}"
    return "PyTorch finds no GPU that it can use"
