// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "todos", version: "1.0.0", description: "Keeps the todos of a session.", needs: { session: "write" } };
var key = "todos";
var write_todos = tool({
  description: "Replaces the list of todos of this session. Without todos it returns the list.",
  input: {
    "todos?": {
      type: "array",
      maxItems: 100,
      items: {
        type: "object",
        required: ["content", "status"],
        additionalProperties: false,
        properties: { content: { type: "string", minLength: 1, maxLength: 500 }, status: { enum: ["pending", "in_progress", "completed"] } }
      }
    }
  },
  idempotent: true,
  openWorld: false,
  destructive: false,
  examples: [
    { args: {}, result: { todos: [] } },
    { args: { todos: [{ content: "Read", status: "completed" }, { content: "Write", status: "pending" }] }, result: { total: 2, completed: 1 } }
  ]
}, async ({ todos }, call) => {
  if (!todos) return { todos: (await call.session_values.get(key)).value ?? [] };
  await call.session_values.set(key, todos);
  return { total: todos.length, completed: todos.filter((t) => t.status === "completed").length };
});
export {
  plugin,
  write_todos
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,3],[1,5],[1,7],[1,7],[1,8],[1,9],[1,10],[1,11],[1,11],[1,12],[1,13],[1,13],[1,13],[1,14],[1,15],[1,16],[1,17],[1,18],[1,18],[1,18],[1,19],[1,20],[1,21],[1,23],[1,24],[1,25],[1,26],[1,27],null]}