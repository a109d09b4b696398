// Requests of the stock JavaScript client, recorded once as tests/testing/emulator/openai_js_requests.json:
//   npm install openai@VERSION && node tests/testing/emulator/openai_client.mjs GATEWAY_URL API_KEY
// against this gateway behind a middleware that writes down each request. The script fails if the client does not understand an answer.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [gateway, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${gateway}/v1`, apiKey, maxRetries: 0 });
const model = "acme/large";
const user = (content) => ({ role: "user", content });
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "Weather of a town",
      parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"] },
    },
  },
];

const ids = [];
for await (const listed of client.models.list()) ids.push(listed.id);
assert(ids.includes(model));

const whole = await client.chat.completions.create({ model, messages: [user("hello")] });
assert.equal(whole.choices[0].message.content, "You wrote: hello");

const stream = await client.chat.completions.create({
  model,
  messages: [user("hello")],
  stream: true,
  stream_options: { include_usage: true },
});
let text = "";
let usage = null;
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, "You wrote: hello");
assert.equal(usage.total_tokens, whole.usage.total_tokens);

const png = "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA==";
const parts = [
  { type: "text", text: "cat?" },
  { type: "image_url", image_url: { url: png, detail: "auto" } },
  { type: "image_url", image_url: { url: "https://shop.example/cat.png" } },
];
const image = await client.chat.completions.create({
  model,
  messages: [user(parts)],
  providerOptions: { gateway: { order: ["globex", "acme"] } },
});
assert.equal(image.choices[0].message.content, "You wrote: cat?\nImages: 2.");

const runner = client.chat.completions.stream({ model, messages: [user("Oslo")], tools, tool_choice: "auto" });
const called = (await runner.finalChatCompletion()).choices[0].message;
assert.deepEqual(JSON.parse(called.tool_calls[0].function.arguments), { town: "Oslo" });
const answered = await client.chat.completions.create({
  model,
  messages: [user("Oslo"), called, { role: "tool", tool_call_id: called.tool_calls[0].id, content: "sunny" }],
  tools,
});
assert.equal(answered.choices[0].message.content, "You wrote: Oslo\nA tool answered: sunny");

await assert.rejects(
  client.chat.completions.create({ model: "large", messages: [user("hello")] }),
  (error) => error instanceof OpenAI.BadRequestError && error.message.includes("model"),
);
await assert.rejects(
  new OpenAI({ baseURL: `${gateway}/v1`, apiKey: "other", maxRetries: 0 }).models.list(),
  OpenAI.AuthenticationError,
);
console.log("ok");
