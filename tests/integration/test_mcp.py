"""Assistants: every tool against a real control plane, in memory, over HTTP in both eras, and under every role."""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from penstock import config
from penstock.control.permissions import NEEDED, Principal, Role
from penstock.loop.files import append_line
from penstock.loop.runs import RunFolder
from penstock.server import mcp
from penstock.server.mcp.desk import READS, Offer, tool_of
from penstock.server.mcp.results import summarise, thinned
from tests.integration.serving import OWNER, QUICK, Served, served, wait_for

DOCS = Path(__file__).parents[2] / "docs" / "mcp.md"
ERAS = ("auto", "legacy")


class Assistant:
    """Calls tools as an assistant would, each in a conversation of its own."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def ask(self, what: Callable[[Client], Any]) -> Any:
        async def talk() -> Any:
            async with self._connect() as client:
                return await what(client)

        try:
            return asyncio.run(talk())
        except BaseExceptionGroup as group:  # the client's task group wraps whatever passes through it
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer; an error fails the test."""
        found = self.ask(lambda client: client.call_tool(tool, arguments))
        assert not found.is_error, found.content[0].text
        assert json.loads(found.content[0].text).keys() <= found.structured_content.keys()
        return found.structured_content

    def error(self, tool: str, **arguments: Any) -> str:
        """What an assistant reads where a call fails."""
        found = self.ask(lambda client: client.call_tool(tool, arguments))
        assert found.is_error, found.structured_content
        return str(found.content[0].text)


def over_stdio(server: Served, token: str, *flags: str, era: str = "auto") -> Assistant:
    """`penstock mcp`, a process of its own, as an assistant starts it."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", *flags],
        env={**os.environ, "PENSTOCK_SERVER": server.address, "PENSTOCK_TOKEN": token},
    )
    return Assistant(lambda: Client(stdio_client(command), mode=era))


def in_memory(control: Any, who: Principal = OWNER, era: str = "auto") -> Assistant:
    return Assistant(lambda: Client(mcp.create_server(control, lambda _: who), mode=era))


def over_http(server: Served, token: str, era: str = "auto", **more: str) -> Assistant:
    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}", **more}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{server.address}/mcp", http_client=http)
            async with Client(transport, mode=era) as client:
                yield client

    return Assistant(connect)


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that accepts runs and starts none."""
    with served(tmp_path_factory.mktemp("idle")) as running:
        yield running


@pytest.fixture(scope="module")
def assistant(idle: Served) -> Assistant:
    return in_memory(idle.control)


@pytest.fixture(scope="module")
def run(idle: Served) -> str:
    """A run that somebody trained alone, with metrics, events, logs: the index finds it."""
    folder = RunFolder.create(idle.control.home, config.resolve("CartPole-v1"), "measured")
    for step in range(1, 101):
        row = {"steps": step * 10, "seconds": step / 10, "time": time.time(), "updates": step}
        numbers = {"charts/episodic_return": float(step), "losses/value_loss": 1 / step, "pace/lag": 0.0}
        append_line(folder.metrics_file, row | numbers)
    folder.append_event("actor_restarted", process="actor-0", slot=0)
    folder.log_file("learner").write_text("first\nsecond\nthird\n")
    client = idle.client()
    wait_for(lambda: client.get("/runs/measured").status_code == 200, "the run in the index")
    client.close()
    return "measured"


# -- the table of tools ----------------------------------------------------------------------------


def test_every_operation_has_its_tool_or_a_reason_why_not() -> None:
    tools = {offer.name for offer in mcp.OFFERS}
    assert len(tools) == len(mcp.OFFERS)
    assert tools | mcp.WITHOUT_TOOL.keys() == NEEDED.keys()
    assert not tools & mcp.WITHOUT_TOOL.keys()


def test_a_tool_without_permission_cannot_be_made(idle: Served) -> None:
    def format_disk(desk: Any) -> None: ...

    with pytest.raises(LookupError, match=r"format_disk is not in control/permissions\.py"):
        tool_of(Offer(format_disk, "Format", READS), idle.control, lambda _: OWNER)


