// The world of a tool written in JavaScript: what a module finds, how it waits, and what
// comes of a call. It is evaluated once, before the first call, and is a function of the
// host's functions; what it returns is called with each thing that happens, see shim.c.
// web.js is put in its place when a plugin is made: see js.go.
(function (read, write, start, call, progress, load, module, bound, environment, random, exit, file) {
  'use strict';
  const RESULT = 0, ERROR = 1, MANIFEST = 2, OUTPUT = 3, STDERR = 4, CONTENT = 5, DEBUG = 8, INFO = 9, WARN = 10, LOG_ERROR = 11;
  const OK = 0, FAILED = 1, BROKEN = 2, CONNECT = 3, WAITING = 4, AGAIN = 5;
  const source = 'tool.js'; // as stacks call the module
  const longest = 2 ** 52; // milliseconds

  const define = (object, members) => {
    for (const name of Object.keys(members)) Object.defineProperty(object, name, { value: members[name], writable: true, configurable: true });
  };
  const named = (type, name) => { define(type.prototype, { name }); return type; };

  // Failures.

  // ToolError is a failure that the tool reports: the model gets its message alone.
  const ToolError = named(class extends Error {}, 'ToolError');

  // HostError is an operation that failed, with its code: denied, unknown, invalid,
  // failed, limit, canceled, conflict or lost.
  const HostError = named(class extends Error {
    constructor(code, message) { super(message); this.code = code; }
  }, 'HostError');

  // ToolCallError is a tool that was called and did not succeed, with how it ended.
  const ToolCallError = named(class extends Error {
    constructor(tool, result) {
      super(result.error ?? result.kind);
      this.tool = tool;
      this.kind = result.kind;
      if (result.connection) this.connection = result.connection;
      if (result.limit) this.limit = result.limit;
    }
  }, 'ToolCallError');

  // ConnectionRequired ends the call: the user has to connect something first.
  const ConnectionRequired = named(class extends Error {
    constructor(provider, { subject, setup_url } = {}) {
      super(`connect ${provider} first`);
      this.connection = { provider, subject, setup_url };
    }
  }, 'ConnectionRequired');

  // origin turns a line of the bundle into file:line of the author, by the list that
  // toolhost build puts behind the module: a comment with the names of files, and for
  // each line of the module the numbers of a file and a line, or nothing.
  let lines;
  function origin(line) {
    if (!lines) {
      const script = read(4), at = script.lastIndexOf('\n//# lines=');
      lines = at < 0 ? { files: [], lines: [] } : JSON.parse(script.slice(at + 11));
    }
    const place = lines.lines[line - 1];
    return place ? `${lines.files[place[0]]}:${place[1]}` : undefined;
  }

  // traceback is the stack of an error, without the lines of this file.
  function traceback(e) {
    const stack = String(e?.stack ?? '').split('\n').filter((line) => line.includes(source + ':'));
    return stack.map((line) => '    ' + line.trim().replace(/tool\.js:(\d+)(?::\d+)?/, (all, n) => origin(+n) ?? all)).join('\n');
  }

  // brief is the type and the message of what was thrown; full also has where, and why.
  function brief(e) {
    if (!(e instanceof Error)) return 'Error: ' + show(e);
    return e.code !== undefined && e instanceof HostError ? `${e.name}: ${e.message} (${e.code})` : `${e.name}: ${e.message}`;
  }
  function full(e) {
    let text = brief(e), trace = traceback(e);
    if (trace) text += '\n' + trace;
    if (e instanceof AggregateError) for (const one of e.errors.slice(0, 5)) text += '\n  ' + brief(one);
    if (e?.cause !== undefined) text += '\ncaused by ' + full(e.cause);
    return text;
  }

  // show is a value as console writes it.
  function show(v, depth = 0, seen = []) {
    switch (typeof v) {
      case 'string': return depth ? JSON.stringify(v) : v;
      case 'bigint': return `${v}n`;
      case 'function': return `[function ${v.name || 'anonymous'}]`;
      case 'object': break;
      default: return String(v);
    }
    if (v === null) return 'null';
    if (v instanceof Error) return depth ? brief(v) : full(v);
    if (v instanceof Date || v instanceof RegExp || v instanceof URL) return String(v);
    if (seen.includes(v)) return '[circular]';
    if (depth > 3) return Array.isArray(v) ? '[…]' : '{…}';
    const inner = (x) => show(x, depth + 1, [...seen, v]);
    if (v instanceof Map) return `Map {${[...v].map(([k, x]) => `${inner(k)} => ${inner(x)}`).join(', ')}}`;
    if (v instanceof Set) return `Set {${[...v].map(inner).join(', ')}}`;
    if (Array.isArray(v) || ArrayBuffer.isView(v) && !(v instanceof DataView)) {
      const some = Array.from(v.length > 100 ? v.slice(0, 100) : v, inner);
      return `[${some.join(', ')}${v.length > 100 ? `, … ${v.length - 100} more` : ''}]`;
    }
    const type = v.constructor?.name, all = Object.keys(v).map((k) => `${/^[\w$]+$/.test(k) ? k : JSON.stringify(k)}: ${inner(v[k])}`);
    return `${type && type !== 'Object' ? type + ' ' : ''}{${all.length ? ` ${all.join(', ')} ` : ''}}`;
  }

  // Operations of the host.

  const pending = new Map(); // by id: { resolve, reject, op }
  let stopping = false; // the host has asked the call to stop

  const told = (code) => { if (code === 1) stopping = true; return code; };
  const response = () => JSON.parse(read(3) ?? '{}');

  // begin starts an operation, and resolves with its response. A signal ends it early.
  function begin(op, request = {}, { signal } = {}) {
    const id = start(op, JSON.stringify(request));
    if (id < 0) {
      const { code, message } = response();
      return Promise.reject(new HostError(code, message));
    }
    const end = new Promise((resolve, reject) => { pending.set(id, { resolve, reject }); });
    const cancel = () => { if (pending.has(id)) call('op.cancel', JSON.stringify({ id })); };
    if (signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    return end;
  }

  function ended(id, code) {
    const p = pending.get(id);
    if (!p) return; // the host may say it twice
    pending.delete(id);
    const answer = response();
    if (code < 0) p.reject(new HostError(answer.code, answer.message));
    else p.resolve(answer);
  }

  // Timers are operations too, so that a tool can wait for a week. Without a clock time
  // stands still: then they are called in their order once there is nothing else to do.
  const timers = new Map();
  let virtual = [], lastTimer = 0, now = 0;

  function timer(f, ms, repeat, args) {
    if (typeof f !== 'function') throw new TypeError('expected a function');
    const id = ++lastTimer, wait = Math.min(longest, Math.max(0, Math.ceil(+ms || 0)));
    const fire = () => {
      if (!timers.has(id)) return;
      if (repeat) turn(); else timers.delete(id);
      try { f(...args); } catch (e) { rejected.set(Promise.resolve(), e); }
    };
    const turn = () => {
      let cancel;
      const slept = start('sleep', JSON.stringify({ ms: wait }));
      if (slept < 0) {
        const t = { at: now + wait, id, fire };
        virtual.push(t);
        cancel = () => { virtual = virtual.filter((other) => other !== t); };
      } else {
        pending.set(slept, { resolve: fire, reject() { timers.delete(id); } });
        cancel = () => { call('op.cancel', JSON.stringify({ id: slept })); pending.delete(slept); };
      }
      timers.set(id, cancel);
    };
    turn();
    return id;
  }

  function clearTimer(id) {
    const cancel = timers.get(id);
    timers.delete(id);
    cancel?.();
  }

  function nextTimer() {
    let first = 0;
    for (let i = 1; i < virtual.length; i++) if (virtual[i].at < virtual[first].at) first = i;
    const [t] = virtual.splice(first, 1);
    now = t.at;
    t.fire();
  }

  // What a tool finds in its call.

  const printer = (stream) => (...values) => { told(write(stream, values.map((v) => show(v)).join(' ') + '\n')); };
  const logger = (stream) => (...values) => { told(write(stream, values.map((v) => show(v)).join(' '))); };

  const store = (prefix) => ({
    async get(key) { return begin(prefix + '.get', { key }); },
    async set(key, value, options = {}) { return begin(prefix + '.set', { key, value, ...options }); },
    async delete(key, options = {}) { return begin(prefix + '.delete', { key, ...options }); },
    async list(options = {}) { return begin(prefix + '.list', options); },
  });

  let about; // of the call, read once
  const context = () => about ??= JSON.parse(read(2) ?? '{}');

  const current = {
    get tool() { return read(1); },
    get id() { return context().call_id; },
    get session() { return context().session; },
    get attempt() { return context().attempt; },
    get locale() { return context().locale; },
    get config() { return context().config ?? {}; },
    get fuel() { return context().fuel; },
    get timeout() { return context().timeout_ms; },
    get stopping() { return stopping; },

    progress(done, total = -1, message = '') { return told(progress(+done, +total, String(message))); },
    write(stream, text) { return told(write(stream, String(text))); },
    output(text) { return told(write(OUTPUT, String(text))); },
    log: { debug: logger(DEBUG), info: logger(INFO), warn: logger(WARN), error: logger(LOG_ERROR) },

    content(block) {
      const code = told(write(CONTENT, JSON.stringify(typeof block === 'string' ? { type: 'text', text: block } : block)));
      if (code < 0) throw new HostError('invalid', response().message);
    },
    image(data, mimeType) { this.content({ type: 'image', data: typeof data === 'string' ? data : base64(bytesOf(data)), mimeType }); },

    host: begin,
    async sleep(ms) { await begin('sleep', { ms: Math.min(longest, Math.max(0, Math.ceil(+ms || 0))) }); },
    async report(report) { await begin('report', report); },
    async ask(questions) { return (await begin('ask', { questions })).answers; },
    session_values: store('session'), kv: store('kv'),
    checkpoint: {
      async save(value) { await begin('checkpoint.save', { data: base64(new TextEncoder().encode(JSON.stringify(value))) }); },
      async load() {
        const { data } = await begin('checkpoint.load');
        return data === undefined ? undefined : JSON.parse(new TextDecoder().decode(bytesFrom(data)));
      },
    },
    async receive(options = {}) { return (await begin('messages.receive', options)).messages; },
    async has(needs) { return (await begin('granted', needs)).granted; },
    async secretExists(name) { return (await begin('secret.exists', { name })).exists; },
    async search(query, limit) { return begin('tool.search', { query, limit }); },
    async callTool(tool, args = {}, options = {}) {
      const result = await begin('tool.call', { tool, args, timeout_ms: options.timeout });
      if (result.kind !== 'success') throw new ToolCallError(tool, result);
      return result.value !== undefined ? result.value : result.content;
    },
    tools: new Proxy({}, { get: (_, name) => typeof name === 'string' && name !== 'then' ? (args, options) => current.callTool(name, args, options) : undefined }),
  };

  // Tools.

  const isTool = Symbol('tool');
  const hints = ['title', 'needs', 'limits', 'examples', 'narrate', 'deferrable', 'annotations'];

  // schemaOf is the JSON Schema of what an author wrote: a schema of zod or any other
  // library that implements Standard JSON Schema, JSON Schema itself, or types by name,
  // those of optional properties with a question mark.
  function schemaOf(input = {}) {
    const standard = input['~standard'];
    if (standard) {
      const convert = standard.jsonSchema?.input;
      if (!convert) throw new TypeError(`this version of ${standard.vendor} has no JSON Schema: use a newer one, or give input as JSON Schema`);
      const { $schema, ...schema } = convert({ target: 'draft-2020-12' });
      return schema;
    }
    if (typeof input.type === 'string' && (input.type === 'object') || input.$schema || input.$ref || input.anyOf || input.allOf) return input;

    const properties = {}, required = [];
    for (const key of Object.keys(input)) {
      const name = key.endsWith('?') ? key.slice(0, -1) : key, type = input[key];
      if (typeof type === 'function') throw new TypeError(`input.${key} is a function: expected the name of a type, or JSON Schema`);
      properties[name] = typeof type === 'string' ? { type } : type;
      if (name === key && type?.default === undefined) required.push(name);
    }
    return { type: 'object', properties, ...(required.length && { required }), additionalProperties: false };
  }

  // tool declares a tool: what models are told of it, and the function that runs it.
  function tool(options, run) {
    if (typeof run !== 'function') throw new TypeError('tool takes what describes the tool, and a function');
    return { [isTool]: true, options, run };
  }

  function entry(name, { options: { description, input, name: _, ...rest } }) {
    const out = { name, description, input_schema: schemaOf(input) }, given = {};
    for (const key of Object.keys(rest)) {
      if (hints.includes(key)) out[key] = rest[key];
      else given[key.replace(/[A-Z]/g, (c) => '_' + c.toLowerCase())] = rest[key];
    }
    if (Object.keys(given).length) out.hints = given;
    return out;
  }

  let exported, broken; // the module's exports, or why there are none
  const tools = new Map();

  function collect(exports) {
    exported = exports;
    for (const name of Object.keys(exports)) {
      const t = exports[name];
      if (!t?.[isTool]) continue;
      const known = t.options.name ?? name;
      if (tools.has(known)) throw new Error(`there are two tools ${known}: give one of them another name`);
      tools.set(known, t);
    }
  }

  function manifest() {
    if (broken) throw broken.error;
    if (!exported) throw new Error('the module waits while it starts up: wait in the tools');
    if (!tools.size) throw new Error('the module exports no tool: write export const NAME = tool({ … }, async (args, call) => …)');
    if (!exported.plugin?.name) throw new Error('the module does not say its name: write export const plugin = { name: "…", version: "1.0.0", description: "…" }');
    return { abi: 'toolhost_v1', version: '1.0.0', ...exported.plugin, tools: [...tools].map(([name, t]) => entry(name, t)) };
  }

  // Calls.

  let outcome; // of the call: { code, stream, text }
  const rejected = new Map(); // promises that nothing handles, and why

  function failure(e) {
    if (e instanceof ToolError) return { code: FAILED, stream: ERROR, text: e.message };
    if (e?.connection?.provider !== undefined) return { code: CONNECT, stream: ERROR, text: JSON.stringify(e.connection) };
    write(LOG_ERROR, full(e));
    return { code: FAILED, stream: ERROR, text: brief(e) };
  }

  async function run() {
    try {
      if (broken) throw broken.error;
      const t = tools.get(read(1));
      if (!t) throw new Error(`the module has no tool ${read(1)}`);
      let args = JSON.parse(read(0));
      const check = t.options.input?.['~standard']?.validate;
      if (check) { // also for what a schema of such a library transforms
        const checked = await check(args);
        if (checked.issues) throw new ToolError(checked.issues.map((i) => [i.path?.map((p) => p.key ?? p).join('.'), i.message].filter(Boolean).join(': ')).join('; '));
        args = checked.value;
      }
      const value = await t.run(args, current);
      const text = value === undefined ? '' : JSON.stringify(value, plain);
      if (text === undefined) throw new TypeError(`the tool returned a ${typeof value}, which has no JSON`);
      outcome = { code: OK, stream: RESULT, text };
    } catch (e) {
      outcome = failure(e);
    }
  }

  // plain is what JSON has no form for, in the form that authors expect.
  function plain(_, v) {
    if (v instanceof Map) return Object.fromEntries(v);
    if (v instanceof Set) return [...v];
    if (v instanceof Promise) throw new TypeError('the result has a promise: await it');
    return v;
  }

  function describe() {
    try {
      outcome = { code: OK, stream: MANIFEST, text: JSON.stringify(manifest()) };
    } catch (e) {
      outcome = { code: FAILED, stream: ERROR, text: full(e) };
    }
  }

  // state says how things stand once there is nothing more to do.
  function state() {
    if (!outcome && virtual.length && !pending.size) {
      nextTimer();
      return AGAIN;
    }
    if (!outcome && pending.size) return WAITING;
    for (const e of rejected.values()) write(LOG_ERROR, 'not handled: ' + full(e));
    if (!outcome) {
      write(ERROR, 'the tool never finishes: it waits for a promise that nothing can resolve');
      return BROKEN;
    }
    write(outcome.stream, outcome.text);
    return outcome.code;
  }

/* web.js */

  define(globalThis, {
    toolhost: { tool, ToolError, HostError, ToolCallError, ConnectionRequired, file }, // file is for fs.js
    console: { log: printer(OUTPUT), info: printer(OUTPUT), debug: printer(OUTPUT), dir: printer(OUTPUT), table: printer(OUTPUT), warn: printer(STDERR), error: printer(STDERR), trace: printer(STDERR) },
    setTimeout: (f, ms, ...args) => timer(f, ms, false, args), clearTimeout: clearTimer,
    setInterval: (f, ms, ...args) => timer(f, ms, true, args), clearInterval: clearTimer,
  });

  try {
    module(source).then(collect).catch((e) => { broken = { error: e }; });
  } catch (e) {
    broken = { error: e };
  }

  return function step(what, a, b) {
    switch (what) {
      case 0: run(); return 0;
      case 1: ended(a, b); return 0;
      case 2: return state();
      case 3: rejected.set(a, b); return 0;
      case 4: rejected.delete(a); return 0;
      case 5: write(ERROR, 'the tool has no memory left'); return BROKEN;
      case 6: describe(); return 0;
    }
    return 0;
  };
})
