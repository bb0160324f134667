// The plugin of the vectors of abi/testdata, for the host's test. The bundler would make
// the first line of: import { tool, … } from "toolhost".
const { tool, ToolError, HostError, ConnectionRequired } = globalThis.toolhost;

export const plugin = { name: 'vectors', version: '1.0.0', description: 'Contract vectors.' };

const any = {}, codes = {}; // of inputs
const streams = { stdout: 3, stderr: 4 };

// ended is how an operation ended.
const ended = (promise) => promise.then((response) => ({ response }), (e) => {
  if (!(e instanceof HostError)) throw e;
  return { failure: e.code };
});

export const echo = tool({ description: 'Returns the value.', input: { value: any } }, async ({ value }) => value);
export const nothing = tool({ description: 'Has no result.' }, async () => {});
export const parts = tool({ description: 'Writes a result.', input: { parts: 'array', 'error?': 'string' } }, async ({ parts, error }, call) => {
  for (const part of parts) call.write(0, part);
  if (error) throw new ToolError(error);
});
export const fail = tool({ description: 'Fails.', input: { text: 'string' } }, async ({ text }) => { throw new ToolError(text); });
export const panic = tool({ description: 'Throws.', input: { text: 'string' } }, async ({ text }) => { throw new RangeError(text); });
export const connect = tool({ description: 'Asks for a connection.', input: { provider: 'string', 'subject?': 'string', 'setup_url?': 'string' } },
  async ({ provider, ...more }) => { throw new ConnectionRequired(provider, more); });
export const output = tool({ description: 'Writes output.', input: { writes: 'array' } }, async ({ writes }, call) => {
  for (const w of writes) call.write(streams[w.to], w.text);
});
export const print = tool({ description: 'Prints.', input: { writes: 'array' } }, async ({ writes }) => {
  for (const w of writes) (w.to === 'stdout' ? console.log : console.error)(w.text.replace(/\n$/, ''));
});
export const progress = tool({ description: 'Reports progress.', input: { steps: 'array' } },
  async ({ steps }, call) => ({ codes: steps.map((s) => call.progress(s.done, s.total, s.message)) }));
export const content = tool({ description: 'Adds content.', input: { blocks: 'array', 'error?': 'string', 'why?': 'boolean' } }, async ({ blocks, error, why }, call) => {
  const out = { codes: [], why: [] };
  for (const block of blocks) {
    try {
      call.content(block);
      out.codes.push(0);
    } catch (e) {
      out.codes.push(-3);
      out.why.push(e.message);
    }
  }
  if (error) throw new ToolError(error);
  return why ? out : { codes: out.codes };
});
export const log = tool({ description: 'Logs.', input: { records: 'array' } }, async ({ records }, call) => {
  for (const r of records) call.log[r.level](r.message);
});
export const write = tool({ description: 'Writes to a stream.', input: { stream: 'integer', text: 'string' } }, async ({ stream, text }, call) => ({ codes: [call.write(stream, text)] }));
export const facts = tool({ description: 'Returns facts.' }, async (_, call) => ({ tool: call.tool, session: call.session, attempt: call.attempt, locale: call.locale, config: call.config }));
export const host = tool({ description: 'Uses a capability.', input: { op: 'string', request: any } }, async ({ op, request }, call) => ended(call.host(op, request)));
export const report = tool({ description: 'Reports.', input: { reports: 'array', 'error?': 'string' } }, async ({ reports, error }, call) => {
  for (const { done, total, ...texts } of reports) {
    const [name] = Object.keys(texts).sort((a, b) => order.indexOf(a) - order.indexOf(b));
    if (name) await call.report({ [name]: texts[name] }); else call.progress(done, total ?? -1);
  }
  if (error) throw new ToolError(error);
});
const order = ['status', 'unit', 'summary'];
export const receive = tool({ description: 'Receives messages.', input: { count: 'integer' } }, async ({ count }, call) => {
  const out = [];
  let after = 0;
  for (let i = 0; i < count; i++) {
    const [m] = await call.receive({ after, wait_ms: 0 });
    out.push(m ? m.message : null);
    after = m?.id ?? after;
  }
  return out;
});
export const session = tool({ description: 'Uses values of the session.', input: { steps: 'array' } }, async ({ steps }, call) => {
  const out = [];
  for (const { do: what, key, value, version } of steps) {
    const options = version === undefined ? {} : { version }, s = call.session_values;
    const done = { get: () => s.get(key), set: () => s.set(key, value, options), delete: () => s.delete(key, options), list: () => s.list() }[what]();
    const end = await ended(done);
    if (end.response) {
      if (what === 'get') end.response = { version: end.response.version ?? 0, value: end.response.value ?? null };
      else if (what === 'set') end.response = version === undefined ? null : end.response.version;
      else if (what === 'list') end.response = end.response.values;
      else end.response = null;
    }
    out.push(end);
  }
  return out;
});
export const stop = tool({ description: 'Works until it is stopped.', input: { finish: 'boolean' } }, async ({ finish }, call) => {
  for (let n = 0; !call.stopping; n++) call.progress(n);
  call.output('stopping\n');
  if (!finish) throw new ToolError('canceled');
  return 'finished';
});
export const wait = tool({ description: 'Waits.', input: { rounds: 'array', 'quiet?': 'boolean', 'first?': 'boolean', 'error?': 'string' } }, async ({ rounds, quiet, first, error }, call) => {
  const out = [];
  for (const round of rounds) {
    const ends = round.map(() => null);
    const controllers = round.map(() => new AbortController());
    const all = round.map(async ({ op, request }, i) => {
      ends[i] = await ended(call.host(op, request, { signal: controllers[i].signal }));
      if (!quiet) call.output(`${i}\n`);
    });
    round.forEach(({ cancel }, i) => { if (cancel) controllers[i].abort(); });
    await (first ? Promise.race(all) : Promise.all(all));
    out.push(ends);
    if (first) break;
  }
  if (error) throw new ToolError(error);
  return out;
});
export const stuck = tool({ description: 'Waits for nothing.' }, () => new Promise(() => {}));
export const exit = tool({ description: 'Exits.', input: { code: 'integer' } }, async ({ code }) => { process.exit(code); });

let state_ = 0;
export const state = tool({ description: 'Counts its calls.' }, async () => ++state_);
