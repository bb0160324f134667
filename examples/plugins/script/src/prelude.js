// The world of a script: what it can call, how it waits, and what it has come to. It is
// evaluated once, before the first call, and is a function of the host's functions. What
// it returns is called with each thing that happens, see guest/js/src/shim.c. Nothing here trusts what
// a script may have replaced, such as a method of a prototype, more than it must: the
// sandbox is around all of it, and a script can only break itself.
(function (read, write, start, call, progress, load, module, bound) {
  'use strict';
  const { JSON, Object, Array, ArrayBuffer, Map, Set, Date, RegExp, Math, String, Promise, Proxy, Error, TypeError, SyntaxError, AggregateError, Function, isNaN } = globalThis;
  const { stringify, parse } = JSON, { keys, create, defineProperty } = Object;
  const AsyncFunction = (async () => {}).constructor;
  const RESULT = 0, ERROR = 1, OUTPUT = 3, STDERR = 4, CONTENT = 5;
  const OK = 0, FAILED = 1, CONNECT = 3, WAITING = 4;
  const most = 2000; // characters of a value in the output, and of a message
  const mostRejected = 20; // rejections that are reported
  const longest = 2 ** 52; // milliseconds

  bound(48 << 20);

  let outcome; // of the script: { code, text }
  let source = ''; // as it was sent
  let offset = 0; // lines that AsyncFunction puts in front of it
  const pending = create(null); // operations by id: { resolve, reject, tool }
  let waits = 0, called = 0; // how many are pending, and how many of these are calls of tools
  const rejected = create(null); // by number: promises that nothing handles, and their reasons
  let rejections = 0, kept = 0, dropped = 0;
  let reserve = new ArrayBuffer(32 << 10); // given up to say that there is no memory left

  // Failures.

  class ToolError extends Error {
    constructor(kind, message, tool, site, more) {
      super(message);
      if (site) this.stack = site; // where the script called it
      defineProperty(this, 'name', { value: 'ToolError', configurable: true, writable: true });
      this.kind = kind;
      if (tool) this.tool = tool;
      if (more) Object.assign(this, more);
    }
  }

  // place is where a stack has its first line of the script: its number, column and text.
  function place(stack) {
    const found = /<input>:(\d+)(?::(\d+))?/.exec(stack) ?? /<anonymous>:(\d+)(?::(\d+))?/.exec(stack);
    const n = found ? +found[1] - offset : 0;
    const lines = source.split('\n');
    return n > 0 && n <= lines.length ? { line: n, column: +(found[2] ?? 1), text: lines[n - 1] } : undefined;
  }

  // excerpt is a line for who wrote it: of a long one, what is around the column.
  function excerpt({ line, column, text }) {
    const all = text.trim();
    if (all.length <= 160) return `line ${line}: ${all}`;
    const from = Math.max(0, Math.min(column - 61, text.length - 160));
    return `line ${line}, column ${column}: ${from > 0 ? '…' : ''}${text.slice(from, from + 160)}${from + 160 < text.length ? '…' : ''}`;
  }

  // brief is a text of which too much would be in the way.
  function brief(text) {
    text = String(text);
    return text.length <= most ? text : `${text.slice(0, most)}… (${text.length} characters)`;
  }

  // describe says what went wrong, where, and what to do.
  function describe(e) {
    if (e === null) return 'the script threw null, as it also does if it has no memory left';
    if (!(e instanceof Error)) return 'the script threw ' + brief(show(e));
    const short = (x) => brief(x instanceof Error ? `${x.name}: ${x.message}` : show(x));
    let text = short(e);
    if (e.tool && e.name === 'ToolError') text = `${brief(e.tool)}: ${brief(e.message)} (${e.kind})`;
    const where = place(String(e.stack));
    if (where) text += `\n  ${excerpt(where)}`;
    if (e.cause !== undefined) text += `\n  cause: ${short(e.cause)}`;
    if (e instanceof AggregateError) for (const one of e.errors.slice(0, 5)) text += `\n  ${short(one)}`;
    const advice = hint(e);
    return advice ? `${text}\n${advice}` : text;
  }

  // told is describe for whatever a script may throw, and whatever it has broken before.
  function told(e) {
    reserve = undefined;
    try { return describe(e); } catch { /* a Proxy, say */ }
    try { return `${e.name}: ${e.message}`; } catch { return 'the script threw something that cannot be shown'; }
  }

  const example = 'Write JavaScript, such as:\n  const r = await tools.NAME({ … });\n  return r;';
  const commands = /^(?:\$ )?(?:sudo|ls|cat|cd|cp|mv|rm|mkdir|touch|echo|grep|find|head|tail|sed|awk|curl|wget|git|npm|npx|node|python3?|pip3?|bash|sh|docker|kubectl|apt(?:-get)?|brew|make|go|cargo|export)(?:\s+[^\s=(.;]|\s*$)/;
  const python = /^[ \t]*(?:def \w+\(.*\)\s*(?:->.*)?:|from \w[\w.]* import |import \w+(?: as \w+)?\s*$|(?:el)?if .*:\s*$|for \w+ in .*:\s*$|print\s+|with .* as \w+:|class \w+(?:\(.*\))?:|@\w+\s*$|while .*:\s*$)/m;

  const modules = /^[ \t]*(?:import\b[ \t{*'"]|export[ \t]+(?:default|const|let|var|function|async|class|interface|type|enum|[{*]))/m;
  const noModules = `There are no modules here: everything that a script can use is global. ${example}`;

  // hint says what to write instead of what cannot work here.
  function hint(e) {
    const missing = e.name === 'ReferenceError' ? /^'?([\w$]+)'? is not defined/.exec(e.message)?.[1] : undefined;
    if (e.name === 'SyntaxError' || missing !== undefined) {
      const text = source.trimStart();
      if (python.test(source)) return `This looks like Python. ${example}`;
      if (e.name === 'SyntaxError' && modules.test(source)) return noModules;
      if (commands.test(text) && !/^\w+\s*\(/.test(text)) return `This looks like a shell command. There is no shell here. ${example}`;
    }
    if (e.message.startsWith('could not load module')) return noModules;
    if (e.name === 'InternalError' && e.message === 'out of memory') return 'A script has 48 MiB at most: keep less at a time.';
    switch (missing) {
      case undefined: break;
      case 'require': case 'module': case 'exports':
        return noModules;
      case 'fetch': case 'XMLHttpRequest':
        return "There is no network here: find a tool for it with await search('http request').";
      case 'process': case 'fs': case 'Deno': case 'Bun': case 'Buffer': case 'window': case 'document': case 'child_process':
        return `This is neither Node nor a browser. ${example}`;
      case 'print':
        return 'Use console.log(…), or return the value.';
      default:
        if (new RegExp(`(?:^|[^.\\w$])${missing.replaceAll('$', '\\$')}\\s*\\(`).test(source)) return `Tools are called as await tools.${missing}({ … }).`;
    }
    return '';
  }

  // show is a value as console writes it.
  function show(v, seen = [], depth = 0) {
    switch (typeof v) {
      case 'string': return depth ? stringify(v) : v;
      case 'bigint': return `${v}n`;
      case 'function': return `[function ${v.name || 'anonymous'}]`;
      case 'symbol': return v.toString();
      case 'object': break;
      default: return String(v);
    }
    try {
      if (v === null) return 'null';
      if (v instanceof Error) return depth ? `${v.name}: ${v.message}` : describe(v);
      if (v instanceof Date) return isNaN(v) ? 'Invalid Date' : v.toISOString();
      if (v instanceof RegExp) return String(v);
      if (v instanceof Promise) return '[promise: await it]';
      if (seen.includes(v)) return '[circular]';
      if (depth > 5) return Array.isArray(v) ? '[…]' : '{…}';
      seen = [...seen, v];
      const inner = (x) => show(x, seen, depth + 1);
      const list = (all, f) => (all.length > 100 ? [...all.slice(0, 100).map(f), `… ${all.length - 100} more`] : all.map(f)).join(', ');
      if (Array.isArray(v)) return `[${list(v, inner)}]`;
      if (v instanceof Map) return `Map {${list([...v], ([k, x]) => `${inner(k)} => ${inner(x)}`)}}`;
      if (v instanceof Set) return `Set {${list([...v], inner)}}`;
      if (ArrayBuffer.isView(v) && 'length' in v) return `${v.constructor.name} [${list([...v.slice(0, 101)], inner)}]`;
      const name = v.constructor && v.constructor !== Object ? `${v.constructor.name} ` : '';
      return `${name}{${list(keys(v), (k) => `${/^[A-Za-z_$][\w$]*$/.test(k) ? k : stringify(k)}: ${inner(v[k])}`)}}`;
    } catch {
      return '[object that cannot be shown]';
    }
  }

  const printer = (stream) => (...args) => {
    write(stream, args.map((v) => {
      if (typeof v === 'string') return v;
      try { return brief(show(v)); } catch { return `[${typeof v} that cannot be shown]`; }
    }).join(' ') + '\n');
  };

  // Rejections that nothing handles are reported at the end. The first are kept, the
  // others counted.
  function reject(promise, reason) {
    if (kept >= mostRejected) { dropped++; return; }
    rejected[++rejections] = { promise, reason };
    kept++;
  }
  function handle(promise) {
    for (const n in rejected) {
      if (rejected[n].promise === promise) { delete rejected[n]; kept--; return; }
    }
    if (dropped > 0) dropped--;
  }

  // Operations of the host.

  const here = () => new Error().stack;

  function begin(op, request, site, tool) {
    const id = start(op, stringify(request));
    if (id < 0) {
      const failure = parse(read(3));
      return Promise.reject(new ToolError(failure.code, failure.message, tool, site));
    }
    return new Promise((resolve, reject) => { expect(id, { resolve, reject, site, tool }); });
  }

  function expect(id, p) {
    pending[id] = p;
    waits++;
    if (p.tool !== undefined) called++;
  }

  function ended(id, code) {
    const p = pending[id];
    if (!p) return; // the host may say it twice
    delete pending[id];
    waits--;
    if (p.tool !== undefined) called--;
    const answer = parse(read(3));
    if (code < 0) p.reject(new ToolError(answer.code, answer.message, p.tool, p.site));
    else p.resolve(answer);
  }

  // request begins a call of a tool.
  function request(site, name, args, options) {
    if (args === undefined) args = {};
    if (args === null || typeof args !== 'object' || Array.isArray(args)) {
      throw new TypeError(`tools.${name} takes one object with its arguments: await tools.${name}({ … })`);
    }
    const call = { tool: name, args };
    if (options?.timeout !== undefined) call.timeout_ms = Math.max(1, Math.round(+options.timeout));
    return begin('tool.call', call, site, name);
  }

  async function raw(site, name, args, options) { return await request(site, name, args, options); }

  async function value(site, name, args, options) {
    const r = await request(site, name, args, options);
    if (r.kind === 'success') return r.value !== undefined ? r.value : r.content;
    throw new ToolError(r.kind, r.error ?? r.kind, name, site, r.connection ? { connection: r.connection } : r.limit ? { limit: r.limit } : undefined);
  }

  const tools = new Proxy(create(null), {
    get(known, name) {
      if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
      return known[name] ??= Object.assign((args, options) => value(here(), name, args, options), { raw: (args, options) => raw(here(), name, args, options) });
    },
    has: () => true,
    set() { throw new TypeError('tools cannot be changed'); },
    deleteProperty: () => false,
    defineProperty: () => false,
    ownKeys() { throw new TypeError("tools cannot be listed: await search('words') finds them"); },
  });

  const milliseconds = (ms) => Math.min(longest, Math.max(0, Math.ceil(+ms || 0)));

  // Timers are operations too, so that a script can wait for a week.
  const timers = create(null);
  let lastTimer = 0;
  function timer(f, ms, repeat, args) {
    if (typeof f !== 'function') throw new TypeError('setTimeout takes a function');
    const n = ++lastTimer, wait = milliseconds(ms);
    const turn = () => {
      const id = start('sleep', stringify({ ms: wait }));
      if (id < 0) { const failure = parse(read(3)); delete timers[n]; throw new ToolError(failure.code, failure.message, undefined, here()); }
      timers[n] = id;
      expect(id, {
        reject() { delete timers[n]; }, resolve() {
          if (!(n in timers)) return;
          if (repeat) turn(); else delete timers[n];
          try { f(...args); } catch (e) { reject(undefined, e); }
        },
      });
    };
    turn();
    return n;
  }
  function clear(n) {
    const id = timers[n];
    if (id === undefined) return;
    delete timers[n];
    call('op.cancel', stringify({ id }));
  }

  async function sleep(ms) { await begin('sleep', { ms: milliseconds(ms) }, here()); }

  async function ask(message, schema) {
    const answers = (await begin('ask', { questions: { answer: { message: String(message), schema: schema ?? { type: 'object', properties: { answer: { type: 'string', title: 'Answer' } }, required: ['answer'] } } } }, here())).answers;
    return answers.answer;
  }

  async function search(query, limit) {
    const request = { query: String(query) };
    if (limit !== undefined) request.limit = limit;
    return (await begin('tool.search', request, here())).tools;
  }

  const output = printer(OUTPUT), errors = printer(STDERR);
  const globals = {
    tools, ToolError, sleep, ask, search,
    progress(done, total, message) {
      if (progress(+done || 0, total === undefined ? -1 : +total, message === undefined ? '' : String(message)) < 0) throw new TypeError('progress takes a number, a total and a message');
    },
    show(block) {
      if (write(CONTENT, stringify(typeof block === 'string' ? { type: 'text', text: block } : block)) < 0) throw new TypeError(parse(read(3) ?? '{"message":"no content block"}').message);
    },
    setTimeout: (f, ms, ...args) => timer(f, ms, false, args), clearTimeout: clear,
    setInterval: (f, ms, ...args) => timer(f, ms, true, args), clearInterval: clear,
    console: { log: output, info: output, debug: output, table: output, dir: output, trace: errors, warn: errors, error: errors },
  };
  for (const name of keys(globals)) defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true });

  // The seed of Math.random is the call, so that two calls differ, and a call that
  // continues elsewhere does not.
  function seed(text) {
    let a = 0x9e3779b9, b = 0x243f6a88, c = 0xb7e15162, d = text.length;
    for (let i = 0; i < text.length; i++) {
      a = Math.imul(a ^ text.charCodeAt(i), 0x85ebca6b);
      b = Math.imul(b + a, 0xc2b2ae35) ^ (b >>> 13);
    }
    const next = () => { // sfc32, of PractRand by Chris Doty-Humphrey, in the public domain
      const t = (a + b + d) | 0;
      d = (d + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = ((c << 21) | (c >>> 11)) + t | 0;
      return t >>> 0;
    };
    for (let i = 0; i < 12; i++) next();
    Math.random = () => (next() * 0x200000 + (next() >>> 11)) / 0x20000000000000;
  }

  // Running the script.

  // compile returns a function that does what JavaScript or TypeScript says, and its text
  // as JavaScript. Of two errors, that further on is the one that
  // the author has made: the parser of JavaScript stops at the first type.
  function compile(code) {
    try {
      return { run: new AsyncFunction(code), text: code };
    } catch (e) {
      if (!(e instanceof SyntaxError)) throw e;
      const last = place(String(e.stack))?.line ?? 0;

      let stripped;
      try {
        stripped = load().strip(code);
      } catch (other) {
        if (!(other?.loc?.line > last)) throw e; // it is no TypeScript either
        const found = new SyntaxError(String(other.message).replace(/^Error transforming[^:]*: /, ''));
        found.stack = `<input>:${other.loc.line + offset}:${other.loc.column}`;
        throw found;
      }
      if (stripped === code) throw e;

      try {
        return { run: new AsyncFunction(stripped), text: stripped };
      } catch (other) {
        throw place(String(other.stack))?.line > last ? other : e;
      }
    }
  }

  // Models also send a script in a fence, or as one function that is never called. These are
  // sticky, or QuickJS tries each place of the text; each is used once.
  const fence = /\s*```\w*[ \t]*\n([^]*?)\n[ \t]*```\s*$/y;
  const whole = /\s*(?:async\s*)?(?:\(\s*\)\s*=>|function\b\s*\w*\s*\(\s*\))/y;

  // program is the function that a script is.
  function program(code) {
    let made, failure;
    try { made = compile(code); } catch (e) { failure = e; }

    const text = made?.text ?? code;
    if (whole.test(text)) {
      try {
        const f = new AsyncFunction(`return (${text.replace(/[;\s]+$/, '')}\n)`);
        return async () => (await f())();
      } catch { /* more than one function */ }
    }
    if (!made) throw failure;
    return made.run;
  }

  // result is the JSON of what a script returned, or throws.
  function result(v) {
    if (v === undefined) return undefined;
    if (typeof v === 'function' || typeof v === 'symbol') throw new TypeError(`the script returned a ${typeof v}: return data`);
    const text = stringify(v, (key, x) => {
      if (x instanceof Promise) throw new TypeError(`the result has a promise${key ? ` as ${stringify(key)}` : ''}: await it, or all of a list with await Promise.all(list)`);
      if (typeof x === 'bigint') throw new TypeError(`the result has a BigInt${key ? ` as ${stringify(key)}` : ''}: convert it with Number(x) or String(x)`);
      if (x instanceof Map) return Object.fromEntries(x);
      if (x instanceof Set) return [...x];
      return x;
    });
    if (text === undefined) throw new TypeError('the script returned what has no JSON: return data');
    return text;
  }

  async function run() {
    try {
      const { code } = parse(read(0));
      source = code;
      seed(parse(read(2)).call_id);
      const fenced = fence.exec(code);
      if (fenced) source = code.slice(0, fenced.index + fenced[0].indexOf('`')).replace(/[^\n]/g, '') + '\n' + fenced[1];
      const v = await program(source)();
      const text = result(v);
      outcome = { code: OK, stream: RESULT, text: text ?? '' };
    } catch (e) {
      outcome = connection(e) ?? { code: FAILED, stream: ERROR, text: told(e) };
    }
  }

  // connection is the outcome of a script that ends with a ToolError that asks for one.
  function connection(e) {
    try {
      return e instanceof ToolError && e.connection ? { code: CONNECT, stream: ERROR, text: stringify(e.connection) } : undefined;
    } catch { return undefined; }
  }

  // state says how things stand once there is nothing more to do: a script waits for what
  // it has awaited, and one that has ended for the tools that it has called and not
  // awaited, because they may do something.
  function state() {
    if ((outcome ? called : waits) > 0) return WAITING;
    outcome ??= { code: FAILED, stream: ERROR, text: 'the script waits for a promise that nothing can resolve' };
    for (const n in rejected) write(STDERR, 'Not handled: ' + told(rejected[n].reason) + '\n');
    if (dropped > 0) write(STDERR, `Not handled: ${dropped} more\n`);
    write(outcome.stream, outcome.text);
    return outcome.code;
  }

  // broken is the end of a script that has left too little for any other.
  function broken() {
    reserve = undefined;
    write(ERROR, 'the script has no memory left, or has broken what runs it');
    return FAILED;
  }

  // AsyncFunction puts lines in front of the code: count them.
  try { new Function('throw new Error()')(); } catch (e) {
    const found = /<input>:(\d+)/.exec(e.stack) ?? /<anonymous>:(\d+)/.exec(e.stack);
    offset = found ? +found[1] - 1 : 0;
  }

  return function step(what, a, b) {
    switch (what) {
      case 0: run(); return 0;
      case 1: ended(a, b); return 0;
      case 2: return state();
      case 3: reject(a, b); return 0;
      case 4: handle(a); return 0;
      case 5: return broken();
    }
    return 0;
  };
})
