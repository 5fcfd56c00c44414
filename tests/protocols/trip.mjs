// Gives a stream that a test has translated to the client that reads it: each line of input is the
// chunks of one stream, each line of output what the client has at its end. The first argument is the
// package, of the AI SDK or of AG-UI.
import { createInterface } from "node:readline";
import { from } from "rxjs";

const client = await import(process.argv[2]);
console.warn = console.error;

async function readChat(chunks) {
  const problems = [];
  const schema = client.asSchema(client.uiMessageChunkSchema);
  for (const chunk of chunks) {
    const found = await schema.validate(chunk);
    if (!found.success) problems.push(`${chunk.type}: ${found.error}`);
  }
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let message = null;
  const onError = (error) => problems.push(String(error));
  for await (const now of client.readUIMessageStream({ stream, onError })) message = now;
  return { has: { message, transient: chunks.filter((chunk) => chunk.transient) }, problems };
}

async function readRun(events) {
  const [problems, customs] = [[], []];
  let ended = null;
  class Recorded extends client.AbstractAgent {
    run() { return from(events); }
  }
  const agent = new Recorded({ threadId: "t" });
  agent.subscribe({
    onCustomEvent: ({ event }) => { customs.push(event); },
    onRunErrorEvent: ({ event }) => { ended = event; },
  });
  await agent.runAgent({ runId: "r" }).catch((error) => problems.push(String(error)));
  const { messages, state, pendingInterrupts } = agent;
  return { has: { messages, state, customs, pendingInterrupts, ended }, problems };
}

for await (const line of createInterface({ input: process.stdin })) {
  const read = client.AbstractAgent ? readRun : readChat;
  console.log(JSON.stringify(await read(JSON.parse(line).value)));
}
