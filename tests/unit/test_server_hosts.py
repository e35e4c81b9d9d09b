"""Host and Origin headers: what is not exactly one of ours is nobody's."""

import socket

import pytest

from penstock.server.hosts import LOOPBACK, Authority, Names, authority, names_of, origin

NAMES = Names([*LOOPBACK, "penstock.example:8443"], ["https://Studio.example"])


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", None),
        ("LocalHost:8080", "localhost", 8080),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:8080", "[::1]", 8080),
        ("[0:0:0:0:0:0:0:1]", "[::1]", None),
        ("a-b.example.org:65535", "a-b.example.org", 65535),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str, port: int | None) -> None:
    assert authority(text) == Authority(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ":", ":80", "localhost:", "localhost:0", "localhost:65536", "localhost:999999", "localhost:-1",
        "localhost:80:80", "localhost:8o", "localhost.", ".localhost", "local..host", "localhost ", " localhost",
        "user@localhost", "localhost@evil.example", "localhost/", "localhost/path", "localhost?x", "localhost#x",
        "localhost\\evil.example", "http://localhost", "localhost,evil.example", "localhost evil.example", "::1",
        "[::1", "::1]", "[::1]x", "[::1%25lo]", "[::ffff:127.0.0.1", "[1]", "[]", "127.1", "2130706433", "0x7f.1",
        "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "256.0.0.1", "löcalhost", "localhost\t", "localhost\r\nX: y",
        "localhost\0", "-localhost", "localhost-", "%6cocalhost",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_host_is_none(text: str) -> None:
    assert authority(text) is None


@pytest.mark.parametrize("text", ["null", "", "localhost", "file://localhost", "ftp://localhost", "http:/localhost",
                                  "http://localhost/", "http://u@localhost", "https://", "://localhost"])  # fmt: skip
def test_what_only_looks_like_an_origin_is_none(text: str) -> None:
    assert origin(text) is None


def test_an_origin_always_has_a_port() -> None:
    assert origin("HTTPS://Example.org") == ("https", Authority("example.org", 443))


def test_a_name_without_port_is_ours_on_every_port_and_one_with_port_on_that_one() -> None:
    assert NAMES.host(["localhost:1234"]) == Authority("localhost", 1234)
    assert NAMES.host(["penstock.example:8443"]) is not None
    assert NAMES.host(["penstock.example:8444"]) is None
    assert NAMES.host(["penstock.example"]) is None


def test_no_host_and_two_hosts_are_none_of_ours() -> None:
    assert NAMES.host([]) is None
    assert NAMES.host(["localhost", "localhost"]) is None


@pytest.mark.parametrize(
    ("origins", "may"),
    [
        ([], True),
        (["http://localhost:8080"], True),
        (["http://LOCALHOST:8080"], True),
        (["https://studio.example"], True),
        (["https://studio.example:443"], True),
        (["http://studio.example"], False),
        (["https://localhost:8080"], False),
        (["http://localhost:8081"], False),
        (["http://localhost"], False),
        (["http://127.0.0.1:8080"], False),
        (["null"], False),
        ([""], False),
        (["http://localhost:8080", "http://localhost:8080"], False),
    ],
)
def test_a_page_speaks_to_its_own_origin_only_or_is_allowed(origins: list[str], may: bool) -> None:
    assert NAMES.may_speak(origins, "http", Authority("localhost", 8080)) is may
    assert NAMES.may_speak(origins, "ws", Authority("localhost", 8080)) is may


def test_the_default_port_need_not_be_said() -> None:
    assert NAMES.may_speak(["http://localhost"], "http", Authority("localhost", None))
    assert NAMES.may_speak(["https://localhost:443"], "wss", Authority("localhost", None))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_server_on_loopback_is_called_by_loopbacks_names(host: str) -> None:
    assert names_of(host) == LOOPBACK


def test_a_server_everywhere_is_called_by_its_machines_name_too() -> None:
    assert names_of("0.0.0.0") == (*LOOPBACK, socket.gethostname().lower())


def test_a_server_elsewhere_has_its_own_name_too() -> None:
    assert names_of("Train.example") == (*LOOPBACK, "train.example")
    assert names_of("2001:db8::1") == (*LOOPBACK, "[2001:db8::1]")


@pytest.mark.parametrize("name", ["*", "http://localhost", "local host", ""])
def test_a_name_that_could_never_match_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ValueError, match="no host or origin"):
        Names([name], [])
