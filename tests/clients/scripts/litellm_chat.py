import json
import sys

import litellm
from common import DESCRIPTION, PROMPT, SCHEMA, SYSTEM, read_notes, show

model = sys.argv[1]
function = {"name": "read_notes", "description": DESCRIPTION, "parameters": SCHEMA}
tools = [{"type": "function", "function": function}]
messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
ask = {"model": model, "tools": tools, "stream": True, "max_tokens": 500}
chunks = list(litellm.completion(messages=messages, **ask))
answer = litellm.stream_chunk_builder(chunks).choices[0].message
(call,) = answer.tool_calls
result = read_notes(**json.loads(call.function.arguments))
messages.append(answer.model_dump(exclude_none=True))
messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
for chunk in litellm.completion(messages=messages, **ask):
    if chunk.choices:
        show(chunk.choices[0].delta.content)
