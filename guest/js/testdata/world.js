// Checks of what tools find, in the form [what, expected, found].
const { tool } = globalThis.toolhost;

export const plugin = { name: 'world', description: 'Checks what tools find.' };

const caught = async (f) => { try { return await f(); } catch (e) { return `${e.name}: ${e.message}`; } };
const url = (text, base) => { try { return new URL(text, base).href; } catch (e) { return e.name; } };

export const world = tool({ description: 'Checks.' }, async (_, call) => {
  const wrong = [];
  const check = (what, want, have) => {
    if (JSON.stringify(want) !== JSON.stringify(have)) wrong.push(`${what}: expected ${JSON.stringify(want)}, found ${JSON.stringify(have)}`);
  };

  // Expected as Node 20 has it.
  for (const [want, ...args] of [
    ['https://example.com/', 'https://EXAMPLE.com'],
    ['https://example.com/', 'https:example.com'],
    ['https://example.com/', 'https:\\\\example.com:443\\'],
    ['http://example.com:8080/a/c?q=1#f', 'http://example.com:8080/a/./b/../c?q=1#f'],
    ['https://u:p@example.com/%20%22?x%20y#z%20', 'https://u:p@example.com/ "?x y#z '.trimEnd() + '%20'],
    ['https://example.com/a/d', 'd', 'https://example.com/a/b?c'],
    ['https://example.com/d', '/d', 'https://example.com/a/b?c'],
    ['https://example.com/a/b?d', '?d', 'https://example.com/a/b?c#e'],
    ['https://example.com/a/b?c#d', '#d', 'https://example.com/a/b?c'],
    ['https://other.org/x', '//other.org/x', 'https://example.com/a'],
    ['https://example.com/', '../../..', 'https://example.com/a/b/c'],
    ['mailto:a@example.com', 'mailto:a@example.com'],
    ['data:text/plain,a b', 'data:text/plain,a b'],
    ['file:///etc/x', 'file:///etc/x'],
    ['https://example.com/%C3%A9%E4%B8%96?%C3%A9', 'https://example.com/é世?é'],
    ['http://[::1]:81/', 'http://[::1]:81'],
    ['TypeError', 'no scheme'], ['TypeError', 'https://'], ['TypeError', 'https://a b/'], ['TypeError', 'https://example.com:99999/'], ['TypeError', 'https://a%00b/'],
  ]) check(`URL ${JSON.stringify(args)}`, want, url(...args));
  const u = new URL('https://example.com/a?x=1&y=2');
  u.searchParams.append('z', 'a b&c');
  u.searchParams.delete('x');
  u.hash = 'top';
  u.pathname = '/b c';
  u.port = '8443';
  check('a changed URL', 'https://example.com:8443/b%20c?y=2&z=a+b%26c#top', u.href);
  u.search = '?n=é';
  check('its parameters', 'é', u.searchParams.get('n'));
  check('origin', ['https://example.com:8443', '/b%20c', 'example.com:8443'], [u.origin, u.pathname, u.host]);
  check('URL.canParse', [true, false], [URL.canParse('a:b'), URL.canParse('b')]);

  const p = new URLSearchParams('?a=1&b=2&a=3&c=%20+%zz');
  check('parameters', [['1', '3'], ' ' + ' %zz', null, true, 4], [p.getAll('a'), p.get('c'), p.get('d'), p.has('b', '2'), p.size]);
  p.set('a', '9');
  p.sort();
  check('sorted', 'a=9&b=2&c=++%25zz', p.toString());
  check('of an object', 'a=1&b=%C3%A9', String(new URLSearchParams({ a: 1, b: 'é' })));

  check('UTF-8', [103, 195, 188, 228, 184, 150, 240, 159, 140, 141, 239, 191, 189], [...new TextEncoder().encode('gü世🌍\ud800')]);
  check('and back', 'gü世🌍', new TextDecoder().decode(new TextEncoder().encode('\ufeffgü世🌍')));
  check('not UTF-8', 'a\ufffdb\ufffd\ufffd\ufffd', new TextDecoder().decode(new Uint8Array([97, 0xff, 98, 0xed, 0xa0, 0x80])));
  check('fatal', 'TypeError: the data is not UTF-8', await caught(() => new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0x80]))));
  check('base64', ['aGVsbG8=', 'hello', 'AQID'], [btoa('hello'), atob('aGVs bG8'), btoa('\x01\x02\x03')]);
  check('no base64', 'InvalidCharacterError: The string is not base64', await caught(() => atob('a!')));

  const loop = { when: new Date(5), list: [new Map([[1, new Set([2])]])], bytes: new Uint8Array([1, 2]) };
  loop.self = loop;
  const copy = structuredClone(loop);
  check('a clone', [true, true, 5, 2, [1, 2]], [copy !== loop, copy.self === copy, +copy.when, [...copy.list[0].get(1)][0], [...copy.bytes]]);
  check('no clone', 'DataCloneError: a function cannot be cloned', await caught(() => structuredClone({ f() {} })));

  const h = new Headers({ 'Content-Type': 'a/b', x: ['1', '2'] });
  h.append('X', '3');
  check('headers', [['content-type', 'a/b'], ['x', '1, 2, 3']], [...h]);
  const request = new Request('https://example.com', { method: 'post', body: new URLSearchParams({ a: 'b' }) });
  check('a request', ['POST', 'https://example.com/', 'application/x-www-form-urlencoded;charset=UTF-8', 'a=b'], [request.method, request.url, request.headers.get('content-type'), await request.clone().text()]);
  const response = Response.json({ a: 1 }, { status: 201 });
  check('a response', [201, true, { a: 1 }, 'TypeError: the body was read already: use clone()'], [response.status, response.ok, await response.json(), await caught(() => response.text())]);
  check('fetch', 'HostError', (await caught(() => fetch('https://example.com'))).split(':')[0]);
  check('an aborted fetch', 'AbortError: The operation was aborted', await caught(() => fetch('https://example.com', { signal: AbortSignal.abort() })));

  const c = new AbortController();
  let aborted = '';
  c.signal.addEventListener('abort', (e) => { aborted += e.type; });
  c.abort(new Error('enough'));
  c.abort();
  check('abort', ['abort', true, 'Error: enough'], [aborted, c.signal.aborted, await caught(() => c.signal.throwIfAborted())]);

  const order = [];
  const never = setTimeout(() => order.push('never'), 1);
  clearTimeout(never);
  let ticks = 0;
  await new Promise((resolve) => {
    setTimeout(() => order.push('b'), 20);
    setTimeout(() => order.push('a'), 10);
    const every = setInterval(() => { order.push(++ticks); if (ticks === 3) { clearInterval(every); setTimeout(resolve, 100); } }, 7);
    queueMicrotask(() => order.push('first'));
  });
  check('timers', ['first', 1, 'a', 2, 'b', 3], order);

  check('random bytes', [true, true], [crypto.getRandomValues(new Uint8Array(9)).some((b) => b), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())]);
  check('Math.random', true, Math.random() !== Math.random());
  check('environment', { A: 'b=c' }, process.env);
  check('the context', ['world', 'session-1'], [call.tool, call.session]);
  return wrong;
});

const trouble = () => { throw new TypeError('not a number', { cause: new Error('inner') }); };
export const broken = tool({ description: 'Throws.' }, async () => { trouble(); });
export const unhandled = tool({ description: 'Leaves a rejection.' }, async () => { Promise.reject(new Error('nobody handles it')); return 1; });
export const result = tool({ description: 'Returns what JSON has no form for.', input: { kind: 'string' } }, ({ kind }) => ({
  map: () => new Map([['a', new Set([1])]]), promise: () => ({ a: Promise.resolve(1) }), function: () => () => 1, bigint: () => 1n, date: () => new Date(0),
})[kind]());
export const endless = tool({ description: 'Recurses.' }, () => { const f = () => f() + 1; return f(); });
export const memory = tool({ description: 'Takes memory.' }, () => { const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length); });
