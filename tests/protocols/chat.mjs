// A chat of the AI SDK that a test drives: each line of input is an operation, each line of output
// its result. The first argument is the package, `ai` or `ai-5`.
import { createInterface } from "node:readline";

const sdk = await import(process.argv[2]);
const { AbstractChat, DefaultChatTransport } = sdk;

class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({
      ...init,
      state: {
        status: "ready",
        error: undefined,
        messages: messages ?? [],
        pushMessage(message) { this.messages = [...this.messages, message]; },
        popMessage() { this.messages = this.messages.slice(0, -1); },
        replaceMessage(index, message) {
          this.messages = this.messages.map((one, at) => (at === index ? message : one));
        },
        snapshot: (thing) => structuredClone(thing),
      },
    });
  }
}

let chat, errors, data, running;
const automatic = [
  sdk.lastAssistantMessageIsCompleteWithApprovalResponses,
  sdk.lastAssistantMessageIsCompleteWithToolCalls,
].filter(Boolean);

const operations = {
  open({ api, token, id, messages, body }) {
    [errors, data] = [[], []];
    chat = new Chat({
      id,
      messages,
      transport: new DefaultChatTransport({ api, body, headers: { authorization: `Bearer ${token}` } }),
      sendAutomaticallyWhen: (given) => automatic.some((complete) => complete(given)),
      onError: (error) => errors.push(String(error.message)),
      onData: (part) => data.push(part),
    });
  },
  send(message) { running = chat.sendMessage(message); },
  regenerate(options) { running = chat.regenerate(options); },
  resume() { running = chat.resumeStream(); },
  approve(response) { running = chat.addToolApprovalResponse(response); },
  output(output) { running = (chat.addToolOutput ?? chat.addToolResult)(output); },
  stop() { running = chat.stop(); },
  async wait() { await running; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...given } = JSON.parse(line);
  let failed;
  try { await operations[op]?.(given.value ?? undefined); } catch (error) { failed = String(error); }
  const { status, messages } = chat;
  console.log(JSON.stringify({ failed, status, messages, errors, data }));
}
