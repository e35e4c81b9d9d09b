"""What this machine can do, and what is missing for each optional part, with the command that adds it."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError

NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "lustre", "gpfs", "beegfs", "ceph"}
LOW_DISK_BYTES = 4 << 30

CORE = ("numpy", "jax", "jaxlib", "optax", "gymnasium", "lmdb", "msgspec", "safetensors", "google-crc32c",
        "pyyaml", "cyclopts", "rich", "psutil", "tensorboardX")  # fmt: skip
OPTIONAL = {
    "classic": (("pygame-ce|pygame",), "pictures of classic control", "pip install 'penstock[classic]'"),
    "box2d": (("box2d|box2d-py",), "LunarLander, BipedalWalker, CarRacing", "pip install 'penstock[box2d]'"),
    "play": (("pillow", "pygame-ce|pygame"), "penstock play, export", "pip install 'penstock[play]'"),
    "plot": (("matplotlib",), "penstock plot", "pip install 'penstock[plot]'"),
    "envpool": (("envpool",), "environment.native: faster stepping", "pip install 'penstock[envpool]'"),
    "kafka": (("confluent-kafka",), "stream kafka://…", "pip install 'penstock[kafka]'"),
    "atari": (("ale-py",), "ALE/… environments", "pip install ale-py"),
    "mujoco": (("mujoco",), "Ant, HalfCheetah, Humanoid …", "pip install 'gymnasium[mujoco]'"),
    "tensorboard": (("tensorboard",), "the TensorBoard page", "pip install tensorboard"),
}
"""Part → (packages, any of those joined by |), what it is for, how to get it."""


class Part(msgspec.Struct, frozen=True):
    """One thing that may be missing."""

    name: str
    ready: bool
    detail: str
    """Versions found, or what it would be for."""
    fix: str | None = None
    required: bool = False


class Diagnosis(msgspec.Struct, frozen=True):
    """All that was found; `ready` when nothing required is missing."""

    ready: bool
    facts: dict[str, str]
    parts: tuple[Part, ...]


def diagnose() -> Diagnosis:
    """Look at this machine. Imports none of the heavy packages and takes a fraction of a second."""
    parts = (_home(), _core(), _accelerator(), *(_optional(name) for name in OPTIONAL), _java(), _jars())
    return Diagnosis(all(part.ready or not part.required for part in parts), _facts(), parts)


def _facts() -> dict[str, str]:
    import psutil

    memory = psutil.virtual_memory()
    return {
        "penstock": _version("penstock") or "not installed as a package",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": f"{_cores():g} usable of {os.cpu_count()}",
        "memory": f"{_gigabytes(memory.available)} free of {_gigabytes(memory.total)}",
    }


def _cores() -> float:
    """What this process may use: its affinity, and a container's quota."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores


def _home() -> Part:
    """Runs need a local disk with room: LMDB maps its files, which network disks do not bear."""
    from penstock.config import home

    try:
        path = home()
    except PenstockError as error:
        return Part("home", False, str(error), "set PENSTOCK_HOME to a folder you may write", required=True)
    free, kind = shutil.disk_usage(path).free, _filesystem(path)
    detail = f"{path}, {_gigabytes(free)} free, {kind}"
    if not os.access(path, os.W_OK):
        return Part("home", False, detail, f"make {path} writable, or set PENSTOCK_HOME", required=True)
    if kind in NETWORK_FILESYSTEMS:
        return Part("home", False, detail, "set PENSTOCK_HOME to a local disk", required=True)
    if free < LOW_DISK_BYTES:
        return Part("home", False, detail, "free some disk, or lower stream.budget_bytes")
    return Part("home", True, detail, required=True)


def _filesystem(path: Path) -> str:
    import psutil

    mounts = [mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "unknown"


def _core() -> Part:
    versions = {name: _version(name) for name in CORE}
    missing = [name for name, found in versions.items() if found is None]
    if missing:
        return Part("core", False, f"missing: {', '.join(missing)}", "pip install penstock", required=True)
    return Part("core", True, ", ".join(f"{name} {versions[name]}" for name in CORE[:5]), required=True)


def _accelerator() -> Part:
    """From packages and device files alone: importing JAX would take a second and claim the device."""
    plugins = sorted(
        name
        for found in distributions()
        if (name := (found.name or "").lower()).startswith(("jax-cuda", "jax-rocm")) or name == "libtpu"
    )
    has_gpu = Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()
    if plugins:
        return Part("accelerator", True, ", ".join(plugins))
    if has_gpu:
        fix = "pip install 'jax[cuda13]'" if Path("/dev/nvidiactl").exists() else "pip install 'jax[rocm]'"
        return Part("accelerator", False, "a GPU is here, but this JAX learns on the processor", fix)
    return Part("accelerator", True, "none here; the learner uses the processor")


def _optional(name: str) -> Part:
    packages, purpose, fix = OPTIONAL[name]
    found: list[str] = []
    for choices in packages:
        versions = [f"{choice} {known}" for choice in choices.split("|") if (known := _version(choice))]
        if not versions:
            return Part(name, False, purpose, fix)
        found.append(versions[0])
    return Part(name, True, ", ".join(found))


def _java() -> Part:
    from penstock.broker.jars import OLDEST_JAVA, find_java, java_name

    try:
        java = find_java()
    except PenstockError:
        purpose = f"penstock broker: Java {OLDEST_JAVA} or newer"
        return Part("java", False, purpose, "apt-get install openjdk-17-jre-headless")
    return Part("java", True, f"{java}, {java_name(java).partition(chr(10))[0]}")


def _jars() -> Part:
    """Kafka for the broker: here already, or Maven to download it."""
    from penstock.broker.jars import KAFKA, cache_folder, is_here, release

    if home := os.environ.get("KAFKA_HOME"):
        try:
            libs, version = release(Path(home))
        except PenstockError as error:
            return Part(
                "broker", False, str(error), "set KAFKA_HOME to an unpacked Kafka 4 release, or unset it"
            )
        return Part("broker", True, f"Kafka {version} of KAFKA_HOME, {libs}")
    if is_here():
        return Part("broker", True, f"Kafka {KAFKA} in {cache_folder()}")
    if maven := shutil.which("mvn"):
        return Part("broker", True, f"{maven} downloads Kafka {KAFKA} at the first start")
    return Part("broker", False, "penstock broker: Maven, or KAFKA_HOME", "apt-get install maven")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gigabytes(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def text(diagnosis: Diagnosis) -> str:
    """The diagnosis for people."""
    lines = [f"{name:<12} {value}" for name, value in diagnosis.facts.items()]
    lines.append("")
    for part in diagnosis.parts:
        sign = "ok" if part.ready else ("MISSING" if part.required else "missing")
        fix = f"  →  {part.fix}" if part.fix else ""
        lines.append(f"{part.name:<12} {sign:<8} {part.detail}{fix}")
    return "\n".join(lines)


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(diagnosis)
    return values
