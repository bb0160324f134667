"""Drives agent programs through whole loops with a scripted model: what the model is shown of
Toolhost's tools, results, notices and held calls, and what has happened. Called by agents.sh.

agents.py MODULES WORK [PROGRAM | PROGRAM/TRANSPORT]…
WORK has toolhost, plugins, and their compiled code in data/cache. The programs get the
configuration of their pages in docs/clients.
"""
import contextlib, dataclasses, json, os, pathlib, re, subprocess, sys, time, traceback, typing

from model import LIMIT, Model

modules, work = map(pathlib.Path, sys.argv[1:3])
only = sys.argv[3:]
toolhost = work / "toolhost"
pages = pathlib.Path(__file__).resolve().parent.parent / "docs/clients"


def check(holds, what, *found):
    if not holds:
        raise AssertionError("\n".join([what, *map(str, found)]))


def until(holds, what):
    end = time.monotonic() + LIMIT
    while not (found := holds()):
        check(time.monotonic() < end, f"never: {what}")
        time.sleep(0.1)
    return found


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


@dataclasses.dataclass
class Program:
    package: str
    page: str  # with its configuration, first for stdio, then for HTTP
    configure: typing.Callable  # in its home; returns its command and environment
    transports: tuple = ("stdio", "http")
    decides: str = "user"  # on calls that need approval


def claude(home, model, server):
    write(home / "mcp.json", server)
    return (["claude", "-p", "go", "--mcp-config", home / "mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__toolhost"],
            {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})


def codex(home, model, server):
    write(home / ".codex/config.toml", f"""
model = "gpt-5"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics = {{enabled = false}}
[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
wire_api = "responses"
{server}""")
    return ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"], {}


def gemini(home, model, server):
    settings(home / ".gemini/settings.json", "gemini-api-key", server)
    return (["gemini", "-p", "go", "-y", "-m", "gemini-2.5-flash"],
            {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model, "GEMINI_CLI_TRUST_WORKSPACE": "true"})


def qwen(home, model, server):
    settings(home / ".qwen/settings.json", "openai", server)
    return ["qwen", "-p", "go", "-y"], {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model + "/v1", "OPENAI_MODEL": "scripted"}


def settings(path, auth, server):
    write(path, {
        **json.loads(server),
        "security": {"auth": {"selectedType": auth}, "folderTrust": {"enabled": False}},
        "telemetry": {"enabled": False}, "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    })


def opencode(home, model, server):
    write(home / ".config/opencode/opencode.json", {
        **json.loads(server), "autoupdate": False, "share": "disabled", "model": "scripted/scripted",
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": model + "/v1", "apiKey": "none"},
            "models": {"scripted": {"name": "scripted", "limit": {"context": 1000000, "output": 10000}}},
        }},
    })
    return ["opencode", "run", "-m", "scripted/scripted", "go"], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


PROGRAMS = {
    # Over HTTP it speaks 2026-07-28, in which only a header names a session.
    "claude": Program("@anthropic-ai/claude-code", "claude-code.md", claude, ("stdio", "http", "http, no session")),
    # Without a terminal it declines each question itself.
    "codex": Program("@openai/codex", "codex.md", codex, decides="operator"),
    "gemini": Program("@google/gemini-cli", "gemini-cli.md", gemini),
    "opencode": Program("opencode-ai", "opencode.md", opencode),
    "qwen": Program("@qwen-code/qwen-code", "qwen-code.md", qwen),
}


