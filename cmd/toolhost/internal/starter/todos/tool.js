import { tool } from "toolhost";

export const plugin = { name: "todos", version: "1.0.0", description: "Keeps the todos of a session.", needs: { session: "write" } };

const key = "todos";

export const write_todos = tool({
  description: "Replaces the list of todos of this session. Without todos it returns the list.",
  input: {
    "todos?": {
      type: "array", maxItems: 100,
      items: {
        type: "object", required: ["content", "status"], additionalProperties: false,
        properties: { content: { type: "string", minLength: 1, maxLength: 500 }, status: { enum: ["pending", "in_progress", "completed"] } },
      },
    },
  },
  idempotent: true, openWorld: false, destructive: false,
  examples: [
    { args: {}, result: { todos: [] } },
    { args: { todos: [{ content: "Read", status: "completed" }, { content: "Write", status: "pending" }] }, result: { total: 2, completed: 1 } },
  ],
}, async ({ todos }, call) => {
  if (!todos) return { todos: (await call.session_values.get(key)).value ?? [] };
  await call.session_values.set(key, todos);
  return { total: todos.length, completed: todos.filter((t) => t.status === "completed").length };
});
