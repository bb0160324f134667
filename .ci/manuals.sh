#!/bin/sh
# Writes the manual pages and the completion scripts of the command into a folder.
set -eu
out=$1
rm -rf "$out"
mkdir -p "$out/completions"
go build -trimpath -buildvcs=true -o "$out/toolhost" ./cmd/toolhost
"$out/toolhost" man "$out/man"
for shell in bash zsh fish powershell; do "$out/toolhost" completion $shell >"$out/completions/toolhost.$shell"; done
rm "$out/toolhost"
