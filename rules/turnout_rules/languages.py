"""Which language a text is in, cheaply: by its script, and by stop words where the script is Latin.

Good enough to send Chinese to a model that is good at Chinese; no statistics, no model. Short Latin
texts without any stop word are of no language ("").
"""

from __future__ import annotations

import re

_LOOKED_AT_CHARS = 1_000

# One pass counts letters by script; kana before Han, since Japanese uses both.
_SCRIPTS = {
    "ja": "\u3040-\u30ff",
    "ko": "\u1100-\u11ff\uac00-\ud7af",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff",
    "th": "\u0e00-\u0e7f",
    "lo": "\u0e80-\u0eff",
    "my": "\u1000-\u109f",
    "km": "\u1780-\u17ff",
    "ar": "\u0600-\u06ff\u0750-\u077f",
    "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f",
    "bn": "\u0980-\u09ff",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
    "el": "\u0370-\u03ff",
    "hy": "\u0530-\u058f",
    "ka": "\u10a0-\u10ff",
    "ru": "\u0400-\u04ff",
}
_COUNTERS = {language: re.compile(f"[{chars}]") for language, chars in _SCRIPTS.items()}
_LATIN = re.compile("[a-z\u00df-\u024f\u1e00-\u1eff]")
_WORD = re.compile(r"[a-z\u00df-\u024f\u1e00-\u1eff]+")
# An ideograph or a syllable block says about as much as this many letters.
_DENSE = {"zh": 3, "ja": 2, "ko": 2}

# Letters that only one of several languages of a script uses.
_TELLTALE = (
    ("ar", "fa", re.compile("[پچژگ]")),
    ("ru", "uk", re.compile("[іїєґ]")),
)

_STOP_WORDS = {
    "en": "the a an is are was be to of and in it you for with this my me how what please do can",
    "de": "der die das und ist nicht ein eine ich du wie was mit für von zu den auf es wir kann",
    "fr": "le la les un une des est et je vous nous que qui pour dans ce cette avec sur du comment",
    "es": "el la los las un una es y que por para con no de en como qué me mi del se este esta",
    "it": "il lo la gli un una è e che per con non di in come mi del della questo questa sono",
    "pt": "o os a as um uma é e que por para com não de em como me do da isso este esta você",
    "nl": "de het een is en van ik je niet met voor dat op te zijn wat hoe kan dit",
    "pl": "i w nie na to jest się do z że jak co czy dla mi po ale tak",
    "sv": "och att det är en ett jag du inte på med för som hur vad kan den",
    "tr": "bir ve bu için ile ne nasil mi ben sen de da çok var",
    "vi": "là và của có không cho tôi bạn một này được với như thế nào",
    "id": "yang dan di ini itu dengan untuk tidak saya anda apa bagaimana dari ke",
}
_VOTES: dict[str, list[str]] = {}
for _language, _words in _STOP_WORDS.items():
    for _stop_word in _words.split():
        _VOTES.setdefault(_stop_word, []).append(_language)

LANGUAGES = (*_SCRIPTS, *(new for _, new, _ in _TELLTALE), *_STOP_WORDS)
"""What `language` can answer."""


def language(text: str) -> str:
    """ISO 639-1 code of the language of `text` (normalised); empty where nothing tells."""
    text = text[:_LOOKED_AT_CHARS]
    if text.isascii():
        return _latin_language(text)
    counts = {
        code: len(counter.findall(text)) * _DENSE.get(code, 1)
        for code, counter in _COUNTERS.items()
    }
    if counts["ja"]:
        counts["ja"] += counts.pop("zh")
    best = max(counts, key=lambda code: counts[code])
    if counts[best] == 0 or counts[best] < len(_LATIN.findall(text)):
        return _latin_language(text)
    for general, special, letters in _TELLTALE:
        if best == general and letters.search(text):
            return special
    return best


def _latin_language(text: str) -> str:
    votes: dict[str, int] = {}
    for word in _WORD.findall(text):
        for code in _VOTES.get(word, ()):
            votes[code] = votes.get(code, 0) + 1
    return max(votes, key=lambda code: votes[code]) if votes else ""
