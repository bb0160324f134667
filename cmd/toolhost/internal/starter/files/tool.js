import { open, readFile, writeFile, readdir, stat, lstat, mkdir, unlink, rmdir } from "node:fs/promises";
import { tool, ToolError } from "toolhost";

export const plugin = { name: "files", version: "1.0.0", description: "Works on text files in a folder.", needs: { files: [{ path: "/work", mode: "write" }] } };

const root = "/work";
const maxEdit = 4 << 20; // bytes of a file that is changed or searched
const maxText = 200_000; // bytes or characters of a result
const maxLine = 500; // characters of a match

const path = { type: "string", description: "In the workspace, such as src/a.txt", minLength: 1, maxLength: 4096 };
const folder = { ...path, default: "." };
const reads = { readonly: true, idempotent: true, openWorld: false };
const writes = { openWorld: false, concurrency: "serial" };
const escape = { name: "outside", args: { path: "../secret" }, error: "../secret: outside of the workspace" };
const missing = { name: "missing", args: { path: "none.txt" }, error: "none.txt: no such file or folder" };

const texts = {
  ENOENT: "no such file or folder", EISDIR: "a folder: list_directory lists it", ENOTDIR: "a part of the path is not a folder", EEXIST: "exists already, and is not a folder",
  ENOTEMPTY: "the folder is not empty: delete what is in it first", EPERM: "not permitted: it may lead out of the workspace", EACCES: "permission denied",
  EROFS: "only reading is granted", ENOSPC: "no space left on the device", ELOOP: "too many symbolic links", ENAMETOOLONG: "the name is too long",
};

// at does something with a path of the workspace. The host keeps paths inside; what is
// refused here gets a clearer error.
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
    if (e instanceof ToolError || e.code === undefined) throw e;
    throw new ToolError(`${given}: ${texts[e.code] ?? e.message}`);
  }
}

// text reads a file that is changed or searched as a whole.
async function text(full, name) {
  const info = await stat(full);
  if (info.isDirectory()) throw new ToolError(`${name}: ${texts.EISDIR}`);
  if (!info.isFile()) throw new ToolError(`${name}: not a file`);
  if (info.size > maxEdit) throw new ToolError(`${name}: ${info.size} bytes, expected at most ${maxEdit}`);
  const content = await readFile(full, "utf8");
  if (content.includes("\0") || content.includes("\ufffd")) throw new ToolError(`${name}: not a text in UTF-8`);
  return content;
}

