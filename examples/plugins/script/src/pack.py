"""pack.py MODULE MANIFEST PRELUDE LAZY OUT: adds the sections that a plugin has."""
import json
import sys


def leb(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def section(name, data):
    body = leb(len(name)) + name.encode() + data
    return b"\0" + leb(len(body)) + body


module, manifest, prelude, lazy = (open(name, "rb").read() for name in sys.argv[1:5])
script = b"%08d" % len(prelude) + prelude + lazy
manifest = json.dumps(json.loads(manifest), separators=(",", ":")).encode()
with open(sys.argv[5], "wb") as out:
    out.write(module + section("toolhost.manifest", manifest) + section("toolhost.script", script))
