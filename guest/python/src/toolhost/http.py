"""A client for HTTP, by what the plugin was granted: needs={"http": [{"url": "https://…"}]}.

    from toolhost import http

    answer = http.get("https://api.example.com/items", params={"q": "tea"})
    answer.raise_for_status()
    items = answer.json()

In a coroutine, `await http.start("GET", url)` takes the same and lets others run meanwhile.
"""

import base64
import email.message
import json as _json
import urllib.parse

from ._call import call

__all__ = ["HTTPError", "Response", "delete", "get", "head", "patch", "post", "put", "request", "start"]


class HTTPError(Exception):
    """A response whose status says that the request has failed."""

    def __init__(self, response):
        super().__init__(f"{response.url} answers {response.status_code}")
        self.response = response


class Response:
    """What a server has answered, complete."""

    def __init__(self, answer):
        self.status_code, self.url = answer["status"], answer["url"]
        self.headers = email.message.Message()
        for name, values in answer.get("headers", {}).items():
            for value in values:
                self.headers[name] = value
        encoded = answer.get("body_base64")
        self.content = answer.get("body", "").encode() if encoded is None else base64.b64decode(encoded)

    @property
    def ok(self):
        return self.status_code < 400

    @property
    def text(self):
        return self.content.decode(self.headers.get_content_charset() or "utf-8", "replace")

    def json(self):
        return _json.loads(self.content)

    def raise_for_status(self):
        if not self.ok:
            raise HTTPError(self)

    def __repr__(self):
        return f"<Response [{self.status_code}]>"


def _request(method, url, *, params=None, headers=None, data=None, json=None, timeout=None, allow_redirects=True):
    """The request as the host takes it."""
    if params:
        url += ("&" if urllib.parse.urlsplit(url).query else "?") + urllib.parse.urlencode(params, doseq=True)
    fields = {name: [value] if isinstance(value, str) else list(value) for name, value in (headers or {}).items()}
    kind = None
    if json is not None:
        kind, data = "application/json", _json.dumps(json)
    elif isinstance(data, dict):
        kind, data = "application/x-www-form-urlencoded", urllib.parse.urlencode(data, doseq=True)
    if kind and not any(name.lower() == "content-type" for name in fields):
        fields["Content-Type"] = [kind]

    asked = {"url": url, "method": method.upper(), "headers": fields}
    if isinstance(data, str):
        asked["body"] = data
    elif data is not None:
        asked["body_base64"] = base64.b64encode(data).decode()
    if timeout is not None:
        asked["timeout_ms"] = round(timeout * 1000)
    if allow_redirects:
        asked["redirects"] = 10
    return asked


def request(method, url, **options):
    """Makes a request, and waits for the response. Options: params, headers, data (text, bytes
    or the fields of a form), json, timeout in seconds, allow_redirects."""
    return Response(call.host("http", _request(method, url, **options)))


def start(method, url, **options):
    """Starts a request: `await` gives the response."""
    return call.start("http", _request(method, url, **options), Response)


def get(url, **options):
    return request("GET", url, **options)


def head(url, **options):
    return request("HEAD", url, **({"allow_redirects": False} | options))


def post(url, **options):
    return request("POST", url, **options)


def put(url, **options):
    return request("PUT", url, **options)


def patch(url, **options):
    return request("PATCH", url, **options)


def delete(url, **options):
    return request("DELETE", url, **options)
