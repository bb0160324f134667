import { tool, ToolError } from "toolhost";

export const plugin = { name: "clock", version: "1.0.0", description: "Tells the time.", needs: { clock: true } };

export const get_current_time = tool({
  description: "Tells the date and time.",
  input: { "utc_offset?": { type: "string", description: "Of a time zone, such as +02:00", default: "+00:00" } },
  readonly: true, openWorld: false,
  examples: [{ name: "bad offset", args: { utc_offset: "Paris" }, error: "expected an offset such as +02:00" }],
}, async ({ utc_offset: offset }) => {
  const parts = /^([+-])(0\d|1[0-4]):([0-5]\d)$/.exec(offset);
  if (!parts) throw new ToolError(`expected an offset such as +02:00, found ${JSON.stringify(offset.slice(0, 40))}`);
  const now = new Date(), minutes = (parts[2] * 60 + +parts[3]) * (parts[1] === "-" ? -1 : 1);
  const there = new Date(now.getTime() + minutes * 60_000);
  const weekday = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"][there.getUTCDay()];
  return { time: there.toISOString().slice(0, 19) + offset, weekday, unix: Math.floor(now.getTime() / 1000) };
});
