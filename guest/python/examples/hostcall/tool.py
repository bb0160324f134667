"""Operations of the host: the key-value store, and requests by urllib or toolhost.http."""

import urllib.request

from toolhost import call, http, plugin, tool

plugin("hostcall", description="Remembers pages.", needs={"kv": "write", "http": [{"url": "http://*/*"}]})


@tool(destructive=False)
def visit(url: str) -> str:
    """Says how often a page was visited, and how it begins."""
    found = call.host("kv.get", {"key": "visits"})
    visits = found.get("value", 0) + 1
    call.host("kv.set", {"key": "visits", "value": visits, "version": found.get("version", 0)})

    answer = http.get(url, params={"visit": visits})
    answer.raise_for_status()
    with urllib.request.urlopen(url) as page:
        return f"visit {visits}: {answer.text} {page.read().decode()}"
