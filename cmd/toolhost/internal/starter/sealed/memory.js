// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "memory", version: "1.0.0", description: "Remembers values by key, also for later sessions.", needs: { kv: "write" } };
var key = { type: "string", description: "Such as user.name", pattern: "^[A-Za-z0-9._:-]{1,128}$" };
var hints = { idempotent: true, openWorld: false };
var memory_set = tool({
  description: "Remembers a value for later sessions.",
  input: { key, value: { description: "Any JSON" } },
  ...hints,
  destructive: false,
  examples: [{ args: { key: "user.name", value: "Ana" }, result: null }]
}, async ({ key: key2, value }, call) => {
  try {
    await call.kv.set(key2, value);
  } catch (e) {
    if (e instanceof HostError && e.code === "limit") throw new ToolError(`there is no more space: delete what is no longer needed (${e.message})`);
    throw e;
  }
});
var memory_get = tool({
  description: "Returns a remembered value.",
  input: { key },
  ...hints,
  readonly: true,
  examples: [{ args: { key: "user.name" }, error: "no value for user.name" }]
}, async ({ key: key2 }, call) => {
  const { value, version } = await call.kv.get(key2);
  if (!version) throw new ToolError(`no value for ${key2}: memory_list returns the keys`);
  return { value };
});
var memory_list = tool({
  description: "Lists the keys of remembered values.",
  input: { "prefix?": { type: "string", maxLength: 128 }, "after?": { type: "string", description: "Key to continue after", maxLength: 128 } },
  ...hints,
  readonly: true,
  examples: [{ args: {}, result: { keys: [] } }]
}, async ({ prefix, after }, call) => {
  const { values, more } = await call.kv.list({ prefix, after });
  return { keys: values.map((v) => v.key), ...more && { more } };
});
var memory_delete = tool({
  description: "Deletes a remembered value.",
  input: { key },
  ...hints,
  examples: [{ args: { key: "user.name" }, result: { deleted: false } }]
}, async ({ key: key2 }, call) => ({ deleted: (await call.kv.delete(key2)).deleted }));
export {
  memory_delete,
  memory_get,
  memory_list,
  memory_set,
  plugin
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,3],[1,5],[1,6],[1,8],[1,8],[1,9],[1,10],[1,11],[1,11],[1,13],[1,14],[1,15],[1,15],[1,17],[1,18],[1,18],[1,20],[1,22],[1,22],[1,23],[1,24],[1,24],[1,24],[1,26],[1,27],[1,28],[1,29],[1,30],[1,32],[1,32],[1,33],[1,34],[1,35],[1,35],[1,37],[1,38],[1,39],[1,40],[1,42],[1,42],[1,43],[1,44],[1,44],[1,46],null]}