"""Judges routes against each other and the upstreams: what is wrong, or works and surprises.

Everything is looked up in dictionaries built once, so ten thousand routes cost ten thousand times
one route. Never changes a route, never raises.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import re2

from turnout_rules.decision import BLOCK, PASS
from turnout_rules.model import Match, Place, Route, Upstream, When
from turnout_rules.normalise import normalise
from turnout_rules.patterns import literal_brackets, misses_itself
from turnout_rules.problems import Problem, Severity
from turnout_rules.schema import RouteDraft

MAX_SUGGESTIONS = 50
"""Nearest names are only searched for so many mistakes: a wholly wrong file stays fast."""
MAX_NAMED = 5

_LOOKS_LIKE_PATTERN = re.compile(
    r"\\[bBdDwWsS.]|\.[*+?]|\[[^\]]+\]|\(\?|^\^|[A-Za-z]\$$|\([^)]*\|[^)]*\)|\w\|\w|^/.+/$"
)
_WRONG_PREFIX = re.compile(r"(regex|regexp|rx|re2|pattern|starts|startswith|keyword|word)\s*:")
_CAPTURE = re.compile(r"\{(\d+)\}")
_LOOK_AROUND = re.compile(r"\(\?[=!<]")


def lint(drafts: Sequence[RouteDraft], upstreams: Mapping[str, Upstream]) -> list[Problem]:
    """All findings about `drafts`, in no particular order."""
    findings = _Findings()
    ordered = sorted(drafts, key=lambda d: (-d.route.priority, d.route.order))
    _names(findings, drafts)
    for draft in drafts:
        _targets(findings, draft, upstreams)
        _entries(findings, draft)
        _conditions(findings, draft)
    _catch_alls(findings, ordered)
    _default(findings, ordered)
    _shadows(findings, ordered)
    return findings.problems


class _Findings:
    """Problems found so far, and how many suggestions may still be computed."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.suggestions_left = MAX_SUGGESTIONS
        self.words: dict[str, str] = {}
        """Entry to normalised entry: each is looked at more than once."""

    def normalised(self, entry: str) -> str:
        if (word := self.words.get(entry)) is None:
            word = self.words[entry] = normalise(entry)
        return word

    def add(
        self, place: Place, severity: Severity, code: str, message: str, remedy: str = ""
    ) -> None:
        where = (place.file, place.line, place.column)
        self.problems.append(Problem(*where, severity, code, message, remedy))

    def error(self, place: Place, code: str, message: str, remedy: str = "") -> None:
        self.add(place, "error", code, message, remedy)

    def warning(self, place: Place, code: str, message: str, remedy: str = "") -> None:
        self.add(place, "warning", code, message, remedy)

    def did_you_mean(self, name: str, known: Iterable[str]) -> str:
        self.suggestions_left -= 1
        if self.suggestions_left < 0:
            return ""
        names = sorted(known)
        near = difflib.get_close_matches(name, names[:2_000], n=1, cutoff=0.6)
        if near:
            return f"did you mean `{near[0]}`?"
        return ("there is: " + ", ".join(names[: MAX_NAMED * 2])) if names else ""


def _names(findings: _Findings, drafts: Sequence[RouteDraft]) -> None:
    first: dict[str, Place] = {}
    for draft in drafts:
        name = draft.route.name
        if name in first:
            message = f"two routes are named `{name}` (first in {_spot(first[name])})"
            findings.error(draft.place("name"), "duplicate-route", message, "rename one")
        else:
            first[name] = draft.place("name")


# targets


def _targets(findings: _Findings, draft: RouteDraft, upstreams: Mapping[str, Upstream]) -> None:
    route = draft.route
    for target, _ in route.targets:
        _known_target(findings, draft, target, "target", upstreams)
    for target in route.fallback:
        _known_target(findings, draft, target, "fallback", upstreams)
        if any(target == own for own, _ in route.targets):
            message = f"route `{route.name}` falls back to its own target `{target}`"
            findings.warning(draft.place("fallback"), "fallback-to-itself", message, "remove it")
    if len(set(route.fallback)) < len(route.fallback):
        message = f"route `{route.name}` lists a fallback twice"
        findings.warning(draft.place("fallback"), "duplicate-fallback", message, "remove one")


