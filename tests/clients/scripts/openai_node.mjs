import { readFileSync } from "node:fs";
import OpenAI from "openai";

const system = "You are a helpful assistant with tools for files and code. Know the zebrafish.";
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const described = { name: "read_notes", description: "Read the notes file.", parameters };
const prompt = process.env.CLIENT_PROMPT;
const client = new OpenAI();

async function chat() {
  const tools = [{ type: "function", function: described }];
  const messages = [{ role: "system", content: system }, { role: "user", content: prompt }];
  const ask = { model: "gpt-4o", tools };
  const first = client.chat.completions.stream({ ...ask, messages });
  const answer = (await first.finalChatCompletion()).choices[0].message;
  const call = answer.tool_calls[0];
  const content = readFileSync(JSON.parse(call.function.arguments).path, "utf8");
  const said = { role: "assistant", content: null, tool_calls: answer.tool_calls };
  messages.push(said, { role: "tool", tool_call_id: call.id, content });
  const stream = await client.chat.completions.create({ ...ask, messages, stream: true });
  for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}

async function responses() {
  const ask = { model: "gpt-4o", instructions: system, store: false };
  ask.tools = [{ type: "function", ...described, strict: false }];
  const input = [{ role: "user", content: prompt }];
  const answer = await client.responses.stream({ ...ask, input }).finalResponse();
  const { call_id, name, arguments: given } = answer.output[0];
  const output = readFileSync(JSON.parse(given).path, "utf8");
  input.push({ type: "function_call", call_id, name, arguments: given });
  input.push({ type: "function_call_output", call_id, output });
  const stream = await client.responses.create({ ...ask, input, stream: true });
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
  }
}

await { chat, responses }[process.argv[2]]();
