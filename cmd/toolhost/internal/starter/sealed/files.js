// toolhost:node:fs/promises
var { file } = globalThis.toolhost;
var PRESTAT = 0;
var OPEN = 1;
var CLOSE = 2;
var READ = 3;
var WRITE = 4;
var READDIR = 5;
var STAT = 6;
var MKDIR = 7;
var UNLINK = 8;
var RMDIR = 9;
var DECODE = 11;
var ENCODE = 12;
var CREATE = 1;
var DIRECTORY = 2;
var EXCLUSIVE = 4;
var TRUNCATE = 8;
var APPEND = 1;
var MAY_READ = 2;
var MAY_WRITE = 64;
var FOLDER = 3;
var REGULAR = 4;
var LINK = 7;
var chunk = 64 * 1024;
var errors = {
  2: ["EACCES", "permission denied"],
  8: ["EBADF", "bad file descriptor"],
  10: ["EBUSY", "resource busy"],
  20: ["EEXIST", "file already exists"],
  22: ["EFBIG", "file too large"],
  28: ["EINVAL", "invalid argument"],
  29: ["EIO", "i/o error"],
  31: ["EISDIR", "illegal operation on a directory"],
  32: ["ELOOP", "too many symbolic links"],
  33: ["EMFILE", "too many open files"],
  37: ["ENAMETOOLONG", "name too long"],
  44: ["ENOENT", "no such file or directory"],
  51: ["ENOSPC", "no space left on device"],
  54: ["ENOTDIR", "not a directory"],
  55: ["ENOTEMPTY", "directory not empty"],
  58: ["ENOTSUP", "operation not supported"],
  63: ["EPERM", "operation not permitted"],
  69: ["EROFS", "read-only file system"],
  75: ["EXDEV", "cross-device link"],
  76: ["ENOTCAPABLE", "the path leads out of the granted folder"]
};
function failure(errno, syscall, path2) {
  const [code, text2] = errors[errno] ?? [`E${errno}`, "failed"];
  return Object.assign(new Error(`${code}: ${text2}, ${syscall}${path2 === void 0 ? "" : ` '${path2}'`}`), { code, errno: -errno, syscall, path: path2 });
}
function ask(syscall, path2, op, a = 0, b = 0, c = 0, d = 0, e = 0) {
  const answer = file(op, a, b, c, d, e);
  if (answer < 0) throw failure(-answer, syscall, path2);
  return answer;
}
var folders;
function granted() {
  if (folders) return folders;
  folders = [];
  for (let fd = 3; ; fd++) {
    const path2 = file(PRESTAT, fd, 0, 0, 0, 0);
    if (typeof path2 !== "string") break;
    folders.push({ fd, path: path2.replace(/\/+$/, "") });
  }
  return folders.sort((a, b) => b.path.length - a.path.length);
}
function place(path2, syscall) {
  path2 = String(path2);
  if (path2.includes("\0")) throw failure(28, syscall, path2);
  const full = path2.startsWith("/") ? path2 : "/" + path2;
  const folder2 = granted().find((f) => full === f.path || full.startsWith(f.path + "/"));
  if (!folder2) throw failure(44, syscall, path2);
  return [folder2.fd, full.slice(folder2.path.length).replace(/^\/+/, "") || "."];
}
var flagsOf = {
  r: [0, 0, MAY_READ],
  "r+": [0, 0, MAY_READ | MAY_WRITE],
  w: [CREATE | TRUNCATE, 0, MAY_WRITE],
  wx: [CREATE | TRUNCATE | EXCLUSIVE, 0, MAY_WRITE],
  "w+": [CREATE | TRUNCATE, 0, MAY_READ | MAY_WRITE],
  a: [CREATE, APPEND, MAY_WRITE],
  ax: [CREATE | EXCLUSIVE, APPEND, MAY_WRITE]
};
function openAt(path2, how, flags, rights) {
  const [fd, name] = place(path2, "open");
  return ask("open", path2, OPEN, fd, name, how, flags, rights);
}
var encodingOf = (options) => {
  const encoding = typeof options === "string" ? options : options?.encoding;
  if (encoding && !/^utf-?8$/i.test(encoding)) throw new TypeError(`unknown encoding ${encoding}: only utf8`);
  return encoding;
};
var decode = (buffer, from, length) => file(DECODE, buffer, from, length, 0, 0);
var encode = (text2) => file(ENCODE, String(text2).toWellFormed(), 0, 0, 0, 0);
function bytesOf(data) {
  if (typeof data === "string") return new Uint8Array(encode(data));
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw new TypeError("expected a text or bytes");
}
var Stats = class {
  constructor(bytes) {
    const view = new DataView(bytes);
    this.size = Number(view.getBigUint64(32, true));
    for (const [name, at2] of [["atime", 40], ["mtime", 48], ["ctime", 56]]) {
      this[name + "Ms"] = Number(view.getBigUint64(at2, true)) / 1e6;
      this[name] = new Date(this[name + "Ms"]);
    }
    Object.defineProperty(this, "kind", { value: view.getUint8(16) });
  }
  isFile() {
    return this.kind === REGULAR;
  }
  isDirectory() {
    return this.kind === FOLDER;
  }
  isSymbolicLink() {
    return this.kind === LINK;
  }
};
var Dirent = class {
  constructor(name, parentPath, kind) {
    Object.assign(this, { name, parentPath });
    Object.defineProperty(this, "kind", { value: kind });
  }
  isFile() {
    return this.kind === REGULAR;
  }
  isDirectory() {
    return this.kind === FOLDER;
  }
  isSymbolicLink() {
    return this.kind === LINK;
  }
};
function statAt(syscall, path2, follow) {
  const [fd, name] = place(path2, syscall), bytes = new ArrayBuffer(64);
  ask(syscall, path2, STAT, fd, name, bytes, follow);
  return new Stats(bytes);
}
var FileHandle = class {
  #path;
  constructor(fd, path2) {
    this.fd = fd;
    this.#path = path2;
  }
  async read(buffer, offset = 0, length = buffer.byteLength - offset, position = null) {
    const bytes = bytesOf(buffer);
    const bytesRead = ask("read", this.#path, READ, this.fd, bytes.buffer, bytes.byteOffset + offset, length, position ?? -1);
    return { bytesRead, buffer };
  }
  async write(data) {
    const bytes = bytesOf(data);
    let done = 0;
    while (done < bytes.length) done += ask("write", this.#path, WRITE, this.fd, bytes.buffer, bytes.byteOffset + done, bytes.length - done);
    return { bytesWritten: done, buffer: data };
  }
  async close() {
    if (this.fd < 0) return;
    const fd = this.fd;
    this.fd = -1;
    ask("close", this.#path, CLOSE, fd);
  }
  async [Symbol.asyncDispose ?? /* @__PURE__ */ Symbol.for("asyncDispose")]() {
    await this.close();
  }
};
async function open(path2, flags = "r") {
  if (!Object.hasOwn(flagsOf, flags)) throw new TypeError(`unknown flags ${flags}`);
  return new FileHandle(openAt(path2, ...flagsOf[flags]), path2);
}
async function opened(path2, flags, use) {
  const handle = await open(path2, flags);
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}
async function readFile(path2, options) {
  const encoding = encodingOf(options), info = statAt("open", path2, 1);
  if (info.isDirectory()) throw failure(31, "read", path2);
  return opened(path2, "r", async (handle) => {
    let bytes = new Uint8Array(info.size || chunk), size = 0;
    for (; ; ) {
      if (size === bytes.length) {
        const larger = new Uint8Array(size + Math.max(chunk, size >> 1));
        const { bytesRead: bytesRead2 } = await handle.read(larger, size);
        if (!bytesRead2) break;
        larger.set(bytes);
        bytes = larger;
        size += bytesRead2;
        continue;
      }
      const { bytesRead } = await handle.read(bytes, size);
      if (!bytesRead) break;
      size += bytesRead;
    }
    return encoding ? decode(bytes.buffer, 0, size) : bytes.subarray(0, size);
  });
}
async function writeFile(path2, data, options) {
  encodingOf(options);
  const bytes = bytesOf(data);
  await opened(path2, options?.flag ?? "w", (handle) => handle.write(bytes));
}
var stat = async (path2) => statAt("stat", path2, 1);
var lstat = async (path2) => statAt("lstat", path2, 0);
async function readdir(path2, options) {
  const fd = openAt(path2, DIRECTORY, 0, MAY_READ), out = [], bytes = new ArrayBuffer(chunk), view = new DataView(bytes);
  try {
    for (let cookie = 0; ; ) {
      const size = ask("scandir", path2, READDIR, fd, bytes, cookie);
      let at2 = 0, before = cookie;
      while (at2 + 24 <= size) {
        const length = view.getUint32(at2 + 16, true);
        if (at2 + 24 + length > size) break;
        const name = decode(bytes, at2 + 24, length), kind = view.getUint8(at2 + 20);
        cookie = Number(view.getBigUint64(at2, true));
        at2 += 24 + length;
        if (name !== "." && name !== "..") out.push(options?.withFileTypes ? new Dirent(name, path2, kind) : name);
      }
      if (size < chunk || cookie === before) return out;
    }
  } finally {
    file(CLOSE, fd, 0, 0, 0, 0);
  }
}
async function mkdir(path2, options) {
  if (!options?.recursive) {
    const [fd2, name2] = place(path2, "mkdir");
    ask("mkdir", path2, MKDIR, fd2, name2);
    return;
  }
  const [fd, name] = place(path2, "mkdir");
  let at2 = "";
  for (const part of name.split("/")) {
    if (part === "" || part === ".") continue;
    at2 += (at2 && "/") + part;
    const errno = -file(MKDIR, fd, at2, 0, 0, 0);
    if (errno && errno !== 20) throw failure(errno, "mkdir", path2);
  }
  if (!statAt("mkdir", path2, 1).isDirectory()) throw failure(20, "mkdir", path2);
}
async function unlink(path2) {
  const [fd, name] = place(path2, "unlink");
  ask("unlink", path2, UNLINK, fd, name);
}
async function rmdir(path2) {
  const [fd, name] = place(path2, "rmdir");
  ask("rmdir", path2, RMDIR, fd, name);
}

// toolhost:toolhost
var { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;

// tool.js
var plugin = { name: "files", version: "1.0.0", description: "Works on text files in a folder.", needs: { files: [{ path: "/work", mode: "write" }] } };
var root = "/work";
var maxEdit = 4 << 20;
var maxText = 2e5;
var maxLine = 500;
var path = { type: "string", description: "In the workspace, such as src/a.txt", minLength: 1, maxLength: 4096 };
var folder = { ...path, default: "." };
var reads = { readonly: true, idempotent: true, openWorld: false };
var writes = { openWorld: false, concurrency: "serial" };
var escape = { name: "outside", args: { path: "../secret" }, error: "../secret: outside of the workspace" };
var missing = { name: "missing", args: { path: "none.txt" }, error: "none.txt: no such file or folder" };
var texts = {
  ENOENT: "no such file or folder",
  EISDIR: "a folder: list_directory lists it",
  ENOTDIR: "a part of the path is not a folder",
  EEXIST: "exists already, and is not a folder",
  ENOTEMPTY: "the folder is not empty: delete what is in it first",
  EPERM: "not permitted: it may lead out of the workspace",
  EACCES: "permission denied",
  EROFS: "only reading is granted",
  ENOSPC: "no space left on the device",
  ELOOP: "too many symbolic links",
  ENAMETOOLONG: "the name is too long"
};
async function at(given, use) {
  const parts = [];
  for (const part of given.replace(/^\/work(?=\/|$)/, ".").split("/")) {
    if (part === "..") {
      if (!parts.length) throw new ToolError(`${given}: outside of the workspace`);
      parts.pop();
    } else if (part !== "" && part !== ".") parts.push(part);
  }
  if (given.startsWith("/") && !/^\/work(\/|$)/.test(given)) throw new ToolError(`${given}: outside of the workspace: give a path within it, such as src/a.txt`);
  try {
    return await use([root, ...parts].join("/"), parts.join("/") || ".");
  } catch (e) {
    if (e instanceof ToolError || e.code === void 0) throw e;
    throw new ToolError(`${given}: ${texts[e.code] ?? e.message}`);
  }
}
async function text(full, name) {
  const info = await stat(full);
  if (info.isDirectory()) throw new ToolError(`${name}: ${texts.EISDIR}`);
  if (!info.isFile()) throw new ToolError(`${name}: not a file`);
  if (info.size > maxEdit) throw new ToolError(`${name}: ${info.size} bytes, expected at most ${maxEdit}`);
  const content = await readFile(full, "utf8");
  if (content.includes("\0") || content.includes("�")) throw new ToolError(`${name}: not a text in UTF-8`);
  return content;
}
var read_file = tool({
  description: "Reads a text file, or some of its lines. next is the offset of the lines that are left.",
  input: {
    path,
    "offset?": { type: "integer", description: "Lines to skip", minimum: 0, default: 0 },
    "limit?": { type: "integer", description: "Lines to return", minimum: 1, maximum: 1e4, default: 2e3 }
  },
  ...reads,
  limits: { fuel: 5e10 },
  examples: [{ args: { path: "notes/a.txt" }, result: { text: "one\ntwo\nthree\n" } }, { args: { path: "notes/a.txt", offset: 1, limit: 1 }, result: { text: "two\n", next: 2 } }, missing, escape]
}, ({ path: path2, offset, limit }) => at(path2, async (full) => {
  const info = await stat(full);
  if (info.isDirectory()) throw new ToolError(`${path2}: ${texts.EISDIR}`);
  if (!info.isFile()) throw new ToolError(`${path2}: not a file`);
  const handle = await open(full), chunk2 = new Uint8Array(64 << 10), kept = [];
  let line = 0, begin = 0, size = 0, next, cut = false;
  reading: for (let position = 0; ; ) {
    const { bytesRead } = await handle.read(chunk2, 0, chunk2.length, position);
    if (!bytesRead) break;
    const bytes = chunk2.subarray(0, bytesRead);
    if (position === 0 && bytes.includes(0)) throw new ToolError(`${path2}: ${info.size} bytes that are not text`);
    position += bytesRead;
    for (let from = 0; from < bytesRead; ) {
      if (line === offset + limit) {
        next = line;
        break reading;
      }
      const end = bytes.indexOf(10, from), to = end < 0 ? bytesRead : end + 1;
      if (line >= offset) {
        if (size + to - from > maxText) {
          cut = line === offset;
          if (cut) kept.push(bytes.slice(from, from + maxText - size));
          else kept.length = begin;
          next = cut ? line + 1 : line;
          break reading;
        }
        kept.push(bytes.slice(from, to));
        size += to - from;
      }
      if (end >= 0) {
        line++;
        begin = kept.length;
      }
      from = to;
    }
  }
  await handle.close();
  if (!kept.length && offset > 0) throw new ToolError(`${path2}: there are only ${line} lines`);
  return { text: joined(kept), ...next !== void 0 && { next }, ...cut && { cut } };
}));
function joined(kept) {
  const bytes = new Uint8Array(kept.reduce((n, part) => n + part.length, 0));
  let at2 = 0;
  for (const part of kept) {
    bytes.set(part, at2);
    at2 += part.length;
  }
  return new TextDecoder().decode(bytes);
}
var write_file = tool({
  description: "Writes a text file and the folders around it. What was in the file is gone.",
  input: { path, content: "string" },
  ...writes,
  idempotent: true,
  examples: [{ args: { path: "new/b.txt", content: "grüezi\n" }, result: { bytes: 8 } }, { name: "outside", args: { path: "../secret", content: "" }, error: "../secret: outside of the workspace" }]
}, ({ path: path2, content }) => at(path2, async (full) => {
  await mkdir(full.slice(0, full.lastIndexOf("/")), { recursive: true });
  await writeFile(full, content);
  return { bytes: (await stat(full)).size };
}));
var edit_file = tool({
  description: "Replaces a text in a file. The old text has to occur exactly once, unless all is true.",
  input: { path, old: { type: "string", description: "Copied exactly, with spaces and line breaks", minLength: 1 }, new: "string", "all?": { type: "boolean", default: false } },
  ...writes,
  examples: [
    { args: { path: "notes/a.txt", old: "two", new: "zwei" }, result: { replaced: 1, line: 2 } },
    { args: { path: "notes/a.txt", old: "four", new: "vier" }, error: "notes/a.txt: the old text does not occur" },
    { args: { path: "notes/a.txt", old: "o", new: "0" }, error: "notes/a.txt: the old text occurs 2 times" }
  ]
}, ({ path: path2, old, new: replacement, all }) => at(path2, async (full) => {
  const content = await text(full, path2), parts = content.split(old), found = parts.length - 1;
  if (found === 0) throw new ToolError(`${path2}: the old text does not occur: read the file and copy the text exactly`);
  if (found > 1 && !all) throw new ToolError(`${path2}: the old text occurs ${found} times: give more of what is around it, or all: true`);
  const after = parts.join(replacement);
  if (after.length > maxEdit) throw new ToolError(`${path2}: the file would have more than ${maxEdit} characters`);
  await writeFile(full, after);
  return { replaced: found, line: parts[0].split("\n").length };
}));
var list_directory = tool({
  description: "Lists a folder. Names of folders end in a slash.",
  input: { "path?": folder, "limit?": { type: "integer", minimum: 1, maximum: 5e3, default: 500 } },
  ...reads,
  examples: [{ args: {}, result: { entries: ["notes/"] } }, { args: { path: "notes" }, result: { entries: ["a.txt"] } }, escape]
}, ({ path: path2, limit }) => at(path2, async (full) => {
  const all = await sorted(full), entries = all.slice(0, limit).map((e) => e.name + (e.isDirectory() ? "/" : ""));
  return { entries, ...all.length > limit && { more: all.length - limit } };
}));
var sorted = async (full) => (await readdir(full, { withFileTypes: true })).sort((a, b) => a.name < b.name ? -1 : 1);
async function walk(full, name, visit) {
  const info = await stat(full);
  if (!info.isDirectory()) return info.isFile() && visit(full, name);
  const folders2 = [[full, name]];
  while (folders2.length) {
    const [at2, under] = folders2.pop(), below = [];
    for (const e of await sorted(at2)) {
      const next = [`${at2}/${e.name}`, under === "." ? e.name : `${under}/${e.name}`];
      if (e.isDirectory()) below.push(next);
      else if (e.isFile() && await visit(...next) === false) return false;
    }
    folders2.push(...below.reverse());
  }
}
function named(glob) {
  if (!glob) return () => true;
  const parts = glob.split("*");
  return (name) => {
    if (parts.length === 1) return name === glob;
    if (!name.startsWith(parts[0])) return false;
    let from = parts[0].length;
    for (const part of parts.slice(1, -1)) {
      const found = name.indexOf(part, from);
      if (found < 0) return false;
      from = found + part.length;
    }
    return name.length - from >= parts.at(-1).length && name.endsWith(parts.at(-1));
  };
}
var grep_files = tool({
  description: "Finds lines by a regular expression of JavaScript, in a file or all text files below a folder. Returns path:line: text.",
  input: {
    pattern: { type: "string", minLength: 1, maxLength: 1e3 },
    "path?": folder,
    "names?": { type: "string", description: "Only files of such names: *.txt", maxLength: 200 },
    "ignore_case?": { type: "boolean", default: false },
    "limit?": { type: "integer", minimum: 1, maximum: 1e3, default: 100 }
  },
  ...reads,
  limits: { fuel: 5e10 },
  examples: [
    { args: { pattern: "^t" }, result: { matches: ["notes/a.txt:2: two", "notes/a.txt:3: three"] } },
    { args: { pattern: "^T", ignore_case: true, limit: 1 }, result: { matches: ["notes/a.txt:2: two"], more: true } },
    { args: { pattern: "(" }, error: "bad pattern" }
  ]
}, ({ pattern, path: path2, names, ignore_case, limit }, call) => at(path2, async (full, name) => {
  let regex;
  try {
    regex = new RegExp(pattern, ignore_case ? "iu" : "u");
  } catch (e) {
    throw new ToolError(`bad pattern: ${e.message}`);
  }
  const wanted = named(names), out = { matches: [] };
  let files = 0, skipped = 0, size = 0;
  await walk(full, name, async (file2, name2) => {
    if (!wanted(name2.slice(name2.lastIndexOf("/") + 1))) return;
    if (call.progress(++files, -1, name2) === 1) throw new ToolError("stopped");
    let content;
    try {
      content = await text(file2, name2);
    } catch {
      skipped++;
      return;
    }
    let line = 0;
    for (const one of content.split("\n")) {
      line++;
      if (!regex.test(one.endsWith("\r") ? one.slice(0, -1) : one)) continue;
      if (out.matches.length === limit || size > maxText) {
        out.more = true;
        return false;
      }
      const shown = one.trimEnd();
      out.matches.push(`${name2}:${line}: ${shown.length > maxLine ? shown.slice(0, maxLine) + "…" : shown}`);
      size += Math.min(shown.length, maxLine) + name2.length;
    }
  });
  if (skipped) out.skipped = skipped;
  return out;
}));
var delete_file = tool({
  description: "Deletes a file, or an empty folder.",
  input: { path },
  ...writes,
  examples: [{ args: { path: "notes/a.txt" }, result: null }, { args: { path: "notes" }, error: "notes: the folder is not empty" }, missing, escape]
}, ({ path: path2 }) => at(path2, async (full, name) => {
  if (name === ".") throw new ToolError("the workspace itself cannot be deleted");
  await ((await lstat(full)).isDirectory() ? rmdir(full) : unlink(full));
}));
var stat_file = tool({
  description: "Tells the type, size and time of change of a file or folder.",
  input: { path },
  ...reads,
  examples: [missing, escape]
}, ({ path: path2 }) => at(path2, async (full) => {
  const info = await lstat(full);
  const type = info.isFile() ? "file" : info.isDirectory() ? "folder" : info.isSymbolicLink() ? "link" : "other";
  return { type, size: info.size, modified: info.mtime.toISOString() };
}));
export {
  delete_file,
  edit_file,
  grep_files,
  list_directory,
  plugin,
  read_file,
  stat_file,
  write_file
};
//# lines={"files":["toolhost:node:fs/promises","toolhost:toolhost","tool.js"],"lines":[null,[0,4],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,5],[0,6],[0,6],[0,6],[0,6],[0,6],[0,6],[0,6],[0,7],[0,7],[0,7],[0,8],[0,10],[0,10],[0,11],[0,11],[0,11],[0,11],[0,12],[0,12],[0,12],[0,12],[0,13],[0,13],[0,13],[0,13],[0,14],[0,14],[0,14],[0,14],[0,15],[0,15],[0,15],[0,16],[0,18],[0,19],[0,20],[0,21],[0,24],[0,25],[0,26],[0,27],[0,28],[0,30],[0,31],[0,32],[0,33],[0,34],[0,35],[0,36],[0,37],[0,37],[0,39],[0,40],[0,43],[0,44],[0,45],[0,46],[0,47],[0,48],[0,49],[0,50],[0,52],[0,52],[0,53],[0,53],[0,54],[0,54],[0,54],[0,55],[0,56],[0,58],[0,59],[0,60],[0,61],[0,63],[0,64],[0,65],[0,66],[0,67],[0,68],[0,69],[0,72],[0,73],[0,74],[0,75],[0,76],[0,77],[0,79],[0,79],[0,81],[0,82],[0,83],[0,84],[0,85],[0,85],[0,87],[0,87],[0,88],[0,89],[0,89],[0,89],[0,90],[0,90],[0,90],[0,91],[0,91],[0,92],[0,94],[0,94],[0,96],[0,97],[0,97],[0,98],[0,99],[0,99],[0,99],[0,100],[0,100],[0,100],[0,101],[0,101],[0,102],[0,104],[0,105],[0,106],[0,107],[0,108],[0,110],[0,110],[0,111],[0,112],[0,112],[0,112],[0,112],[0,115],[0,116],[0,117],[0,117],[0,118],[0,121],[0,122],[0,123],[0,124],[0,124],[0,125],[0,128],[0,129],[0,130],[0,131],[0,131],[0,132],[0,133],[0,133],[0,134],[0,136],[0,137],[0,138],[0,139],[0,141],[0,142],[0,143],[0,144],[0,144],[0,146],[0,146],[0,148],[0,150],[0,151],[0,152],[0,153],[0,154],[0,155],[0,156],[0,157],[0,158],[0,159],[0,160],[0,161],[0,162],[0,163],[0,163],[0,165],[0,166],[0,167],[0,167],[0,169],[0,169],[0,171],[0,173],[0,174],[0,175],[0,176],[0,177],[0,180],[0,181],[0,183],[0,184],[0,185],[0,186],[0,187],[0,188],[0,189],[0,190],[0,191],[0,192],[0,193],[0,194],[0,195],[0,195],[0,197],[0,197],[0,198],[0,200],[0,200],[0,202],[0,204],[0,205],[0,206],[0,207],[0,208],[0,208],[0,210],[0,211],[0,212],[0,213],[0,214],[0,215],[0,216],[0,216],[0,218],[0,219],[0,221],[0,222],[0,223],[0,224],[0,226],[0,227],[0,228],[0,229],null,null,[1,1],null,null,[2,4],[2,6],[2,7],[2,8],[2,9],[2,11],[2,12],[2,13],[2,14],[2,15],[2,16],[2,18],[2,18],[2,19],[2,19],[2,19],[2,19],[2,20],[2,20],[2,20],[2,21],[2,21],[2,21],[2,22],[2,26],[2,27],[2,28],[2,29],[2,30],[2,31],[2,31],[2,32],[2,34],[2,36],[2,37],[2,37],[2,39],[2,40],[2,40],[2,42],[2,45],[2,46],[2,47],[2,48],[2,49],[2,50],[2,51],[2,52],[2,53],[2,55],[2,55],[2,56],[2,57],[2,58],[2,58],[2,59],[2,60],[2,61],[2,61],[2,63],[2,64],[2,65],[2,66],[2,67],[2,68],[2,70],[2,71],[2,72],[2,73],[2,74],[2,75],[2,77],[2,78],[2,79],[2,80],[2,80],[2,82],[2,83],[2,84],[2,85],[2,86],[2,86],[2,87],[2,88],[2,88],[2,90],[2,91],[2,91],[2,93],[2,94],[2,95],[2,95],[2,97],[2,97],[2,98],[2,100],[2,102],[2,103],[2,104],[2,106],[2,107],[2,108],[2,109],[2,110],[2,111],[2,111],[2,113],[2,114],[2,116],[2,116],[2,117],[2,118],[2,119],[2,119],[2,121],[2,122],[2,123],[2,124],[2,125],[2,127],[2,127],[2,128],[2,129],[2,130],[2,131],[2,132],[2,133],[2,134],[2,136],[2,137],[2,138],[2,139],[2,140],[2,141],[2,142],[2,143],[2,144],[2,146],[2,146],[2,147],[2,148],[2,149],[2,151],[2,152],[2,153],[2,154],[2,156],[2,160],[2,161],[2,162],[2,163],[2,164],[2,165],[2,166],[2,167],[2,168],[2,168],[2,169],[2,171],[2,171],[2,173],[2,176],[2,177],[2,178],[2,179],[2,180],[2,181],[2,182],[2,183],[2,184],[2,185],[2,186],[2,186],[2,188],[2,188],[2,190],[2,192],[2,192],[2,193],[2,194],[2,195],[2,195],[2,195],[2,196],[2,196],[2,197],[2,198],[2,198],[2,199],[2,200],[2,201],[2,202],[2,204],[2,205],[2,206],[2,207],[2,207],[2,209],[2,209],[2,211],[2,212],[2,214],[2,215],[2,216],[2,217],[2,218],[2,219],[2,219],[2,221],[2,222],[2,222],[2,224],[2,225],[2,226],[2,227],[2,228],[2,229],[2,230],[2,230],[2,232],[2,233],[2,234],[2,234],[2,235],[2,237],[2,238],[2,239],[2,241],[2,241],[2,242],[2,243],[2,244],[2,246],[2,247],[2,248],[2,249],[2,251],[2,251],[2,252],[2,253],[2,254],[2,256],[2,257],[2,258],[2,259],[2,260],null]}