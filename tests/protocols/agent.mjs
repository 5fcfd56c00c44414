// An agent of AG-UI that a test drives: each line of input is an operation, each line of output its
// result. The first argument is the package.
import { createInterface } from "node:readline";

const { HttpAgent } = await import(process.argv[2]);
console.warn = console.error;
process.on("unhandledRejection", () => {}); // of a connection that is lost; `failed` has it too

let agent, running, outcome, customs, failed, events;

const operations = {
  open({ url, token, id, messages }) {
    [customs, events, failed, outcome, running] = [[], [], null, null, null];
    agent = new HttpAgent({
      url,
      headers: { authorization: `Bearer ${token}` },
      threadId: id,
      initialMessages: messages ?? [],
    });
    agent.subscribe({
      onCustomEvent: ({ event }) => { customs.push({ name: event.name, value: event.value }); },
      onEvent: ({ event }) => { events.push(event.type); },
      onRunFinishedEvent: ({ event }) => { outcome = event; },
      onRunErrorEvent: ({ event }) => { outcome = event; },
    });
  },
  run({ message, ...given }) {
    [failed, outcome] = [null, null];
    if (message) agent.addMessage(message);
    running = agent.runAgent(given).then(() => {}, (error) => { failed = String(error); });
  },
  async wait() { await running; },
  abort() { agent.abortRun(); },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, ...given } = JSON.parse(line);
  await operations[op]?.(given.value ?? undefined);
  const { messages, state, pendingInterrupts, isRunning } = agent;
  console.log(JSON.stringify({
    messages, state, interrupts: pendingInterrupts, running: isRunning, outcome, customs, events, failed,
  }));
}
