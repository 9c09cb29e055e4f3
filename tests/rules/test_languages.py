"""The language of a text by its script and its stop words."""

from __future__ import annotations

import pytest

from turnout_rules.languages import language
from turnout_rules.normalise import normalise


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("How do I write a parser in Rust?", "en"),
        ("今天天气怎么样", "zh"),
        ("用python写函数", "zh"),
        ("このコードを説明してください", "ja"),
        ("안녕하세요 오늘 날씨", "ko"),
        ("Напиши код на Python", "ru"),
        ("Напиши код її мовою", "uk"),
        ("ترجمة هذا النص", "ar"),
        ("این متن را ترجمه کن چگونه", "fa"),
        ("תרגם את זה", "he"),
        ("मौसम कैसा है", "hi"),
        ("ช่วยแปลข้อความ", "th"),
        ("Γράψε μια συνάρτηση", "el"),
        ("Wie ist das Wetter und was mache ich?", "de"),
        ("Quel est le temps pour les vacances", "fr"),
        ("¿Cómo está el tiempo en la ciudad?", "es"),
        ("Com é que não está uma função", "pt"),
        ("Bu NASIL ve ne için", "tr"),
        ("fix the bug in 函数", "en"),
        ("qwertz", ""),
        ("42", ""),
        ("", ""),
    ],
)
def test_languages(text: str, code: str) -> None:
    assert language(normalise(text)) == code
