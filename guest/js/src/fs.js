// The module "node:fs/promises" of tools: what they need of Node's, on the files that
// WASI gives. Nothing is resolved here: the host refuses paths that lead out of the
// folders that were granted. Operations are those of file in shim.c.
const { file } = globalThis.toolhost;
const PRESTAT = 0, OPEN = 1, CLOSE = 2, READ = 3, WRITE = 4, READDIR = 5, STAT = 6, MKDIR = 7, UNLINK = 8, RMDIR = 9, RENAME = 10, DECODE = 11, ENCODE = 12;
const CREATE = 1, DIRECTORY = 2, EXCLUSIVE = 4, TRUNCATE = 8, APPEND = 1, MAY_READ = 2, MAY_WRITE = 64;
const FOLDER = 3, REGULAR = 4, LINK = 7;
const chunk = 64 * 1024;

const errors = {
  2: ['EACCES', 'permission denied'], 8: ['EBADF', 'bad file descriptor'], 10: ['EBUSY', 'resource busy'], 20: ['EEXIST', 'file already exists'],
  22: ['EFBIG', 'file too large'], 28: ['EINVAL', 'invalid argument'], 29: ['EIO', 'i/o error'], 31: ['EISDIR', 'illegal operation on a directory'],
  32: ['ELOOP', 'too many symbolic links'], 33: ['EMFILE', 'too many open files'], 37: ['ENAMETOOLONG', 'name too long'], 44: ['ENOENT', 'no such file or directory'],
  51: ['ENOSPC', 'no space left on device'], 54: ['ENOTDIR', 'not a directory'], 55: ['ENOTEMPTY', 'directory not empty'], 58: ['ENOTSUP', 'operation not supported'],
  63: ['EPERM', 'operation not permitted'], 69: ['EROFS', 'read-only file system'], 75: ['EXDEV', 'cross-device link'], 76: ['ENOTCAPABLE', 'the path leads out of the granted folder'],
};

function failure(errno, syscall, path) {
  const [code, text] = errors[errno] ?? [`E${errno}`, 'failed'];
  return Object.assign(new Error(`${code}: ${text}, ${syscall}${path === undefined ? '' : ` '${path}'`}`), { code, errno: -errno, syscall, path });
}

// ask does an operation, and throws if it fails.
function ask(syscall, path, op, a = 0, b = 0, c = 0, d = 0, e = 0) {
  const answer = file(op, a, b, c, d, e);
  if (answer < 0) throw failure(-answer, syscall, path);
  return answer;
}

let folders; // that were granted, the longest path first
function granted() {
  if (folders) return folders;
  folders = [];
  for (let fd = 3; ; fd++) {
    const path = file(PRESTAT, fd, 0, 0, 0, 0);
    if (typeof path !== 'string') break;
    folders.push({ fd, path: path.replace(/\/+$/, '') });
  }
  return folders.sort((a, b) => b.path.length - a.path.length);
}

// place is the granted folder that has a path, and the path from there.
function place(path, syscall) {
  path = String(path);
  if (path.includes('\0')) throw failure(28, syscall, path);
  const full = path.startsWith('/') ? path : '/' + path;
  const folder = granted().find((f) => full === f.path || full.startsWith(f.path + '/'));
  if (!folder) throw failure(44, syscall, path);
  return [folder.fd, full.slice(folder.path.length).replace(/^\/+/, '') || '.'];
}

const flagsOf = {
  r: [0, 0, MAY_READ], 'r+': [0, 0, MAY_READ | MAY_WRITE],
  w: [CREATE | TRUNCATE, 0, MAY_WRITE], wx: [CREATE | TRUNCATE | EXCLUSIVE, 0, MAY_WRITE], 'w+': [CREATE | TRUNCATE, 0, MAY_READ | MAY_WRITE],
  a: [CREATE, APPEND, MAY_WRITE], ax: [CREATE | EXCLUSIVE, APPEND, MAY_WRITE],
};

function openAt(path, how, flags, rights) {
  const [fd, name] = place(path, 'open');
  return ask('open', path, OPEN, fd, name, how, flags, rights);
}

const encodingOf = (options) => {
  const encoding = typeof options === 'string' ? options : options?.encoding;
  if (encoding && !/^utf-?8$/i.test(encoding)) throw new TypeError(`unknown encoding ${encoding}: only utf8`);
  return encoding;
};
const decode = (buffer, from, length) => file(DECODE, buffer, from, length, 0, 0);
const encode = (text) => file(ENCODE, String(text).toWellFormed(), 0, 0, 0, 0);

// bytesOf is what is written, as a buffer with a part of it.
function bytesOf(data) {
  if (typeof data === 'string') return new Uint8Array(encode(data));
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw new TypeError('expected a text or bytes');
}

class Stats {
  constructor(bytes) {
    const view = new DataView(bytes);
    this.size = Number(view.getBigUint64(32, true));
    for (const [name, at] of [['atime', 40], ['mtime', 48], ['ctime', 56]]) {
      this[name + 'Ms'] = Number(view.getBigUint64(at, true)) / 1e6;
      this[name] = new Date(this[name + 'Ms']);
    }
    Object.defineProperty(this, 'kind', { value: view.getUint8(16) });
  }
  isFile() { return this.kind === REGULAR; }
  isDirectory() { return this.kind === FOLDER; }
  isSymbolicLink() { return this.kind === LINK; }
}

class Dirent {
  constructor(name, parentPath, kind) {
    Object.assign(this, { name, parentPath });
    Object.defineProperty(this, 'kind', { value: kind });
  }
  isFile() { return this.kind === REGULAR; }
  isDirectory() { return this.kind === FOLDER; }
  isSymbolicLink() { return this.kind === LINK; }
}

