"""Apache Kafka's jars and a Java that runs them: from KAFKA_HOME, else from Maven Central into a cache.

The cache (`${XDG_CACHE_HOME:-~/.cache}/penstock/kafka-<version>/`) is whole or absent. Each jar is compared
with the sha256 in `kafka.sha256` when it is downloaded; afterwards a start compares names and sizes only.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from penstock.errors import ConfigError, Damaged, Unavailable

KAFKA = "4.3.1"
SLF4J_TO_LOG4J = "2.25.4"
"""Kafka's release has this bridge for its log, its Maven artifact has not; the version of its log4j-core."""
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.11.0"
OLDEST_JAVA = 17
DOWNLOAD_SECONDS = 900.0
PINS = Path(__file__).with_name("kafka.sha256")
FIX_JAVA = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
FIX_MAVEN = (
    "install Maven (Debian: apt-get install openjdk-17-jre-headless maven) "
    "or set KAFKA_HOME to an unpacked Kafka 4 release"
)

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{SLF4J_TO_LOG4J}</version>
    </dependency>
  </dependencies>
</project>
"""


class Kafka(msgspec.Struct, frozen=True):
    """What it takes to start a Kafka program."""

    java: str
    java_name: str
    """What it says of itself: version, vendor and build."""
    libs: Path
    version: str
    options: tuple[str, ...] = ()
    """Of the Java machine."""

    def command(self, options: Iterable[str], *program: Iterable[str]) -> list[str]:
        return [
            self.java,
            *self.options,
            *options,
            "-cp",
            str(self.libs / "*"),
            *chain.from_iterable(program),
        ]

    def archive(self) -> Path:
        """Where the classes of this Java with these jars are kept, ready to use; Java checks that they fit."""
        jars = sorted(
            (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self.libs.glob("*.jar")
        )
        identity = hashlib.sha256(repr((self.java_name, self.libs, jars)).encode()).hexdigest()
        return cache_folder() / f"classes-{identity[:16]}.jsa"

    def recording(self, archive: Path) -> "Kafka":
        """The same, which writes an archive of its classes when it ends."""
        return msgspec.structs.replace(self, options=(f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"))

    def sharing(self, archive: Path) -> "Kafka":
        """The same, which takes its classes from an archive."""
        return msgspec.structs.replace(self, options=(f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"))


def find_kafka() -> Kafka:
    """Java and Kafka's jars, downloaded where they are missing; raise ConfigError that says what to install."""
    java, home = find_java(), os.environ.get("KAFKA_HOME")
    libs, version = release(Path(home)) if home else (_cached(), KAFKA)
    return Kafka(java, java_name(java), libs, version)


def is_here() -> bool:
    """Whether Kafka can start without a download."""
    return bool(os.environ.get("KAFKA_HOME")) or _is_whole(_cache())


def find_java() -> str:
    """A Java that Kafka runs on: JAVA_HOME's, else the PATH's."""
    java = _java_of_home() or shutil.which("java")
    if java is None:
        raise ConfigError(
            f"Kafka needs Java {OLDEST_JAVA} or newer, and there is no java on PATH; {FIX_JAVA}"
        )
    match = re.search(r'version "(?:1\.)?(\d+)', java_name(java))  # Java 8 calls itself 1.8
    if match is None or int(match[1]) < OLDEST_JAVA:
        found = match[1] if match else "of an unknown version"
        raise ConfigError(f"Kafka needs Java {OLDEST_JAVA} or newer, and {java} is {found}; {FIX_JAVA}")
    return java


@functools.cache
def java_name(java: str) -> str:
    """What `java -version` says; nothing where it does not answer."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stderr


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).expanduser() / "penstock"


def _java_of_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else None


def release(home: Path) -> tuple[Path, str]:
    """The jars and the version of an unpacked Kafka release."""
    home = home.expanduser().absolute()
    jars = sorted((home / "libs").glob("kafka_2.13-[0-9]*.jar"))
    version = jars[0].stem.removeprefix("kafka_2.13-") if jars else None
    if version is None:
        raise ConfigError(
            f"KAFKA_HOME is {home}, which has no libs/kafka_2.13-*.jar; "
            "set it to the folder of an unpacked Kafka 4 release, or unset it to download one"
        )
    if int(version.partition(".")[0]) < 4:
        raise ConfigError(f"KAFKA_HOME is {home}, a Kafka {version}; Kafka 4 or newer is needed")
    return home / "libs", version


def _cache() -> Path:
    return cache_folder() / f"kafka-{KAFKA}"


def _cached() -> Path:
    folder = _cache()
    try:
        if not _is_whole(folder):
            with locked(folder.with_name(f"{folder.name}.lock")):
                if not _is_whole(folder):  # another process may have made it while this one waited
                    _make(folder)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"Kafka cannot be kept in {folder}: {reason}; set XDG_CACHE_HOME") from error
    return folder / "libs"


def _is_whole(folder: Path) -> bool:
    """Whether every pinned jar is there in the size it had when its checksum was right."""
    try:
        sizes = msgspec.json.decode((folder / "sizes.json").read_bytes(), type=dict[str, int])
        pins = (folder / PINS.name).read_bytes()
    except (OSError, msgspec.DecodeError):
        return False
    return pins == PINS.read_bytes() and sizes == _sizes(folder / "libs")


def _make(folder: Path) -> None:
    """Download, verify, and only then give the folder its name."""
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _download(temporary)
        verify(temporary / "libs")
        shutil.copyfile(PINS, temporary / PINS.name)
        (temporary / "sizes.json").write_bytes(msgspec.json.encode(_sizes(temporary / "libs")))
        shutil.rmtree(folder, ignore_errors=True)  # damaged, or of other pins
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(
            f"Kafka {KAFKA} is not here yet, and there is no mvn on PATH to download it; {FIX_MAVEN}"
        )
    (folder / "pom.xml").write_text(POM)
    command = [maven, "-q", "-B", "-C", "-f", str(folder / "pom.xml"), f"{DEPENDENCY_PLUGIN}:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'libs'}"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"Maven has not downloaded Kafka {KAFKA} in {DOWNLOAD_SECONDS:.0f} s; try again"
        ) from error
    if done.returncode != 0:
        raise Unavailable(f"Maven could not download Kafka {KAFKA}: {_complaint(done.stdout)}; try again")


def _complaint(output: str) -> str:
    lines = [line.removeprefix("[ERROR] ").strip() for line in output.splitlines() if "ERROR" in line]
    return lines[0].rstrip(".") if lines else "it did not say why"


def verify(libs: Path) -> None:
    """Raise Damaged unless the folder holds exactly the pinned jars, byte for byte."""
    pinned = {name: digest for digest, name in map(str.split, PINS.read_text().splitlines())}
    found = {path.name for path in libs.glob("*")}
    if found != pinned.keys():
        odd = ", ".join(sorted(found ^ pinned.keys()))
        raise Damaged(f"the download of Kafka {KAFKA} differs from {PINS} in {odd}; nothing was kept")
    for name, digest in pinned.items():
        with (libs / name).open("rb") as jar:
            if hashlib.file_digest(jar, "sha256").hexdigest() != digest:
                raise Damaged(f"{name} has another sha256 than {PINS} says; nothing was kept, try again")


def _sizes(libs: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in libs.glob("*.jar")}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock, which also ends with this process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
