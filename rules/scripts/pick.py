"""An example script. A route uses it with `script: scripts/pick.py`.

`choose` gets a read-only request and returns a target (`upstream/model`, `pass`, `block`) or None,
and then the route's `target` counts. It runs inside the proxy: keep it far below its budget (2 ms).
An error, a wrong answer or a loop is reported and the route's `target` is used.

The request has: text, system, model, endpoint, path, host, client, task, stream, conversation,
headers (without credentials), needs, tools, input_tokens, output_tokens.
"""


def choose(request):
    """Short questions stay on this machine; everything else goes where it was sent."""
    if request.input_tokens < 500 and not request.tools:
        return "local/smollm2"
    return "pass"
