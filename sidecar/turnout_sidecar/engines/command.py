"""`engine: command`: any command line that serves an OpenAI-compatible API on `{port}`."""

from __future__ import annotations

from turnout_rules.model import Target
from turnout_sidecar.engines.base import (
    CannotLaunch,
    Engine,
    Health,
    Launch,
    Place,
    context_of,
    model_file,
)


class CommandEngine(Engine):
    """Placeholders: `{port}`, `{model_path}`, `{model}`, `{max_num_seqs}`, `{max_model_len}`."""

    name = "command"

    def health(self, status: int) -> Health:
        """A server without `/health` is ready as soon as it answers at all."""
        return "ready" if status < 500 else "loading"

    def launch(self, target: Target, place: Place) -> Launch:
        """Fill the placeholders in; braces of any other kind stay as they are."""
        model = target.model
        if not any("{port}" in part for part in model.command):
            raise CannotLaunch(
                f"{target.name}: `command` must be a list that contains {{port}} somewhere"
            )
        values = {
            "{port}": str(place.port),
            "{model_path}": model_file(model) if model.model_path else "",
            "{model}": self.served_name(target),
            "{max_num_seqs}": str(self.seats(target)),
            "{max_model_len}": str(context_of(model)),
            "{threads}": str(place.threads),
        }
        command = tuple(_filled(part, values) for part in model.command)
        return Launch(command=command + model.args, env=dict(model.env))


def _filled(part: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        part = part.replace(placeholder, value)
    return part
