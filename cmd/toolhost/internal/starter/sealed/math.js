// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "math", version: "1.0.0", description: "Calculates." };
var input = { a: "number", b: "number" };
var hints = { input, readonly: true, idempotent: true, openWorld: false };
function finite(result) {
  if (!Number.isFinite(result)) throw new ToolError("the result is too large for a number");
  return result;
}
var add = tool({ description: "a + b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: 5 }, { args: { a: 17e307, b: 17e307 }, error: "too large" }] }, ({ a, b }) => finite(a + b));
var subtract = tool({ description: "a - b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: -1 }] }, ({ a, b }) => finite(a - b));
var multiply = tool({ description: "a × b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: 6 }] }, ({ a, b }) => finite(a * b));
var divide = tool({
  description: "a ÷ b",
  ...hints,
  examples: [{ args: { a: 3, b: 2 }, result: 1.5 }, { args: { a: 1, b: 0 }, error: "division by zero" }]
}, ({ a, b }) => {
  if (b === 0) throw new ToolError("division by zero");
  return finite(a / b);
});
export {
  add,
  divide,
  multiply,
  plugin,
  subtract
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,3],[1,5],[1,6],[1,8],[1,9],[1,10],[1,11],[1,13],[1,14],[1,15],[1,16],[1,16],[1,17],[1,17],[1,18],[1,19],[1,20],[1,21],null]}