@pytest.mark.parametrize("era", ERAS)
def test_every_tool_says_what_it_does_takes_and_answers(idle: Served, era: str) -> None:
    found = in_memory(idle.control, era=era).ask(lambda client: client.list_tools()).tools
    assert {tool.name for tool in found} == {offer.name for offer in mcp.OFFERS}
    for tool in found:
        hints = tool.annotations
        assert tool.title
        assert len(tool.description) > 30
        assert tool.output_schema["type"] == "object", tool.name
        assert tool.input_schema["additionalProperties"] is False
        assert hints.open_world_hint is False
        assert hints.read_only_hint == (NEEDED[tool.name] is Role.VIEWER or tool.name == "list_tokens"), (
            tool.name
        )
        assert hints.destructive_hint == (tool.name in ("delete_run", "revoke_token"))
    words = sum(len(json.dumps(tool.input_schema)) + len(tool.description) for tool in found)
    assert words < 40_000, "what an assistant must read before its first word has grown"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("role", list(Role))
def test_each_role_is_offered_the_tools_it_may_use(idle: Served, role: Role, era: str) -> None:
    listed = over_http(idle, idle.token_of(role), era).ask(lambda client: client.list_tools()).tools
    allowed = {offer.name for offer in mcp.OFFERS if NEEDED[offer.name].rank <= role.rank}
    assert {tool.name for tool in listed} == allowed
    if role is Role.VIEWER:
        assert all(tool.annotations.read_only_hint for tool in listed)


def test_the_docs_list_every_tool_with_its_role() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    wanted = [
        f"| `{offer.name}` | {NEEDED[offer.name]} | {(inspect.getdoc(offer.call) or '').splitlines()[0]} |"
        for offer in mcp.OFFERS
    ]
    assert rows == wanted, "\n".join(wanted)
    assert all(f"`{name}`" in DOCS.read_text() for name in mcp.WITHOUT_TOOL if not name.startswith("watch"))


def test_logging_of_the_process_is_left_alone(idle: Served) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    mcp.create_server(idle.control, lambda _: OWNER)
    assert (list(root.handlers), root.level) == before


# -- who may do what -------------------------------------------------------------------------------