def _known_target(
    findings: _Findings,
    draft: RouteDraft,
    target: str,
    key: str,
    upstreams: Mapping[str, Upstream],
) -> None:
    if target in (PASS, BLOCK):
        return
    captures = [int(n) for n in _CAPTURE.findall(target)]
    if captures:
        _captures(findings, draft, target, max(captures))
    name, _, model = target.partition("/")
    if _CAPTURE.search(name):
        return
    upstream = upstreams.get(name)
    if upstream is None:
        remedy = findings.did_you_mean(name, upstreams) or "define it under `upstreams:`"
        message = f"unknown upstream `{name}` in `{key}: {target}` of route `{draft.route.name}`"
        findings.error(draft.place(key), "unknown-target", message, remedy)
    elif upstream.models and not captures and model not in upstream.models:
        remedy = findings.did_you_mean(model, upstream.models)
        message = f"upstream `{name}` has no model `{model}` (route `{draft.route.name}`)"
        findings.error(draft.place(key), "unknown-target", message, remedy)


def _captures(findings: _Findings, draft: RouteDraft, target: str, highest: int) -> None:
    when = draft.route.when
    patterns = [m[3:] for m in when.model if m.startswith("re:")] if when else []
    groups = [compiled.groups for p in patterns if (compiled := _compiled(p)) is not None]
    if not patterns:
        remedy = "write `when: {model: 're:^…(…)'}` in the route"
        message = f"`{target}` uses a capture, and no `re:` on the model captures anything"
        findings.error(draft.place("target"), "unknown-capture", message, remedy)
    elif groups and min(groups) < highest:
        message = f"`{target}` uses capture {highest}, its pattern has {min(groups)}"
        findings.error(draft.place("target"), "unknown-capture", message, "count the ( )")


# match entries


def _entries(findings: _Findings, draft: RouteDraft) -> None:
    match = draft.route.match
    if match is None:
        return
    _twice(findings, draft, match)
    for entry in (*match.any, *match.all, *match.none):
        if entry == ".*":
            continue
        place = draft.match_places.get(entry) or draft.place("match")
        if entry.startswith("re:"):
            _pattern(findings, place, entry, is_negative=entry in match.none)
        else:
            _keyword(findings, place, entry)


def _twice(findings: _Findings, draft: RouteDraft, match: Match) -> None:
    seen: dict[str, str] = {}
    for entry, word in _normalised(findings, match):
        if word and (first := seen.setdefault(word, entry)) != entry:
            place = draft.match_places.get(entry) or draft.place("match")
            message = f"`{entry}` is the same keyword as `{first}`"
            findings.warning(place, "duplicate-keyword", message, "remove one of the two")


def _pattern(findings: _Findings, place: Place, entry: str, *, is_negative: bool) -> None:
    compiled = _compiled(entry[3:])
    if compiled is None:
        remedy = "see the RE2 syntax"
        if _LOOK_AROUND.search(entry):
            remedy = "RE2 has no look-around: use `all:` and `none:`"
        elif re.search(r"\\[1-9]", entry):
            remedy = "RE2 has no back-references"
        findings.error(place, "bad-pattern", f"`{entry}` is no RE2 pattern", remedy)
    elif compiled.search("") is not None and not is_negative:
        message = f"`{entry}` matches every text, even an empty one"
        findings.warning(place, "matches-everything", message, "write .* if that is meant")


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


