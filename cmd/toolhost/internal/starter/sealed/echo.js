// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "echo", version: "1.0.0", description: "Tries out calls and their progress." };
var echo = tool({
  description: "Returns the text it gets.",
  input: { text: "string" },
  readonly: true,
  idempotent: true,
  openWorld: false,
  examples: [{ args: { text: "hello" }, result: "hello" }]
}, async ({ text }) => text);
var report_progress = tool({
  description: "Reports progress step by step, with a pause before each step if the clock is granted.",
  input: {
    "steps?": { type: "integer", minimum: 1, maximum: 1e3, default: 5 },
    "seconds?": { type: "number", description: "Of each pause", minimum: 0, maximum: 60, default: 0 },
    "message?": { type: "string", maxLength: 200 }
  },
  readonly: true,
  idempotent: true,
  openWorld: false,
  supportsBackground: true,
  examples: [{ args: { steps: 3 }, result: { steps: 3 } }]
}, async ({ steps, seconds, message }, call) => {
  for (let done = 1; done <= steps; done++) {
    if (seconds > 0) await new Promise((resolve) => setTimeout(resolve, seconds * 1e3));
    if (call.progress(done, steps, message ?? `step ${done} of ${steps}`) === 1) throw new ToolError(`stopped after step ${done} of ${steps}`);
  }
  return { steps };
});
export {
  echo,
  plugin,
  report_progress
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,3],[1,5],[1,5],[1,6],[1,7],[1,8],[1,8],[1,8],[1,10],[1,13],[1,13],[1,14],[1,15],[1,16],[1,17],[1,18],[1,19],[1,20],[1,20],[1,20],[1,20],[1,22],[1,23],[1,24],[1,25],[1,25],[1,27],[1,28],null]}