"""Which machine: asked once per run. How PyTorch is set up on it.

Out:     frozen facts for `run.json`.
"""

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from rlbench.devices import gpus
from rlbench.records import Machine, Numerics, ResourceRow

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "JAX_COMPILATION_CACHE_DIR": "jax"}
"""Variable that says where a compiler keeps its code, and the folder's name in our cache."""
GOVERNORS = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


def describe_machine() -> Machine:
    """The machine as it is now; what does not change from run to run."""
    return Machine(
        cpu_model=_cpu_model(),
        cpu_cores=usable_cores(),
        cpu_physical_cores=psutil.cpu_count(logical=False),
        cpu_governor=_governor(),
        memory_mib=psutil.virtual_memory().total // 2**20,
        gpus=gpus(),
        os=_os(),
        kernel=f"{platform.system()} {platform.release()}",
        libc=" ".join(platform.libc_ver()),
        host=platform.node() if os.environ.get("RLBENCH_RECORD_HOST") == "1" else None,
    )


def describe_numerics(compiled: bool) -> Numerics:
    """The libraries that do a run's arithmetic, and the instructions that they chose here."""
    import numpy as np
    import torch

    build = [line.strip(" -") for line in torch.__config__.show().splitlines()[1:]]
    numpy_build = np.show_config(mode="dicts") or {}
    blas = numpy_build["Build Dependencies"]["blas"]
    return Numerics(
        torch=tuple(line for line in build if line and not line.startswith("Build settings")),
        numpy_blas=f"{blas['name']} {blas['version']}",
        numpy_simd=tuple(numpy_build["SIMD Extensions"].get("found", ())),
        cpp_compiler=_compiler_version() if compiled else None,
    )


def resources(since: ResourceRow | None = None) -> ResourceRow:
    """What this process and its ended children have used; see getrusage(2).

    Peak memory is that of the largest single process, from the start of this one; CPU seconds and
    switches count from `since`.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    kib = 1024 if sys.platform == "darwin" else 1
    before = since or ResourceRow(
        peak_memory_mib=0, user_cpu_s=0, system_cpu_s=0, involuntary_switches=0, load_1min=0
    )
    return ResourceRow(
        peak_memory_mib=max(own.ru_maxrss, children.ru_maxrss) / kib / 1024,
        user_cpu_s=own.ru_utime + children.ru_utime - before.user_cpu_s,
        system_cpu_s=own.ru_stime + children.ru_stime - before.system_cpu_s,
        involuntary_switches=own.ru_nivcsw + children.ru_nivcsw - before.involuntary_switches,
        load_1min=os.getloadavg()[0],
    )


def usable_cores() -> int:
    """CPU cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else psutil.cpu_count() or 1


def configure_torch(cpu_threads: int, matmul_precision: str, deterministic: bool) -> None:
    """Set PyTorch's process-wide switches; call it before the first tensor operation."""
    use_private_cache()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")
    import torch

    torch.set_num_threads(cpu_threads)
    with suppress(RuntimeError):  # taken once per process; what is in use goes into run.json
        torch.set_num_interop_threads(min(cpu_threads, 4))
    torch.set_float32_matmul_precision(matmul_precision)
    # Not use_deterministic_algorithms: it imports the compiler, a second, to tell it what the
    # variable above does.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.set_flush_denormal(True)  # Adam's moments decay into numbers that cost 30 % of a step


def use_private_cache() -> None:
    """Keep compiled code where only this user can write: PyTorch unpickles what it finds there.

    Call it before a compiler (PyTorch's, a peer's JAX) is imported; a user's own setting wins.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # one program: no pool of processes
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    for variable, name in CACHES.items():
        if variable not in os.environ and (cache := _private_cache()):
            os.environ[variable] = str(cache / name)


def _private_cache() -> Path | None:
    """A folder that only this user can enter: below the home, or else among temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    places = [Path(home) / ".cache" / "rlbench"] if home else []
    with suppress(OSError):  # there may be no folder for temporary files either
        places.append(Path(tempfile.gettempdir()) / f"rlbench-{os.getuid()}")
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o700)
            if place.stat().st_uid == os.getuid() and os.access(place, os.W_OK):
                return place
    return None


def why_nothing_compiled_runs() -> str:
    """Why PyTorch's compiler could not keep its programs and run them; empty if it can."""
    use_private_cache()
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if folder is None:
        return "neither the home nor the folder of temporary files can be written to"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"its folder {folder} cannot be made ({error.strerror})"
    if not os.access(folder, os.W_OK):
        return f"its folder {folder} cannot be written to"
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):  # macOS has no such flag
        return f"its folder {folder} is on a file system mounted noexec"
    return ""


def compiler() -> str | None:
    """The C++ compiler that PyTorch's compiler would call; None without one."""
    names = [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    return next((name for name in names if name and shutil.which(name)), None)


def _compiler_version() -> str | None:
    name = compiler()
    if name is None:
        return None
    told = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
    return told.partition("\n")[0]


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _governor() -> str | None:
    """What sets the clock of the cores that we may use; None where nothing says."""
    affinity = getattr(os, "sched_getaffinity", None)
    paths = [Path(GOVERNORS.format(core)) for core in (affinity(0) if affinity else ())]
    found = {path.read_text().strip() for path in paths if path.is_file()}
    return ", ".join(sorted(found)) or None


def _os() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.platform()
