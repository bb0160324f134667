#!/bin/sh
# Writes what is in a binary of Toolhost, as CycloneDX: the modules that Go recorded in it,
# and the runtimes of JavaScript and Python, which are data for Go.
#
#   sbom.sh BINARY DOCUMENT
set -eu
guest=$(cd "$(dirname "$0")/../guest" && pwd)
go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -std -noserial -notimestamp -output "$2" "$1"
python3 - "$2" "$guest/js/build.sh" "$guest/python/build.sh" <<'PYTHON'
import json, re, sys

document, js, python = sys.argv[1:]

def version(script, pattern):
    return re.search(pattern, open(script).read())[1]

def component(name, version, purl, licence, **more):
    return {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl,
            "licenses": [{"license": {"id": licence}}], **more}

quickjs = version(js, r"quickjs-wasi@([\d.]+)")
cpython = version(python, r"python=Python-([\d.]+)")
zlib = version(python, r"zlib=zlib-([\d.]+)")
libc = version(python, r"wasi-libc_([^\s_]+)_all")
embedded = [
    component("quickjs-wasi", quickjs, f"pkg:npm/quickjs-wasi@{quickjs}", "MIT"),
    component("cpython", cpython, f"pkg:generic/cpython@{cpython}", "PSF-2.0", cpe=f"cpe:2.3:a:python:python:{cpython}:*:*:*:*:*:*:*"),
    component("zlib", zlib, f"pkg:generic/zlib@{zlib}", "Zlib", cpe=f"cpe:2.3:a:zlib:zlib:{zlib}:*:*:*:*:*:*:*"),
    component("wasi-libc", libc, f"pkg:deb/debian/wasi-libc@{libc}", "MIT"),
]

bom = json.load(open(document))
bom["components"] += embedded
main = bom["metadata"]["component"]["bom-ref"]
of_main = next(d for d in bom["dependencies"] if d["ref"] == main)
of_main["dependsOn"] = sorted(of_main.get("dependsOn", []) + [c["bom-ref"] for c in embedded])
with open(document, "w") as f:
    json.dump(bom, f, indent=1)
    f.write("\n")
PYTHON
