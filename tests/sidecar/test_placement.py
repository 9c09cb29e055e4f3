"""On which card a model is planned, what its own arguments change, and plans over several cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_folders import LLAMA3_8B
from turnout_rules.model import Model, Target, Upstream
from turnout_sidecar.engines.arguments import card_env, share_of, value_of, whole_of
from turnout_sidecar.machine import Gpu, Machine
from turnout_sidecar.placement import lacking_cards, room_for
from turnout_sidecar.planner import ModelFiles, Room, Wish, make_plan, wish_for
from turnout_sidecar.planner.config_shape import shape_of_config

GIB = 1 << 30


def machine(*free_gib: int, drives_display: bool = False) -> Machine:
    gpus = tuple(
        Gpu(
            index=n,
            name="card",
            total_bytes=24 * GIB,
            free_bytes=free * GIB,
            drives_display=drives_display,
            uuid=f"GPU-{n}aaa",
        )
        for n, free in enumerate(free_gib)
    )
    return Machine(
        ram_total_bytes=64 * GIB,
        ram_available_bytes=48 * GIB,
        swap_total_bytes=0,
        swap_used_bytes=0,
        gpus=gpus,
    )


def target(engine: str = "vllm", **fields: Any) -> Target:
    model = Model(name="m", **fields)
    upstream = Upstream(name="local", engine=engine, models={"m": model})  # type: ignore[arg-type]
    return Target("local/m", upstream, model)


@pytest.mark.parametrize(
    ("environ", "own", "device"),
    [
        ({}, None, "gpu1"),  # the emptiest
        ({}, "2", "gpu2"),
        ({}, "GPU-0", "gpu0"),
        ({"CUDA_VISIBLE_DEVICES": "0,2"}, None, "gpu2"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "2", "gpu2"),  # its own word counts more
        ({}, "", "cpu"),
        ({}, "-1", "cpu"),
    ],
)
def test_the_card_is_the_one_that_is_named_else_the_emptiest(
    environ: dict[str, str], own: str | None, device: str
) -> None:
    env = {} if own is None else {"CUDA_VISIBLE_DEVICES": own}
    assert room_for(target(env=env), machine(4, 20, 10), environ).device == device


def test_without_a_card_it_is_the_cpu() -> None:
    room = room_for(target(), machine(), {})
    assert (room.device, room.free_bytes, room.total_bytes) == ("cpu", 48 * GIB, 64 * GIB)


@pytest.mark.parametrize(
    ("args", "python", "on_path", "device"),
    [
        ((), "", True, "gpu0"),
        ((), "", False, "cpu"),  # the wheel is built for the CPU
        ((), "/some/python", True, "cpu"),
        (("-ngl", "0"), "", True, "cpu"),
        (("--n-gpu-layers=20",), "", False, "gpu0"),
    ],
)
def test_llama_cpp_takes_the_card_if_its_program_can(
    tmp_path: Path, args: tuple[str, ...], python: str, on_path: bool, device: str
) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environ = {"PATH": str(tmp_path) if on_path else "/nowhere"}
    found = room_for(target("llamacpp", args=args, python=python), machine(20), environ)
    assert found.device == device


def test_several_cards_are_planned_by_the_fullest_and_missing_ones_are_told() -> None:
    two = target(args=("--tensor-parallel-size", "2"))
    assert room_for(two, machine(20, 6), {}).device == "gpu1"
    assert lacking_cards(two, machine(20, 6), {}) == ""
    assert lacking_cards(two, machine(20), {}) == "asks for 2 cards, 1 can be used"
    assert lacking_cards(target(), machine(20), {}) == ""


def test_an_engine_sees_the_card_it_was_planned_on() -> None:
    assert card_env(Model(name="m"), "gpu1") == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
    }
    spread = Model(name="m", args=("-tp", "2"))
    assert "CUDA_VISIBLE_DEVICES" not in card_env(spread, "gpu1")
    assert card_env(Model(name="m"), "cpu") == {}


def test_a_persons_own_arguments_count() -> None:
    args = ("--max-model-len=2048", "--gpu-memory-utilization", "0.5", "--max-num-seqs", "7")
    wish = wish_for(target(args=(*args, "-tp", "2"), max_model_len=9_000, max_num_seqs=1))
    assert (wish.context, wish.gpu_share, wish.max_num_seqs, wish.cards) == (2_048, 0.5, 7, 2)
    slots = ("-np", "4", "-c", "8192", "-ctk", "q8_0", "-ngl", "10")
    wish = wish_for(target("llamacpp", args=slots))
    assert (wish.max_num_seqs, wish.context) == (4, 2_048)
    assert (wish.layout.key_type, wish.layout.value_type) == ("q8_0", "f16")
    assert wish.gpu_layers == 10


@pytest.mark.parametrize(
    ("args", "value", "whole", "share"),
    [
        (("-x", "5"), "5", 5, None),
        (("-x=0.5",), "0.5", None, 0.5),
        (("-x", "1", "-x", "2"), "2", 2, None),
        (("-x",), "", None, None),
        (("-y", "1"), "", None, None),
        (("-x", "nan"), "nan", None, None),
    ],
)
def test_flags_are_read_in_both_forms_and_the_last_counts(
    args: tuple[str, ...], value: str, whole: int | None, share: float | None
) -> None:
    assert value_of(args, "-x") == value
    assert whole_of(args, "-x") == whole
    assert share_of(args, "-x") == share


FILES = ModelFiles(weight_bytes=16 * GIB, shape=shape_of_config(LLAMA3_8B), source="")


def test_two_cards_hold_half_the_weights_and_half_the_heads_each() -> None:
    room = Room("gpu0", 24 * GIB, 24 * GIB)
    one = Wish(name="x", engine="vllm", max_num_seqs=2, context=8_192, gpu_share=0.9)
    two = Wish(
        name="x", engine="vllm", max_num_seqs=2, context=8_192, gpu_share=0.9, tensor_parallel=2
    )
    alone, shared = make_plan(one, FILES, room), make_plan(two, FILES, room)
    assert shared.cards == 2
    assert shared.weight_bytes * 2 == alone.weight_bytes
    assert shared.kv_request_bytes * 2 == alone.kv_request_bytes


def test_some_layers_on_the_card_and_the_advice_to_take_fewer() -> None:
    room = Room("gpu0", 12 * GIB, 24 * GIB)
    wish = Wish(name="x", engine="llamacpp", max_num_seqs=1, context=1_024)
    plan = make_plan(wish, FILES, room)
    assert not plan.fits
    assert plan.advice.startswith('set args: ["-ngl", "')
    layers = int(plan.advice.split('"')[3])
    some = Wish(name="x", engine="llamacpp", max_num_seqs=1, context=1_024, gpu_layers=layers)
    assert make_plan(some, FILES, room).fits


def test_a_large_share_of_a_card_with_a_screen_is_warned_of() -> None:
    wish = Wish(name="x", engine="vllm", max_num_seqs=1, context=1_024, gpu_share=0.85)
    room = Room("gpu0", 24 * GIB, 24 * GIB, drives_display=True)
    assert "also drives a screen" in make_plan(wish, FILES, room).warning
    assert not make_plan(wish, FILES, Room("gpu0", 24 * GIB, 24 * GIB)).warning
