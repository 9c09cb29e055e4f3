"""Who runs next and what makes room, without a process, a socket or a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from model_folders import LLAMA3_8B
from turnout_sidecar.planner import ModelFiles, Plan, Room, Wish, make_plan
from turnout_sidecar.planner.config_shape import shape_of_config
from turnout_sidecar.queueing import Line, QueueFull
from turnout_sidecar.schedule import Schedule, choose_victims, deadline
from turnout_sidecar.states import Memory, Moves, Standing, State, Ticket

GIB = 2**30


def ticket(backend: str = "a", at: float = 0.0, **fields: Any) -> Ticket:
    return Ticket(**{"backend": backend, "arrived": at, "timeout_s": 5.0, **fields})


def standing(name: str, state: State = State.STOPPED, **fields: Any) -> Standing:
    return Standing(**{"name": name, "state": state, "seats": 2, "need_bytes": GIB, **fields})


def advance(
    schedule: Schedule, *standings: Standing, free: int = 0, now: float = 0.0, guard: str = ""
) -> Moves:
    memory = Memory(free={"cpu": free}, guard=guard)
    return schedule.advance({s.name: s for s in standings}, memory, now)


def test_clients_take_turns() -> None:
    line = Line()
    for client, at in (("greedy", 0), ("greedy", 1), ("greedy", 2), ("modest", 3)):
        line.join(ticket(client=client, at=at), 10)
    taken = [line.take(4.0) for _ in range(4)]
    assert [t.client for t in taken if t] == ["greedy", "modest", "greedy", "greedy"]


def test_interactive_goes_before_batch() -> None:
    line = Line()
    line.join(ticket(client="b", is_batch=True), 10)
    line.join(ticket(client="i", at=1), 10)
    assert [t.client for t in (line.take(2.0), line.take(2.0)) if t] == ["i", "b"]


def test_batch_that_waits_long_gets_a_share() -> None:
    line = Line()
    line.join(ticket(client="b", is_batch=True), 100)
    for _ in range(20):
        line.join(ticket(client="i", at=1), 100)
    taken = [t.is_batch for _ in range(12) if (t := line.take(60.0))]
    assert taken.count(True) == 1


def test_the_line_is_bounded_and_batch_leaves_room_for_interactive() -> None:
    line = Line()
    line.join(ticket(is_batch=True), 2)
    with pytest.raises(QueueFull):
        line.join(ticket(is_batch=True), 2)
    line.join(ticket(), 2)
    with pytest.raises(QueueFull):
        line.join(ticket(), 2)


def test_the_position_counts_those_who_go_before() -> None:
    line = Line()
    tickets = [ticket(client=c, at=i) for i, c in enumerate("aaabb")]
    for t in tickets:
        line.join(t, 10)
    expected = {t: line.position(t) for t in tickets}
    order = [line.take(9.0) for _ in tickets]
    assert [expected[t] for t in order if t] == [0, 1, 2, 3, 4]


def test_at_most_its_seats_run() -> None:
    schedule = Schedule()
    ready = standing("a", State.READY)
    for i in range(5):
        schedule.join(ticket(at=i), ready)
    assert len(advance(schedule, ready).grant) == 2
    assert not advance(schedule, ready).grant


def test_an_idle_engine_makes_room_and_a_pinned_one_does_not() -> None:
    schedule = Schedule()
    stopped = standing("a")
    schedule.join(ticket("a"), stopped)
    old = standing("old", State.READY, last_used=1.0)
    new = standing("new", State.READY, last_used=2.0)
    assert advance(schedule, stopped, new, old, now=3.0).stop == ("old",)
    pinned = standing("old", State.READY, last_used=1.0, is_pinned=True)
    assert advance(schedule, stopped, new, pinned, now=3.0).stop == ("new",)
    assert advance(schedule, stopped, pinned, now=3.0).misfit == ("a",)


def test_nothing_is_called_hopeless_while_a_start_leaves_the_free_memory_unknown() -> None:
    schedule = Schedule()
    stopped = standing("a")
    schedule.join(ticket("a"), stopped)
    beginning = standing("b", State.STARTING, is_pinned=True)
    assert not advance(schedule, stopped, beginning).misfit
    settled = standing("b", State.READY, is_pinned=True)
    assert advance(schedule, stopped, settled).misfit == ("a",)


def test_no_second_engine_is_stopped_while_memory_is_on_its_way() -> None:
    schedule = Schedule()
    stopped = standing("a")
    schedule.join(ticket("a"), stopped)
    going = standing("b", State.STOPPING)
    idle = standing("c", State.READY)
    moves = advance(schedule, stopped, going, idle)
    assert not moves.stop
    assert not moves.start


def test_a_busy_engine_is_drained_after_its_turn_and_never_stopped_while_it_serves() -> None:
    schedule = Schedule(turn_s=2.0)
    busy, wanted = standing("busy", State.READY), standing("a")
    schedule.join(ticket("busy"), busy)
    schedule.join(ticket("busy", at=0.5), busy)
    schedule.join(ticket("busy", at=0.6), busy)
    served = advance(schedule, busy, wanted).grant
    schedule.join(ticket("a", at=1.0), wanted)
    early = advance(schedule, busy, wanted, now=2.0)
    assert not early.drain
    assert not early.stop
    late = advance(schedule, busy, wanted, now=3.1)
    assert late.drain == ("busy",)
    draining = standing("busy", State.DRAINING)
    assert not advance(schedule, draining, wanted, now=3.2).stop
    for t in served:
        schedule.release(t)
    assert advance(schedule, draining, wanted, now=3.3).stop == ("busy",)


def test_a_drain_ends_when_nobody_waits_for_the_room_any_more() -> None:
    schedule = Schedule(turn_s=2.0)
    busy, wanted = standing("busy", State.READY), standing("a")
    schedule.join(ticket("busy"), busy)
    advance(schedule, busy, wanted)
    claim = ticket("a")
    schedule.join(claim, wanted)
    assert advance(schedule, busy, wanted, now=5.0).drain == ("busy",)
    schedule.leave(claim)
    draining = standing("busy", State.DRAINING)
    assert advance(schedule, draining, wanted, now=5.1).resume == ("busy",)


def test_the_short_wait_counts_only_while_the_engine_is_ready() -> None:
    waiter = ticket(at=0.0, timeout_s=5.0, limit_s=300.0)
    assert deadline(waiter, standing("a", State.STARTING)) == 300.0
    assert deadline(waiter, standing("a", State.READY, ready_since=40.0)) == 45.0


def test_under_the_guard_nothing_begins_but_what_uses_no_memory_here() -> None:
    schedule = Schedule()
    ready, stopped = standing("a", State.READY), standing("b")
    remote = standing("r", State.READY, is_remote=True, need_bytes=0)
    for s in (ready, stopped, remote):
        schedule.join(ticket(s.name), s)
    moves = advance(schedule, ready, stopped, remote, free=9 * GIB, guard="swap")
    assert [t.backend for t in moves.grant] == ["r"]
    assert not moves.start


def test_sleep_is_preferred_to_stopping_where_it_is_allowed() -> None:
    schedule = Schedule()
    wanted = standing("a")
    schedule.join(ticket("a"), wanted)
    assert advance(schedule, wanted, standing("v", State.READY, can_sleep=True)).sleep == ("v",)


def test_engines_that_hold_more_than_planned_are_shed_down_to_one() -> None:
    schedule = Schedule()
    both = {n: standing(n, State.READY, last_used=i) for i, n in enumerate("ab")}
    memory = Memory(free={"cpu": -1}, over={"cpu": 1})
    assert schedule.advance(both, memory, 3.0).stop == ("a",)
    assert not schedule.advance({"b": both["b"]}, memory, 3.0).stop


def test_no_victim_is_chosen_in_vain() -> None:
    small = standing("small", need_bytes=1, last_used=1.0)
    large = standing("large", need_bytes=10, last_used=2.0)
    assert choose_victims(10, [small, large]) == (large,)
    assert choose_victims(12, [small, large]) is None


BUDGET = 16 * GIB
WISHES = st.builds(
    Wish,
    name=st.just("x"),
    engine=st.just("llamacpp"),
    max_num_seqs=st.integers(1, 4),
    context=st.sampled_from([512, 4_096, 16_384]),
)
WEIGHTS = st.integers(GIB // 2, 8 * GIB)


def planned(wish: Wish, weights: int, free: int = BUDGET) -> Plan:
    files = ModelFiles(weight_bytes=weights, shape=shape_of_config(LLAMA3_8B), source="")
    return make_plan(wish, files, Room("cpu", free))


class Machine(RuleBasedStateMachine):
    """A machine with four planned models and memory for some of them; engines start, serve and stop
    in any order that the rules below find. Planner and schedule alone decide."""

    @initialize(
        models=st.lists(st.tuples(WISHES, WEIGHTS), min_size=4, max_size=4),
        pinned=st.booleans(),
    )
    def build(self, models: list[tuple[Wish, int]], pinned: bool) -> None:
        self.budget = BUDGET
        self.models = dict(zip("abcd", models, strict=True))
        self.now = 0.0
        self.schedule = Schedule(turn_s=2.0)
        self.state = dict.fromkeys("abcd", State.STOPPED)
        self.need = {name: planned(*model).total_bytes for name, model in self.models.items()}
        self.is_pinned = pinned
        self.ready_since = dict.fromkeys("abcd", 0.0)
        self.used = dict.fromkeys("abcd", 0.0)
        self.served: list[Ticket] = []
        self.oldest_wait = 0.0
        self.waiting: dict[Ticket, None] = {}

    def standing(self, name: str) -> Standing:
        return standing(
            name,
            self.state[name],
            need_bytes=self.need[name],
            is_pinned=self.is_pinned and name == "a",
            ready_since=self.ready_since[name],
            last_used=self.used[name],
            queue_length=50,
        )

    def held(self) -> int:
        holding = (State.STARTING, State.READY, State.DRAINING, State.STOPPING)
        return sum(self.need[n] for n, s in self.state.items() if s in holding)

    def run(self) -> None:
        standings = {name: self.standing(name) for name in self.state}
        memory = Memory(free={"cpu": self.budget - self.held()})
        moves = self.schedule.advance(standings, memory, self.now)
        for name in moves.stop:
            assert self.schedule.running(name) == 0, "a serving backend was stopped"
            assert not (self.is_pinned and name == "a"), "a pinned backend was stopped"
            self.state[name] = State.STOPPING
        for name in moves.drain:
            assert not (self.is_pinned and name == "a"), "a pinned backend was drained"
            self.state[name] = State.DRAINING
        for name in moves.resume:
            self.state[name] = State.READY
        for name in moves.start:
            self.state[name] = State.STARTING
        for t in moves.grant:
            assert self.state[t.backend] is State.READY
            self.served.append(t)
            del self.waiting[t]
        for t in moves.late:
            del self.waiting[t]
        for name in moves.misfit:
            pinned = self.need["a"] if self.is_pinned and name != "a" else 0
            plan = planned(*self.models[name], free=self.budget - pinned)
            assert not plan.fits, "refused what could have been made to fit"
            for t in self.schedule.drop(name):
                del self.waiting[t]

    @rule(
        name=st.sampled_from("abcd"),
        client=st.sampled_from("xyz"),
        is_batch=st.booleans(),
    )
    def request(self, name: str, client: str, is_batch: bool) -> None:
        t = ticket(name, self.now, client=client, is_batch=is_batch, timeout_s=1e9, limit_s=1e9)
        try:
            self.schedule.join(t, self.standing(name))
        except QueueFull:
            return
        self.waiting[t] = None
        self.run()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            t = data.draw(st.sampled_from(list(self.waiting)))
            assert self.schedule.leave(t)
            del self.waiting[t]
            self.run()

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.served:
            t = data.draw(st.sampled_from(self.served))
            self.served.remove(t)
            self.schedule.release(t)
            self.used[t.backend] = self.now
            self.run()

    @rule(name=st.sampled_from("abcd"))
    def crash(self, name: str) -> None:
        if self.state[name] in (State.READY, State.DRAINING, State.STARTING):
            for t in [t for t in self.served if t.backend == name]:
                self.served.remove(t)
                self.schedule.release(t)
            self.state[name] = State.STOPPED
            self.run()

    @rule()
    def progress(self) -> None:
        """Starts and stops that are under way come to an end."""
        for name, state in self.state.items():
            if state is State.STARTING:
                self.state[name], self.ready_since[name] = State.READY, self.now
            elif state is State.STOPPING:
                self.state[name] = State.STOPPED
        self.run()

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.run()

    @invariant()
    def never_over_budget(self) -> None:
        if hasattr(self, "state"):
            assert self.held() <= self.budget

    @invariant()
    def never_more_than_the_seats(self) -> None:
        if hasattr(self, "state"):
            assert all(self.schedule.running(name) <= 2 for name in self.state)

    def teardown(self) -> None:
        """Nobody starves: with time, ends of requests and no news, every waiter is served."""
        if not hasattr(self, "state"):
            return
        for _ in range(400):
            if not self.waiting:
                return
            self.now += 1.0
            for t in tuple(self.served):
                self.served.remove(t)
                self.schedule.release(t)
                self.used[t.backend] = self.now
            self.progress()
        raise AssertionError(f"starved: {list(self.waiting)}")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
