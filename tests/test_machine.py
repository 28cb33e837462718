import os
import re
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
from rlbench.devices import gpus
from rlbench.machine import (
    configure_torch,
    describe_machine,
    describe_numerics,
    resources,
    use_private_cache,
    why_nothing_compiled_runs,
)


def test_the_description_agrees_with_the_machine() -> None:
    """Against `/proc`, and what the system itself says."""
    found = describe_machine()
    cores = Path("/proc/cpuinfo").read_text().count("processor\t:")
    assert 1 <= found.cpu_cores <= cores
    assert found.cpu_physical_cores is None or found.cpu_physical_cores <= cores
    total_kib = int(Path("/proc/meminfo").read_text().partition("MemTotal:")[2].split()[0])
    assert found.memory_mib == total_kib // 1024
    assert found.kernel == " ".join(os.uname()[i] for i in (0, 2))
    assert found.os in Path("/etc/os-release").read_text()
    assert found == describe_machine()  # the report lists each machine once


def test_the_host_has_a_name_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_machine().host is None
    monkeypatch.setenv("RLBENCH_RECORD_HOST", "1")
    assert describe_machine().host == os.uname().nodename


def test_the_libraries_that_do_the_arithmetic_are_named() -> None:
    found = describe_numerics(compiled=True)
    assert any(torch.backends.cpu.get_cpu_capability() in line for line in found.torch)
    assert np.__config__.CONFIG["Build Dependencies"]["blas"]["name"] in found.numpy_blas
    assert found.cpp_compiler is None or re.search(r"\d+\.\d+", found.cpp_compiler)
    assert describe_numerics(compiled=False).cpp_compiler is None


def test_looking_at_the_machine_does_not_import_torch() -> None:
    code = (
        "import sys; from rlbench import devices, machine, software; machine.describe_machine();"
        "software.describe_software(); devices.devices_here();"
        "print('torch' in sys.modules or 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(bool(gpus()))


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
