"""A server of language models that plays a script: for agent programs, which are driven with it
from both ends. It speaks the APIs of Anthropic (messages), OpenAI (responses and chat
completions) and Google (generateContent)."""
import json, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT = 300  # seconds against hanging


class Model:
    """A model, until the end of its context. A request is known by the number of tool results in
    it, so one that is repeated gets the same answer."""

    def __init__(self):
        self.changed = threading.Condition()
        self.asked, self.said = {}, {}  # by number of results
        self.requests = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("For", (Handler,), {"model": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.serving = threading.Thread(target=self.server.serve_forever)
        self.serving.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.serving.join()
        self.server.server_close()

    def request(self, results, alive):
        """The request with so many results, once it is there."""
        return self.wait_for(self.asked, results, alive)

    def say(self, results, said):
        """Answers the request with so many results: with a text, or with calls of tools."""
        self.put(self.said, results, said)

    def answer(self, asked):
        """Returns the answer to a request. One without tools, such as for a title, gets a text."""
        with self.changed:
            self.requests += 1
        if not asked["tools"]:
            return '{"title": "Notes", "next_speaker": "user", "reasoning": "none"}'
        results = len(asked["results"])
        self.put(self.asked, results, asked)
        return self.wait_for(self.said, results, lambda: True)

    def put(self, where, results, what):
        with self.changed:
            where[results] = what
            self.changed.notify_all()

    def wait_for(self, where, results, alive):
        end = time.monotonic() + LIMIT
        with self.changed:
            while results not in where:
                if not alive():
                    raise AssertionError(f"the program has ended: no request with {results} results of tools")
                if time.monotonic() > end:
                    raise AssertionError(f"the program does not go on: no request with {results} results of tools")
                self.changed.wait(0.2)
            return where[results]


def text_of(content):
    """What a model reads of a result: a text, blocks of text, or an object with one."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(block) for block in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return content["text"]
    if isinstance(content, dict) and set(content) <= {"output", "error", "content"}:
        return "\n".join(map(text_of, content.values()))
    return json.dumps(content)


def read_anthropic(r):
    blocks = [b for m in r["messages"] if isinstance(m["content"], list) for b in m["content"]]
    return {
        "tools": {t["name"]: t for t in r.get("tools", [])},
        "results": [text_of(b.get("content")) for b in blocks if b["type"] == "tool_result"],
    }


def write_anthropic(r, said, serial):
    message = {"id": f"msg_{serial}", "type": "message", "role": "assistant", "model": r["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    blocks = [{"type": "text", "text": said}] if isinstance(said, str) else [
        {"type": "tool_use", "id": f"toolu_{serial}_{i}", "name": name, "input": args} for i, (name, args) in enumerate(said)]
    stop = "end_turn" if isinstance(said, str) else "tool_use"
    if not r.get("stream"):
        return {**message, "content": blocks, "stop_reason": stop}

    events = [{"type": "message_start", "message": message}]
    for i, block in enumerate(blocks):
        start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block.get("text")}
        if block["type"] == "tool_use":
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [{"type": "content_block_start", "index": i, "content_block": start},
                   {"type": "content_block_delta", "index": i, "delta": delta}, {"type": "content_block_stop", "index": i}]
    events += [{"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}},
               {"type": "message_stop"}]
    return events


def read_responses(r):
    tools = {}
    for t in r.get("tools", []):
        for inner in t.get("tools", [t]):
            if inner.get("name"):
                tools[inner["name"]] = {**inner, "namespace": t["name"] if "tools" in t else None}
    items = r["input"] if isinstance(r["input"], list) else []
    return {
        "tools": tools,
        "results": [text_of(i["output"]) for i in items if i.get("type") in ("function_call_output", "custom_tool_call_output")],
    }


def write_responses(r, said, serial):
    if isinstance(said, str):
        items = [{"type": "message", "id": f"m_{serial}", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": said, "annotations": []}]}]
    else:
        spaces = {name: t["namespace"] for name, t in read_responses(r)["tools"].items() if t["namespace"]}
        items = [{"type": "function_call", "id": f"fc_{serial}_{i}", "call_id": f"call_{serial}_{i}", "name": name, "arguments": json.dumps(args),
                  "status": "completed", **({"namespace": spaces[name]} if name in spaces else {})} for i, (name, args) in enumerate(said)]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": f"resp_{serial}", "object": "response", "created_at": int(time.time()), "model": r["model"], "status": "completed",
                "output": items, "usage": usage}
    if not r.get("stream"):
        return response
    events = [{"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}]
    events += [{"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(items)]
    return events + [{"type": "response.completed", "response": response}]


def read_chat(r):
    return {
        "tools": {t["function"]["name"]: t["function"] for t in r.get("tools", [])},
        "results": [text_of(m["content"]) for m in r["messages"] if m["role"] == "tool"],
    }


def write_chat(r, said, serial):
    message, finish = {"role": "assistant", "content": said}, "stop"
    if not isinstance(said, str):
        finish = "tool_calls"
        message = {"role": "assistant", "content": None, "tool_calls": [
            {"index": i, "id": f"call_{serial}_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for i, (name, args) in enumerate(said)]}
    base = {"id": f"chat_{serial}", "created": int(time.time()), "model": r["model"]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not r.get("stream"):
        return {**base, "object": "chat.completion", "usage": usage, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    chunk = {**base, "object": "chat.completion.chunk"}
    return [{**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {**chunk, "choices": [], "usage": usage}, "[DONE]"]


def read_gemini(r):
    parts = [p for c in r.get("contents", []) for p in c.get("parts", [])]
    return {
        "tools": {f["name"]: f for t in r.get("tools", []) for f in t.get("functionDeclarations", [])},
        "results": [text_of(p["functionResponse"]["response"]) for p in parts if "functionResponse" in p],
    }


def write_gemini(r, said, serial):
    parts = [{"text": said}] if isinstance(said, str) else [
        {"functionCall": {"id": f"call_{serial}_{i}", "name": name, "args": args}} for i, (name, args) in enumerate(said)]
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}], "modelVersion": "scripted",
              "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}
    return [answer] if r["stream"] else answer


APIS = {  # by the end of the path
    "/messages": (read_anthropic, write_anthropic),
    "/responses": (read_responses, write_responses),
    "/chat/completions": (read_chat, write_chat),
    ":generateContent": (read_gemini, write_gemini),
    ":streamGenerateContent": (read_gemini, write_gemini),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.send({"object": "list", "data": [], "models": []})

    def do_POST(self):
        path = self.path.split("?")[0]
        request = json.loads(self.body() or b"{}")
        for end, (read, write) in APIS.items():
            if path.endswith(end):
                request["stream"] = request.get("stream") or path.endswith(":streamGenerateContent")
                said = self.model.answer(read(request))
                return self.send(write(request, said, self.model.requests))
        self.send({"input_tokens": 10, "totalTokens": 10})  # what counts tokens

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def send(self, answer):
        """Sends an object as JSON, and a list as events."""
        kind, data = "application/json", json.dumps(answer).encode()
        if isinstance(answer, list):
            kind, data = "text/event-stream", "".join(map(event, answer)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def event(e):
    if isinstance(e, str):
        return f"data: {e}\n\n"
    return (f"event: {e['type']}\n" if "type" in e else "") + f"data: {json.dumps(e)}\n\n"
