// Some seventy waits, with what a program of JavaScript keeps across them.
const log = [];
const wait = (ms, value) => sleep(ms).then(() => value);
const note = (...args) => { log.push(args.join(' ')); console.log(...args); };

// In turn, in loops, and in conditions.
for (let i = 0; i < 6; i++) note('loop', i, await wait(3 + i, i * i));
let left = 3;
while (await wait(2, left-- > 0)) note('while', left);
note((await wait(1, 1)) + (await wait(1, 2)) * (await wait(1, 3)));

// At once.
note('all', await Promise.all([wait(9, 'c'), wait(3, 'a'), wait(6, 'b')]));
note('settled', (await Promise.allSettled([wait(2, 1), wait(1).then(() => { throw new Error('x'); })])).map((r) => r.status));
note('any', await Promise.any([wait(4).then(() => { throw 1; }), wait(5, 'late')]));
note('race', await Promise.race([wait(60_000, 'slow'), wait(2, 'fast')]));

// Errors, and what comes after them.
async function risky(n) {
  try {
    await wait(1);
    if (n % 2) throw new RangeError(`odd ${n}`);
    return await wait(1, `even ${n}`);
  } catch (e) {
    await wait(1);
    return `${e.name} ${e.message}`;
  } finally {
    await wait(1);
    note('finally', n);
  }
}
for (const n of [1, 2, 3]) note(await risky(n));

// Generators, plain and asynchronous, delegating and abandoned.
function* numbers() { let n = 0; try { while (true) n += (yield n) ?? 1; } finally { note('closed at', n); } }
const g = numbers();
g.next();
note(g.next(5).value, await wait(1, g.next(2).value), g.return().done);
async function* pages(n) { for (let i = 0; i < n; i++) { await wait(2); yield* [i, i * 10]; } }
for await (const p of pages(4)) { if (p === 20) break; note('page', p); }
const all = [];
for await (const v of (async function* () { yield* pages(2); yield wait(1, 'end'); })()) all.push(v);
note(all);

// Closures, classes with private fields, getters, symbols, proxies.
class Counter {
  #n = 0;
  static made = 0;
  constructor() { Counter.made++; }
  async up() { await wait(1); this.#n++; return this; }
  get n() { return this.#n; }
  [Symbol.toPrimitive]() { return this.#n * 100; }
}
const c = await (await (await new Counter().up()).up()).up();
note(c.n, +c, Counter.made);
const seen = [];
const proxy = new Proxy({}, { get: (_, k) => { seen.push(String(k)); return 7; } });
await wait(1);
note(proxy.a + proxy.b, seen);
const adders = await Promise.all([1, 2, 3].map(async (n) => { await wait(n); return (x) => x + n; }));
note(adders.map((f) => f(10)));

// Collections, weak ones, regular expressions with state, numbers of all kinds.
const key = {}, weak = new WeakMap([[key, 'kept']]), ref = new WeakRef(key);
const map = new Map([[key, new Set([1, 2])], ['b', [3, [4, { c: 5 }]]]]);
const re = /(\w)(\d)/gy;
re.exec('a1b2c3');
await wait(2);
note(weak.get(key), ref.deref() === key, [...map.get(key)], JSON.stringify(map.get('b')), re.exec('a1b2c3')[0], re.lastIndex);
const big = 2n ** 100n, floats = new Float64Array([0.1, 0.2, NaN, -0]);
const view = new DataView(new ArrayBuffer(16));
view.setBigUint64(0, 123456789012345678n, true);
await wait(1);
note(big + 1n, floats[0] + floats[1], Object.is(floats[3], -0), view.getUint32(0), view.getBigUint64(0, true));

// Cycles that are garbage, and much memory for a while.
for (let i = 0; i < 200; i++) { const a = { i }; a.self = { a }; }
let rows = Array.from({ length: 3000 }, (_, i) => ({ id: i, name: `row ${i}`, tags: [i % 3, i % 5] }));
await wait(1);
note(rows.filter((r) => r.tags[0] === 0).reduce((n, r) => n + r.id, 0));
rows = null;
await wait(1);

// Timers, and a queue with producers and consumers.
const ticks = [];
const every = setInterval(() => ticks.push(ticks.length), 3);
setTimeout(() => clearInterval(every), 16);
await wait(30);
note('ticks', ticks);
const queue = [], waiters = [];
const put = (v) => { const w = waiters.shift(); if (w) w(v); else queue.push(v); };
const take = () => (queue.length ? Promise.resolve(queue.shift()) : new Promise((r) => waiters.push(r)));
const eat = async () => { const got = []; for (let i = 0; i < 3; i++) { got.push(await take()); await wait(3); } return got; };
const feed = (async () => { for (let i = 0; i < 6; i++) { await wait(10); put(i); } })();
const [x, y] = await Promise.all([eat(), eat(), feed]); // who takes what after the first depends on how much time has passed
note(x[0], y[0], [...x, ...y].sort());

// Random numbers, and the time that passes.
const before = Date.now(), random = [Math.random(), await wait(1, Math.random()), Math.random()];
await wait(500);
note(Date.now() - before >= 501, random.every((r) => r >= 0 && r < 1), new Set(random).size);
return { log: log.length, random, deep: await (async () => { let v = 0; for (let i = 0; i < 10; i++) v += await wait(1, i); return v; })() };
