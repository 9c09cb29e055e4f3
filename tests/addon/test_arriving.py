"""Requests that do not arrive are cut off; those that do are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from mitmproxy import connection, http
from mitmproxy.test import tflow

from turnout_addon.arriving import ArrivalDeadlines

Steps = Callable[[ArrivalDeadlines, http.HTTPFlow], None]


def never_speaks(deadlines: ArrivalDeadlines, flow: http.HTTPFlow) -> None:
    deadlines.connected(flow.client_conn)


def body_stops(deadlines: ArrivalDeadlines, flow: http.HTTPFlow) -> None:
    deadlines.connected(flow.client_conn)
    deadlines.begun(flow)


def arrives(deadlines: ArrivalDeadlines, flow: http.HTTPFlow) -> None:
    body_stops(deadlines, flow)
    deadlines.arrived(flow)


def is_a_tunnel(deadlines: ArrivalDeadlines, flow: http.HTTPFlow) -> None:
    deadlines.connected(flow.client_conn)
    deadlines.tunnelled(flow.client_conn)


def leaves(deadlines: ArrivalDeadlines, flow: http.HTTPFlow) -> None:
    body_stops(deadlines, flow)
    deadlines.gone(flow.client_conn)


@pytest.mark.parametrize(
    ("steps", "is_cut"),
    [
        (never_speaks, True),
        (body_stops, True),
        (arrives, False),
        (is_a_tunnel, False),
        (leaves, False),
    ],
)
async def test_who_is_cut_off(steps: Steps, is_cut: bool) -> None:
    cut: list[connection.Client] = []
    deadlines = ArrivalDeadlines(cut.append, head_s=0.02, body_s=0.02)
    flow = tflow.tflow()
    steps(deadlines, flow)
    await asyncio.sleep(0.1)
    assert cut == ([flow.client_conn] if is_cut else [])
    assert not deadlines._bodies or is_cut
