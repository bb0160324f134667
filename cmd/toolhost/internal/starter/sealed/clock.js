// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "clock", version: "1.0.0", description: "Tells the time.", needs: { clock: true } };
var get_current_time = tool({
  description: "Tells the date and time.",
  input: { "utc_offset?": { type: "string", description: "Of a time zone, such as +02:00", default: "+00:00" } },
  readonly: true,
  openWorld: false,
  examples: [{ name: "bad offset", args: { utc_offset: "Paris" }, error: "expected an offset such as +02:00" }]
}, async ({ utc_offset: offset }) => {
  const parts = /^([+-])(0\d|1[0-4]):([0-5]\d)$/.exec(offset);
  if (!parts) throw new ToolError(`expected an offset such as +02:00, found ${JSON.stringify(offset.slice(0, 40))}`);
  const now = /* @__PURE__ */ new Date(), minutes = (parts[2] * 60 + +parts[3]) * (parts[1] === "-" ? -1 : 1);
  const there = new Date(now.getTime() + minutes * 6e4);
  const weekday = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"][there.getUTCDay()];
  return { time: there.toISOString().slice(0, 19) + offset, weekday, unix: Math.floor(now.getTime() / 1e3) };
});
export {
  get_current_time,
  plugin
};
//# lines={"files":["toolhost:toolhost","tool.js"],"lines":[null,[0,1],null,null,[1,3],[1,5],[1,5],[1,6],[1,7],[1,8],[1,8],[1,10],[1,11],[1,12],[1,13],[1,14],[1,15],[1,16],[1,17],null]}