def _keyword(findings: _Findings, place: Place, entry: str) -> None:
    word = findings.normalised(entry).removeprefix("prefix:").strip("* ")
    if not word:
        message = f"`{entry}` is empty after normalisation and would never match"
        findings.error(place, "empty-keyword", message, "write a letter, digit or symbol")
    elif _WRONG_PREFIX.match(entry):
        message = f"`{entry}` is looked for as it stands: there are only `re:` and `prefix:`"
        findings.warning(place, "regex-like-keyword", message, "write re:… or prefix:…")
    elif _LOOKS_LIKE_PATTERN.search(entry):
        message = f"`{entry}` looks like a regular expression and is matched as plain text"
        findings.warning(place, "regex-like-keyword", message, f"write `re:{entry}` if it is one")
    elif len(word) == 1 and word.isascii() and word.isalnum():
        message = f"the keyword `{entry}` is one letter: it hits whenever that letter stands alone"
        findings.warning(place, "short-keyword", message, "use a longer word")


# conditions


def _conditions(findings: _Findings, draft: RouteDraft) -> None:
    route = draft.route
    when = route.when
    if when is not None:
        if both := sorted({str(c) for c in when.has} & set(when.lacks)):
            message = f"route `{route.name}` wants and refuses {', '.join(both)}: it never applies"
            findings.error(draft.place("when"), "impossible-when", message)
        patterns = [m for m in when.model if m.startswith("re:")]
        if patterns and len(when.model) > 1:
            message = "`model` takes globs, or one `re:` alone"
            findings.error(draft.place("when"), "mixed-model", message)
        for pattern in patterns:
            if _compiled(pattern[3:]) is None:
                message = f"`{pattern}` is no RE2 pattern"
                findings.error(draft.place("when"), "bad-pattern", message, "see the RE2 syntax")
        _brackets(findings, draft, when)
    if route.match is None and when is None and not route.is_semantic:
        message = (
            f"no rule leads to route `{route.name}`: it has no match, when, examples or description"
        )
        remedy = f"add one, unless clients name it themselves (`turnout/{route.name}`)"
        findings.warning(route.place, "never-by-rule", message, remedy)
    if route.match and (both := sorted(set(route.match.none) & set(route.match.all))):
        message = f"route `{route.name}` wants and refuses `{both[0]}`: it never matches"
        findings.error(draft.place("match"), "impossible-match", message)
    if route.match and route.match.any and set(route.match.any) <= set(route.match.none):
        message = f"route `{route.name}` refuses all that it matches"
        findings.error(draft.place("match"), "impossible-match", message)


def _brackets(findings: _Findings, draft: RouteDraft, when: When) -> None:
    """Brackets of names such as `claude-opus-5[1m]`, which shells and patterns read otherwise."""
    headers = [glob for _, globs in when.header for glob in globs]
    for entry in (*when.model, *when.path, *when.task, *headers):
        if not entry.startswith("re:"):
            if brackets := literal_brackets(entry):
                message = f"`{entry}` means this very text: `{brackets}` is no choice of characters"
                remedy = (
                    f"write `{_quoted(entry, brackets)}` to say so; a choice is `[0-9]`, `[!a]`"
                )
                findings.warning(draft.place("when"), "literal-brackets", message, remedy)
        elif _compiled(entry[3:]) is not None and (brackets := misses_itself(entry[3:])):
            message = f"`{entry}` does not match that name: `{brackets}` is one character there"
            choice = "|".join(brackets[1:-1])
            remedy = f"write `\\[{brackets[1:-1]}\\]` for the name, `({choice})` for a choice"
            findings.warning(draft.place("when"), "literal-brackets", message, remedy)


def _quoted(entry: str, brackets: str) -> str:
    return entry.replace(brackets, f"[[]{brackets[1:]}", 1)


# routes against routes


def _is_ruled(route: Route) -> bool:
    return route.match is not None or route.when is not None


