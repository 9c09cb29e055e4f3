import json

import openai
from common import DESCRIPTION, PROMPT, SCHEMA, SYSTEM, read_notes, show

tools = [
    {"type": "function", "name": "read_notes", "description": DESCRIPTION, "parameters": SCHEMA}
]
ask = {"model": "gpt-4o", "instructions": SYSTEM, "tools": tools, "store": False}
items = [{"role": "user", "content": PROMPT}]
with openai.OpenAI() as client:
    with client.responses.stream(input=items, **ask) as stream:
        answer = stream.get_final_response()
    (call,) = answer.output
    result = read_notes(**json.loads(call.arguments))
    call_item = {"type": "function_call", "call_id": call.call_id, "name": call.name}
    items.append(call_item | {"arguments": call.arguments})
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    for event in client.responses.create(input=items, stream=True, **ask):
        if event.type == "response.output_text.delta":
            show(event.delta)