export const read_file = tool({
  description: "Reads a text file, or some of its lines. next is the offset of the lines that are left.",
  input: {
    path, "offset?": { type: "integer", description: "Lines to skip", minimum: 0, default: 0 },
    "limit?": { type: "integer", description: "Lines to return", minimum: 1, maximum: 10_000, default: 2000 },
  },
  ...reads, limits: { fuel: 50_000_000_000 },
  examples: [{ args: { path: "notes/a.txt" }, result: { text: "one\ntwo\nthree\n" } }, { args: { path: "notes/a.txt", offset: 1, limit: 1 }, result: { text: "two\n", next: 2 } }, missing, escape],
}, ({ path, offset, limit }) => at(path, async (full) => {
  const info = await stat(full);
  if (info.isDirectory()) throw new ToolError(`${path}: ${texts.EISDIR}`);
  if (!info.isFile()) throw new ToolError(`${path}: not a file`);
  const handle = await open(full), chunk = new Uint8Array(64 << 10), kept = [];
  let line = 0, begin = 0, size = 0, next, cut = false; // begin: where in kept the line begins

  reading: for (let position = 0; ;) {
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, position);
    if (!bytesRead) break;
    const bytes = chunk.subarray(0, bytesRead);
    if (position === 0 && bytes.includes(0)) throw new ToolError(`${path}: ${info.size} bytes that are not text`);
    position += bytesRead;

    for (let from = 0; from < bytesRead;) { // a line, or what there is of it
      if (line === offset + limit) {
        next = line;
        break reading;
      }
      const end = bytes.indexOf(10, from), to = end < 0 ? bytesRead : end + 1;
      if (line >= offset) {
        if (size + to - from > maxText) {
          cut = line === offset; // else it is left to the next call
          if (cut) kept.push(bytes.slice(from, from + maxText - size)); else kept.length = begin;
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

  if (!kept.length && offset > 0) throw new ToolError(`${path}: there are only ${line} lines`);
  return { text: joined(kept), ...(next !== undefined && { next }), ...(cut && { cut }) };
}));

function joined(kept) {
  const bytes = new Uint8Array(kept.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of kept) {
    bytes.set(part, at);
    at += part.length;
  }
  return new TextDecoder().decode(bytes);
}

export const write_file = tool({
  description: "Writes a text file and the folders around it. What was in the file is gone.",
  input: { path, content: "string" },
  ...writes, idempotent: true,
  examples: [{ args: { path: "new/b.txt", content: "grüezi\n" }, result: { bytes: 8 } }, { name: "outside", args: { path: "../secret", content: "" }, error: "../secret: outside of the workspace" }],
}, ({ path, content }) => at(path, async (full) => {
  await mkdir(full.slice(0, full.lastIndexOf("/")), { recursive: true });
  await writeFile(full, content);
  return { bytes: (await stat(full)).size };
}));

export const edit_file = tool({
  description: "Replaces a text in a file. The old text has to occur exactly once, unless all is true.",
  input: { path, old: { type: "string", description: "Copied exactly, with spaces and line breaks", minLength: 1 }, new: "string", "all?": { type: "boolean", default: false } },
  ...writes,
  examples: [
    { args: { path: "notes/a.txt", old: "two", new: "zwei" }, result: { replaced: 1, line: 2 } },
    { args: { path: "notes/a.txt", old: "four", new: "vier" }, error: "notes/a.txt: the old text does not occur" },
    { args: { path: "notes/a.txt", old: "o", new: "0" }, error: "notes/a.txt: the old text occurs 2 times" },
  ],
}, ({ path, old, new: replacement, all }) => at(path, async (full) => {
  const content = await text(full, path), parts = content.split(old), found = parts.length - 1;
  if (found === 0) throw new ToolError(`${path}: the old text does not occur: read the file and copy the text exactly`);
  if (found > 1 && !all) throw new ToolError(`${path}: the old text occurs ${found} times: give more of what is around it, or all: true`);
  const after = parts.join(replacement);
  if (after.length > maxEdit) throw new ToolError(`${path}: the file would have more than ${maxEdit} characters`);
  await writeFile(full, after);
  return { replaced: found, line: parts[0].split("\n").length };
}));

export const list_directory = tool({
  description: "Lists a folder. Names of folders end in a slash.",
  input: { "path?": folder, "limit?": { type: "integer", minimum: 1, maximum: 5000, default: 500 } },
  ...reads,
  examples: [{ args: {}, result: { entries: ["notes/"] } }, { args: { path: "notes" }, result: { entries: ["a.txt"] } }, escape],
}, ({ path, limit }) => at(path, async (full) => {
  const all = await sorted(full), entries = all.slice(0, limit).map((e) => e.name + (e.isDirectory() ? "/" : ""));
  return { entries, ...(all.length > limit && { more: all.length - limit }) };
}));

const sorted = async (full) => (await readdir(full, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1));

// walk calls visit with each file below a path. It follows no links, and ends when visit
// returns false.
async function walk(full, name, visit) {
  const info = await stat(full);
  if (!info.isDirectory()) return info.isFile() && visit(full, name);
  const folders = [[full, name]];
  while (folders.length) {
    const [at, under] = folders.pop(), below = [];
    for (const e of await sorted(at)) {
      const next = [`${at}/${e.name}`, under === "." ? e.name : `${under}/${e.name}`];
      if (e.isDirectory()) below.push(next);
      else if (e.isFile() && await visit(...next) === false) return false;
    }
    folders.push(...below.reverse());
  }
}

// named turns a pattern of names, such as *.txt, into a function.
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

export const grep_files = tool({
  description: "Finds lines by a regular expression of JavaScript, in a file or all text files below a folder. Returns path:line: text.",
  input: {
    pattern: { type: "string", minLength: 1, maxLength: 1000 }, "path?": folder, "names?": { type: "string", description: "Only files of such names: *.txt", maxLength: 200 },
    "ignore_case?": { type: "boolean", default: false }, "limit?": { type: "integer", minimum: 1, maximum: 1000, default: 100 },
  },
  ...reads, limits: { fuel: 50_000_000_000 },
  examples: [
    { args: { pattern: "^t" }, result: { matches: ["notes/a.txt:2: two", "notes/a.txt:3: three"] } },
    { args: { pattern: "^T", ignore_case: true, limit: 1 }, result: { matches: ["notes/a.txt:2: two"], more: true } },
    { args: { pattern: "(" }, error: "bad pattern" },
  ],
}, ({ pattern, path, names, ignore_case, limit }, call) => at(path, async (full, name) => {
  let regex;
  try {
    regex = new RegExp(pattern, ignore_case ? "iu" : "u");
  } catch (e) {
    throw new ToolError(`bad pattern: ${e.message}`);
  }
  const wanted = named(names), out = { matches: [] };
  let files = 0, skipped = 0, size = 0;

  await walk(full, name, async (file, name) => {
    if (!wanted(name.slice(name.lastIndexOf("/") + 1))) return;
    if (call.progress(++files, -1, name) === 1) throw new ToolError("stopped");
    let content;
    try {
      content = await text(file, name);
    } catch { // too large, not a text, or gone meanwhile
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
      out.matches.push(`${name}:${line}: ${shown.length > maxLine ? shown.slice(0, maxLine) + "…" : shown}`);
      size += Math.min(shown.length, maxLine) + name.length;
    }
  });
  if (skipped) out.skipped = skipped;
  return out;
}));

export const delete_file = tool({
  description: "Deletes a file, or an empty folder.",
  input: { path },
  ...writes,
  examples: [{ args: { path: "notes/a.txt" }, result: null }, { args: { path: "notes" }, error: "notes: the folder is not empty" }, missing, escape],
}, ({ path }) => at(path, async (full, name) => {
  if (name === ".") throw new ToolError("the workspace itself cannot be deleted");
  await ((await lstat(full)).isDirectory() ? rmdir(full) : unlink(full));
}));

export const stat_file = tool({
  description: "Tells the type, size and time of change of a file or folder.",
  input: { path },
  ...reads,
  examples: [missing, escape],
}, ({ path }) => at(path, async (full) => {
  const info = await lstat(full);
  const type = info.isFile() ? "file" : info.isDirectory() ? "folder" : info.isSymbolicLink() ? "link" : "other";
  return { type, size: info.size, modified: info.mtime.toISOString() };
}));