def some_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the right form that name nothing."""
    values = {
        "string": "nothing-here",
        "integer": 1,
        "object": {"x": 1},
        "array": ["nothing-here"],
        "boolean": False,
    }
    return {name: values[schema["properties"][name]["type"]] for name in schema.get("required", ())}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("role", list(Role))
def test_every_tool_asks_every_role(idle: Served, role: Role, era: str) -> None:
    tools = in_memory(idle.control).ask(lambda client: client.list_tools()).tools

    async def all_tools(client: Client) -> dict[str, str]:
        found = {}
        for tool in tools:  # also those this role is not offered
            answer = await client.call_tool(tool.name, some_arguments(tool.input_schema))
            found[tool.name] = answer.content[0].text if answer.is_error else ""
        return found

    found = over_http(idle, idle.token_of(role), era).ask(all_tools)
    assert found.keys() == {offer.name for offer in mcp.OFFERS}
    for name, error in found.items():
        denied = f"{name} needs the role {NEEDED[name]}" in error
        assert denied == (role.rank < NEEDED[name].rank), f"{name} by {role}: {error}"
        assert error != f"Error executing tool {name}", f"{name} broke"


@pytest.mark.parametrize("era", ERAS)
def test_an_assistant_that_should_only_look_can_only_look(idle: Served, run: str, era: str) -> None:
    looking = over_http(idle, idle.token, era, **{"Penstock-Role": "viewer"})
    assert looking.call("get_status", run=run)["run"] == run
    assert "needs the role operator" in looking.error("stop_training", run=run)
    viewer = over_http(idle, idle.token_of("viewer"), era, **{"Penstock-Role": "admin"})
    assert "needs the role operator" in viewer.error("stop_training", run=run)
    nobody = over_http(idle, idle.token, era, **{"Penstock-Role": "king"})
    with pytest.raises(Exception, match="names no role"):
        nobody.call("get_status", run=run)


@pytest.mark.parametrize("era", ERAS)
def test_penstock_mcp_carries_it_all(idle: Served, run: str, era: str) -> None:
    async def converse(client: Client) -> list[Any]:
        return [
            (await client.list_tools()).tools,
            (await client.call_tool("get_status", {"run": run})).structured_content["run"],
            (await client.call_tool("get_status", {"run": "nowhere"})).content[0].text,
            json.loads((await client.read_resource(f"run://{run}/status")).contents[0].text)["run"],
            (await client.get_prompt("diagnose_run", {"run": run})).messages[0].content.text,
        ]

    tools, status, error, resource, prompt = over_stdio(idle, idle.token, era=era).ask(converse)
    assert {tool.name for tool in tools} == {offer.name for offer in mcp.OFFERS}
    assert status == resource == run
    assert "Call list_runs" in error
    assert run in prompt


@pytest.mark.parametrize("era", ERAS)
def test_penstock_mcp_read_only_changes_nothing(idle: Served, run: str, era: str) -> None:
    looking = over_stdio(idle, idle.token, "--read-only", era=era)

    async def converse(client: Client) -> tuple[set[str], str]:
        names = {tool.name for tool in (await client.list_tools()).tools}
        return names, (await client.call_tool("stop_training", {"run": run})).content[0].text

    names, refused = looking.ask(converse)
    assert "get_status" in names
    assert not names & {"start_training", "stop_training", "delete_run", "create_token", "evaluate_policy"}
    assert "needs the role operator" in refused


@pytest.mark.parametrize(
    "uri", ["runs://list", "run://measured/status", "run://measured/secrets", "file:///etc/passwd"]
)
def test_resources_are_asked_for_permission_too(idle: Served, run: str, monkeypatch: Any, uri: str) -> None:
    server = mcp.create_server(idle.control, lambda _: OWNER)
    monkeypatch.setattr("penstock.control.permissions.NEEDED", {})
    with pytest.raises(MCPError, match="nothing anybody may do here"):
        Assistant(lambda: Client(server)).ask(lambda client: client.read_resource(uri))


def test_without_a_principal_nothing_is_answered(idle: Served) -> None:
    assistant = Assistant(lambda: Client(mcp.create_server(idle.control, mcp.principal_of), mode="legacy"))
    with pytest.raises(Exception, match="no token"):
        assistant.ask(lambda client: client.list_tools())


def test_http_is_at_mcp_exactly_and_needs_a_token(idle: Served) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {idle.token}", "Accept": "application/json, text/event-stream"}
    url = f"{idle.address}/mcp"
    answer = httpx2.post(url, json=message, headers=headers)
    assert answer.status_code == 200
    assert len(answer.json()["result"]["tools"]) == len(mcp.OFFERS)
    assert "mcp-session-id" not in answer.headers
    assert (
        httpx2.post(url, json=message, headers=headers | {"Authorization": "Bearer pst_wrong"}).status_code
        == 401
    )
    assert httpx2.post(url, json=message).status_code == 401
    assert httpx2.get(url, headers=headers).status_code == 405
    assert httpx2.post(url, json=message, headers=headers | {"Host": "evil.example"}).status_code == 421
    assert (
        httpx2.post(url, json=message, headers=headers | {"Origin": "https://evil.example"}).status_code
        == 403
    )
    assert httpx2.post(url, json=message, headers=headers | {"Host": "localhost"}).status_code == 200
    assert (
        httpx2.post(url, content=b"{", headers=headers | {"Content-Type": "application/json"}).status_code
        == 400
    )
    assert (
        httpx2.post(url, json={**message, "params": {"x": "y" * (2 << 20)}}, headers=headers).status_code
        == 413
    )


# -- reading ---------------------------------------------------------------------------------------


def test_a_run_is_found_and_told(assistant: Assistant, run: str) -> None:
    listed = assistant.call("list_runs", search="measured")["runs"]
    assert [found["run"] for found in listed] == [run]
    status = assistant.call("get_status", run=run)
    assert (status["environment"], status["algorithm"]) == ("CartPole-v1", "ppo")
    assert "learning_rate" in status["live_settings"]
    assert "spec" not in status
    assert assistant.call("get_spec", run=run)["spec"]["environment"]["id"] == "CartPole-v1"


def test_metrics_are_few_numbers(assistant: Assistant, run: str) -> None:
    found = assistant.call("get_metrics", run=run)
    summary = {entry["name"]: entry for entry in found["summary"]}
    assert summary.keys() == {"charts/episodic_return", "losses/value_loss"}
    returns = summary["charts/episodic_return"]
    assert (returns["first"], returns["last"], returns["highest"], returns["trend"]) == (
        1,
        100,
        100,
        "rising",
    )
    assert returns["highest_at_step"] == 1000
    assert len(found["columns"]["steps"]) == 20
    assert "pace/lag" in found["names"]
    one = assistant.call("get_metrics", run=run, names=["pace/lag"], since=500, points=5)
    assert one["columns"].keys() == {"steps", "pace/lag"}
    assert len(one["columns"]["steps"]) == 5
    assert min(one["columns"]["steps"]) > 500


def test_logs_events_and_the_rest_are_told(assistant: Assistant, run: str) -> None:
    logs = assistant.call("get_logs", run=run, lines=2)
    assert logs["lines"] == ["learner: second", "learner: third"]
    assert assistant.call("get_logs", run=run, after=logs["next"])["lines"] == []
    assert assistant.call("list_events", run=run)["events"][-1]["event"] == "actor_restarted"
    for tool in ("list_states", "list_actors", "list_checkpoints", "list_evaluations"):
        assert isinstance(next(iter(assistant.call(tool, run=run).values())), list)


def test_runs_are_compared(assistant: Assistant, run: str) -> None:
    other = assistant.call("start_training", environment="CartPole-v1", seed=9)["runs"][0]["run"]
    found = assistant.call("compare_runs", runs=[run, other], metric="charts/episodic_return")
    assert found["ranking"][0]["label"] == run
    assert "seed" in {difference["path"] for difference in found["differences"]}


def test_what_can_be_trained_is_told(assistant: Assistant) -> None:
    found = assistant.call("list_environments", search="cartpole")
    assert "CartPole-v1" in {entry["id"] for entry in found["environments"]}
    assert assistant.call("get_environment", id="CartPole-v1")["action"] is not None
    names = {entry["name"] for entry in assistant.call("list_algorithms")["algorithms"]}
    assert {"ppo", "dqn", "sac"} <= names
    assert "learning_rate" in assistant.call("get_algorithm", name="ppo")["defaults"]
    assert "properties" in json.dumps(assistant.call("get_spec_schema")["json_schema"])
    spec = assistant.call("resolve_spec", spec={"environment": "CartPole-v1"})["spec"]
    assert spec["algorithm"] == "ppo"
    assert assistant.call("get_server")["checks"]["database"] == "ok"
    assert assistant.call("list_projects")["projects"]
    assert "groups" in assistant.call("list_groups")


def test_resources_are_json_of_the_same(assistant: Assistant, run: str) -> None:
    async def read(client: Client) -> dict[str, Any]:
        uris = ["runs://list", *(f"run://{run}/{word}" for word in ("status", "spec", "logs", "metrics"))]
        return {uri: json.loads((await client.read_resource(uri)).contents[0].text) for uri in uris}

    found = assistant.ask(read)
    assert run in {entry["run"] for entry in found["runs://list"]["runs"]}
    assert found[f"run://{run}/status"]["run"] == run
    assert found[f"run://{run}/logs"]["lines"][-1] == "learner: third"
    with pytest.raises(MCPError, match="Call list_runs"):
        assistant.ask(lambda client: client.read_resource("run://nowhere/status"))


def test_prompts_name_the_tools_to_use(assistant: Assistant) -> None:
    arguments = {
        "diagnose_run": {"run": "one"},
        "plan_sweep": {"environment": "CartPole-v1"},
        "compare_and_choose": {"runs": "a b"},
    }
    listed = assistant.ask(lambda client: client.list_prompts()).prompts
    assert {prompt.name for prompt in listed} == arguments.keys()
    for name, words in arguments.items():
        text = (
            assistant.ask(lambda client, name=name, words=words: client.get_prompt(name, words))
            .messages[0]
            .content.text
        )
        assert all(word in text for word in words.values())
        assert sum(offer.name in text for offer in mcp.OFFERS) >= 3


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("get_status", {"run": "measurde"}, ["did you mean 'measured'", "Call list_runs"]),
        ("get_status", {"run": "../../etc"}, ["Call list_runs"]),
        ("get_status", {}, ["run: Field required", "It takes: run"]),
        ("get_status", {"run": "measured", "verbose": True}, ["verbose: Extra inputs", "It takes: run"]),
        ("scale_actors", {"run": "measured", "actors": 99}, ["less than or equal to 16"]),
        ("get_environment", {"id": "CartPol-v1"}, ["list_environments"]),
        ("get_algorithm", {"name": "pppo"}, ["list_algorithms"]),
        ("get_command", {"id": "nothing"}, ["list_commands"]),
        ("get_evaluation", {"run": "measured", "id": "nothing"}, ["list_evaluations"]),
        ("evaluate_policy", {"run": "measured"}, ["no checkpoint", "list_checkpoints"]),
        ("get_logs", {"run": "measured", "process": "lerner"}, ["get_logs without `process`"]),
        ("start_training", {"environment": "CartPole-v1", "algorithm": "pppo"}, ["ppo", "list_algorithms"]),
        ("start_training", {"environment": "CartPole-v1", "settings": {"gamma": 1}}, ["name it too"]),
        ("start_training", {"environment": "CartPole-v1", "spec": {"pase": {}}}, ["pase", "resolve_spec"]),
        ("start_training", {"environment": "CartPole-v1", "spec": {"name": "x"}}, ["argument of its own"]),
        ("start_training", {"environment": "CartPole-v1", "name": "No Good"}, ["name", "pattern"]),
        ("start_training", {"environment": "CartPole-v1", "name": "measured"}, ["Choose another name"]),
        (
            "set_hyperparameters",
            {"run": "measured", "settings": {"lerning_rate": 1}},
            ["learning_rate", "live_settings"],
        ),
        ("set_hyperparameters", {"run": "measured", "settings": {}}, ["settings"]),
        ("label_run", {"run": "measured"}, ["Give project, tags or note"]),
        ("delete_run", {"run": "measured", "confirm": False}, ["nothing was deleted", "confirm=true"]),
        ("delete_run", {"run": "measured"}, ["confirm: Field required"]),
        ("revoke_token", {"id": "nothing"}, ["list_tokens"]),
        ("resolve_spec", {"spec": {}}, ["environment"]),
        ("list_runs", {"sort": "beauty"}, ["sort"]),
        ("compare_runs", {"runs": ["measured", "nowhere"]}, ["nowhere", "list_runs"]),
    ],
)
def test_an_error_says_what_to_do_next(
    assistant: Assistant, run: str, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    error = assistant.error(tool, **arguments)
    assert all(word in error for word in words), error
    assert len(error) < 1000


def test_a_wrong_role_is_told_which_is_needed(idle: Served) -> None:
    viewer = in_memory(idle.control, Principal("someone", Role.VIEWER))
    error = viewer.error("stop_training", run="measured")
    assert "needs the role operator" in error
    assert "Do not try again" in error


# -- steering --------------------------------------------------------------------------------------


def test_a_key_makes_two_calls_one(assistant: Assistant) -> None:
    first = assistant.call("start_training", environment="CartPole-v1", key="morning")
    again = assistant.call("start_training", environment="CartPole-v1", key="morning")
    assert first["runs"][0]["run"] == again["runs"][0]["run"]
    assert "used for another request" in assistant.error(
        "start_training", environment="Acrobot-v1", key="morning"
    )


def test_arguments_become_a_spec(assistant: Assistant) -> None:
    started = assistant.call(
        "start_training", environment="CartPole-v1", algorithm="ppo", actors=3, steps=5000, target=400, seed=4,
        settings={"learning_rate": 0.001}, spec={"pace": {"lead": 0}, "stop": {"window": 50}}, seeds=2,
        name="swarm", project="night", tags=["a", "b"], note="why",
    )  # fmt: skip
    assert [run["seed"] for run in started["runs"]] == [4, 5]
    assert {run["group"] for run in started["runs"]} == {started["group"]}
    first = started["runs"][0]
    assert (first["project"], first["tags"], first["note"]) == ("night", ["a", "b"], "why")
    spec = assistant.call("get_spec", run=first["run"])["spec"]
    assert spec["ppo"]["learning_rate"] == 0.001
    assert spec["actors"]["count"] == 3
    assert (spec["stop"]["steps"], spec["stop"]["target"], spec["stop"]["window"]) == (5000, 400, 50)
    assert spec["pace"]["lead"] == 0


def test_tokens_are_given_and_revoked(idle: Served, assistant: Assistant) -> None:
    given = assistant.call("create_token", name="robot", role="viewer", days=1)
    other = over_http(idle, given["token"])
    assert other.call("get_server")["version"]
    assert "token" not in next(
        entry for entry in assistant.call("list_tokens")["tokens"] if entry["id"] == given["id"]
    )
    assert assistant.call("revoke_token", id=given["id"])["revoked_at"] is not None
    with pytest.raises(Exception):  # noqa: B017 - whatever the SDK makes of a 401
        other.call("get_server")


def test_a_run_from_its_start_to_its_deletion(tmp_path: Path) -> None:
    """The whole story, over HTTP, with real processes."""
    with served(tmp_path, most_runs=4) as server:
        assistant = over_http(server, server.token)
        extra = {
            name: QUICK[name] for name in ("network", "evaluation", "tensorboard", "stop", "actors", "ppo")
        }
        started = assistant.call(
            "start_training", environment="CartPole-v1", algorithm="ppo", spec=extra, name="story"
        )
        assert started["runs"][0]["run"] == "story"

        def state() -> str:
            return str(assistant.call("get_status", run="story")["state"])

        def becomes(wanted: str) -> None:
            wait_for(lambda: state() == wanted, wanted, 90)

        becomes("running")
        wait_for(lambda: assistant.call("get_status", run="story")["updates"] > 3, "some updates", 90)
        changed = assistant.call("set_hyperparameters", run="story", settings={"learning_rate": 0.0005})
        assert changed["new"] == {"learning_rate": 0.0005}
        assert changed["old"]["learning_rate"] != 0.0005
        back = assistant.call("rollback_hyperparameters", run="story", command=changed["command"])
        assert back["new"] == changed["old"]
        assert assistant.call("scale_actors", run="story", actors=2)["new"]["actors"] == 2
        wait_for(lambda: len(assistant.call("list_actors", run="story")["actors"]) == 2, "two actors", 60)
        assert assistant.call("scale_learner", run="story", learner=0)["outcome"] == "applied"
        assert assistant.call("scale_learner", run="story", learner=1)["outcome"] == "applied"
        assistant.call("save_checkpoint", run="story")
        wait_for(lambda: assistant.call("list_checkpoints", run="story")["checkpoints"], "a checkpoint", 60)
        evaluated = assistant.call(
            "evaluate_policy", run="story", checkpoint="newest", episodes=2, wait_seconds=120
        )
        assert evaluated["state"] == "done", evaluated
        assert evaluated["lowest"] <= evaluated["mean"] <= evaluated["highest"]
        assert assistant.call("get_evaluation", run="story", id=evaluated["id"])["mean"] == evaluated["mean"]
        quick = assistant.call(
            "evaluate_policy", run="story", checkpoint="newest", episodes=2, wait_seconds=0
        )
        assert quick["state"] in ("queued", "running", "done")
        fork = assistant.call(
            "fork_run", run="story", at="newest", changes={"ppo.learning_rate": 0.0001}, name="branch"
        )
        assert fork["runs"][0]["run"] == "branch"
        assistant.call("pause_training", run="story")
        becomes("paused")
        assistant.call("resume_training", run="story")
        becomes("running")
        assert "stop_training" in assistant.error("delete_run", run="story", confirm=True)
        assistant.call("label_run", run="story", tags=["told"], note="a story")
        assert assistant.call("list_runs", tag="told")["runs"][0]["note"] == "a story"
        assistant.call("stop_training", run="story")
        assistant.call("stop_training", run="branch")
        becomes("stopped")
        verbs = {
            entry["verb"] for entry in assistant.call("list_commands", run="story", limit=100)["commands"]
        }
        assert {
            "start",
            "set",
            "scale",
            "checkpoint",
            "evaluate",
            "pause",
            "resume",
            "label",
            "stop",
        } <= verbs
        told = assistant.call("delete_run", run="story", confirm=True)
        assert assistant.call("get_command", id=told["command"])["who"] == "owner"
        wait_for(
            lambda: "story" not in {entry["run"] for entry in assistant.call("list_runs")["runs"]},
            "the run to be gone",
        )
        assert "Call list_runs" in assistant.error("get_status", run="story")


def test_one_who_waits_for_an_evaluation_hears_of_it(idle: Served, run: str) -> None:
    """In memory, where progress has a way to the client; nobody evaluates on this server."""
    checkpoint = idle.control.home / "runs" / run / "checkpoints" / "1.1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "checkpoint.json").write_text("{}")
    heard: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(done)

    def ask(client: Client) -> Any:
        arguments = {"run": run, "wait_seconds": 1.5}
        return client.call_tool("evaluate_policy", arguments, progress_callback=progress)

    found = in_memory(idle.control).ask(ask).structured_content
    assert heard
    assert found["state"] != "done"
    assert found["state"] == "failed" or "get_evaluation" in found["next_step"]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10], "rising"),
        ([10.0, 9, 8, 7, 6, 5, 4, 3, 2, 1], "falling"),
        ([0.0, 100, 50, 51, 50, 51, 50, 51, 50, 51], "flat"),
        ([3.0] * 10, "flat"),
        ([1.0, 2], "unknown"),
        ([None] * 10, "unknown"),
        ([], "unknown"),
    ],
)
def test_a_trend_is_a_change_that_matters(values: list[float | None], trend: str) -> None:
    steps: list[float | None] = [float(step) for step in range(len(values))]
    assert summarise("x", steps, values).trend == trend


def test_thinning_keeps_both_ends() -> None:
    assert thinned([float(number) for number in range(100)], 3) == [0, 50, 99]
    assert thinned([1.0, 2.0], 5) == [1, 2]
    assert thinned([], 5) == []