function statAt(syscall, path, follow) {
  const [fd, name] = place(path, syscall), bytes = new ArrayBuffer(64);
  ask(syscall, path, STAT, fd, name, bytes, follow);
  return new Stats(bytes);
}

class FileHandle {
  #path;
  constructor(fd, path) { this.fd = fd; this.#path = path; }

  async read(buffer, offset = 0, length = buffer.byteLength - offset, position = null) {
    const bytes = bytesOf(buffer);
    const bytesRead = ask('read', this.#path, READ, this.fd, bytes.buffer, bytes.byteOffset + offset, length, position ?? -1);
    return { bytesRead, buffer };
  }

  async write(data) {
    const bytes = bytesOf(data);
    let done = 0;
    while (done < bytes.length) done += ask('write', this.#path, WRITE, this.fd, bytes.buffer, bytes.byteOffset + done, bytes.length - done);
    return { bytesWritten: done, buffer: data };
  }

  async close() {
    if (this.fd < 0) return;
    const fd = this.fd;
    this.fd = -1;
    ask('close', this.#path, CLOSE, fd);
  }
  async [Symbol.asyncDispose ?? Symbol.for('asyncDispose')]() { await this.close(); }
}

export async function open(path, flags = 'r') {
  if (!Object.hasOwn(flagsOf, flags)) throw new TypeError(`unknown flags ${flags}`);
  return new FileHandle(openAt(path, ...flagsOf[flags]), path);
}

async function opened(path, flags, use) {
  const handle = await open(path, flags);
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

export async function readFile(path, options) {
  const encoding = encodingOf(options), info = statAt('open', path, 1);
  if (info.isDirectory()) throw failure(31, 'read', path);
  return opened(path, 'r', async (handle) => {
    let bytes = new Uint8Array(info.size || chunk), size = 0;
    for (;;) {
      if (size === bytes.length) { // one more byte than there were shows the end
        const larger = new Uint8Array(size + Math.max(chunk, size >> 1));
        const { bytesRead } = await handle.read(larger, size);
        if (!bytesRead) break;
        larger.set(bytes);
        bytes = larger;
        size += bytesRead;
        continue;
      }
      const { bytesRead } = await handle.read(bytes, size);
      if (!bytesRead) break;
      size += bytesRead;
    }
    return encoding ? decode(bytes.buffer, 0, size) : bytes.subarray(0, size);
  });
}

export async function writeFile(path, data, options) {
  encodingOf(options);
  const bytes = bytesOf(data); // before the file is emptied
  await opened(path, options?.flag ?? 'w', (handle) => handle.write(bytes));
}

export const appendFile = (path, data) => writeFile(path, data, { flag: 'a' });
export const stat = async (path) => statAt('stat', path, 1);
export const lstat = async (path) => statAt('lstat', path, 0);

export async function readdir(path, options) {
  const fd = openAt(path, DIRECTORY, 0, MAY_READ), out = [], bytes = new ArrayBuffer(chunk), view = new DataView(bytes);
  try {
    for (let cookie = 0; ;) {
      const size = ask('scandir', path, READDIR, fd, bytes, cookie);
      let at = 0, before = cookie;
      while (at + 24 <= size) {
        const length = view.getUint32(at + 16, true);
        if (at + 24 + length > size) break; // cut off: it comes again
        const name = decode(bytes, at + 24, length), kind = view.getUint8(at + 20);
        cookie = Number(view.getBigUint64(at, true));
        at += 24 + length;
        if (name !== '.' && name !== '..') out.push(options?.withFileTypes ? new Dirent(name, path, kind) : name);
      }
      if (size < chunk || cookie === before) return out;
    }
  } finally {
    file(CLOSE, fd, 0, 0, 0, 0);
  }
}

export async function mkdir(path, options) {
  if (!options?.recursive) {
    const [fd, name] = place(path, 'mkdir');
    ask('mkdir', path, MKDIR, fd, name);
    return;
  }
  const [fd, name] = place(path, 'mkdir');
  let at = '';
  for (const part of name.split('/')) {
    if (part === '' || part === '.') continue;
    at += (at && '/') + part;
    const errno = -file(MKDIR, fd, at, 0, 0, 0);
    if (errno && errno !== 20) throw failure(errno, 'mkdir', path);
  }
  if (!statAt('mkdir', path, 1).isDirectory()) throw failure(20, 'mkdir', path);
}

export async function unlink(path) {
  const [fd, name] = place(path, 'unlink');
  ask('unlink', path, UNLINK, fd, name);
}

export async function rmdir(path) {
  const [fd, name] = place(path, 'rmdir');
  ask('rmdir', path, RMDIR, fd, name);
}

export async function rm(path, { recursive = false, force = false } = {}) {
  try {
    if (!statAt('rm', path, 0).isDirectory()) return await unlink(path);
    if (!recursive) throw failure(31, 'rm', path);
    for (const entry of await readdir(path)) await rm(`${path}/${entry}`, { recursive });
    await rmdir(path);
  } catch (e) {
    if (!force || e.code !== 'ENOENT') throw e;
  }
}

export async function rename(from, to) {
  const [fd, name] = place(from, 'rename'), [toFd, toName] = place(to, 'rename');
  ask('rename', from, RENAME, fd, name, toFd, toName);
}

export default { open, readFile, writeFile, appendFile, stat, lstat, readdir, mkdir, unlink, rmdir, rm, rename };