class Agent:
    """A program that is running, its model, and its Toolhost."""

    def __init__(self, program, transport, folder, cleanup):
        self.folder, self.model = folder, cleanup.enter_context(Model())
        self.shown = 0  # results of tools, until now
        self.named = transport != "http, no session"
        self.box, data = folder / "box", folder / "data"
        self.box.mkdir(parents=True)
        data.mkdir()
        (data / "cache").symlink_to(work / "data/cache")
        write(folder / "toolhost.yaml", {
            "plugins": [str(work / "plugins")], "background": {"park_after": "2s"},
            "approve": "ask", "approvals": {"by": program.decides},
            "grants": {"notes": {"clock": True, "files": [{"dir": str(self.box), "path": "/data", "mode": "write"}]}},
        })
        self.flags = ["--config", str(folder / "toolhost.yaml"), "--data", str(data)]

        home = folder / "home"
        home.mkdir()
        self.environment = {
            "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local/share"),
            "PATH": f"{work}:{modules / 'node/bin'}:{modules / '.bin'}:{os.environ['PATH']}", "TERM": "dumb", "LANG": "C.UTF-8",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"), "NO_COLOR": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
            "TOOLHOST_TOKEN": "a-token-of-the-operator",
        }
        command, environment = program.configure(home, self.model.url, self.documented(program.page, transport, cleanup))
        self.environment |= environment
        self.process = self.start("program", command, cleanup)

    def start(self, name, command, cleanup):
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen([str(part) for part in command], cwd=self.folder / "home", env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        cleanup.callback(stop, process)
        return process

    def documented(self, page, transport, cleanup):
        """The configuration of a page, with the flags or the address of this server."""
        stdio, http, *_ = re.findall(r"```(?:json|toml)\n(.*?)```", (pages / page).read_text(), re.DOTALL)
        if transport == "stdio":
            return self.replace(stdio, '"mcp"]', json.dumps(["mcp", *self.flags])[1:])
        if not self.named:
            http = self.replace(http, ', "Toolhost-Session": "claude"', "")
        return self.replace(http, "http://127.0.0.1:7070/mcp", self.serve(cleanup))

    @staticmethod
    def replace(text, old, new):
        check(old in text, f"no {old} in the configuration", text)
        return text.replace(old, new)

    def serve(self, cleanup):
        self.start("server", [toolhost, "serve", "--listen", "127.0.0.1:0", *self.flags], cleanup)
        log = self.folder / "server.log"
        until(lambda: "ready:" in log.read_text(), "the server is ready")
        return re.search(r"listening on (http\S+)", log.read_text())[1] + "/mcp"

    def operator(self, *args):
        done = subprocess.run([toolhost, *args, *self.flags], env=self.environment, capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == 0, f"toolhost {' '.join(args)}", done.stdout, done.stderr)
        return done.stdout

    def alive(self):
        return self.process.poll() is None

    def asked(self):
        return self.model.request(self.shown, self.alive)

    def name(self, tool):
        """The program's name for a tool: it adds that of the server."""
        names = [name for name in self.asked()["tools"] if re.search(rf"(^|[^a-z]){tool}$", name)]
        return min(names, key=len, default=None)

    def use(self, tool, args):
        """A call as the program wants it: some have one tool that calls those they do not list."""
        if name := self.name(tool):
            return name, args
        return "tool_call", {"name": f"mcp__toolhost__{tool}", "arguments": args}

    def turn(self, *calls):
        """Has the model make calls, and returns what it is shown of their results."""
        said = [self.use(tool, args) for tool, args in calls]
        self.model.say(self.shown, said)
        self.shown += len(said)
        return self.asked()["results"][-len(said):]

    def call(self, tool, /, **args):
        return self.turn((tool, args))[0]

    def effects(self):
        file = self.box / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def run_in(self, seen):
        """The run that a result names. It promises no notice to a session without a name."""
        found = re.search(r"bg_[a-z2-7]{26}", seen)
        check(found and (self.named or "later tool result" not in seen), "a result that names a run", seen)
        return found[0]

    def ended(self, run):
        """Waits until a run has ended, by the audit log: a check would take its notice away."""
        until(lambda: '"ended"' in self.operator("audit", "tail", "--json", "--kind", "ended", "--id", run), f"{run} has ended")


def stop(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()


def loop(a):
    """What a model does in a loop, and what it has to see."""
    find_tools(a)

    seen = a.call("notes_say", text="hello")
    check("said hello" in seen, "a result", seen)
    seen = a.call("notes_length", text="hello")
    check('"result":5' in seen, "a result that is a number", seen)
    seen = a.call("notes_say", text="")
    check("nothing to say: text is empty" in seen, "an error of a tool", seen)

    equal = ("notes_add", {"text": "x"})
    for seen in [*a.turn(equal, equal), *a.turn(equal), *a.turn(equal)]:
        check('{"text":"x"}' in seen, "a structured result", seen)
    check(a.effects() == ["added x"] * 4, "each of two equal calls has its effect", a.effects())

    seen = a.call("spawn_background", tool="notes_wait", args={"name": "spawned"})
    happens(a, a.run_in(seen), "spawned")
    seen = a.call("notes_wait", name="parked")
    check("continues in the background" in seen, "a call that became a run", seen)
    happens(a, a.run_in(seen), "parked")
    held(a)

    effects = [*["added x"] * 4, "waited spawned", "added y", "waited parked", "added y", "wiped", "added y"]
    check(a.effects() == effects, "all effects", a.effects())


def find_tools(a):
    """Has the model search for the tools that the program does not list."""
    wanted = ["notes_say", "notes_length", "notes_add", "notes_wait", "notes_wipe", "spawn_background", "check_background"]
    found = ""
    if not a.name("notes_say"):
        search = next((tool for tool in ("ToolSearch", "tool_search") if a.name(tool)), None)
        check(search, "no tools of Toolhost, and none to search for them", sorted(a.asked()["tools"]))
        found = a.call(search, query="select:" + ",".join("mcp__toolhost__" + name for name in wanted), max_results=len(wanted))
    for name in wanted:
        check(a.name(name) or name in found, f"{name} is not listed", sorted(a.asked()["tools"]), found)


def happens(a, run, event):
    """Has the event happen that a run waits for."""
    seen = a.call("notes_say", text="too early")
    check(run not in seen, "a notice of a run that has not ended", seen)
    write(a.box / event, "")
    ends(a, run, f"waited for {event}")


def ends(a, run, result):
    """The model is shown that a run has ended: in one notice, if its session has a name, and in
    checks. Programs that show a structured result alone hide what comes with it."""
    a.ended(run)
    seen = a.call("notes_add", text="y")
    check(run not in seen, "a notice with a structured result", seen)
    seen = a.call("notes_say", text="now")
    check("said now" in seen and a.named == (run in seen), "a notice, if the session has a name", seen)
    check(not a.named or "succeeded" in seen and result in seen, "a notice that says how the run ended", seen)
    seen = a.call("notes_say", text="again")
    check(run not in seen, "one notice", seen)
    seen = a.call("check_background", task_ids=[run])
    check("succeeded" in seen and result in seen, "a check of the run", seen)


def held(a):
    """Makes a call that needs approval. Nobody can be asked, and the operator decides later."""
    seen = a.call("notes_wipe")
    run = a.run_in(seen)
    check(f"toolhost approve {run}" in seen, "a held call that says what to do", seen)
    seen = a.call("check_background", task_ids=[run], wait_seconds=0)
    check("queued" in seen and "wiped" not in a.effects(), "a call that is held", seen, a.effects())
    a.operator("approve", run)
    ends(a, run, "wiped all")


def drive(name, transport):
    """Runs a program to its end, and returns its line of the table."""
    program, since, result = PROGRAMS[name], time.monotonic(), "passed"
    version = json.loads((modules / program.package / "package.json").read_text())["version"]
    with contextlib.ExitStack() as cleanup:
        a = Agent(program, transport, work / f"{name}, {transport}", cleanup)
        try:
            loop(a)
            a.model.say(a.shown, "All is done.")
            check(a.process.wait(LIMIT) == 0, f"the program ends with {a.process.returncode}")
            check("All is done." in (a.folder / "program.log").read_text(), "the last answer")
        except Exception:
            result = "FAILED"
            traceback.print_exc()
            for log in a.folder.glob("*.log"):
                print(f"--- {log}", *log.read_text().splitlines()[-30:], sep="\n", file=sys.stderr)
    return f"{name:10} {version:10} {transport:18} {a.model.requests:8} {time.monotonic() - since:8.0f}  {result}"


def main():
    table = [f"{'program':10} {'version':10} {'transport':18} {'requests':>8} {'seconds':>8}"]
    for name, program in PROGRAMS.items():
        for transport in program.transports:
            if not only or name in only or f"{name}/{transport}" in only:
                print(f"agents: {name}, {transport}", flush=True)
                table.append(drive(name, transport))
    print(*table, sep="\n")
    check(len(table) > 1, f"no such program: {only}")
    sys.exit(any(line.endswith("FAILED") for line in table))


main()
