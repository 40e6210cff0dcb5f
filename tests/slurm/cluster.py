"""A Slurm of two nodes on this machine: munged, slurmctld and two slurmd in a folder, gone without a trace.

Every daemon lives in network, host-name and mount namespaces of its own, joined by a bridge in the controller's:
node names resolve there through a private /etc/hosts, and nothing outside can see any of it. Where namespaces are
not allowed, all daemons share the loopback interface on ports of their own, and node names do not resolve.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
CONTROLLER, NODES = "isogctl", ("isogn1", "isogn2")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
START_SECONDS = 60
JOB_SECONDS = 240
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL")


def missing_programs() -> list[str]:
    """What must be installed (Debian: slurm-wlm, munge) and is not."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


def namespaces_allowed() -> bool:
    """Whether this user may make network namespaces and connect them."""
    attempt = "ip link add isogtest0 type veth peer name isogtest1 && ip link add isogtest type bridge"
    command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", attempt]
    try:
        return subprocess.run(command, capture_output=True, check=False, env={"PATH": PATH}).returncode == 0
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What the condition gives when it is true; a wait without end is an error."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


@dataclass
class Slurm:
    """A running cluster.

    Args:
        folder: of its configuration, logs and sockets; short, since paths of sockets are.
        has_namespaces: whether nodes have namespaces, and names that resolve.
    """

    folder: Path
    has_namespaces: bool
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)

    def call(self, *command: str, environment: Mapping[str, str] | None = None, check: bool = True) -> str:
        """Run a command as a user of the cluster does; returns what it prints."""
        entered = self._enter(CONTROLLER) if self.has_namespaces else []
        result = subprocess.run(
            [*entered, *command],
            env=self._environment(environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout + ("" if check else result.stderr)

    def submit(self, script: Path, *arguments: str, options: Sequence[str], environment: Mapping[str, str]) -> Job:
        """`sbatch OPTIONS SCRIPT ARGUMENTS`; the output goes to a file in the folder."""
        output = self.folder / f"job-{time.monotonic_ns()}.out"
        line = ["sbatch", "--parsable", f"--output={output}", *options, str(script), *arguments]
        number = self.call(*line, environment=environment).strip()
        self.jobs.append(number)
        return Job(self, number, output)

    def start(self) -> None:
        self._write_configuration()
        self._start("munged", self._munged())
        wait_until((self.folder / "munge.socket").exists, START_SECONDS, "munged's socket")
        self._start(CONTROLLER, self._daemon(CONTROLLER, ["slurmctld", "-D", "-i"]))
        if self.has_namespaces:
            self._build_network()
        for node in NODES:
            self._start(node, self._daemon(node, ["slurmd", "-D", "-N", node]))
        if self.has_namespaces:
            for number, node in enumerate(NODES):
                self._connect(node, number)
        wait_until(self._is_ready, START_SECONDS, f"two idle nodes; see {self.folder}")

    def stop(self) -> None:
        """End jobs, then daemons. Their namespaces, and what is mounted and linked in them, go with them."""
        with contextlib.suppress(Exception):
            if self.jobs:
                self.call("scancel", "--signal=KILL", "--full", *self.jobs, check=False)
                self.call("scancel", *self.jobs, check=False)
                wait_until(lambda: not self.call("squeue", "--noheader").strip(), 10, "the end of all jobs")
        for name in reversed(self.processes):
            self.processes[name].send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextlib.contextmanager
    def without_names(self, node: str) -> Iterator[None]:
        """A node that can not resolve the names of the others for a while. The file is mounted, so it stays the
        same one."""
        hosts = self.folder / f"hosts-{node}"
        before = hosts.read_text()
        hosts.write_text("".join(line for line in before.splitlines(True) if "isog" not in line or node in line))
        try:
            yield
        finally:
            hosts.write_text(before)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-5000:] for path in sorted(self.folder.glob("*.log")))

    def _is_ready(self) -> bool:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} has ended: {self.logs()}"
        states = self.call("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()
        return len(states) >= len(NODES) and set(states) == {"idle"}

    def _start(self, name: str, command: Sequence[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(None)
            )

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        return {**kept, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), **(more or {})}

    def _munged(self) -> list[str]:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "seed"}
        paths = [f"--{option}={self.folder / name}" for option, name in files.items()]
        return [
            "munged",
            "--foreground",
            "--force",
            "--num-threads=2",
            *paths,
            f"--log-file={self.folder}/munge.txt",
        ]

    def _daemon(self, name: str, command: Sequence[str]) -> list[str]:
        if not self.has_namespaces:
            return list(command)
        # A node waits for its address: slurmd registers when it starts.
        waits = "" if name == CONTROLLER else "until ip -4 -o address show dev eth0 2>/dev/null | grep -q inet; do "
        prepare = (
            f"mount --bind {self.folder}/hosts-{name} /etc/hosts && hostname {name} && ip link set lo up && "
            + (f"{waits} sleep 0.05; done; " if waits else "")
            + 'exec "$@"'
        )
        return ["unshare", "--net", "--uts", "--mount", "sh", "-c", prepare, "sh", *command]

    def _enter(self, name: str) -> list[str]:
        return ["nsenter", f"--target={self.processes[name].pid}", "--net", "--uts", "--mount", "--wd=."]

    def inside(self, name: str, *command: str) -> str:
        """Run a command in the namespaces of a daemon."""
        result = subprocess.run(
            [*self._enter(name), *command], env=self._environment(None), capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{command} on {name}: {result.stderr}"
        return result.stdout

    def _build_network(self) -> None:
        own = os.readlink("/proc/self/ns/net")  # noqa: PTH115 (no file, a name)
        pid = self.processes[CONTROLLER].pid
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 5, "a namespace")  # noqa: PTH115
        for line in ("link add br0 type bridge", f"address add {_address(0)}/24 dev br0", "link set br0 up"):
            self.inside(CONTROLLER, "ip", *line.split())

    def _connect(self, node: str, number: int) -> None:
        own = os.readlink("/proc/self/ns/net")  # noqa: PTH115
        pid = self.processes[node].pid
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 5, "a namespace")  # noqa: PTH115
        port = f"port{number}"
        self.inside(CONTROLLER, "ip", *f"link add {port} type veth peer name eth0 netns {pid}".split())
        self.inside(CONTROLLER, "ip", *f"link set {port} master br0 up".split())
        self.inside(node, "ip", "link", "set", "eth0", "up")
        self.inside(node, "ip", *f"address add {_address(number + 1)}/24 dev eth0".split())

    def _write_configuration(self) -> None:
        names = (CONTROLLER, *NODES)
        lines = [f"{_address(number)} {name}\n" for number, name in enumerate(names)]
        for name in names:
            (self.folder / f"hosts-{name}").write_text("127.0.0.1 localhost\n" + "".join(lines))
        ports = [_free_port() for _ in names]
        if self.has_namespaces:
            controller, addresses = f"{CONTROLLER}({_address(0)})", [_address(1), _address(2)]
            hosts = NODES
        else:
            controller, addresses = f"{socket.gethostname()}(127.0.0.1)", ["127.0.0.1"] * 2
            hosts = (socket.gethostname(),) * 2
        for name in (*names, "save"):
            (self.folder / name).mkdir()
        nodes = "".join(
            f"NodeName={node} NodeAddr={address} NodeHostname={host} Port={port} CPUs=8 RealMemory=16000\n"
            for node, address, host, port in zip(NODES, addresses, hosts, ports[1:], strict=True)
        )
        text = _CONFIGURATION.format(
            folder=self.folder, controller=controller, port=ports[0], user=getpass.getuser(), nodes=nodes
        )
        (self.folder / "slurm.conf").write_text(text)


