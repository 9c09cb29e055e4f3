"""Small tables and a cache folder with the fetched models, for the classifiers' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout_rules.model import Match, Route, Upstream
from turnout_rules.table import Table, build_table
from turnout_sidecar import model_store

ENGLISH = {
    "translation": (
        "translate this sentence into French",
        "how do you say good morning in Japanese",
        "what does this German word mean",
        "put this paragraph into Spanish",
        "I need an English version of this letter",
    ),
    "code": (
        "fix the bug in this function",
        "write a python script that renames files",
        "why does my program crash with a null pointer",
        "explain what this SQL query does",
        "add unit tests for this class",
    ),
    "weather": (
        "will it rain tomorrow",
        "what is the temperature outside",
        "do I need an umbrella today",
        "how cold does it get tonight",
        "weather forecast for the weekend",
    ),
    "cooking": (
        "how long do I boil an egg",
        "recipe for tomato soup",
        "what can I cook with chicken and rice",
        "how do I bake bread",
        "which spices go with fish",
    ),
}
CHINESE = {
    "translation": (
        "把这句话翻译成英文",
        "早上好用日语怎么说",
        "这个德语单词是什么意思",
        "请把这一段译成法语",
    ),
    "code": (
        "帮我修复这个函数的错误",
        "写一个重命名文件的脚本",
        "程序为什么会崩溃",
        "给这个类写单元测试",
    ),
    "weather": ("明天会下雨吗", "外面气温多少度", "今天要不要带伞", "周末天气怎么样"),
    "cooking": ("鸡蛋要煮多久", "番茄汤怎么做", "鸡肉和米饭可以做什么菜", "面包怎么烤"),
}


def table_of(
    examples: dict[str, tuple[str, ...]], *, version: str = "v1", threshold: float | None = None
) -> Table:
    """A table with one route a key, and a default route."""
    routes = [
        Route(
            name=name,
            targets=((f"api/{name}", 1),),
            examples=texts,
            threshold=threshold,
            order=order,
        )
        for order, (name, texts) in enumerate(examples.items())
    ]
    default = Route(
        name="fallback", match=Match(any=(".*",)), targets=(("api/any", 1),), order=len(routes)
    )
    upstream = Upstream(name="api", base_url="http://127.0.0.1:9/v1")
    return build_table([*routes, default], {"api": upstream}, version=version)


@pytest.fixture
def fetched_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of the test's own, with links to the models fetched on this machine."""
    here = model_store.models_folder()
    assert model_store.path_of("sentence-encoder"), "run `turnout models pull` first"
    monkeypatch.setenv("TURNOUT_CACHE_DIR", str(tmp_path / "cache"))
    model_store.models_folder().mkdir(parents=True)
    for model in model_store.MODELS.values():
        (model_store.models_folder() / model.file_name).symlink_to(here / model.file_name)
