import { tool, ToolError, HostError } from "toolhost";

export const plugin = { name: "memory", version: "1.0.0", description: "Remembers values by key, also for later sessions.", needs: { kv: "write" } };

const key = { type: "string", description: "Such as user.name", pattern: "^[A-Za-z0-9._:-]{1,128}$" };
const hints = { idempotent: true, openWorld: false };

export const memory_set = tool({
  description: "Remembers a value for later sessions.",
  input: { key, value: { description: "Any JSON" } },
  ...hints, destructive: false,
  examples: [{ args: { key: "user.name", value: "Ana" }, result: null }],
}, async ({ key, value }, call) => {
  try {
    await call.kv.set(key, value);
  } catch (e) {
    if (e instanceof HostError && e.code === "limit") throw new ToolError(`there is no more space: delete what is no longer needed (${e.message})`);
    throw e;
  }
});

export const memory_get = tool({
  description: "Returns a remembered value.",
  input: { key }, ...hints, readonly: true,
  examples: [{ args: { key: "user.name" }, error: "no value for user.name" }],
}, async ({ key }, call) => {
  const { value, version } = await call.kv.get(key);
  if (!version) throw new ToolError(`no value for ${key}: memory_list returns the keys`);
  return { value };
});

export const memory_list = tool({
  description: "Lists the keys of remembered values.",
  input: { "prefix?": { type: "string", maxLength: 128 }, "after?": { type: "string", description: "Key to continue after", maxLength: 128 } },
  ...hints, readonly: true,
  examples: [{ args: {}, result: { keys: [] } }],
}, async ({ prefix, after }, call) => {
  const { values, more } = await call.kv.list({ prefix, after });
  return { keys: values.map((v) => v.key), ...(more && { more }) };
});

export const memory_delete = tool({
  description: "Deletes a remembered value.",
  input: { key }, ...hints,
  examples: [{ args: { key: "user.name" }, result: { deleted: false } }],
}, async ({ key }, call) => ({ deleted: (await call.kv.delete(key)).deleted }));
