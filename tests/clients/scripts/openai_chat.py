import json

import openai
from common import DESCRIPTION, PROMPT, SCHEMA, SYSTEM, read_notes, show

function = {"name": "read_notes", "description": DESCRIPTION, "parameters": SCHEMA}
tools = [{"type": "function", "function": function}]
messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
with openai.OpenAI() as client:
    with client.chat.completions.stream(model="gpt-4o", messages=messages, tools=tools) as stream:
        answer = stream.get_final_completion().choices[0].message
    (call,) = answer.tool_calls
    result = read_notes(**json.loads(call.function.arguments))
    messages.append(answer.model_dump(exclude_none=True, exclude={"parsed"}))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    closing = client.chat.completions.create(
        model="gpt-4o", messages=messages, tools=tools, stream=True
    )
    for chunk in closing:
        if chunk.choices:
            show(chunk.choices[0].delta.content)
