"""A SLURM of one node with two GPUs that are none, started and stopped by the tests.

Needs root on Debian or Ubuntu, and a machine whose SLURM, if any, nobody uses: the programs read
/etc/slurm, which therefore points to a temporary folder for as long as the node runs.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

import psutil
import pytest
from support import done, require_packages, run, wait_until

ETC = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf")
GPUS = (Path("/dev/rlbench_gpu0"), Path("/dev/rlbench_gpu1"))
NULL_DEVICE = (1, 3)
"""Major and minor number of /dev/null, which the GPUs are further names of."""
# A job that is put back into the queue waits until its credential has expired: 10 s, not 120.
CONF = Template("""\
ClusterName=rlbench
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
MinJobAge=3600
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$folder/controller
SlurmdSpoolDir=$folder/node
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
GresTypes=gpu
NodeName=$name NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory_mib Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=$name Default=YES MaxTime=INFINITE State=UP
""")


class Node:
    """The daemons of a one-node SLURM, and what SLURM says of its jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = socket.gethostname().split(".")[0]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def write_config(self) -> None:
        """slurm.conf and gres.conf, and the folders they name."""
        for part in ("controller", "node"):
            (self.folder / part).mkdir()
        values = {
            "name": self.name,
            "folder": self.folder,
            "cpus": os.cpu_count(),
            "memory_mib": int(psutil.virtual_memory().total * 0.9) // 2**20,
        }
        (self.folder / "slurm.conf").write_text(CONF.substitute(values))
        files = "/dev/rlbench_gpu[0-1]"
        (self.folder / "gres.conf").write_text(f"NodeName={self.name} Name=gpu File={files}\n")

    def start(self, daemon: str, *arguments: str) -> None:
        """Start slurmctld or slurmd as a child of this process; its log is in the folder."""
        self._running[daemon] = subprocess.Popen(
            [daemon, "-D", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait_until_idle(self) -> None:
        """Return once the node takes jobs."""
        wait_until(lambda: "idle" in run("sinfo", "-h", "-o", "%t").stdout.split(), 60, "idle node")

    def stop(self) -> None:
        """Cancel what runs and end both daemons."""
        run("scancel", "--state=PENDING")
        run("scancel", "--state=RUNNING")
        for daemon in ("slurmd", "slurmctld"):
            if process := self._running.pop(daemon, None):
                process.terminate()
                process.wait(30)

    def crash(self, job: str) -> None:
        """Kill slurmd, the step daemons of a job and all its processes at once, as a power cut."""
        daemons = [p for p in psutil.process_iter(["cmdline"]) if is_step_of(job, p)]
        victims = [*daemons, *(c for d in daemons for c in d.children(recursive=True))]
        self._running["slurmd"].kill()
        self._running.pop("slurmd").wait()
        for process in victims:
            process.kill()
        psutil.wait_procs(victims, timeout=10)

    def jobs(self) -> dict[str, dict[str, str]]:
        """All jobs so far, by id and in its order: the fields of `scontrol show job`."""
        blocks = done(run("scontrol", "show", "job", "--oneliner")).splitlines()
        found = [dict(word.split("=", 1) for word in b.split() if "=" in word) for b in blocks]
        known = sorted((f for f in found if "JobId" in f), key=lambda f: int(f["JobId"]))
        return {fields["JobId"]: fields for fields in known}


def is_step_of(job: str, process: psutil.Process) -> bool:
    """Whether a process is a step daemon of a job, which calls itself `slurmstepd: [7.batch]`."""
    title = " ".join(process.info["cmdline"] or [])
    return title.startswith(f"slurmstepd: [{job}.")


def require_free_machine() -> None:
    """Fail with the reason if a SLURM must not be started here."""
    if os.geteuid() != 0:
        pytest.fail(
            f"got user id {os.geteuid()}, but a SLURM needs root; run `make test-slurm` as root "
            "on a machine or in a container that may be changed",
            pytrace=False,
        )
    for name in FILES:
        path = ETC / name
        if path.is_symlink() and is_ours(path):
            path.unlink()
        if os.path.lexists(path):
            pytest.fail(
                f"{path} exists and is not this test's: SLURM seems to be in use on this machine. "
                "Run `make test-slurm` on another one, or remove the file if nothing needs it",
                pytrace=False,
            )


def is_ours(link: Path) -> bool:
    """Whether a link was left by a run of this test that was killed."""
    conf = link.resolve().with_name("slurm.conf")
    return not conf.exists() or conf.read_text().startswith("ClusterName=rlbench\n")


@contextmanager
def munge() -> Iterator[None]:
    """SLURM's authentication; one that already answers is used and left alone."""
    if run("munge", "-n").returncode == 0:
        yield
        return
    done(run("install", "-d", "-o", "munge", "-g", "munge", "-m", "755", "/run/munge"))
    daemon = subprocess.Popen(
        ["munged", "--foreground"], user="munge", group="munge", stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: run("munge", "-n").returncode == 0, 10, "munged answers")
        yield
    finally:
        daemon.terminate()
        daemon.wait(10)


@contextmanager
def one_node(folder: Path) -> Iterator[Node]:
    """A running node; what was installed stays, all else is as before."""
    require_free_machine()
    require_packages({"slurm-wlm": "slurmctld", "munge": "munged"})
    node = Node(folder)
    node.write_config()
    ETC.mkdir(exist_ok=True)
    for name in FILES:
        (ETC / name).symlink_to(folder / name)
    for gpu in GPUS:
        gpu.unlink(missing_ok=True)
        os.mknod(gpu, 0o20666, os.makedev(*NULL_DEVICE))
    try:
        with munge():
            try:
                node.start("slurmctld", "-c")
                node.start("slurmd")
                node.wait_until_idle()
                yield node
            finally:
                node.stop()
    finally:
        for path in (*GPUS, *(ETC / name for name in FILES)):
            path.unlink(missing_ok=True)
