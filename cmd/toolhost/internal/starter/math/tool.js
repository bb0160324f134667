import { tool, ToolError } from "toolhost";

export const plugin = { name: "math", version: "1.0.0", description: "Calculates." };

const input = { a: "number", b: "number" };
const hints = { input, readonly: true, idempotent: true, openWorld: false };

function finite(result) {
  if (!Number.isFinite(result)) throw new ToolError("the result is too large for a number");
  return result;
}

export const add = tool({ description: "a + b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: 5 }, { args: { a: 1.7e308, b: 1.7e308 }, error: "too large" }] }, ({ a, b }) => finite(a + b));
export const subtract = tool({ description: "a - b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: -1 }] }, ({ a, b }) => finite(a - b));
export const multiply = tool({ description: "a × b", ...hints, examples: [{ args: { a: 2, b: 3 }, result: 6 }] }, ({ a, b }) => finite(a * b));
export const divide = tool({
  description: "a ÷ b", ...hints, examples: [{ args: { a: 3, b: 2 }, result: 1.5 }, { args: { a: 1, b: 0 }, error: "division by zero" }],
}, ({ a, b }) => {
  if (b === 0) throw new ToolError("division by zero");
  return finite(a / b);
});
