"""The handlers of urllib.request, over the host's http; freeze.py puts them in place of those
that open connections."""

import io
from http.client import responses
from urllib.error import URLError
from urllib.request import AbstractHTTPHandler
from urllib.response import addinfourl

from . import http
from ._call import HostError


class HTTPHandler(AbstractHTTPHandler):
    """Opens http and https; what else a request means, such as redirects, urllib does."""

    def http_open(self, request):
        data = request.data
        if data is not None and not isinstance(data, bytes):
            data = data.read() if hasattr(data, "read") else b"".join(data)
        headers = {name: value for name, value in request.header_items() if name.lower() not in ("host", "content-length")}
        timeout = request.timeout if isinstance(request.timeout, (int, float)) else None
        try:
            answer = http.request(request.get_method(), request.full_url, headers=headers, data=data,
                                  timeout=timeout, allow_redirects=False)
        except HostError as e:
            raise URLError(f"{e.code}: {e}") from e
        response = addinfourl(io.BytesIO(answer.content), answer.headers, answer.url, answer.status_code)
        response.msg = response.reason = responses.get(answer.status_code, "")
        return response

    https_open = http_open
    http_request = https_request = AbstractHTTPHandler.do_request_


class HTTPSHandler(HTTPHandler):
    """For programs that name it; HTTPHandler opens both."""
