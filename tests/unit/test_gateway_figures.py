"""What clients tell of themselves takes little room, however much they send."""

from penstock import proto
from penstock.loop.gateway.figures import ClientFigures


def test_only_sums_are_kept() -> None:
    clients = ClientFigures()
    reasons = {f"reason {number}": 2 for number in range(1000)}
    for pid in (1, 2):
        clients.take("peer", proto.Figures(host="h" * 10_000, pid=pid, decisions=7, fallbacks=reasons, dropped=reasons,
                                           decision_p99_us=10.0 * pid, cpu_share=float("nan")))  # fmt: skip
    sums = clients.sums()
    assert (sums["gateway/clients"], sums["clients/decisions"]) == (2, 14)
    assert sums["clients/fallbacks"] == sums["clients/dropped"] == 4000
    assert (sums["clients/decision_p99_us"], sums["clients/cpu_share"]) == (20.0, 0.0)
    for (host, pid), (at, told) in clients._told.items():
        assert len(host) == 64
        assert all(isinstance(value, int | float) for value in (pid, at, *told)), (
            "a message would hold its maps"
        )
