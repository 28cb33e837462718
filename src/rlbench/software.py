"""Which code, which versions, which image: asked once per run.

Out:     frozen facts for `run.json`; torch is not imported.
"""

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from rlbench import __version__
from rlbench.records import Software

VARIABLES = (
    "OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY",
    "MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
    "MKL_THREADING_LAYER", "MKL_DEBUG_CPU_TYPE",
    "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF",
    "TORCHINDUCTOR_DETERMINISTIC", "TORCHDYNAMO_DISABLE", "CXX", "XLA_FLAGS",
    "LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONHASHSEED", "PYTHONOPTIMIZE",
)  # fmt: skip
"""Environment variables that can change a number or a speed."""
BILL_OF_MATERIALS = Path("/etc/rlbench/image.txt")
"""What the container image is made of, written when it was built."""
_HERE = Path(__file__).parent
_LOCKS = (_HERE / "requirements.lock", _HERE.parents[1] / "requirements.lock")
"""The lock file: inside an installed package, or in the checkout."""


def describe_software() -> Software:
    """The software as it is now."""
    commit, dirty, diff = _git_state()
    return Software(
        rlbench=__version__,
        python=platform.python_version(),
        packages=_packages(),
        environment_variables={v: os.environ[v] for v in VARIABLES if v in os.environ},
        git_commit=commit,
        git_dirty=dirty,
        git_diff_digest=diff,
        code_digest=code_digest(),
        lock_digest=next((_sha256(path) for path in _LOCKS if path.is_file()), None),
        image_digest=_image_digest(),
    )


def code_digest() -> str:
    """Digest of the code that decides a run's rows: training, settings, and the row schema."""
    package = Path(__file__).parent
    silent = {  # they only talk to a person or a scheduler
        "progress.py", "document.py", "estimate.py", "replay.py", "film.py", "summary.py",
        "requests.py",
    }  # fmt: skip
    folders = [*package.glob("training/**/*.py"), *package.glob("spec/*.py")]
    sources = [path for path in folders if path.name not in silent]
    sources += [package / "records.py", package / "machine.py"]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0")
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _packages() -> dict[str, str]:
    """Every installed package; of two with one name, the one that is imported."""
    found: dict[str, str] = {}
    for package in metadata.distributions():
        found.setdefault(package.name.lower().replace("_", "-"), package.version)
    return dict(sorted(found.items()))


def _image_digest() -> str | None:
    """The registry's digest where the caller knows it, else that of the bill of materials."""
    given = os.environ.get("RLBENCH_IMAGE_DIGEST")
    if given:
        return given
    return _sha256(BILL_OF_MATERIALS) if BILL_OF_MATERIALS.is_file() else None


def _sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _git_state() -> tuple[str, bool | None, str | None]:
    """Commit, dirty flag and digest of what is not committed, of the checkout.

    Where the package isn't in one: the commit that it was built from, if that is told.
    """
    here = Path(__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(__file__).name)  # else another's commit
        commit = _git(here, "rev-parse", "HEAD").decode().strip()
        diff = _git(here, "diff", "--binary", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("RLBENCH_GIT_COMMIT") or "unknown", None, None
    digest = f"sha256:{hashlib.sha256(diff).hexdigest()}" if diff else None
    return commit, bool(diff), digest


def _git(folder: Path, *arguments: str) -> bytes:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