def _catch_alls(findings: _Findings, ordered: Sequence[RouteDraft]) -> None:
    """A catch-all takes everything that reaches it: routes behind it never win by rule."""
    for index, draft in enumerate(ordered):
        if not draft.route.is_catch_all:
            continue
        swallowed = [d.route.name for d in ordered[index + 1 :] if _is_ruled(d.route)]
        if swallowed:
            names = ", ".join(f"`{n}`" for n in swallowed[:MAX_NAMED])
            more = f" and {len(swallowed) - MAX_NAMED} more" if len(swallowed) > MAX_NAMED else ""
            message = (
                f"the catch-all `{draft.route.name}` (priority {draft.route.priority}) outranks "
                f"and swallows {names}{more}"
            )
            remedy = "give it the lowest priority"
            if draft.route.priority == ordered[-1].route.priority:
                remedy = "move it behind them, or give it a lower priority"
            findings.warning(draft.place("match"), "catch-all-outranks", message, remedy)
        return


def _default(findings: _Findings, ordered: Sequence[RouteDraft]) -> None:
    """Where the semantic layer is in use, what it does not take should be said, not implied."""
    if not ordered or ordered[-1].route.is_catch_all:
        return
    first = next((d for d in ordered if d.route.is_semantic), None)
    if first is not None:
        message = "no catch-all stands last: what the classifier does not take passes as it is"
        remedy = "say so with `- {name: default, match: [.*], priority: -100, target: pass}`"
        key = "examples" if first.route.examples else "description"
        findings.warning(first.place(key), "no-default", message, remedy)


def _shadows(findings: _Findings, ordered: Sequence[RouteDraft]) -> None:
    """Entries that an earlier route takes already; a route with no other entry never wins."""
    taken: dict[str, RouteDraft] = {}  # normalised entry: the unconditional route that has it
    for draft in ordered:
        match = draft.route.match
        if match is None or match.on != "human" or draft.route.is_catch_all:
            continue
        entries = list(_normalised(findings, match))
        winners = [_taker(taken, word) for _, word in entries]
        if entries and all(w is not None for w in winners):
            _shadowed(findings, draft, [w for w in winners if w is not None])
        else:
            _shared(findings, draft, entries, winners)
        if draft.route.when is None and not match.all and not match.none:
            for _, word in entries:
                taken.setdefault(word, draft)


def _normalised(findings: _Findings, match: Match) -> Iterator[tuple[str, str]]:
    for entry in match.any:
        if entry != ".*":
            yield entry, entry if entry.startswith("re:") else findings.normalised(entry)


def _taker(taken: Mapping[str, RouteDraft], word: str) -> RouteDraft | None:
    """The earlier route that any text with `word` hits: by the same entry, or a word of it."""
    found = taken.get(word)
    if found is None and " " in word and not word.startswith(("re:", "prefix:")):
        parts = word.split(" ")
        whole = [p for p in parts if p.isalpha() or p.isdigit()]
        found = next((taken[p] for p in whole if p in taken), None)
    return found


def _shadowed(findings: _Findings, draft: RouteDraft, winners: list[RouteDraft]) -> None:
    names = dict.fromkeys(w.route.name for w in winners)
    shown = ", ".join(f"`{n}`" for n in list(names)[:MAX_NAMED])
    message = f"route `{draft.route.name}` never wins: {shown} takes all its entries first"
    remedy = "raise its priority, or give it entries of its own"
    findings.warning(draft.place("match"), "shadowed-route", message, remedy)


def _shared(
    findings: _Findings,
    draft: RouteDraft,
    entries: Sequence[tuple[str, str]],
    winners: Sequence[RouteDraft | None],
) -> None:
    for (entry, word), winner in zip(entries, winners, strict=True):
        if winner is None or winner is draft or word.startswith("re:"):
            continue
        if winner.route.priority == draft.route.priority and draft.route.when is None:
            place = draft.match_places.get(entry) or draft.place("match")
            message = (
                f"`{entry}` leads to `{winner.route.name}` already, with the same priority: "
                "file order decides"
            )
            remedy = "give the routes different priorities, or remove one of the keywords"
            findings.warning(place, "duplicate-keyword", message, remedy)


def _spot(place: Place) -> str:
    return f"{place.file}:{place.line}"
