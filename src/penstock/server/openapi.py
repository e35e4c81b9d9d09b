"""The API's own description: FastAPI's, with what the layers around it promise written in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic_core import from_json, to_json

from penstock import __version__
from penstock.config.schema import schema
from penstock.control.permissions import NEEDED
from penstock.server.problems import KINDS, MEDIA_TYPE, Problem
from penstock.server.rest.parts import OPEN

SCHEME = "token"
REF = "#/components/schemas/"
JSON = "application/json"
SPEC = "Spec"

ALWAYS = (400, 421, 500, 503)
GUARDED = (401, 403, 429)
HEADERS: dict[int, dict[str, str]] = {
    201: {"Location": "Where to see it."},
    202: {"Location": "Where to see what becomes of it."},
    401: {"WWW-Authenticate": "Bearer."},
    429: {"Retry-After": "Seconds to wait."},
    503: {"Retry-After": "Seconds to wait."},
}
UNLOCATED = frozenset({"create_token"})
"""Operations that make something which has no page of its own."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "start_training": {
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "stop": {"steps": 50000},
        "tags": ["first"],
    },
    "resolve_spec": {"environment": "CartPole-v1"},
    "resume_training": {"stop": {"steps": 200000}},
    "scale_actors": {"actors": 4},
    "scale_learner": {"learner": 0},
    "set_hyperparameters": {"settings": {"learning_rate": 0.0001}},
    "rollback_hyperparameters": {},
    "evaluate_policy": {"checkpoint": "best", "episodes": 20},
    "fork_run": {"at": "best", "changes": {"ppo.learning_rate": 0.0001}},
    "label_run": {"project": "lander", "tags": ["baseline"], "note": "before the new reward"},
    "create_token": {"name": "grafana", "role": "viewer", "days": 90},
}


def describe(app: FastAPI) -> bytes:
    """The OpenAPI 3.1 document, as JSON."""
    document = get_openapi(title="Penstock", version=__version__, description=_text(), routes=app.routes)
    parts = document["components"]
    parts["schemas"] = _schemas(parts["schemas"])
    parts["responses"] = {f"{status}": _problem(status) for status in KINDS}
    parts["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "description": "A token: pst_… (penstock token create)."}
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(operation, method, path)
    return to_json(document)


def _schemas(found: dict[str, Any]) -> dict[str, Any]:
    """What FastAPI found, with problems as they are here, and with the spec written out."""
    for unused in ("HTTPValidationError", "ValidationError"):
        found.pop(unused, None)
    problem = Problem.model_json_schema(ref_template=REF + "{model}")
    spec = from_json(to_json(schema()).replace(b"#/$defs/", REF.encode()))
    spec.pop("$schema")
    found |= problem.pop("$defs", {}) | spec.pop("$defs") | {"Problem": problem, SPEC: spec}
    start = found["StartRequest"]
    start["properties"] = {**spec["properties"], **start["properties"]} | {
        "environment": spec["properties"]["environment"]
    }
    start["additionalProperties"] = False  # the spec refuses what it does not know
    found["ResumeRequest"]["properties"]["stop"] = {"$ref": REF + "StopSpec"}
    for name, part in found.items():
        if name.endswith(("Request", SPEC)):
            _without_zero(part)
    return found


def _problem(status: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": KINDS[status][1],
        "content": {MEDIA_TYPE: {"schema": {"$ref": REF + "Problem"}}},
    }
    return found | _headers(status)


def _headers(status: int) -> dict[str, Any]:
    named = HEADERS.get(status, {})
    shown = {name: {"description": text, "schema": {"type": "string"}} for name, text in named.items()}
    return {"headers": shown} if shown else {}


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    """Security, every error it can answer with, headers and an example."""
    name, responses = operation["operationId"], operation["responses"]
    operation["security"] = [] if name == OPEN else [{SCHEME: []}]
    if name != OPEN:
        operation["description"] += f"\n\nNeeds the role {NEEDED[name]}."
    for parameter in operation.get("parameters", ()):
        _without_null(parameter["schema"])
        _without_zero(parameter["schema"])
    for status in (200, 201, 202):
        if str(status) in responses and name not in UNLOCATED:
            responses[str(status)] |= _headers(status)
    if name == "get_status":
        responses["200"]["headers"] = {
            "ETag": {"description": "The run's revision.", "schema": {"type": "string"}}
        }
        responses["304"] = {"description": "It is still as If-None-Match says."}
    responses |= {
        str(status): {"$ref": f"#/components/responses/{status}"}
        for status in _errors(operation, method, path)
    }
    if name in EXAMPLES:
        operation["requestBody"]["content"][JSON]["example"] = EXAMPLES[name]
    if name in ("get_spec", "resolve_spec"):
        responses["200"]["content"][JSON]["schema"] = {"$ref": REF + SPEC}
    if name == "resolve_spec":
        operation["requestBody"]["content"][JSON]["schema"] = {"$ref": REF + SPEC}


def _without_null(schema: dict[str, Any]) -> None:
    """A parameter that is left out is not sent as null: there is no null in a URL."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema |= kinds[0]


def _without_zero(schema: Any) -> None:
    """No text that is sent may hold a zero character."""
    if isinstance(schema, dict):
        if schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const"}:
            schema["pattern"] = r"^[^\u0000]*$"
        for part in schema.values():
            _without_zero(part)
    elif isinstance(schema, list):
        for part in schema:
            _without_zero(part)


def _errors(operation: dict[str, Any], method: str, path: str) -> set[int]:
    found = {*ALWAYS} | (set() if operation["operationId"] == OPEN else {*GUARDED})
    if operation.get("parameters"):
        found.add(422)
    if "{" in path or operation["operationId"] in ("compare_runs", "list_commands", "list_runs"):
        found.add(404)
    if "requestBody" in operation:
        found |= {413, 415, 422}
    if method in ("post", "delete", "patch"):
        found |= {409, 413, 415}
    if any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", ())):
        found.add(412)
    return found


def _text() -> str:
    """For people: what holds everywhere."""
    kinds = "\n".join(
        f"| `/problems/{kind}` | {status} | {title} |" for status, (kind, title) in KINDS.items()
    )
    return f"""Start, watch and steer training runs.

Every request but `GET /api/v1/health` needs the header `Authorization: Bearer pst_…`. A token never goes into a URL.

A verb is accepted (202) once its command is safe in the log; what becomes of it shows in the run and in `/commands`.
Send an `Idempotency-Key` to be able to repeat a request without repeating its effect.

Lists come in pages: pass `next` as `cursor` to get the following one.

Errors are RFC 9457 problem details (`application/problem+json`); `detail` names the place and the fix.

| type | status | title |
|---|---|---|
{kinds}
"""
