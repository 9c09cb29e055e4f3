"""mitmweb's memory stays bounded."""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.test import tflow

from turnout_addon.keeping import Keeper


class View:
    def __init__(self) -> None:
        self.removed: list[http.HTTPFlow] = []

    def remove(self, flows: list[http.HTTPFlow]) -> None:
        self.removed += flows


def flow_of(size: int) -> http.HTTPFlow:
    flow = tflow.tflow(resp=True)
    flow.request.raw_content = b""
    assert flow.response is not None
    flow.response.raw_content = b"x" * size
    return flow


def test_the_oldest_leave_when_there_are_too_many() -> None:
    view = View()
    keeper = Keeper(view, max_flows=3, max_bytes=1_000)
    flows = [flow_of(1) for _ in range(5)]
    for flow in flows:
        keeper.finished(flow)
    assert view.removed == flows[:2]


def test_bytes_count_too_and_a_flow_larger_than_all_room_leaves_at_once() -> None:
    view = View()
    keeper = Keeper(view, max_flows=100, max_bytes=100)
    small, large, huge = flow_of(40), flow_of(70), flow_of(200)
    keeper.finished(small)
    keeper.finished(large)
    assert view.removed == [small]
    keeper.finished(huge)
    assert view.removed == [small, large, huge]
    keeper.finished(flow_of(40))
    assert len(view.removed) == 3


def test_smaller_limits_count_at_once() -> None:
    view = View()
    keeper = Keeper(view, max_flows=10, max_bytes=1_000)
    flows = [flow_of(100) for _ in range(6)]
    for flow in flows:
        keeper.finished(flow)
    keeper.limit(4, 1_000)
    assert view.removed == flows[:2]
    keeper.limit(4, 150)
    assert view.removed == flows[:5]
