"""Which machine, which versions, which commit, which devices: asked once per run.

Out:     frozen facts for `run.json`; torch is imported only where a GPU driver answers.
"""

import hashlib
import os
import platform
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rlbench import __version__
from rlbench.errors import InputError
from rlbench.records import Gpu, Machine, ResourceRow
from rlbench.spec.registry import GROUP

if TYPE_CHECKING:
    import torch

PACKAGES = (
    "torch", "numpy", "gymnasium", "pyarrow", "pydantic", "pandas", "scipy", "mujoco", "envpool",
    "stable_baselines3", "sb3_contrib", "sbx-rl", "jax",
)  # fmt: skip
"""Packages whose version can change a number; those that bring algorithms are listed too."""
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_THREADING_LAYER",
    "OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OPENBLAS_CORETYPE",
    "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
"""Environment variables that can change a number."""
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "JAX_COMPILATION_CACHE_DIR": "jax"}
"""Variable that says where a compiler keeps its code, and the folder's name in our cache."""


def describe() -> Machine:
    """The machine as it is now."""
    commit, dirty = _git_state()
    return Machine(
        cpu_model=_cpu_model(),
        cpu_cores=usable_cores(),
        memory_mib=psutil.virtual_memory().total // 2**20,
        gpus=gpus(),
        os=platform.platform(),
        python=platform.python_version(),
        rlbench=__version__,
        packages=_package_versions(),
        environment_variables={v: os.environ[v] for v in VARIABLES if v in os.environ},
        git_commit=commit,
        git_dirty=dirty,
        code_digest=code_digest(),
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


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that the NVIDIA driver lists; empty without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        count, driver = pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(
            Gpu(name=pynvml.nvmlDeviceGetName(h), memory_mib=_gpu_memory_mib(h), driver=driver)
            for h in handles
        )
    except pynvml.NVMLError:
        return ()


def _gpu_memory_mib(handle: object) -> int:
    """Memory of a GPU; 0 where the driver does not say, as on boards that share the host's."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20
    except pynvml.NVMLError:
        return 0


def usable_cores() -> int:
    """CPU cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else psutil.cpu_count() or 1


def present_devices() -> tuple[str, ...]:
    """`cpu`, and `cuda` where PyTorch can use a GPU; torch is imported only if a driver answers."""
    if not gpus():
        return ("cpu",)
    import torch

    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def choose_device(name: str) -> str:
    """The device for a request: `auto` is cuda where there is one.

    Raises:
        InputError: cuda is asked for and PyTorch finds none.
    """
    present = present_devices()
    if name == "auto":
        return present[-1]
    if name not in present:
        raise InputError(
            f"device: got '{name}', but PyTorch finds none on this machine; available: "
            f"{', '.join(present)}. Use 'auto' or 'cpu', or run on a GPU machine with a CUDA build "
            "of PyTorch"
        )
    return name


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


def device_label(device: "torch.device") -> str:
    """A name for a person: `cpu`, or `cuda (NVIDIA …)`."""
    if device.type == "cpu":
        return "cpu"
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def code_digest() -> str:
    """Digest of the code that decides a run's rows: training, settings, and the row schema."""
    package = Path(__file__).parent
    silent = {  # they only talk to a person
        "progress.py", "document.py", "estimate.py", "replay.py", "film.py", "summary.py",
    }  # fmt: skip
    folders = [*package.glob("training/**/*.py"), *package.glob("spec/*.py")]
    sources = [path for path in folders if path.name not in silent]
    sources += [package / "records.py", package / "machine.py"]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0")
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _package_versions() -> dict[str, str]:
    bring = [e.dist.name for e in metadata.entry_points(group=GROUP) if e.dist]
    found = {}
    for name in (*PACKAGES, *bring):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _git_state() -> tuple[str, bool | None]:
    """Commit and dirty flag of the checkout; `unknown` where the package isn't in one."""
    here = Path(__file__).parent
    try:
        _git(
            here, "ls-files", "--error-unmatch", Path(__file__).name
        )  # else it is another's commit
        commit = _git(here, "rev-parse", "HEAD")
        return commit, bool(_git(here, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("RLBENCH_GIT_COMMIT", "unknown"), None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
