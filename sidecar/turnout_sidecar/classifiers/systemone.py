"""Decision models behind `POST /v1/systemone`, as llama-server and laya-serve speak it.

One multiple-choice question with a way out; the probability of the choice is what counts. Such
models weigh a dozen options at most, so larger tables are refused at `prepare`.
"""

from __future__ import annotations

from typing import Any

from turnout_rules.table import Table
from turnout_sidecar.classifiers.base import ClassifierError
from turnout_sidecar.classifiers.remote import Asked, Nonsense, RemoteClassifier, options

MAX_ROUTES = 11
INSTRUCTIONS = "Which kind of request is this? Choose `none` unless one clearly fits."


class SystemOneClassifier(RemoteClassifier):
    """Asks a System One server; `model` pins the decision model it should use."""

    kind = "systemone"

    async def prepare(self, table: Table) -> None:
        """Take the routes as options. Raises `ClassifierError` when there are too many."""
        await super().prepare(table)
        if len(self._routes) > MAX_ROUTES:
            count, self._routes = len(self._routes), ()
            raise ClassifierError(
                f"systemone weighs {MAX_ROUTES} routes at most, {count} have examples or a "
                "description: use `kind: embedded`, or teach fewer routes"
            )

    async def _ask(self, text: str, context: dict[str, str]) -> Asked:
        question = {
            "type": "choice",
            "instructions": INSTRUCTIONS,
            "criteria": options(self._routes),
        }
        state = {"request": text, **context}
        body: dict[str, Any] = {"state": state, "questions": {"route": question}}
        if self._settings.model:
            body["model"] = self._settings.model
        base = self._settings.url.rstrip("/").removesuffix("/v1/systemone").removesuffix("/v1")
        return read_answer(await self._post(f"{base}/v1/systemone", body, self._key))


def read_answer(answer: Any) -> Asked:
    """Choice and probabilities out of a server's answer; raises `Nonsense`."""
    try:
        route = answer["answers"]["route"]
        choice, said = route["choice"], route["probabilities"]
        probabilities = {str(k): min(1.0, max(0.0, float(v))) for k, v in said.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Nonsense(f"no answers.route with choice and probabilities ({error!r})") from error
    if not isinstance(choice, str) or choice not in probabilities:
        raise Nonsense("the choice has no probability")
    return Asked(choice=choice, probabilities=probabilities)
