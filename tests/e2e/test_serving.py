"""How the page is served, and that what was built fits the server it is served by."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from penstock.server.page import FOLDER, Page

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    built = tmp_path / "page"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text('<meta name="csp-nonce" content="__NONCE__">')
    (built / "assets/index-abc.js").write_text("let x = 1;\n" * 100)
    (built / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("not for you")
    routes = [Route("/api/v1/health", lambda _: PlainTextResponse("the API"))]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(Page, folder=built)]))


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/runs/cartpole-k3v9", "/nowhere", "/index.html", "/a%00b", f"/{'x' * 300}"]
)
def test_addresses_of_the_page_get_its_index_with_a_fresh_nonce(client: TestClient, path: str) -> None:
    first, second = client.get(path), client.get(path)
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-cache"
    nonce = first.text.split('content="')[1].split('"')[0]
    assert f"'nonce-{nonce}'" in first.headers["content-security-policy"]
    assert "unsafe" not in first.headers["content-security-policy"]
    assert first.text != second.text


def test_files_with_a_hash_are_kept_and_squeezed(client: TestClient) -> None:
    answer = client.get("/assets/index-abc.js")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.startswith("let x")
    plain = client.get("/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == answer.text
    assert client.get("/icon.svg").headers["content-type"].startswith("image/svg")


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt", "//secret.txt"]
)
def test_nothing_outside_the_folder_is_served(client: TestClient, path: str) -> None:
    assert "not for you" not in client.get(path).text


def test_the_api_is_not_the_pages(client: TestClient) -> None:
    assert client.get("/api/v1/health").text == "the API"
    assert client.get("/api/v1/nothing").status_code == 404
    assert client.get("/mcp").status_code == 404
    assert client.post("/runs").status_code == 404
    assert client.get("/assets/old-hash.js").status_code == 404


def test_without_a_build_it_says_how_to_make_one(tmp_path: Path) -> None:
    client = TestClient(Starlette(middleware=[Middleware(Page, folder=tmp_path)]))
    answer = client.get("/runs")
    assert answer.status_code == 503
    assert "make page" in answer.text


def test_the_pages_types_are_those_of_this_server(tmp_path: Path) -> None:
    """Stale? python -m tests.e2e.openapi && cd ui && npm run types"""
    from tests.e2e.openapi import PLACE, document

    assert json.loads(PLACE.read_text()) == document(tmp_path), "ui/openapi.json is stale: see the docstring"


def test_a_wheel_holds_the_page(tmp_path: Path) -> None:
    assert (FOLDER / "index.html").exists(), "the page is not built: make page"
    words: list[Any] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "penstock/server/page/index.html" in names
    assert any(name.startswith("penstock/server/page/assets/index-") for name in names)
