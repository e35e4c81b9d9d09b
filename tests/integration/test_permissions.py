"""Nothing without permission: every route and every role, and forty ways to come from the wrong place."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from fastapi.routing import APIRoute

from penstock.control.feed import KINDS
from penstock.control.permissions import NEEDED, Role
from penstock.server.app import create_app
from penstock.server.grpc_auth import OPERATIONS
from penstock.server.hosts import LOOPBACK
from penstock.server.rest.parts import GuardedRoute
from penstock.server.watch_talk import OPERATION
from tests.integration.serving import Served, served

NOBODY = "nobody"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("home"), origins=("https://studio.example",)) as running:
        yield running


@pytest.fixture(scope="module")
def clients(server: Served) -> Iterator[dict[str, httpx2.Client]]:
    made = {NOBODY: server.client("")} | {str(role): server.client(server.token_of(role)) for role in Role}
    yield made
    for client in made.values():
        client.close()


def routes(server: Served) -> list[APIRoute]:
    """The table of the application as it is, not a list somebody keeps."""
    app = create_app(server.control, allowed_hosts=LOOPBACK)
    return [route for route in app.routes if isinstance(route, APIRoute)]


def test_every_route_asks_every_role(server: Served, clients: dict[str, httpx2.Client]) -> None:
    asked = set()
    for route in routes(server):
        path = re.sub(r"\{[^}]*\}", "nothing-here", route.path).removeprefix("/api/v1")
        for method in route.methods:
            for who, client in clients.items():
                answer = client.request(method, path)
                case = f"{method} {path} by {who}: {answer.status_code} {answer.text[:200]}"
                if route.name == "get_health":
                    assert answer.status_code == 200, case
                elif who == NOBODY:
                    assert answer.status_code == 401, case
                    assert answer.headers["www-authenticate"].startswith("Bearer"), case
                elif Role(who).rank < NEEDED[route.name].rank:
                    assert answer.status_code == 403, case
                else:
                    assert answer.status_code not in (401, 403, 405, 500), case
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == "application/problem+json", case
        asked.add(route.name)
    feeds = {*KINDS.values(), OPERATION, *OPERATIONS.values()}  # test_live, test_watch, test_gateway ask those
    assert asked == NEEDED.keys() - feeds | {"get_health"}


def test_every_route_is_a_guarded_one_named_after_its_operation(server: Served) -> None:
    for route in routes(server):
        assert isinstance(route, GuardedRoute)
        assert route.operation_id == route.name


def test_a_route_without_permission_cannot_be_made() -> None:
    def format_disk() -> None: ...

    with pytest.raises(LookupError, match=r"format_disk is not in control/permissions\.py"):
        GuardedRoute("/disk", format_disk)


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/api/v1/nothing", "/mcp", "/api/v1/docs", "/api/v1/openapi.json"]
)
def test_what_is_no_route_needs_a_token_too(server: Served, path: str) -> None:
    assert httpx2.get(server.address + path).status_code == 401
    assert httpx2.post(server.address + path).status_code == 401


def test_permission_is_asked_before_anything_is_read(clients: dict[str, httpx2.Client]) -> None:
    answer = clients["viewer"].post(
        "/runs", content=b"{no json", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 403


# -- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "pst_abc", "Basic cHN0OmFiYw==", "Bearer pst_wrong", "Token pst_abc", "bearer  ",
     "Bearer " + "x" * 5000, "Bearer pst_\xff\xfe", "Bearer pst_a pst_b"],
)  # fmt: skip
def test_what_is_no_token_is_refused(server: Served, header: str) -> None:
    raw = (
        b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
        + header.encode("latin-1")
        + b"\r\n\r\n"
    )
    assert status(server.raw(raw)) == 401


def test_two_tokens_are_none(server: Served) -> None:
    line = f"Authorization: Bearer {server.token}\r\n"
    assert (
        status(server.raw(f"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n{line}{line}\r\n".encode()))
        == 401
    )


@pytest.mark.parametrize("name", ["token", "access_token", "Authorization", "api_key"])
def test_a_token_in_a_url_is_refused_with_the_reason(server: Served, name: str) -> None:
    answer = httpx2.get(f"{server.address}/api/v1/runs", params={name: server.token})
    assert answer.status_code == 400
    assert "logs" in answer.json()["detail"]
    assert server.token not in answer.text


def test_a_token_hidden_in_any_parameter_is_refused(server: Served) -> None:
    with server.client() as client:
        assert client.get("/runs", params={"search": server.token}).status_code == 400


def test_a_revoked_token_ends_at_once(server: Served) -> None:
    with server.client() as owner:
        made = owner.post("/tokens", json={"name": "for a moment"}).json()
        with server.client(made["token"]) as client:
            assert client.get("/runs").status_code == 200
            assert owner.delete(f"/tokens/{made['id']}").json()["revoked_at"] is not None
            refused = client.get("/runs")
        assert refused.status_code == 401
        assert "revoked" in refused.json()["detail"]


def test_an_expired_token_is_refused(server: Served) -> None:
    token = server.token_of("admin", days=1e-9)
    with server.client(token) as client:
        refused = client.get("/runs")
    assert refused.status_code == 401
    assert "expired" in refused.json()["detail"]


def test_a_secret_is_shown_once(server: Served) -> None:
    with server.client() as owner:
        made = owner.post("/tokens", json={"name": "grafana", "role": "viewer", "days": 30}).json()
        assert made["token"] not in owner.get("/tokens").text
        assert made["token"] not in owner.get("/commands").text


def test_no_token_reaches_a_log(server: Served, capfd: pytest.CaptureFixture[str]) -> None:
    made = server.token_of("operator")
    with server.client(made) as client:
        client.post("/runs", content=b"{", headers={"Content-Type": "application/json"})
        client.get("/runs", params={"token": made})
        client.get("/tokens")
    server.raw(f"GET /?token={made} HTTP/9.9\r\nAuthorization: Bearer {made}\r\n\r\n".encode())
    said = capfd.readouterr()
    assert made not in said.out + said.err
    for file in server.control.home.rglob("*"):
        assert not file.is_file() or made.encode() not in file.read_bytes(), file


# -- Host and Origin ------------------------------------------------------------------------------

WRONG_HOSTS = [
    "evil.example", "evil.example:{port}", "localhost.evil.example", "evil.localhost", "localhost.",
    "localhost.:{port}",
    "127.0.0.1.evil.example", "127.0.0.1.nip.io", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.01",
    "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "::1", "[::1", "[::1%25lo]", "[::2]", "127.0.0.2", "localhost:",
    "localhost:0",
    "localhost:99999", "localhost:http", "localhost:{port}:{port}", "user@localhost", "localhost@evil.example",
    "user:pw@localhost:{port}", "localhost:{port}@evil.example", "localhost/", "http://localhost",
    "localhost,evil.example",
    "localhost evil.example", "localhost\\evil.example", "localhost%2eevil.example", "*", "", "studio.example",
    "l\xf6calhost",
    "localhost;evil", "localhost?x", "localhost#x",
]  # fmt: skip
WRONG_ORIGINS = [
    "null", "", "http://evil.example", "https://evil.example", "http://localhost.evil.example:{port}",
    "http://localhost",
    "https://localhost:{port}", "http://localhost:1", "http://127.0.0.1:{port}", "http://[::1]:{port}",
    "localhost:{port}",
    "http://localhost:{port}/", "http://user@localhost:{port}", "file://", "chrome-extension://abc",
    "http://studio.example",
    "https://studio.example.evil.example", "https://studio.example:444",
    "https://evil.example/https://studio.example",
    "http://localhost:{port} http://evil.example", "HTTP:/localhost:{port}",
]  # fmt: skip


def request(server: Served, hosts: list[str], origins: list[str], upgrade: bool = False) -> bytes:
    lines = [f"Host: {host}" for host in hosts] + [f"Origin: {origin}" for origin in origins]
    path = "/api/v1/live" if upgrade else "/api/v1/runs"
    if upgrade:
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]  # fmt: skip
    lines += [f"Authorization: Bearer {server.token}"]
    text = f"GET {path} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return text.replace("{port}", str(server.port)).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
@pytest.mark.parametrize("host", WRONG_HOSTS)
def test_a_wrong_host_is_refused(server: Served, host: str, upgrade: bool) -> None:
    assert status(server.raw(request(server, [host], [], upgrade))) in (400, 421)


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"], ["evil.example", "localhost"]]
)
def test_no_host_and_two_hosts_are_refused(server: Served, hosts: list[str], upgrade: bool) -> None:
    assert status(server.raw(request(server, hosts, [], upgrade))) in (400, 421)


def test_an_old_request_without_host_is_refused(server: Served) -> None:
    line = f"GET /api/v1/runs HTTP/1.0\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    assert status(server.raw(line.encode())) in (400, 421)


def test_a_proxys_word_for_the_host_counts_nothing(server: Served) -> None:
    claims = "X-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n"
    token = f"Authorization: Bearer {server.token}\r\n"
    line = f"GET /api/v1/runs HTTP/1.1\r\nHost: evil.example\r\n{claims}{token}\r\n"
    assert status(server.raw(line.encode())) == 421


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
@pytest.mark.parametrize("origin", WRONG_ORIGINS)
def test_a_wrong_origin_is_refused(server: Served, origin: str, upgrade: bool) -> None:
    assert status(server.raw(request(server, ["localhost:{port}"], [origin], upgrade))) == 403


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
def test_two_origins_are_refused(server: Served, upgrade: bool) -> None:
    origins = ["http://localhost:{port}", "http://localhost:{port}"]
    assert status(server.raw(request(server, ["localhost:{port}"], origins, upgrade))) in (400, 403)


@pytest.mark.parametrize(
    "path", ["/api/v1/health", "/mcp", "/api/v1/live", "/api/v1/watch", "/api/v1/openapi.json", "/nothing"]
)
def test_every_path_asks_for_host_and_origin(server: Served, path: str) -> None:
    assert httpx2.get(server.address + path, headers={"Host": "evil.example"}).status_code == 421
    assert httpx2.get(server.address + path, headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost", None),
        ("localhost:{port}", None),
        ("LOCALHOST:{port}", None),
        ("127.0.0.1:{port}", None),
        ("[::1]:{port}", None),
        ("localhost:{port}", "http://localhost:{port}"),
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}"),
        ("[::1]:{port}", "http://[::1]:{port}"),
        ("localhost", "http://localhost"),
        ("localhost:{port}", "https://studio.example"),
        ("localhost:{port}", "https://studio.example:443"),
    ],
)
def test_the_right_host_and_origin_are_heard(
    server: Served, host: str, origin: str | None, upgrade: bool
) -> None:
    answer = server.raw(request(server, [host], [origin] if origin else [], upgrade))
    assert status(answer) == (101 if upgrade else 200)


def test_an_allowed_page_may_ask_whether_it_may_send_a_token(server: Served) -> None:
    question = {"Origin": "https://studio.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
    answer = httpx2.options(f"{server.address}/api/v1/runs", headers=question)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://studio.example"
    refused = httpx2.options(
        f"{server.address}/api/v1/runs", headers=question | {"Origin": "https://evil.example"}
    )
    assert refused.status_code == 403
