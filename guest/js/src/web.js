  // What the web has, as far as tools need it.

  // Bytes and text.

  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const digits = new Map([...alphabet].map((c, i) => [c, i]));

  const bytesOf = (data) => data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

  function base64(bytes) {
    const parts = [];
    for (let i = 0; i < bytes.length; i += 3) {
      const n = bytes[i] << 16 | (bytes[i + 1] ?? 0) << 8 | (bytes[i + 2] ?? 0);
      parts.push(alphabet[n >> 18] + alphabet[n >> 12 & 63] + (i + 1 < bytes.length ? alphabet[n >> 6 & 63] : '=') + (i + 2 < bytes.length ? alphabet[n & 63] : '='));
    }
    return parts.join('');
  }

  function bytesFrom(text) {
    text = text.replace(/[\t\n\f\r ]/g, '').replace(/={1,2}$/, '');
    const bytes = new Uint8Array(text.length * 3 >> 2);
    let n = 0, bits = 0, at = 0;
    for (const c of text) {
      const d = digits.get(c);
      if (d === undefined) throw new DOMException('The string is not base64', 'InvalidCharacterError');
      n = (n << 6 | d) & 0xffffff;
      if ((bits += 6) >= 8) bytes[at++] = n >> (bits -= 8) & 255;
    }
    return bytes;
  }

  class DOMException extends Error {
    #name;
    constructor(message = '', name = 'Error') { super(message); this.#name = name; }
    get name() { return this.#name; }
  }

  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') {
      text = String(text).toWellFormed();
      const out = new Uint8Array(text.length * 3);
      let n = 0;
      for (let i = 0; i < text.length; i++) {
        let c = text.charCodeAt(i);
        if (c < 0x80) { out[n++] = c; continue; }
        if (c < 0x800) { out[n++] = 0xc0 | c >> 6; } else {
          if (c >= 0xd800 && c < 0xdc00) {
            c = 0x10000 + (c - 0xd800 << 10) + text.charCodeAt(++i) - 0xdc00;
            out[n++] = 0xf0 | c >> 18;
            out[n++] = 0x80 | c >> 12 & 63;
          } else { out[n++] = 0xe0 | c >> 12; }
          out[n++] = 0x80 | c >> 6 & 63;
        }
        out[n++] = 0x80 | c & 63;
      }
      return out.slice(0, n);
    }
    encodeInto(text, into) {
      let read = 0, written = 0;
      for (const c of text) {
        const bytes = this.encode(c);
        if (written + bytes.length > into.length) break;
        into.set(bytes, written);
        written += bytes.length;
        read += c.length;
      }
      return { read, written };
    }
  }

  class TextDecoder {
    #fatal; #bom;
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      if (!/^(unicode-1-1-)?utf-?8$/i.test(label.trim())) throw new RangeError(`the encoding ${label} is not supported: only utf-8 is`);
      this.#fatal = fatal;
      this.#bom = ignoreBOM;
    }
    get encoding() { return 'utf-8'; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#bom; }
    decode(data) {
      if (data === undefined) return '';
      const b = bytesOf(data), parts = [];
      let units = [], i = !this.#bom && b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf ? 3 : 0;
      while (i < b.length) {
        const c = b[i++];
        let more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
        let point = more < 1 ? c : c & (0x3f >> more);
        let low = c === 0xe0 ? 0xa0 : c === 0xf0 ? 0x90 : 0x80, high = c === 0xed ? 0x9f : c === 0xf4 ? 0x8f : 0xbf;
        for (; more > 0 && b[i] >= low && b[i] <= high; more--) { point = point << 6 | b[i++] & 63; low = 0x80; high = 0xbf; }
        if (more) {
          if (this.#fatal) throw new TypeError('the data is not UTF-8');
          point = 0xfffd;
        }
        if (point > 0xffff) units.push(0xd800 + (point - 0x10000 >> 10), 0xdc00 + (point & 0x3ff)); else units.push(point);
        if (units.length > 4096) { parts.push(String.fromCharCode(...units)); units = []; }
      }
      return parts.join('') + String.fromCharCode(...units);
    }
  }

  const crypto = {
    getRandomValues(array) {
      const bytes = bytesOf(array);
      if (bytes.length > 65536) throw new DOMException('more than 65536 bytes', 'QuotaExceededError');
      for (let i = 0; i < bytes.length; i += 4) {
        const n = random();
        for (let k = 0; k < 4 && i + k < bytes.length; k++) bytes[i + k] = n >>> 8 * k;
      }
      return array;
    },
    randomUUID() {
      const b = crypto.getRandomValues(new Uint8Array(16));
      b[6] = b[6] & 15 | 64;
      b[8] = b[8] & 63 | 128;
      const hex = Array.from(b, (x) => x.toString(16).padStart(2, '0')).join('');
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
    },
  };
  Math.random = () => (random() * 0x200000 + (random() >>> 11)) / 0x20000000000000;

  // structuredClone copies what can be in more than one place, and what refers to itself.
  function structuredClone(value, seen = new Map()) {
    if (!(seen instanceof Map)) seen = new Map();
    if (typeof value === 'function' || typeof value === 'symbol') throw new DOMException(`a ${typeof value} cannot be cloned`, 'DataCloneError');
    if (typeof value !== 'object' || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => { seen.set(value, copy); return copy; };
    if (value instanceof Date) return keep(new Date(+value));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (value instanceof DataView) return keep(new DataView(structuredClone(value.buffer, seen), value.byteOffset, value.byteLength));
    if (ArrayBuffer.isView(value)) return keep(new value.constructor(structuredClone(value.buffer, seen), value.byteOffset, value.length));
    if (value instanceof Map) { const copy = keep(new Map()); for (const [k, v] of value) copy.set(structuredClone(k, seen), structuredClone(v, seen)); return copy; }
    if (value instanceof Set) { const copy = keep(new Set()); for (const v of value) copy.add(structuredClone(v, seen)); return copy; }
    if (value instanceof Error) { const copy = keep(new (globalThis[value.name] ?? Error)(value.message)); copy.stack = value.stack; return copy; }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) throw new DOMException(`a ${value.constructor.name} cannot be cloned`, 'DataCloneError');
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = structuredClone(value[key], seen);
    return copy;
  }

  // Events.

  class Event {
    constructor(type, options = {}) { this.type = type; this.cancelable = !!options.cancelable; this.defaultPrevented = false; this.target = null; }
    preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
  }

  class EventTarget {
    #listeners = [];
    addEventListener(type, listener, options) {
      if (listener && !this.#listeners.some((l) => l.type === type && l.listener === listener)) this.#listeners.push({ type, listener, once: options?.once });
    }
    removeEventListener(type, listener) { this.#listeners = this.#listeners.filter((l) => l.type !== type || l.listener !== listener); }
    dispatchEvent(event) {
      event.target = this;
      for (const l of this.#listeners.filter((l) => l.type === event.type)) {
        if (l.once) this.removeEventListener(l.type, l.listener);
        if (typeof l.listener === 'function') l.listener.call(this, event); else l.listener.handleEvent(event);
      }
      this['on' + event.type]?.call(this, event);
      return !event.defaultPrevented;
    }
  }

  class AbortSignal extends EventTarget {
    aborted = false;
    reason = undefined;
    onabort = null;
    throwIfAborted() { if (this.aborted) throw this.reason; }
    static abort(reason = new DOMException('The operation was aborted', 'AbortError')) { const s = new AbortSignal(); s.aborted = true; s.reason = reason; return s; }
    static timeout(ms) { const c = new AbortController(); timer(() => c.abort(new DOMException('The operation timed out', 'TimeoutError')), ms, false, []); return c.signal; }
    static any(signals) {
      const c = new AbortController();
      for (const s of signals) { if (s.aborted) { c.abort(s.reason); break; } s.addEventListener('abort', () => c.abort(s.reason), { once: true }); }
      return c.signal;
    }
  }

  class AbortController {
    signal = new AbortSignal();
    abort(reason = new DOMException('The operation was aborted', 'AbortError')) {
      if (this.signal.aborted) return;
      this.signal.aborted = true;
      this.signal.reason = reason;
      this.signal.dispatchEvent(new Event('abort'));
    }
  }

  // Addresses.

  const encoder = new TextEncoder(), decoder = new TextDecoder();
  const percent = (byte) => '%' + (byte < 16 ? '0' : '') + byte.toString(16).toUpperCase();
  const escaped = (text, safe) => { let out = ''; for (const b of encoder.encode(text)) { const c = String.fromCharCode(b); out += b < 0x80 && safe.test(c) ? c : percent(b); } return out; };
  function unescaped(text) {
    const b = encoder.encode(text), out = [];
    for (let i = 0; i < b.length; i++) {
      const hex = b[i] === 37 ? String.fromCharCode(b[i + 1] ?? 0, b[i + 2] ?? 0) : '';
      if (/^[0-9a-f]{2}$/i.test(hex)) { out.push(parseInt(hex, 16)); i += 2; } else out.push(b[i]);
    }
    return decoder.decode(Uint8Array.from(out));
  }

  const form = (text) => escaped(text, /[A-Za-z0-9*\-._ ]/).replaceAll(' ', '+');

  class URLSearchParams {
    #list = []; #changed;
    constructor(init = '', changed) {
      this.#changed = changed;
      if (typeof init === 'string') this._parse(init);
      else if (init?.[Symbol.iterator]) for (const [k, v] of init) this.#list.push([String(k), String(v)]);
      else for (const k of Object.keys(init)) this.#list.push([k, String(init[k])]);
    }
    _parse(text) {
      this.#list = text.replace(/^\?/, '').split('&').filter(Boolean).map((pair) => {
        const at = pair.indexOf('=');
        return (at < 0 ? [pair, ''] : [pair.slice(0, at), pair.slice(at + 1)]).map((s) => unescaped(s.replaceAll('+', ' ')));
      });
    }
    #set(list) { this.#list = list; this.#changed?.(this.toString()); }
    get size() { return this.#list.length; }
    append(name, value) { this.#set([...this.#list, [String(name), String(value)]]); }
    delete(name, value) { this.#set(this.#list.filter(([k, v]) => k !== name || value !== undefined && v !== String(value))); }
    get(name) { return this.#list.find(([k]) => k === name)?.[1] ?? null; }
    getAll(name) { return this.#list.filter(([k]) => k === name).map(([, v]) => v); }
    has(name, value) { return this.#list.some(([k, v]) => k === name && (value === undefined || v === String(value))); }
    set(name, value) {
      const at = this.#list.findIndex(([k]) => k === name), pair = [String(name), String(value)];
      this.#set(at < 0 ? [...this.#list, pair] : this.#list.flatMap((p, i) => i === at ? [pair] : p[0] === name ? [] : [p]));
    }
    sort() { this.#set(this.#list.toSorted(([a], [b]) => a < b ? -1 : a > b ? 1 : 0)); }
    forEach(f, self) { for (const [k, v] of this.#list) f.call(self, v, k, this); }
    keys() { return this.#list.map(([k]) => k).values(); }
    values() { return this.#list.map(([, v]) => v).values(); }
    entries() { return this.#list.map((p) => [...p]).values(); }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map(([k, v]) => `${form(k)}=${form(v)}`).join('&'); }
  }

  const ports = { 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443', 'ftp:': '21', 'file:': '' };
  const inPath = /[^\x00-\x20"#<>?`{}\x7f^]/, inQuery = /[^\x00-\x20"#<>'\x7f]/, inFragment = /[^\x00-\x20"<>`\x7f]/, inUser = /[^\x00-\x20"#<>?`{}\/:;=@[\\\]^|\x7f]/;

  // URL is that of the WHATWG, but for names that are not ASCII, and addresses in other
  // notations than that with dots.
  class URL {
    #p; #params;
    constructor(text, base) {
      text = String(text).replace(/^[\x00-\x20]+|[\x00-\x20]+$/g, '').replace(/[\t\n\r]/g, '');
      this.#p = URL.#parse(text, base === undefined ? undefined : base instanceof URL ? base.#p : new URL(base).#p);
      this.#params = new URLSearchParams(this.search, (query) => { this.#p.query = query === '' ? null : query; });
    }
    static canParse(text, base) { try { new URL(text, base); return true; } catch { return false; } }
    static parse(text, base) { try { return new URL(text, base); } catch { return null; } }
    static #fail(text) { const e = new TypeError(`Invalid URL: ${text}`); e.code = 'ERR_INVALID_URL'; throw e; }

    static #parse(text, base) {
      const scheme = /^([a-z][a-z0-9+\-.]*):/i.exec(text);
      const p = { scheme: '', user: '', password: '', host: null, port: '', path: '', query: null, fragment: null };
      let rest = text, hash = text.indexOf('#');
      if (hash >= 0) { p.fragment = escaped(text.slice(hash + 1), inFragment); rest = text.slice(0, hash); }
      if (scheme) { p.scheme = scheme[1].toLowerCase() + ':'; rest = rest.slice(scheme[0].length); } else if (!base) URL.#fail(text);
      else p.scheme = base.scheme;
      const special = p.scheme in ports;
      if (special) { const q = rest.indexOf('?'); rest = q < 0 ? rest.replaceAll('\\', '/') : rest.slice(0, q).replaceAll('\\', '/') + rest.slice(q); }

      const question = rest.indexOf('?');
      let path = question < 0 ? rest : rest.slice(0, question);
      if (question >= 0) p.query = escaped(rest.slice(question + 1), inQuery);

      const relative = !scheme || special && base?.scheme === p.scheme && !path.startsWith('/') && p.scheme !== 'file:';
      if (special && scheme && !relative && p.scheme !== 'file:') path = '//' + path.replace(/^\/*/, '');
      if (path.startsWith('//')) {
        const end = path.indexOf('/', 2), authority = path.slice(2, end < 0 ? undefined : end);
        path = end < 0 ? '' : path.slice(end);
        const at = authority.lastIndexOf('@');
        if (at >= 0) {
          const colon = authority.slice(0, at).indexOf(':');
          p.user = escaped(authority.slice(0, colon < 0 ? at : colon), inUser);
          p.password = colon < 0 ? '' : escaped(authority.slice(colon + 1, at), inUser);
        }
        const host = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]*)(?::(\d*))?$/.exec(authority.slice(at + 1));
        if (!host || special && p.scheme !== 'file:' && !host[1]) URL.#fail(text);
        p.host = special ? unescaped(host[1]).toLowerCase() : host[1];
        if (/[\x00-\x20"#%/:<>?@[\\\]^`{|}\x7f]/.test(p.host.replace(/^\[|\]$/g, '').replace(p.host[0] === '[' ? /:/g : /(?!)/, ''))) URL.#fail(text);
        if (/[^\x00-\x7f]/.test(p.host)) URL.#fail(`${text} (write the host in ASCII, as xn--…)`);
        if (host[2] && +host[2] > 65535) URL.#fail(text);
        p.port = host[2] && String(+host[2]) !== ports[p.scheme] ? String(+host[2]) : '';
      } else if (relative && base) {
        if (base.host === null && !base.path.startsWith('/') && path !== '' ) URL.#fail(text);
        Object.assign(p, { user: base.user, password: base.password, host: base.host, port: base.port });
        if (path === '') { path = base.path; p.query ??= question < 0 ? base.query : p.query; } else if (!path.startsWith('/')) path = base.path.slice(0, base.path.lastIndexOf('/') + 1) + path;
      } else if (!special && !path.startsWith('/')) {
        p.path = escaped(path, /[^\x00-\x1f\x7f]/); // opaque, such as that of mailto:
        return p;
      } else if (p.scheme === 'file:') p.host = '';

      const segments = [];
      const all = path.split('/');
      all.slice(1).forEach((segment, i, { length }) => {
        const plain = segment.replace(/%2e/gi, '.'), last = i === length - 1;
        if (plain === '..') { segments.pop(); if (last) segments.push(''); } else if (plain === '.') { if (last) segments.push(''); } else segments.push(escaped(segment, inPath));
      });
      p.path = all.length > 1 || special ? '/' + segments.join('/') : '';
      return p;
    }

    #change(text) { this.#p = URL.#parse(text); this.#params._parse(this.search); }
    get protocol() { return this.#p.scheme; }
    set protocol(v) { this.#change(String(v).replace(/:?$/, ':') + this.href.slice(this.#p.scheme.length)); }
    get username() { return this.#p.user; }
    set username(v) { this.#p.user = escaped(v, inUser); }
    get password() { return this.#p.password; }
    set password(v) { this.#p.password = escaped(v, inUser); }
    get hostname() { return this.#p.host ?? ''; }
    set hostname(v) { if (this.#p.host !== null) { const u = new URL(`${this.#p.scheme}//${v}`); this.#p.host = u.hostname; } }
    get port() { return this.#p.port; }
    set port(v) { this.#p.port = v === '' || String(v) === ports[this.#p.scheme] ? '' : String(+v); }
    get host() { return this.hostname + (this.port && ':' + this.port); }
    set host(v) { const u = new URL(`${this.#p.scheme}//${v}`); this.#p.host = u.hostname; this.#p.port = u.port; }
    get origin() { return this.#p.scheme in ports && this.#p.scheme !== 'file:' ? `${this.#p.scheme}//${this.host}` : 'null'; }
    get pathname() { return this.#p.path; }
    set pathname(v) { this.#p.path = URL.#parse(`${this.#p.scheme in ports ? this.#p.scheme : 'http:'}//x/${String(v).replace(/^\//, '').replaceAll('?', '%3F').replaceAll('#', '%23')}`).path; }
    get search() { return this.#p.query ? '?' + this.#p.query : ''; }
    set search(v) { v = String(v).replace(/^\?/, ''); this.#p.query = v === '' ? null : escaped(v, inQuery); this.#params._parse(v); }
    get searchParams() { return this.#params; }
    get hash() { return this.#p.fragment ? '#' + this.#p.fragment : ''; }
    set hash(v) { v = String(v).replace(/^#/, ''); this.#p.fragment = v === '' ? null : escaped(v, inFragment); }
    get href() {
      const p = this.#p, user = p.user || p.password ? p.user + (p.password && ':' + p.password) + '@' : '';
      return p.scheme + (p.host === null ? '' : '//' + user + this.host) + p.path + (p.query === null ? '' : '?' + p.query) + (p.fragment === null ? '' : '#' + p.fragment);
    }
    set href(v) { this.#change(String(v)); }
    toString() { return this.href; }
    toJSON() { return this.href; }
  }

  // Requests.

  class Headers {
    #map = new Map();
    constructor(init = {}) {
      if (init?.[Symbol.iterator]) for (const [k, v] of init) this.append(k, v);
      else for (const k of Object.keys(init)) for (const v of [init[k]].flat()) this.append(k, v);
    }
    #name(name) {
      if (!/^[!#$%&'*+\-.^_`|~0-9a-z]+$/i.test(name)) throw new TypeError(`${name} is not a name of a header`);
      return String(name).toLowerCase();
    }
    append(name, value) { const k = this.#name(name); this.#map.set(k, [...(this.#map.get(k) ?? []), String(value).trim()]); }
    set(name, value) { this.#map.set(this.#name(name), [String(value).trim()]); }
    get(name) { return this.#map.get(this.#name(name))?.join(', ') ?? null; }
    getSetCookie() { return [...(this.#map.get('set-cookie') ?? [])]; }
    has(name) { return this.#map.has(this.#name(name)); }
    delete(name) { this.#map.delete(this.#name(name)); }
    forEach(f, self) { for (const [k, v] of this) f.call(self, v, k, this); }
    entries() { return [...this.#map].sort(([a], [b]) => a < b ? -1 : 1).map(([k, v]) => [k, v.join(', ')]).values(); }
    keys() { return [...this.entries()].map(([k]) => k).values(); }
    values() { return [...this.entries()].map(([, v]) => v).values(); }
    [Symbol.iterator]() { return this.entries(); }
    _lists() { return Object.fromEntries(this.#map); }
  }

  class Body {
    #bytes; #used = false;
    _set(body, headers) {
      if (body === undefined || body === null) return;
      let type;
      if (body instanceof URLSearchParams) { type = 'application/x-www-form-urlencoded;charset=UTF-8'; body = body.toString(); }
      if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) this.#bytes = bytesOf(body).slice();
      else { type ??= 'text/plain;charset=UTF-8'; this.#bytes = String(body); }
      if (type && !headers.has('content-type')) headers.set('content-type', type);
    }
    #take() {
      if (this.#used) throw new TypeError('the body was read already: use clone()');
      this.#used = this.#bytes !== undefined;
      return this.#bytes ?? '';
    }
    _peek() { return this.#bytes; }
    get bodyUsed() { return this.#used; }
    async text() { const b = this.#take(); return typeof b === 'string' ? b : decoder.decode(b); }
    async bytes() { const b = this.#take(); return typeof b === 'string' ? encoder.encode(b) : b; }
    async arrayBuffer() { return (await this.bytes()).buffer; }
    async json() { return JSON.parse(await this.text()); }
  }

  class Request extends Body {
    constructor(input, init = {}) {
      super();
      const from = input instanceof Request ? input : undefined;
      this.url = from ? from.url : new URL(input).href;
      this.method = (init.method ?? from?.method ?? 'GET').toUpperCase();
      this.headers = new Headers(init.headers ?? from?.headers);
      this.signal = init.signal ?? from?.signal ?? new AbortSignal();
      this.redirect = init.redirect ?? from?.redirect ?? 'follow';
      const body = init.body ?? from?._peek();
      if (body != null && (this.method === 'GET' || this.method === 'HEAD')) throw new TypeError(`a request with ${this.method} has no body`);
      this._set(body, this.headers);
    }
    clone() { return new Request(this); }
  }

  class Response extends Body {
    constructor(body, init = {}) {
      super();
      this.status = init.status ?? 200;
      if (this.status < 200 || this.status > 599) throw new RangeError('expected a status from 200 to 599');
      this.statusText = init.statusText ?? '';
      this.headers = new Headers(init.headers);
      this.url = init.url ?? '';
      this.redirected = init.redirected ?? false;
      this.type = 'default';
      this._set(body, this.headers);
    }
    get ok() { return this.status >= 200 && this.status < 300; }
    clone() { return new Response(this._peek(), this); }
    static json(value, init = {}) { const headers = new Headers(init.headers); if (!headers.has('content-type')) headers.set('content-type', 'application/json'); return new Response(JSON.stringify(value), { ...init, headers }); }
    static error() { const r = new Response(null); r.status = 0; r.type = 'error'; return r; }
  }

  async function fetch(input, init) {
    const request = new Request(input, init), { signal } = request, body = request._peek();
    signal.throwIfAborted();
    const sent = { url: request.url, method: request.method, headers: request.headers._lists(), redirects: request.redirect === 'follow' ? 10 : 0 };
    if (typeof body === 'string') sent.body = body; else if (body) sent.body_base64 = base64(body);

    try {
      const r = await begin('http', sent, { signal });
      if (request.redirect === 'error' && r.status >= 300 && r.status < 400) throw new TypeError('the request was redirected');
      const response = new Response(null, { status: r.status, headers: r.headers, url: r.url, redirected: r.url !== request.url });
      const got = r.body_base64 !== undefined ? bytesFrom(r.body_base64) : r.body;
      if (got) response._set(got, { has: () => true });
      return response;
    } catch (e) {
      signal.throwIfAborted();
      throw e;
    }
  }

  let variables; // of the environment, read once
  const env = () => variables ??= Object.fromEntries((environment() ?? '').split('\0').filter(Boolean).map((pair) => { const at = pair.indexOf('='); return [pair.slice(0, at), pair.slice(at + 1)]; }));

  define(globalThis, {
    DOMException, TextEncoder, TextDecoder, crypto, structuredClone: (value) => structuredClone(value), Event, EventTarget, AbortSignal, AbortController,
    URL, URLSearchParams, Headers, Request, Response, fetch,
    btoa: (text) => base64(Uint8Array.from(String(text), (c) => { if (c > '\xff') throw new DOMException('a character is no byte', 'InvalidCharacterError'); return c.charCodeAt(0); })),
    atob: (text) => { let out = ''; for (const b of bytesFrom(String(text))) out += String.fromCharCode(b); return out; },
    queueMicrotask: (f) => { Promise.resolve().then(f); },
    performance: { now: () => Date.now(), timeOrigin: 0 },
    process: { get env() { return env(); }, argv: [], platform: 'toolhost', exit, cwd: () => '/', nextTick: (f, ...args) => { Promise.resolve().then(() => f(...args)); } },
  });
