// One tool for each thing that a tool in JavaScript or TypeScript does.
import { tool, ToolError, type Plugin } from "toolhost";

export const plugin: Plugin = {
  name: "examples", version: "1.0.0", description: "What tools in TypeScript do.",
  needs: { clock: true, kv: "write" },
};

// Arguments: types by name, or JSON Schema where more is to be said.
export const repeat = tool({
  description: "Repeats a text.",
  input: { text: "string", "times?": { type: "integer", minimum: 1, maximum: 100, default: 2 } },
  readonly: true, idempotent: true,
  examples: [{ args: { text: "ab" }, result: "abab" }],
}, ({ text, times = 2 }) => text.repeat(times));

// Result: what a tool returns is JSON.
interface Parts { scheme: string; host: string; path: string; query: Record<string, string> }

export const parts = tool({
  description: "Takes a URL apart.",
  input: { url: "string" },
  readonly: true, idempotent: true,
  examples: [{ args: { url: "https://example.com/a?b=c" }, result: { scheme: "https", host: "example.com", path: "/a", query: { b: "c" } } }],
}, ({ url }): Parts => {
  const u = new URL(url);
  return { scheme: u.protocol.slice(0, -1), host: u.host, path: u.pathname, query: Object.fromEntries(u.searchParams) };
});

// Error: the model gets the message. An exception that is not caught has its type, too.
export const divide = tool({
  description: "Divides whole numbers.",
  input: { dividend: "integer", divisor: "integer" },
  readonly: true, idempotent: true,
  examples: [{ args: { dividend: 7, divisor: 2 }, result: 3 }],
}, ({ dividend, divisor }) => {
  if (divisor === 0) throw new ToolError("the divisor is 0: choose another");
  return Number(BigInt(dividend) / BigInt(divisor));
});

// Progress and output, which people see while the tool runs.
export const steps = tool({
  description: "Works in steps.",
  input: { count: { type: "integer", minimum: 1, maximum: 1000 } },
  supportsBackground: true,
}, ({ count }, call) => {
  for (let done = 1; done <= count && !call.stopping; done++) {
    call.progress(done, count, `step ${done}`);
    console.log("did step", done);
  }
});

// Host call: a value that outlasts the call.
export const visits = tool({
  description: "Counts its calls.",
}, async (_, call) => {
  const { value = 0, version = 0 } = await call.kv.get("visits");
  await call.kv.set("visits", value + 1, { version });
  return value + 1;
});

// Image: a square of one color, as a bitmap.
export const square = tool({
  description: "Draws a square.",
  input: { red: "integer", green: "integer", blue: "integer" },
  readonly: true, idempotent: true,
}, ({ red, green, blue }, call) => {
  const side = 16, bytes = new Uint8Array(54 + side * side * 3), view = new DataView(bytes.buffer);
  bytes.set([0x42, 0x4d]);
  for (const [at, value] of [[2, bytes.length], [10, 54], [14, 40], [18, side], [22, side], [34, side * side * 3]]) view.setUint32(at, value, true);
  view.setUint32(26, 24 << 16 | 1, true);
  for (let i = 54; i < bytes.length; i += 3) bytes.set([blue, green, red], i);
  call.image(bytes, "image/bmp");
});

// A wait: in the background the run has no instance meanwhile, and survives a restart.
export const remind = tool({
  description: "Waits, and then says something.",
  input: { text: "string", seconds: { type: "number", minimum: 0 } },
  supportsBackground: true, idempotent: true,
}, async ({ text, seconds }, call) => {
  await call.sleep(seconds * 1000);
  return text;
});
