"""The breaker in front of the sidecar, with a clock of the test's own."""

from __future__ import annotations

from turnout_addon.sidecar_client import Breaker


def test_it_opens_after_failures_in_a_row_and_lets_one_probe_through_a_period() -> None:
    breaker = Breaker(failures=3, rest_s=2.0)
    for now in (0.0, 0.1, 0.2):
        assert breaker.allows(now)
        breaker.failed(now)
    assert not breaker.allows(0.3)
    assert not breaker.allows(2.1)
    assert breaker.allows(2.2)  # the probe
    assert not breaker.allows(2.3)
    breaker.failed(2.4)
    assert not breaker.allows(4.3)
    assert breaker.allows(4.4)
    breaker.succeeded()
    assert breaker.allows(4.5)
    assert breaker.allows(4.6)


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(failures=2)
    breaker.failed(0.0)
    breaker.succeeded()
    breaker.failed(1.0)
    assert breaker.allows(1.1)
    breaker.failed(1.2)
    assert not breaker.allows(1.3)