_CONFIGURATION = """\
ClusterName=isogclr
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A job that is requeued may start again when the credential of its last start has expired: 120 s by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/save
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.txt
SlurmdLogFile={folder}/%n.txt
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
ReturnToService=2
KillWait=5
MpiDefault=none
# Preemption as on many clusters: jobs of the second partition push those of the first aside.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 MaxTime=30
PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF MaxTime=30
"""


@dataclass
class Job:
    """A submitted job."""

    slurm: Slurm
    number: str
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def show(self, name: str) -> str:
        """A field of `scontrol show job`."""
        found = re.search(rf"\b{name}=(\S*)", self.slurm.call("scontrol", "show", "job", self.number))
        assert found is not None, name
        return found[1]

    def wait(self, seconds: float = JOB_SECONDS) -> tuple[str, str]:
        """State and exit code, when it has ended and will not start again."""
        deadline = time.monotonic() + seconds
        while (state := self.show("JobState")) not in ENDED:
            assert time.monotonic() < deadline, f"job {self.number} is {state} after {seconds} s:\n{self.text}"
            time.sleep(0.3)
        return state, self.show("ExitCode")

    def wait_for(self, words: str, seconds: float = JOB_SECONDS) -> None:
        """Return when the job has said this."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, f"nobody said {words!r} in {seconds} s:\n{self.text}"
            time.sleep(0.05)

    def wait_for_state(self, state: str, seconds: float = JOB_SECONDS) -> None:
        wait_until(lambda: self.show("JobState") == state, seconds, f"{state} of job {self.number}\n{self.text}")


@contextlib.contextmanager
def cluster(folder: Path, *, has_namespaces: bool) -> Iterator[Slurm]:
    """A cluster for the duration of a block."""
    slurm = Slurm(folder, has_namespaces)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def _address(number: int) -> str:
    return f"10.213.77.{number + 1}"


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
