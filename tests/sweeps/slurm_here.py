"""A real Slurm of one node on this machine: munged, slurmctld and slurmd in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")

CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits until its old credentials have expired: by default two minutes
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
JobRequeue=1
# seconds from SIGTERM, which submitit passes over, to SIGKILL: by default 30, in which a short job would end by itself
KillWait=1
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why a Slurm cannot be started here; empty if it can."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"no {', '.join(lacking)} here (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Variables of the environment under which Slurm's commands find the cluster; it ends with the block."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    ports = {"controller_port": _free_port(), "daemon_port": _free_port()}
    host = socket.gethostname().split(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, cpus=os.cpu_count(), **ports)
    (folder / "slurm.conf").write_text(text)
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
    munge = [f"--{name}-file={folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
    commands = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge/socket", *munge],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            log = open(folder / f"{command[0]}.out", "wb")  # noqa: SIM115 (the daemon's)
            with log:
                started.append(
                    subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT)
                )
            if command[0] == "munged":
                _wait_until(lambda: (folder / "munge" / "socket").exists(), folder)
        _wait_until(lambda: "idle" in _output(["sinfo", "--noheader"], environment), folder)
        try:
            yield environment
        finally:  # else its jobs outlive it
            for state in ("PENDING", "RUNNING"):
                _output(["scancel", "--full", f"--state={state}"], environment)
            _wait_until(lambda: not _output(["squeue", "--noheader"], environment), folder)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)


def _output(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True).stdout


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_until(condition, folder: Path) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(file.read_text(errors="replace") for file in sorted(folder.glob("*.out")))
            raise RuntimeError(f"Slurm did not start:\n{logs}")
        time.sleep(0.1)
