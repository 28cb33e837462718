import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from rlbench import machine
from rlbench.errors import InputError
from rlbench.machine import (
    choose_device,
    code_digest,
    configure_torch,
    describe,
    resources,
    use_private_cache,
    why_nothing_compiled_runs,
)
from rlbench.records import Gpu

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_the_description_agrees_with_the_machine() -> None:
    found = describe()
    assert found.python == platform.python_version()
    assert found.packages["torch"] == torch.__version__
    assert found.packages["numpy"] == np.__version__
    assert found.cpu_cores >= 1
    assert found.memory_mib > 100
    assert platform.node() not in found.model_dump_json() or len(platform.node()) < 4


def test_the_digest_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest()
    assert before == code_digest()
    package = tmp_path / "rlbench"
    (package / "training").mkdir(parents=True)
    for name in ("records.py", "machine.py"):
        (package / name).write_text("1")
    (package / "training" / "a.py").write_text("1")
    monkeypatch.setattr(machine, "__file__", str(package / "machine.py"))
    first = code_digest()
    (package / "training" / "a.py").write_text("2")
    assert len({before, first, code_digest()}) == 3


@WITHOUT_GPU
def test_cuda_asked_for_and_missing_names_the_way_out() -> None:
    assert choose_device("auto") == "cpu"
    with pytest.raises(
        InputError, match=r"got 'cuda'.*available: cpu. Use 'auto' or 'cpu', or run"
    ):
        choose_device("cuda")


def test_auto_is_cuda_where_pytorch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(name="A", memory_mib=1, driver="1")
    monkeypatch.setattr(machine, "gpus", lambda: (gpu,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == choose_device("cuda") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"


def test_looking_at_the_machine_does_not_import_torch() -> None:
    code = (
        "import sys; from rlbench import machine; machine.describe(); machine.present_devices();"
        "print('torch' in sys.modules or 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(bool(machine.gpus()))


def test_torch_is_configured_as_asked() -> None:
    configure_torch(1, "highest", deterministic=True)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.are_deterministic_algorithms_enabled()
    configure_torch(1, "high", deterministic=False)
    assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_users_threading_layer_wins() -> None:
    code = "import rlbench, os; print(os.environ['MKL_THREADING_LAYER'])"
    for given, expected in (({}, "GNU"), ({"MKL_THREADING_LAYER": "INTEL"}, "INTEL")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_peak_memory_is_the_kernels() -> None:
    """VmHWM of /proc, in KiB, after a block of 320 MiB; ended children may have had more."""
    block = np.ones(40 * 2**20)
    peak_mib = resources().peak_memory_mib
    status = Path("/proc/self/status").read_text()
    kernel_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    assert block.nbytes / 2**20 < 0.98 * kernel_mib <= peak_mib
    assert peak_mib < psutil.virtual_memory().total / 2**20


def test_cpu_seconds_count_from_a_reading() -> None:
    before = resources()
    start = time.process_time()
    while time.process_time() - start < 0.2:
        pass
    used = resources(since=before)
    assert 0.15 < used.user_cpu_s + used.system_cpu_s < 5


@pytest.fixture
def _no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing says where compiled code goes, and temporary files go to an empty folder."""
    for variable in (*machine.CACHES, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(variable, "")  # so that what the code sets is taken back
        monkeypatch.delenv(variable)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("_no_cache")
@pytest.mark.parametrize("home", [None, "", "/proc/no-home"])
def test_without_a_home_compiled_code_is_private_in_tmp(
    home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if home is not None:
        monkeypatch.setenv("HOME", home)
    use_private_cache()
    place = tmp_path / f"rlbench-{os.getuid()}"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(place / "inductor")
    assert place.stat().st_mode & 0o777 == 0o700
    assert why_nothing_compiled_runs() == ""


@pytest.mark.usefixtures("_no_cache")
def test_anothers_folder_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder by the right name that is not this user's: PyTorch would unpickle what is in it."""
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    (tmp_path / "rlbench-4242").mkdir()
    use_private_cache()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert why_nothing_compiled_runs().startswith("neither the home nor")


@pytest.mark.usefixtures("_no_cache")
def test_a_folder_that_runs_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Docker's `--tmpfs /tmp` is mounted noexec; `make test-docker` tries a real one."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    reason = why_nothing_compiled_runs()
    assert str(tmp_path) in reason
    assert reason.endswith("is on a file system mounted noexec")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/inductor")
    assert why_nothing_compiled_runs().startswith("its folder /proc/inductor cannot be made (")
