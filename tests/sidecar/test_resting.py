"""When a failing target is left alone, and when one request may probe it."""

from __future__ import annotations

from turnout_sidecar.resting import MAX_ASKED_REST_S, MAX_TARGETS, Resting


def failing_until_it_rests(cooldown_s: float = 10.0) -> Resting:
    resting = Resting(cooldown_s)
    for _ in range(3):
        assert resting.admit("a/m", 0.0)
        resting.failed("a/m", 0.0)
    return resting


def test_two_failures_do_not_make_a_target_rest() -> None:
    resting = Resting(10.0)
    resting.failed("a/m", 0.0)
    resting.failed("a/m", 0.0)
    assert resting.admit("a/m", 0.0)


def test_the_third_failure_in_a_row_does() -> None:
    resting = failing_until_it_rests()
    assert not resting.admit("a/m", 9.9)
    assert resting.rest_left_s("a/m", 4.0) == 6.0
    assert resting.admit("b/m", 9.9)


def test_a_success_in_between_starts_the_count_again() -> None:
    resting = Resting(10.0)
    resting.failed("a/m", 0.0)
    resting.failed("a/m", 0.0)
    resting.succeeded("a/m")
    resting.failed("a/m", 0.0)
    assert resting.admit("a/m", 0.0)


def test_after_the_rest_exactly_one_request_probes() -> None:
    resting = failing_until_it_rests()
    assert resting.admit("a/m", 10.0)
    assert not resting.admit("a/m", 10.0)


def test_a_good_probe_heals_and_a_bad_one_doubles_the_rest() -> None:
    healed = failing_until_it_rests()
    healed.admit("a/m", 10.0)
    healed.succeeded("a/m")
    assert healed.admit("a/m", 10.0)
    assert healed.admit("a/m", 10.0)

    worse = failing_until_it_rests()
    worse.admit("a/m", 10.0)
    worse.failed("a/m", 10.0)
    assert not worse.admit("a/m", 29.9)
    assert worse.admit("a/m", 30.0)


def test_an_abandoned_probe_lets_the_next_one_out() -> None:
    resting = failing_until_it_rests()
    resting.admit("a/m", 10.0)
    resting.abandoned("a/m")
    assert resting.admit("a/m", 10.0)


def test_retry_after_is_a_rest_at_once_within_reason() -> None:
    resting = Resting(10.0)
    resting.failed("a/m", 0.0, retry_after_s=7.0)
    assert resting.is_asked("a/m")
    assert not resting.admit("a/m", 6.9)
    assert resting.admit("a/m", 7.0)
    resting.failed("b/m", 0.0, retry_after_s=1e9)
    assert resting.rest_left_s("b/m", 0.0) == MAX_ASKED_REST_S


def test_an_upstreams_own_cooldown_counts() -> None:
    resting = Resting(10.0)
    for _ in range(3):
        resting.failed("a/m", 0.0, cooldown_s=2.0)
    assert resting.admit("a/m", 2.0)


def test_memory_is_bounded() -> None:
    resting = Resting(10.0)
    for number in range(MAX_TARGETS + 50):
        resting.failed(f"a/{number}", 0.0, retry_after_s=5.0)
    assert len(resting.resting(0.0)) == MAX_TARGETS
