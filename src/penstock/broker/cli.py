"""`penstock broker`: a real Kafka on this machine, for tests and development. Heavy imports wait."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from penstock.errors import ConfigError, NotFound, nearest
from penstock.flags import Json

if TYPE_CHECKING:
    from penstock.broker import Broker

broker = App(
    name="broker",
    help="A real Apache Kafka on this machine, for tests and development: start, stop, status, logs.",
    help_format="markdown",
    sort_key=41,
)

Name = Annotated[str, Parameter(help="Which broker; several may run side by side.")]


@broker.command(sort_key=1)
def start(*, nodes: int | None = None, port: int | None = None, name: Name = "default") -> None:
    """Start the broker, or a new one, and return once it answers. It goes on when the terminal closes.

    Examples: `penstock broker start`, `penstock broker start --nodes 3 --name trio`

    Parameters
    ----------
    nodes
        How many Kafka processes; 3 keep a quorum when one dies. Default: as before, 1 for a new broker.
    port
        Where the first node listens, on 127.0.0.1; the next ones follow. Default: as before, or free ones.
    """
    from penstock.broker import Broker
    from penstock.broker.jars import is_here

    cluster = Broker(_folder(name), nodes=nodes, port=port)
    runs_already = None not in cluster.pids().values()
    if not runs_already and not is_here():
        print("downloading Kafka, 45 MB, once; this takes a moment", file=sys.stderr)
    cluster.start()
    address = f"kafka://{cluster.bootstrap}"
    print(f"broker {name} {'runs already' if runs_already else 'runs'}: {address}")
    print(f"  penstock train CartPole-v1 --stream {address}   penstock broker stop{_flag(name)}")


@broker.command(sort_key=2)
def stop(*, name: Name = "default", delete: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Stop the broker; its data stays for the next start.

    Example: `penstock broker stop --delete`

    Parameters
    ----------
    delete
        Remove it with all its data.
    """
    cluster = _existing(name)
    ran = any(cluster.pids().values())
    cluster.delete() if delete else cluster.stop()
    stopped = f"broker {name} is stopped" if ran else f"broker {name} was not running"
    print(f"{stopped}, and its data is gone" if delete else f"{stopped}; its data is in {cluster.folder}")


@broker.command(sort_key=3)
def status(*, name: Name = "default", json: Json = False) -> None:
    """Say which nodes run, where they listen and what their data takes."""
    from penstock.view import print_json

    facts = _facts(_existing(name), name)
    print_json(facts) if json else print(_page(facts))


@broker.command(sort_key=4)
def logs(*, name: Name = "default", node: int | None = None, lines: int = 50) -> None:
    """Print the last lines that the nodes have logged.

    Example: `penstock broker logs --node 2 --lines 100`

    Parameters
    ----------
    node
        Only this one; default: all.
    lines
        How many of the last lines of each node.
    """
    cluster = _existing(name)
    if node is not None and node not in cluster.nodes:
        raise ConfigError(f"broker {name} has no node {node}; its nodes are 1 to {len(cluster.nodes)}")
    if lines < 0:
        raise ConfigError(f"--lines {lines} is less than none; give 0 or more")
    for index in cluster.nodes if node is None else [node]:
        for line in cluster.nodes[index].tail(lines):
            print(line if len(cluster.nodes) == 1 else f"node-{index}  {line}")


def _brokers() -> Path:
    from penstock import config

    return config.home() / "broker"


def _folder(name: str) -> Path:
    from penstock.model.run import RUN_ID

    if not RUN_ID.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a broker; use small letters, digits, - and _")
    return _brokers() / name


def _existing(name: str) -> "Broker":
    from penstock.broker import Broker

    folder = _folder(name)
    if not (folder / "cluster.json").exists():
        known = [path.parent.name for path in _brokers().glob("*/cluster.json")]
        hint = nearest(name, known) or f"; start it with: penstock broker start{_flag(name)}"
        raise NotFound(f"there is no broker {name!r} in {folder.parent}{hint}")
    return Broker(folder)


def _facts(cluster: "Broker", name: str) -> dict[str, Any]:
    nodes = [
        {
            "node": index,
            "state": "stopped" if pid is None else "running",
            "address": cluster.address(index),
            "pid": pid,
            "data_bytes": cluster.nodes[index].data_bytes(),
        }
        for index, pid in cluster.pids().items()
    ]
    states = {str(node["state"]) for node in nodes}
    return {
        "name": name,
        "state": states.pop() if len(states) == 1 else "partly running",
        "address": f"kafka://{cluster.bootstrap}",
        "version": cluster.version,
        "path": str(cluster.folder),
        "nodes": nodes,
    }


def _page(facts: dict[str, Any]) -> str:
    lines = [
        f"broker {facts['name']} is {facts['state']}: {facts['address']} (Kafka {facts['version'] or '-'})"
    ]
    for node in facts["nodes"]:
        pid = "-" if node["pid"] is None else node["pid"]
        size = f"{node['data_bytes'] / (1 << 20):.1f} MiB"
        lines.append(f"  node {node['node']}  {node['state']:<8} {node['address']}  pid {pid}  data {size}")
    return "\n".join([*lines, f"  in {facts['path']}"])


def _flag(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
