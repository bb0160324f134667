"""freeze.py LIB SYSCONFIG SDK OUT: compiles the standard library, the module of sysconfig
and the SDK into OUT/frozen.bin, and writes OUT/frozen.c with the table of them. It is run
by a Python of the version that loads them."""
import marshal
import os
import sys

# What has nothing to do in a sandbox, what needs a module that is not there, and what is
# large and for other uses.
SKIP = set("""
    __phello__ _android_support.py _aix_support.py _apple_support.py _ios_support.py _pydecimal.py _pyio.py _pyrepl
    antigravity.py ctypes curses dbm distutils ensurepip ftplib.py idlelib imaplib.py lib2to3 msilib multiprocessing
    pdb.py poplib.py pydoc.py pydoc_data site-packages smtplib.py socketserver.py sqlite3 test this.py tkinter
    turtle.py turtledemo venv webbrowser.py wsgiref xmlrpc __pycache__
""".split())

# The encodings: those that need no tables of a module that is not built.
ENCODINGS = ("utf", "ascii", "latin_1", "aliases", "cp", "iso8859", "koi8", "mac_", "idna", "punycode", "unicode_escape",
             "base64", "hex", "quopri", "uu", "rot_13", "zlib", "charmap", "undefined", "palmos", "ptcp", "tis", "hp_")

# What the sandbox has in place of a module's own.
APPEND = {"urllib.request": "\nfrom toolhost._urllib import HTTPHandler, HTTPSHandler\n"}
LOOP = "asyncio.unix_events"

modules = []


def add(name, path, package=False):
    with open(path, "rb") as f:
        source = f.read() + APPEND.get(name, "").encode()
    file = "<toolhost>" if name.startswith("toolhost") or name == LOOP else f"<frozen {name}>"
    code = compile(source, file, "exec", dont_inherit=True, optimize=2)
    modules.append((name, marshal.dumps(code), package))


def walk(folder, prefix=""):
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        name = prefix + entry.removesuffix(".py")
        if entry in SKIP or entry == "__init__.py" or name == LOOP:
            continue
        if os.path.exists(os.path.join(path, "__init__.py")):
            add(name, os.path.join(path, "__init__.py"), True)
            walk(path, name + ".")
        elif entry.endswith(".py"):
            if prefix != "encodings." or entry.startswith(ENCODINGS) or "unicode_escape" in entry:
                add(name, path)


lib, sysconfig, sdk, out = sys.argv[1:]
walk(lib)
add(os.path.basename(sysconfig).removesuffix(".py"), sysconfig)
add("toolhost", os.path.join(sdk, "__init__.py"), True)
walk(sdk, "toolhost.")
add(LOOP, os.path.join(sdk, "..", "events.py"))

blob, rows = bytearray(), []
for name, code, package in modules:
    rows.append(f'\t{{"{name}", blob + {len(blob)}, {len(code)}, {int(package)}}},\n')
    blob += code + bytes(-len(code) % 8)
with open(os.path.join(out, "frozen.bin"), "wb") as f:
    f.write(blob)
with open(os.path.join(out, "frozen.c"), "w") as f:
    f.write('#include <Python.h>\n\nstatic const unsigned char blob[] = {\n#embed "frozen.bin"\n};\n\n')
    f.write("const struct _frozen toolhost_frozen[] = {\n" + "".join(rows) + "\t{0},\n};\n")
