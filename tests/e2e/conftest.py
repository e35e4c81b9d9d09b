"""One server and one browser for a file of tests; each test has a tab of its own."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.browser import Tab, chromium, open_tab
from tests.servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def tab(server: Server, shared_browser: Browser) -> Iterator[Tab]:
    """Not signed in yet."""
    with open_tab(shared_browser, server.address) as opened:
        yield opened
        assert opened.complaints == []
