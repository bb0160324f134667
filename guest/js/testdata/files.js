// What a tool does with the files of a folder, behind fs.js.
const { tool } = globalThis.toolhost;
export const plugin = { name: 'files', description: 'Works on files.' };

const code = async (f) => { try { await f(); return 'fine'; } catch (e) { return e.code ?? String(e); } };

export const work = tool({ description: 'Works.' }, async () => {
  const failed = [], check = (name, have, want) => { if (JSON.stringify(have) !== JSON.stringify(want)) failed.push([name, have, want]); };

  await writeFile('/work/a.txt', 'grüß 😀 \ud800');
  check('text', await readFile('/work/a.txt', 'utf8'), 'grüß 😀 \ufffd');
  check('size', (await stat('/work/a.txt')).size, 15);
  check('bytes', [...(await readFile('/work/a.txt')).slice(0, 4)], [0x67, 0x72, 0xc3, 0xbc]);
  await writeFile('/work/b.bin', new Uint8Array([0, 255, 254, 65]).subarray(1));
  check('subarray', [...await readFile('/work/b.bin')], [255, 254, 65]);
  check('not UTF-8', await readFile('/work/b.bin', { encoding: 'utf-8' }), '\ufffd\ufffdA');
  await appendFile('/work/b.bin', '!');
  check('append', (await readFile('/work/b.bin')).at(-1), 33);
  check('exclusive', await code(() => writeFile('/work/b.bin', '', { flag: 'wx' })), 'EEXIST');
  await writeFile('/work/a.txt', 'x');
  check('truncated', await readFile('/work/a.txt', 'utf8'), 'x');
  await writeFile('/work/empty', '');
  check('empty', await readFile('/work/empty', 'utf8'), '');

  const large = 'line\n'.repeat(60_000);
  await writeFile('/work/large', large);
  check('large', await readFile('/work/large', 'utf8') === large, true);
  const handle = await open('/work/large'), some = new Uint8Array(8);
  check('position', [(await handle.read(some, 2, 4, 5)).bytesRead, [...some]], [4, [0, 0, 108, 105, 110, 101, 0, 0]]);
  check('in turn', [(await handle.read(some)).bytesRead, (await handle.read(some, 0, 2)).bytesRead, some[0]], [8, 2, 101]);
  await handle.close();
  check('closed', await code(() => handle.read(some)), 'EBADF');

  await mkdir('/work/d/e/f', { recursive: true });
  await mkdir('/work/d/e/f', { recursive: true });
  check('there', await code(() => mkdir('/work/d')), 'EEXIST');
  for (let i = 0; i < 3000; i++) await writeFile(`/work/d/${String(i).padStart(4, '0')}-${'n'.repeat(30)}`, '');
  const names = await readdir('/work/d');
  check('many', [names.length, new Set(names).size, names.includes('e')], [3001, 3001, true]);
  const kinds = await readdir('/work', { withFileTypes: true });
  check('kinds', kinds.filter((k) => k.isDirectory()).map((k) => [k.name, k.parentPath]), [['d', '/work']]);
  check('not empty', await code(() => rmdir('/work/d')), 'ENOTEMPTY');
  check('a folder', await code(() => rm('/work/d')), 'EISDIR');
  await rm('/work/d', { recursive: true });
  await rm('/work/d', { force: true });
  check('gone', await code(() => stat('/work/d')), 'ENOENT');
  await rename('/work/a.txt', '/work/c.txt');
  check('renamed', [await code(() => stat('/work/a.txt')), await readFile('/work/c.txt', 'utf8')], ['ENOENT', 'x']);
  await unlink('/work/c.txt');
  check('left', (await readdir('/work')).sort(), ['b.bin', 'empty', 'large', 'link']);

  check('read a folder', await code(() => readFile('/work')), 'EISDIR');
  check('read below a file', await code(() => readFile('/work/empty/x')), 'ENOTDIR');
  check('list a file', await code(() => readdir('/work/empty')), 'ENOTDIR');
  check('not granted', [await code(() => readFile('/etc/passwd')), await code(() => readFile('work2'))], ['ENOENT', 'ENOENT']);
  check('a zero byte', await code(() => readFile('/work/\0')), 'EINVAL');
  check('a link', [(await lstat('/work/link')).isSymbolicLink(), await code(() => readFile('/work/link')), await code(() => writeFile('/work/link', 'x'))], [true, 'EPERM', 'EPERM']);
  for (const path of ['/work/../secret', '/work/d/../../secret', '/work/../../etc/passwd'])
    check(path, [await code(() => readFile(path)), await code(() => writeFile(path, 'x')), await code(() => stat(path))], ['EPERM', 'EPERM', 'EPERM']);
  check('read only', [await code(() => writeFile('/read/a', '')), await code(() => rm('/read/only')), await readFile('/read/only', 'utf8')], ['EROFS', 'EROFS', 'only']);
  let message;
  try { await readFile('/work/none'); } catch (e) { message = e.message; }
  check('message', message, "ENOENT: no such file or directory, open '/work/none'");
  return failed;
});
