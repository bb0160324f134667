// The world of a script: what it can call, how it waits, and what it has come to. It is
// evaluated once, before the first call, and is a function of the host's functions. What
// it returns is called with each thing that happens, see guest/js/src/shim.c. Nothing here trusts what
// a script may have replaced, such as a method of a prototype, more than it must: the
// sandbox is around all of it, and a script can only break itself.
(function (read, write, start, call, progress, load, module, bound) {
  'use strict';
  const { JSON, Object, Array, ArrayBuffer, Map, Set, WeakMap, Date, RegExp, Math, Number, BigInt, String, Symbol, Promise, Proxy, Reflect, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError, Function, isNaN } = globalThis;
  const { stringify, parse } = JSON, { keys, create, defineProperty, hasOwn } = Object, { now } = Date;
  const AsyncFunction = (async () => {}).constructor;
  const RESULT = 0, ERROR = 1, OUTPUT = 3, STDERR = 4, CONTENT = 5;
  const OK = 0, FAILED = 1, CONNECT = 3, WAITING = 4;
  const most = 2000; // characters of a value in the output, and of a message
  const mostRejected = 20; // rejections that are reported
  const mostPending = 63; // operations: the host allows one more, which is that of the timers
  const mostQueued = 2000; // operations, more than a script may call tools
  const mostImplied = 1 << 20; // characters of a result that a script has not returned itself
  const deepest = 5000; // lists and objects in each other in such a result; the host refuses 10,000
  const mostGuarded = 100; // objects of a value
  const mostNamed = 20; // properties in a message
  const failures = ['error', 'errors', 'isError']; // which models test, and which throw here
  const mostRecent = 20; // writes to the output that are remembered
  const longest = 2 ** 52; // milliseconds

  bound(48 << 20);

  const define = (object, members) => {
    for (const name of keys(members)) defineProperty(object, name, { value: members[name], writable: true, configurable: true });
  };

  let returned = false, value; // by the script, until it is the outcome
  let implied; // where the expression begins whose value the script did not return itself: { line, column }
  let compiled = false; // the script
  let returnsLast = false; // it seems to end with return
  let early = ''; // what it had not awaited then
  let hanging = false; // the script has ended, and such a value is a promise
  let unusable = ''; // why there is no such value
  let outcome; // of the script: { code, stream, text }
  let source = ''; // as it was sent
  let offset = 0; // lines that AsyncFunction puts in front of it
  const pending = create(null); // operations by id: { resolve, reject, tool }
  const queued = []; // operations that wait until another has ended: { op, p, text }
  let waits = 0, called = 0; // how many are pending; how many calls of tools are pending or queued
  const recent = []; // what was last written to the output
  let shown = false; // the script has added a content block
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

  // An error keeps its message in JSON.
  define(Error.prototype, {
    toJSON() {
      const out = { name: this.name, message: this.message };
      for (const key of keys(this)) if (key !== 'stack' && key !== 'cause') out[key] = this[key];
      const { cause } = this;
      if (cause !== undefined) out.cause = cause instanceof Error ? { name: cause.name, message: cause.message } : cause;
      if (this instanceof AggregateError) out.errors = this.errors;
      return out;
    },
  });

  // Reading a property that a promise does not have throws: await was forgotten. So does
  // making text of a promise, and iterating over it.
  const calls = new WeakMap(); // of tools, by promise: { tool, site, … }
  let answering = false; // the result is being written
  const ofValues = ['toString', 'toLocaleString', 'valueOf'];
  Object.setPrototypeOf(Promise.prototype, new Proxy({}, {
    get(object, key, promise) {
      const known = typeof key === 'symbol' || (key in object && !ofValues.includes(key)) || (key === 'toJSON' && answering);
      if (known || !isPromise(promise)) return Reflect.get(object, key, promise);
      throw unawaited(promise, key);
    },
  }));

  // isPromise reports whether a value is a promise that is no instance of a subclass, and
  // does not count as its handler: Promise.resolve returns such a promise, and makes one of
  // any other object.
  const { resolve } = Promise, { then } = Promise.prototype;
  function isPromise(value) {
    if (Object.getPrototypeOf(value) !== Promise.prototype) return false;
    const promise = Reflect.apply(resolve, Promise, [value]);
    if (promise !== value) Reflect.apply(then, promise, [undefined, () => {}]);
    return promise === value;
  }

  // guard returns a prototype of objects that calls unknown before a property is read that
  // an object lacks. Reading any other costs nothing.
  const guard = (unknown, prototype = {}) => new Proxy(prototype, {
    get(object, key, receiver) {
      if (typeof key === 'string' && !(key in object) && key !== 'then' && key !== 'toJSON') unknown(key, receiver);
      return Reflect.get(object, key, receiver);
    },
  });

  function unawaited(promise, key) {
    const call = calls.get(promise), where = call && place(call.site), read = call && place(here());
    if (read?.text.includes(`await tools.${call.tool}(`) && read.text.includes(`).${key}`)) return new TypeError(`await applies to .${key} here, before tools.${call.tool}(…) has a value: write (await tools.${call.tool}({ … })).${key}`);
    const what = call ? `tools.${call.tool}(…)${where ? ` of line ${where.line}` : ''}` : 'this promise';
    const e = new TypeError(`${what} is not awaited, so it has no value yet: write ${call ? `await tools.${call.tool}({ … })` : 'await in front of it'}, or await Promise.all(list) for a list`);
    if (call && !place(e.stack)) e.stack = call.site;
    return e;
  }

  // place is where a stack has its first line of the script: its number, column and text.
  function place(stack) {
    const lines = source.split('\n');
    for (const [, line, column] of stack.matchAll(/<(?:input|anonymous)>:(\d+)(?::(\d+))?/g)) {
      const n = line - offset;
      if (n < 1 || n > lines.length) continue;
      const added = n === implied?.line && column > implied.column ? opening.length : 0;
      return { line: n, column: Math.max(1, (column ?? 1) - added), text: lines[n - 1] };
    }
    return undefined;
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
    const where = place(String(e.stack)) ?? (e.message.endsWith('is not iterable') ? place(only(apart) ?? '') : undefined);
    if (where) text += `\n  ${excerpt(where)}`;
    if (e.cause !== undefined) text += `\n  cause: ${short(e.cause)}`;
    if (e instanceof AggregateError) for (const one of e.errors.slice(0, 5)) text += `\n  ${short(one)}`;
    const advice = hint(e, where);
    return advice ? `${text}\n${advice}` : text;
  }

  // apart is a list taken apart without await: QuickJS has no line for its error.
  const apart = /\b(?:const|let|var)\s*\[[^=]*\]\s*=\s*(?!\s|await\b)/;

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
  function hint(e, where) {
    if (e.name === 'SyntaxError' && !compiled && /\bawait\b/.test(where?.text) && compilesWithoutAwait()) return 'await is only possible in an async function: write async x => { … }, and await Promise.all(list.map(async x => { … })) for a list.';
    const missing = e.name === 'ReferenceError' ? /^'?([\w$]+)'? is not defined/.exec(e.message)?.[1] : undefined;
    if (e.message === "unexpected token: 'object'") return 'The value of a tool is an object already: use it without JSON.parse.';
    if (e.name === 'SyntaxError' || missing !== undefined) {
      const text = source.trimStart();
      if (python.test(source)) return `This looks like Python. ${example}`;
      if (e.name === 'SyntaxError' && modules.test(source) && !e.message.startsWith('namespaces ')) return noModules;
      if (commands.test(text) && !/^\w+\s*\(/.test(text)) return `This looks like a shell command. There is no shell here. ${example}`;
    }
    if (e.message.startsWith('could not load module')) return noModules;
    if (/^tools\.\S+ returned no "content"|^cannot read property/.test(e.message) && /\.content\b/.test(where?.text)) return 'await tools.NAME(args) is the value of the tool, and await tools.NAME.raw(args) has value and content.';
    if (e.name === 'InternalError' && e.message === 'out of memory') return 'A script has 48 MiB at most: keep less at a time.';
    if (e.message.endsWith('is not iterable') && /\bPromise\.\w+\s*\(\s*\{/.test(where?.text)) return 'Promise.all takes a list: const [a, b] = await Promise.all([ … ]).';
    if (e.name === 'TypeError' && e.message.endsWith('is not iterable')) return 'If it is a promise, write await in front of it, or await Promise.all(list) for a list.';
    if (e.name === 'ToolError' && /^no such tool: "[^"]*"$/.test(e.message)) return advise(e.tool);
    if (e.name === 'ToolError' && e.message.includes('is a tool of the agent')) return e.tool === 'tools_search' ? 'In a script, write await search("words").' : 'await tools.NAME({ … }) waits until the tool has ended: no other tool is needed for that.';
    switch (missing) {
      case undefined: break;
      case 'prompt': case 'confirm':
        return 'Ask the user with await ask("…", { type: "boolean" }), or { type: "string" } for a text.';
      case 'require': case 'module': case 'exports':
        return noModules;
      case 'fetch': case 'XMLHttpRequest':
        return "There is no network here: find a tool for it with await search('http request').";
      case 'process': case 'fs': case 'Deno': case 'Bun': case 'Buffer': case 'window': case 'document': case 'child_process':
        return `This is neither Node nor a browser. ${example}`;
      case 'print':
        return 'Use console.log(…), or return the value.';
      case 'Intl': case 'Temporal':
        return 'There are no locales here, and no time zone but UTC.';
      default:
        if (new RegExp(`\\bnew\\s+${missing.replaceAll('$', '\\$')}\\b`).test(source)) return `A script has no ${missing}. ${example}`;
        if (new RegExp(`(?:^|[^.\\w$])${missing.replaceAll('$', '\\$')}\\s*\\(`).test(source)) return near(missing).includes(missing) ? `Tools are called as await tools.${missing}({ … }).` : `There is no ${missing} here. ${advise(missing)}`;
    }
    return '';
  }

  function compilesWithoutAwait() {
    try { return Boolean(compile(source.replace(/\bfor\s+await\b/g, 'for').replace(/\bawait\b/g, 'void'))); } catch { return false; }
  }

  // near returns the names of tools that fit the words of another name.
  function near(name) {
    const query = name.replace(/^mcp__.+?__/, '').replace(/([a-z])([A-Z])/g, '$1 $2').replaceAll('_', ' ');
    return call('tool.search', stringify({ query, limit: 4 })) < 0 ? [] : parse(read(3)).tools.map((tool) => tool.name).filter((one) => one !== 'exec').slice(0, 3);
  }

  // advise says how to find the tool that a name may mean.
  function advise(name) {
    const names = near(name);
    return names.length > 0 ? `Perhaps you mean ${names.map((one) => `tools.${one}`).join(' or ')}.` : 'await search("words") finds tools, and await tools.NAME({ … }) calls one.';
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
      if (web && (v instanceof web.URL || v instanceof web.URLSearchParams)) return String(v);
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

  // print writes to the output, and remembers the end of it.
  function print(stream, text) {
    write(stream, text);
    if (recent.push(text.slice(-most)) > mostRecent) recent.shift();
  }

  const printer = (stream) => (...args) => {
    print(stream, args.map((v) => {
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

  // begin begins an operation, and resolves with its response.
  function begin(op, request, site) {
    return new Promise((resolve, reject) => { submit(op, request, { resolve, reject, site, tool: undefined }); });
  }

  // submit begins an operation, or queues it. Its request is what it is now.
  function submit(op, request, p) {
    const text = stringify(request);
    if (p.tool !== undefined) called++;
    if (waits - (alarm ? 1 : 0) < mostPending) launch(op, text, p);
    else if (queued.length < mostQueued) queued.push({ op, p, text });
    else refuse(p, { code: 'limit', message: `at most ${mostPending + mostQueued} operations can be begun at a time: wait for the end of one` });
  }

  function launch(op, text, p) {
    const id = start(op, text);
    if (id < 0) return refuse(p, parse(read(3)));
    p.id = id;
    pending[id] = p;
    waits++;
    return undefined;
  }

  function refuse(p, { code, message }) {
    if (p.tool !== undefined) called--;
    const e = new ToolError(code, message, p.tool, p.site);
    p.reject(e);
    return e;
  }

  function ended(id, code) {
    const p = pending[id];
    if (!p) return; // the host may say it twice
    delete pending[id];
    waits--;
    if (p.tool !== undefined) called--;
    const answer = parse(read(3));
    if (code < 0) p.reject(new ToolError(answer.code, answer.message, p.tool, p.site));
    else if (p.tool !== undefined) answered(p, answer);
    else p.resolve(answer);

    while (queued.length > 0 && waits - (alarm ? 1 : 0) < mostPending) {
      const next = queued.shift();
      launch(next.op, next.text, next.p);
    }
  }

  // request begins a call of a tool. It resolves with the value, or with all if raw.
  function request(name, raw, args = {}, options) {
    const p = { tool: name, site: here(), raw, resolve: undefined, reject: undefined };
    const promise = new Promise((resolve, reject) => {
      p.resolve = resolve;
      p.reject = reject;
      if (args === null || typeof args !== 'object' || Array.isArray(args)) {
        throw new TypeError(`tools.${name} takes one object with its arguments: await tools.${name}({ … })`);
      }
      for (const key of keys(options ?? {})) if (key !== 'timeout') throw new TypeError(`tools.${name} has no option ${stringify(key)}: the only one is { timeout: milliseconds }`);
      const call = { tool: name, args };
      if (options?.timeout !== undefined) call.timeout_ms = Math.max(1, Math.round(+options.timeout));
      submit('tool.call', call, p);
    });
    calls.set(promise, p);
    return promise;
  }

  // answered resolves or rejects a call of a tool as it ended.
  function answered(p, r) {
    if (typeof r.value === 'object' && r.value !== null) {
      sites[p.tool] = p.site;
      guardAll(r.value, p.tool);
    }
    if (p.raw) p.resolve(r);
    else if (r.kind === 'success') p.resolve(r.value !== undefined ? r.value : r.content);
    else p.reject(new ToolError(r.kind, r.error ?? r.kind, p.tool, p.site, r.connection ? { connection: r.connection } : r.limit ? { limit: r.limit } : undefined));
  }

  // What a tool returns throws where a script reads a property that neither the object nor
  // the declared type has. The type is asked for only then.
  const guards = create(null), types = create(null), sites = create(null); // by tool; the last call
  let missed = ''; // such a read, of a tool without a type

  // guardAll guards the first objects of a value: those of a list are alike.
  function guardAll(value, tool) {
    const all = [value], prototype = guards[tool] ??= guard((key, object) => lack(tool, key, object));
    for (let i = 0; i < all.length; i++) {
      if (!Array.isArray(all[i])) Object.setPrototypeOf(all[i], prototype);
      for (const inner of Array.isArray(all[i]) ? all[i].slice(0, mostGuarded) : Object.values(all[i])) {
        if (all.length >= mostGuarded) break;
        if (typeof inner === 'object' && inner !== null) all.push(inner);
      }
    }
  }

  function lack(tool, key, object) {
    const type = types[tool] ??= typeOf(tool);
    if (type.includes(key) || (type.length > 0 && failures.includes(key))) return;
    const names = keys(object).slice(0, mostNamed).join(', ');
    const text = `tools.${tool} returned no ${stringify(key)}: this object ${names ? `has ${names}` : 'is empty'}`;
    if (type.length === 0) {
      missed ||= text;
      return;
    }
    const e = new TypeError(text);
    if (!place(e.stack)) e.stack = sites[tool]; // const { … } = await … has no line
    throw e;
  }

  // typeOf lists the properties in the type of what a tool returns. There are none if the
  // type allows others.
  function typeOf(tool) {
    if (call('tool.search', stringify({ query: tool, limit: 1 })) < 0) return [];
    const [found] = parse(read(3)).tools;
    if (found?.name !== tool) return [];
    const { declaration } = found, type = declaration.slice(declaration.indexOf('): Promise<') + 11).replace(/\/\*[^]*?\*\//g, '');
    if (/\bunknown\b|\bRecord</.test(type)) return [];
    return [...type.matchAll(/([\w$]+|"(?:[^"\\]|\\.)*")\??: /g)].map(([, name]) => name[0] === '"' ? parse(name) : name);
  }

  // A tool as a function has only raw: its name has no parts.
  const parts = guard((key, tool) => {
    const name = keys(known).find((one) => known[one] === tool) ?? 'NAME';
    throw new TypeError(`tools.${name} has no ${stringify(key)}: tools are called as await tools.NAME({ … }). ${advise(`${name} ${key}`)}`);
  }, create(Function.prototype));

  const known = create(null); // tools as functions, by name
  const tools = new Proxy(known, {
    get(known, name) {
      if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
      return known[name] ??= Object.assign(Object.setPrototypeOf((args, options) => request(name, false, args, options), parts), { raw: (args, options) => request(name, true, args, options) });
    },
    has: () => true,
    set() { throw new TypeError('tools cannot be changed'); },
    deleteProperty: () => false,
    defineProperty: () => false,
    ownKeys() { throw new TypeError("tools cannot be listed: await search('words') finds them"); },
  });

  const milliseconds = (ms) => Math.min(longest, Math.max(0, Math.ceil(+ms || 0)));

  // Timers and sleeps wait here, and one operation for the first of them, so that a script
  // can wait for a week.
  const sleepers = []; // in the order in which they end: { at, resolve, reject }
  let alarm; // the operation: { id, at, canceled, … }
  let ahead = 0; // milliseconds that time has of the host's clock, which may have been set back
  const time = () => now() + ahead;

  // wait adds a timer or sleep. It returns why the host refuses to wait.
  function wait(ms, sleeper) {
    sleeper.at = time() + ms;
    sleepers.splice(sleepers.findLastIndex(({ at }) => at <= sleeper.at) + 1, 0, sleeper);
    return arm();
  }

  // arm has the host wait for the first sleeper, and for no other.
  function arm() {
    const first = sleepers[0];
    if (alarm) {
      if (alarm.canceled || (first && first.at >= alarm.at)) return undefined;
      alarm.canceled = true; // arm is called again when it has ended
      call('op.cancel', stringify({ id: alarm.id }));
      return undefined;
    }
    if (!first) return undefined;
    alarm = { at: first.at, canceled: false, tool: undefined, resolve: ring, reject: silence };
    return launch('sleep', stringify({ ms: Math.max(0, first.at - time()) }), alarm);
  }

  // ring ends one sleeper: the jobs that follow from it are run before the next.
  function ring() {
    ahead = Math.max(ahead, alarm.at - now());
    alarm = undefined;
    if (sleepers[0]?.at <= time()) sleepers.shift().resolve();
    arm();
  }

  // silence is called if the host does not wait.
  function silence(e) {
    const { canceled } = alarm;
    alarm = undefined;
    if (canceled) arm();
    else for (const one of sleepers.splice(0)) one.reject(e);
  }

  const timers = create(null);
  let lastTimer = 0;
  function timer(f, ms, repeat, args) {
    if (typeof f !== 'function') throw new TypeError('setTimeout takes a function: to wait, write await sleep(ms)');
    const n = ++lastTimer, period = milliseconds(ms);
    const one = {
      at: 0, reject() { delete timers[n]; }, resolve() {
        if (repeat) wait(period, one); else delete timers[n];
        try { f(...args); } catch (e) { reject(undefined, e); }
      },
    };
    timers[n] = one;
    const refused = wait(period, one);
    if (refused) throw refused;
    return n;
  }
  function clear(n) {
    const one = timers[n];
    if (one === undefined) return;
    delete timers[n];
    const at = sleepers.indexOf(one);
    if (at >= 0) sleepers.splice(at, 1);
    arm();
  }

  async function sleep(ms) {
    const site = here();
    await new Promise((resolve, reject) => {
      wait(milliseconds(ms), { at: 0, resolve, reject(e) { reject(new ToolError(e.kind, e.message, undefined, site)); } });
    });
  }

  // ask returns what the user has accepted, so that a script that only tests it cannot act
  // against the answer: any other answer throws.
  async function ask(message, schema) {
    if (typeof message !== 'string' || !message.trim()) throw new TypeError('ask takes a question and the JSON Schema of its answer: await ask("…", { type: "boolean" })');
    if (schema !== undefined && (schema === null || typeof schema !== 'object' || Array.isArray(schema))) {
      throw new TypeError(`the second argument of ask is a JSON Schema: write ${Array.isArray(schema) ? `{ type: "string", enum: ${brief(stringify(schema))} }` : '{ type: "string" }'}`);
    }

    const site = here(), form = schema?.type === 'object' || schema?.properties !== undefined;
    const asked = form ? { type: 'object', ...schema } : { type: 'object', properties: { answer: { title: 'Answer', ...schema ?? { type: 'string', description: 'To say no, decline.' } } }, required: ['answer'] };
    const { action, content } = (await begin('ask', { questions: { answer: { message, schema: asked } } }, site)).answers.answer;

    const refuse = (how) => { throw new ToolError('declined', `the user ${how}: ${stringify(brief(message))}`, undefined, site, { action }); };
    if (action !== 'accept') refuse(action === 'decline' ? 'declined' : 'dismissed the question');
    if (form) {
      const fields = keys(schema.properties ?? {});
      return Object.setPrototypeOf(content, guard((key) => {
        if (!fields.includes(key)) throw new TypeError(`the answer has no ${stringify(key)}: it has ${fields.join(', ')}`);
      }));
    }
    if (schema === undefined && refusals.includes(content.answer.trim().replace(/[.!]+$/, '').toLowerCase())) refuse(`answered ${stringify(content.answer)}`);
    if (typeof content.answer !== 'object') withoutFields(content.answer);
    return content.answer;
  }

  // withoutFields has texts, numbers and booleans that ask returned throw where a script
  // reads the field of a form.
  const answers = new Set();
  function withoutFields(answer) {
    answers.add(answer);
    const type = Object.getPrototypeOf(answer);
    for (const name of ['answer', 'content', 'action', 'ok', 'yes', 'confirmed', 'value']) {
      defineProperty(type, name, {
        get() {
          if (answers.has(this.valueOf())) throw new TypeError(`ask returned ${brief(stringify(this))}, which has no ${stringify(name)}: use it as it is`);
          return undefined;
        },
        set(value) { defineProperty(this, name, { value, writable: true, configurable: true, enumerable: true }); }, configurable: true,
      });
    }
  }
  // refusals are texts that say no, for a question without a schema.
  const refusals = ['no', 'n', 'nope', 'false', 'cancel', 'stop', 'nein', 'non', 'nee', 'nej', 'não', 'нет', 'いいえ', '否', '不'];

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
      if (typeof block !== 'string' && (typeof block !== 'object' || block === null)) throw new TypeError('show takes a text or a content block');
      shown = true;
      if (write(CONTENT, stringify(typeof block === 'string' ? { type: 'text', text: block } : block)) < 0) throw new TypeError(parse(read(3) ?? '{"message":"no content block"}').message);
    },
    setTimeout: (f, ms, ...args) => timer(f, ms, false, args), clearTimeout: clear,
    setInterval: (f, ms, ...args) => timer(f, ms, true, args), clearInterval: clear,
    console: { log: output, info: output, debug: output, table: output, dir: output, trace: errors, warn: errors, error: errors },
  };
  define(globalThis, globals);

  // What few scripts need is loaded when one does.
  let lazy, web;
  const loaded = () => lazy ??= load();
  function classes() {
    if (web) return web;
    web = loaded().web(random, {}, { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }); // instead of Math and globalThis
    for (const name of webNames) if (typeof web[name] === 'function') defineProperty(web[name], 'name', { value: name, configurable: true });
    return web;
  }
  const webNames = ['URL', 'URLSearchParams', 'TextEncoder', 'TextDecoder', 'structuredClone', 'crypto'];
  for (const name of webNames) {
    defineProperty(globalThis, name, {
      get: () => classes()[name], set(v) { define(globalThis, { [name]: v }); }, configurable: true,
    });
  }

  // Locales and time zones, which QuickJS ignores, are refused: a wrong date or amount is
  // worse than an error.
  function withoutLocales(prototype, names, from, instead) {
    for (const name of names) {
      const f = prototype[name];
      define(prototype, {
        [name](...args) {
          for (let i = from; i < args.length; i++) if (args[i] !== undefined) throw new TypeError(`${name} has no locales, options or time zones here: ${instead}`);
          return Reflect.apply(f, this, args);
        },
      });
    }
  }
  for (const name of ['filter', 'some', 'every', 'find', 'findIndex', 'findLast', 'findLastIndex', 'sort']) {
    const f = Array.prototype[name];
    define(Array.prototype, {
      [name](callback, self) {
        if (callback instanceof AsyncFunction) throw new TypeError(`${name} does not wait for an async function: get the values first with await Promise.all(list.map(async x => …))`);
        return Reflect.apply(f, this, [callback, self]);
      },
    });
  }
  const accents = /[\u0300-\u036f]/g;
  define(String.prototype, {
    // It compares letters first, then accents, then case, with lower case before upper.
    localeCompare(that) {
      const a = String(this).normalize('NFD'), b = String(that).normalize('NFD');
      if (a === b) return 0;
      const x = a.toLowerCase(), y = b.toLowerCase(), p = x.replace(accents, ''), q = y.replace(accents, '');
      if (p !== q) return p < q ? -1 : 1;
      if (x !== y) return x < y ? -1 : 1;
      return a > b ? -1 : 1;
    },
  });
  withoutLocales(String.prototype, ['localeCompare'], 1, 'write a.localeCompare(b)');
  withoutLocales(String.prototype, ['toLocaleUpperCase', 'toLocaleLowerCase'], 0, 'write toUpperCase() or toLowerCase()');
  withoutLocales(Date.prototype, ['toLocaleString', 'toLocaleDateString', 'toLocaleTimeString'], 0, 'write date.toISOString(), which is UTC');
  for (const type of [Number, BigInt, Array]) withoutLocales(type.prototype, ['toLocaleString'], 0, 'write n.toFixed(2), and .replace(/\\B(?=(\\d{3})+(?!\\d))/g, ",") to group digits');

  // The seed of Math.random is the call, so that two calls differ, and a call that
  // continues elsewhere does not.
  let random; // a number of 32 bits
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
    random = next;
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
        stripped = loaded().strip(code);
      } catch (other) {
        if (!(other?.loc?.line > last || other?.sure)) throw e; // it is no TypeScript either
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

  // Models also send a script in a fence of Markdown, with words around it, or as one
  // function that is never called. Two of these are sticky, or QuickJS tries each place of the
  // text. In front of the first quote or comment, ``` is certainly a fence.
  const fences = /^[ \t]*```(?:\w*[ \t]*$)?|```\w*[ \t]*$/gm;
  const fenced = /[^'"`/]*```/y;
  const whole = /\s*(?:async\s*)?(?:\(\s*\)\s*=>|function\b\s*\w*\s*\(\s*\))/y;

  // unfenced is what is in the only fence of a text, on the lines where it was.
  function unfenced(text) {
    const found = [...text.matchAll(fences)];
    if (found.length !== 2) throw new SyntaxError('a script can be in one fence: send only its code');
    const [begin, end] = found;
    return text.slice(0, begin.index).replace(/[^\n]/g, '') + text.slice(begin.index + begin[0].length, end.index);
  }

  // understood is the function that the code of a call is, in a fence or not. What is in a
  // comment is not meant to run.
  function understood(code) {
    source = code;
    if (fenced.test(code)) return program(source = unfenced(code));
    try { return program(code); } catch (e) {
      if (!(e instanceof SyntaxError) || !/^[ \t]*```/m.test(code) || /^[^`]*\/\*/.test(code)) throw e;
      return program(source = unfenced(code));
    }
  }

  // program is the function that a script is.
  function program(code) {
    let made, failure;
    try { made = compile(code); } catch (e) { failure = e; }

    const text = made?.text ?? code;
    const beginning = whole.exec(text)?.[0];
    if (beginning) {
      try {
        if (!beginning.endsWith('=>')) new AsyncFunction(`({ async f() ${trim(text.slice(beginning.length))}\n})`); // or it is followed by its call
        const f = new AsyncFunction(`return (${trim(text)}\n)`);
        return async () => (await f())();
      } catch { /* more than one function */ }
    }
    if (!made) throw failure;
    returnsLast = returns(text);
    return (returnsLast ? undefined : valued(text)) ?? made.run;
  }

  // returns reports whether a script seems to end with return. This only saves the time to
  // look for its value.
  function returns(text) {
    let depth = 0, end = text.length;
    for (let at = text.lastIndexOf('return'); at >= 0; at = at > 0 ? text.lastIndexOf('return', at - 1) : -1) {
      if (text.indexOf('}', at) >= 0) depth += count(text, '}', at, end) - count(text, '{', at, end);
      end = at;
      if (depth === 0 && (at === 0 || text[at - 1] === '\n' || /(?:^|[;}]|\*\/)[ \t]*$/.test(text.slice(text.lastIndexOf('\n', at) + 1, at))) && !/[\w$]/.test(text[at + 6] ?? '')) return true;
    }
    return false;
  }

  function count(text, c, from, to) {
    let n = 0;
    for (let at = text.indexOf(c, from); at >= 0 && at < to; at = text.indexOf(c, at + 1)) n++;
    return n;
  }

  // valued returns a function for a script that ends with an expression, which gives its
  // value to its argument, so that it is told from what the script returns. No line moves.
  // Mostly the expression begins with a line: QuickJS checks that it is one, and that what
  // is before it is complete. For any other script the parser of types finds the last
  // statement, which costs as much as a script in TypeScript.
  function valued(text) {
    if (text.includes('arguments')) return undefined; // it may use its own
    const from = lastLine(text), head = text.slice(0, from), tail = trim(text.slice(from));
    if (/^(?:if|for|while|do|switch|try)\b(?:[^]*\}|[^;}\n]*)$|^(?:const|let|var|throw)\b[^;\n]*$|^set(?:Timeout|Interval)\(/.test(tail)) return undefined;
    if (/^[^\s/]/.test(tail) && begins(head, tail) && !/^(?:async\s+)?function\b|^class\b/.test(tail)) {
      if (isBlock(tail)) return undefined;
      try {
        new AsyncFunction(`${opening}${tail}\n))`);
        return implying(text, from, new AsyncFunction(`${head}${opening}${tail}\n))`));
      } catch { /* it begins elsewhere, or is no expression */ }
    }

    try {
      const [begin, end] = loaded().last(text);
      if (isBlock(text.slice(begin, end))) return undefined;
      return implying(text, begin, new AsyncFunction(`${text.slice(0, begin)}${opening}${text.slice(begin, end)}))${text.slice(end)}`));
    } catch { return undefined; }
  }

  const opening = 'return arguments[0]((';

  // begins reports whether the tail certainly begins a statement: the line before it is the
  // end of one, and neither a comment nor a loop or condition that the tail belongs to.
  function begins(head, tail) {
    const before = trimBlanks(head);
    if (!before) return true;
    const line = before.slice(before.lastIndexOf('\n') + 1);
    if (/\/|\b(?:for|while|if|else|do|with)\b/.test(line)) return false;
    return line.endsWith(';') || (line.endsWith('}') && !'([`+-/'.includes(tail[0]));
  }

  // isBlock reports whether a text in braces may be statements: as an expression it would be
  // an object with a method such as if.
  function isBlock(text) {
    const at = text.indexOf(')');
    return text[0] === '{' && at > 0 && text.indexOf('{', at) > 0;
  }

  function implying(text, from, f) {
    const line = text.lastIndexOf('\n', from - 1) + 1;
    implied = { line: text.slice(0, from).split('\n').length, column: from > 0 ? from - line : 0 };
    return f;
  }

  // trim removes semicolons and blanks from the end of a text. A regular expression would
  // try each blank of it.
  function trim(text, removed = '; \t\r\n') {
    let end = text.length;
    while (end > 0 && removed.includes(text[end - 1])) end--;
    return text.slice(0, end);
  }
  const trimBlanks = (text) => trim(text, ' \t\r\n');

  // lastLine is where the last line begins that is not indented and closes nothing.
  function lastLine(text) {
    for (let at = text.length; at > 0;) {
      const line = text.lastIndexOf('\n', at - 1) + 1;
      if (line < at && !' \t\r\n})]`/*'.includes(text[line])) return line;
      at = line - 1;
    }
    return 0;
  }

  // only is the stack of the only line of the script with a word.
  function only(word) {
    const lines = source.split('\n'), at = lines.findIndex((line) => word.test(line));
    return at >= 0 && at === lines.findLastIndex((line) => word.test(line)) ? `<input>:${at + 1 + offset}` : undefined;
  }

  // isMedia reports whether a value is a content block with an image or a sound. It reads no
  // property that a value lacks.
  function isMedia(x) {
    if (typeof x !== 'object' || x === null || !hasOwn(x, 'type') || !hasOwn(x, 'data')) return false;
    return (x.type === 'image' || x.type === 'audio') && typeof x.data === 'string';
  }

  // shownApart adds an image or a sound to the content of the result, where a model can see
  // it, and is what the value has instead. Data that is neither stays in the value.
  function shownApart(block) {
    const { type, data, mimeType } = block;
    if (write(CONTENT, stringify({ type, data, mimeType })) < 0) return block;
    shown = true;
    return `[${type}, shown apart from this value]`;
  }

  // result is the JSON of what a script returned, or throws.
  function result(v) {
    if (v === undefined) return undefined;
    if (typeof v === 'function' || typeof v === 'symbol') throw new TypeError(`the script returned a ${typeof v}: return data`);
    answering = true;
    const text = stringify(v, (key, x) => {
      if (x instanceof Promise) {
        const e = new TypeError(`the result has a promise${key ? ` as ${stringify(key)}` : ''}: await it, or all of a list with await Promise.all(list)`);
        if (calls.has(x)) e.stack = calls.get(x).site;
        throw e;
      }
      if (typeof x === 'bigint') {
        const e = new TypeError(`the result has a BigInt${key ? ` as ${stringify(key)}` : ''}: convert it with Number(x) or String(x)`);
        e.stack = only(/\breturn\b/) ?? only(/\b\d+n\b|\bBigInt\(/) ?? e.stack;
        throw e;
      }
      if (isMedia(x)) return shownApart(x);
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
      seed(parse(read(2)).call_id);
      const f = understood(code);
      compiled = true;
      let reached = false, last;
      value = await (implied ? f((v) => { reached = true; last = v; }) : f());
      if (!reached) implied = undefined;
      else {
        hanging = true;
        value = await last;
        hanging = false;
      }
      returned = true;
      if (called > 0) early = unfinished();
    } catch (e) {
      fail(e);
    }
  }

  // fail ends the script with an error. What is queued does not begin any more.
  function fail(e) {
    outcome = connection(e) ?? { code: FAILED, stream: ERROR, text: told(e) };
    for (const { p } of queued.splice(0)) refuse(p, { code: 'canceled', message: 'the script has failed' });
  }

  // unfinished says which calls have not ended when the script returns.
  function unfinished() {
    let first;
    for (const id in pending) if (pending[id].tool !== undefined) { first = pending[id]; break; }
    first ??= queued.find(({ p }) => p.tool !== undefined).p;
    const where = place(first.site), more = called > 1;
    return `tools.${first.tool}(…)${more ? ` and ${called - 1} more` : ''} had not ended when the script returned: await ${more ? 'them' : 'it'} if the value depends on ${more ? 'them' : 'it'}` +
      (/\.forEach\s*\(/.test(source) ? '. forEach does not wait: write for (const x of list) { … }' : '') + (where ? `\n  ${excerpt(where)}` : '');
  }

  // settle makes the value of the script its outcome. By now the calls that it has not
  // awaited have ended, and the value has what they added to it.
  function settle() {
    returned = false;
    try {
      const text = result(value);
      if (implied && text?.length > mostImplied) throw new RangeError(`its JSON has ${text.length} characters`);
      if (implied && text !== undefined && isDeep(text)) throw new RangeError(`it has more than ${deepest} lists and objects in each other`);
      outcome = { code: OK, stream: RESULT, text };
    } catch (e) {
      answering = false;
      if (implied) without(e); else fail(e);
    }
  }

  // isDeep reports whether JSON has too many lists and objects in each other.
  function isDeep(text) {
    if (count(text, '[', 0, text.length) + count(text, '{', 0, text.length) <= deepest) return false;
    let depth = 0;
    for (let at = 0; at < text.length; at++) {
      switch (text[at]) {
        case '[': case '{': if (++depth > deepest) return true; break;
        case ']': case '}': depth--; break;
        case '"': while (text[++at] !== '"') if (text[at] === '\\') at++;
      }
    }
    return false;
  }

  // without is the outcome of a script that has ended with an expression without a value
  // for a result: it has done its work.
  function without(e) {
    try { unusable = `${e.name}: ${e.message}`; } catch { unusable = 'it cannot be written as JSON'; }
    outcome = { code: OK, stream: RESULT, text: undefined };
  }

  // connection is the outcome of a script that ends with a ToolError that asks for one.
  function connection(e) {
    try {
      return e instanceof ToolError && e.connection ? { code: CONNECT, stream: ERROR, text: stringify(e.connection) } : undefined;
    } catch { return undefined; }
  }

  // report writes what was rejected and not handled to the output.
  function report() {
    const all = [];
    for (const n in rejected) all.push('Not handled: ' + told(rejected[n].reason));
    if (dropped > 0) all.push(`Not handled: ${dropped} more`);
    for (const one of all) print(STDERR, one + '\n');
    return all;
  }

  // remark adds what the author of a script that succeeded has to know.
  function remark(unhandled) {
    const all = [];
    if (outcome.text === undefined && !shown) {
      const output = recent.join('').trimEnd();
      all.push((returnsLast ? 'The script returned undefined. End it with: return value;' : 'The script returned nothing. End it with: return value;') + (missed ? `\n${missed}` : '') + idle() + (unusable ? `\nThe value of its last statement is no result: ${brief(unusable)}` : '') + (output ? `\nIts output ends with:\n${output.slice(-most)}` : ''));
    } else { all.push(...unhandled.slice(0, 3)); }
    if (early) all.push(early);
    if (all.length > 0) write(CONTENT, stringify({ type: 'text', text: all.join('\n') }));
  }

  // idle says what a script has that did nothing before it returned.
  function idle() {
    let text = '';
    if (keys(timers).length > 0) text += '\nA timer had not fired when the script returned. To wait, write await sleep(ms).';
    for (const [, a, b] of source.matchAll(/\bfunction\s+(\w+)|\bconst\s+(\w+)\s*=\s*async\b/g)) {
      const name = a ?? b;
      if (source.match(new RegExp(`\\b${name}\\b`, 'g')).length === 1) text += `\n${name} is never called: end with return await ${name}(…);`;
    }
    return text;
  }

  // state says how things stand once there is nothing more to do: a script waits for what
  // it has awaited, and one that has ended for the tools that it has called and not
  // awaited, because they may do something.
  function state() {
    if ((outcome || returned ? called : waits) > 0) return WAITING;
    if (returned) {
      settle();
      if (called > 0) return WAITING; // for what a toJSON has called
    }
    if (!outcome && hanging) without(new TypeError('it is a promise that nothing can resolve'));
    outcome ??= { code: FAILED, stream: ERROR, text: 'the script waits for a promise that nothing can resolve' };

    const unhandled = kept + dropped > 0 ? report() : [];
    if (outcome.code === OK && (outcome.text === undefined || early || unhandled.length > 0)) remark(unhandled);
    write(outcome.stream, outcome.text ?? '');
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
