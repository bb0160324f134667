import { tool, ToolError } from "toolhost";

export const plugin = { name: "echo", version: "1.0.0", description: "Tries out calls and their progress." };

export const echo = tool({
  description: "Returns the text it gets.",
  input: { text: "string" },
  readonly: true, idempotent: true, openWorld: false,
  examples: [{ args: { text: "hello" }, result: "hello" }],
}, async ({ text }) => text);

// Without a clock the pauses take no time.
export const report_progress = tool({
  description: "Reports progress step by step, with a pause before each step if the clock is granted.",
  input: {
    "steps?": { type: "integer", minimum: 1, maximum: 1000, default: 5 },
    "seconds?": { type: "number", description: "Of each pause", minimum: 0, maximum: 60, default: 0 },
    "message?": { type: "string", maxLength: 200 },
  },
  readonly: true, idempotent: true, openWorld: false, supportsBackground: true,
  examples: [{ args: { steps: 3 }, result: { steps: 3 } }],
}, async ({ steps, seconds, message }, call) => {
  for (let done = 1; done <= steps; done++) {
    if (seconds > 0) await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    if (call.progress(done, steps, message ?? `step ${done} of ${steps}`) === 1) throw new ToolError(`stopped after step ${done} of ${steps}`);
  }
  return { steps };
});
