// Drives the Tasks extension with its authors' client. Called by tasks.sh.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

const extension = `${process.env.MODULES}/@modelcontextprotocol/ext-tasks/dist`;
const { withTasks } = await import(`${extension}/client/index.js`);
const { contributeTaskFilterV2, isTaskStatusNotificationV2, readAcceptedTaskIdsV2 } = await import(`${extension}/core/v2/integration.js`);

const [transport, program, config, data] = process.argv.slice(2);
const version = "2026-07-28";
const long = 40; // seconds of a call that becomes a task: far from the 2 s after which it does
const capabilities = { elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } };

// frame adds what each request says of itself.
function frame(request, id) {
	const meta = {
		...request.params?._meta,
		"io.modelcontextprotocol/protocolVersion": version,
		"io.modelcontextprotocol/clientInfo": { name: "ci", version: "1" },
		"io.modelcontextprotocol/clientCapabilities": capabilities,
	};
	return { jsonrpc: "2.0", id, ...request, params: { ...request.params, _meta: meta } };
}

const answer = (m) => (m.error ? { kind: "error", error: m.error } : { kind: "result", result: m.result });

// A server over HTTP, on another port each time.
class HTTPServer {
	constructor() {
		this.id = 0;
	}
	async start() {
		this.process = spawn(program, ["serve", "--listen", "127.0.0.1:0", "--config", config, "--data", data], { stdio: ["ignore", "inherit", "pipe"] });
		this.exited = once(this.process, "exit");
		const said = [];
		for await (const line of createInterface({ input: this.process.stderr })) {
			said.push(line);
			if (line.includes("ready:")) break;
		}
		assert.match(said.at(-1) ?? "", /ready:/, `the server does not start: ${said.join("\n")}`);
		this.url = said.map((line) => /listening on (http.*)/.exec(line)).find(Boolean)[1] + "/mcp";
		this.process.stderr.pipe(process.stderr);
	}
	async dispatch(request, hear = () => {}) {
		const body = frame(request, ++this.id);
		const headers = {
			"Content-Type": "application/json", Accept: "application/json, text/event-stream",
			"MCP-Protocol-Version": version, "Mcp-Method": body.method,
		};
		const name = body.params.taskId ?? body.params.name;
		if (name) headers["Mcp-Name"] = name;
		const response = await fetch(this.url, { method: "POST", headers, body: JSON.stringify(body) });
		let answered; // read to its end, which the server may not reach if it is killed
		for await (const line of createInterface({ input: Readable.fromWeb(response.body) })) {
			if (!/^(data: )?\{/.test(line)) continue;
			const message = JSON.parse(line.replace("data: ", ""));
			if (message.id === body.id) answered = answer(message);
			else hear(message);
		}
		assert(answered, `no answer to ${body.method}: ${response.status}`);
		return answered;
	}
}

// Three servers that share their runs, behind a balancer that sends each request to the
// next one. Of them, a crash ends one.
class Balanced extends HTTPServer {
	async start() {
		this.process = spawn(process.env.BALANCED, [program, data, "--config", config], { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, TOOLHOST_LEASE: "3s" } });
		this.exited = once(this.process, "exit");
		this.said = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
		this.url = /balanced on (http.*)/.exec((await this.said.next()).value)[1] + "/mcp";
	}
	async crash() {
		this.process.kill("SIGHUP");
		assert.match((await this.said.next()).value, /killed/);
	}
}

// A server at the other end of two pipes.
class StdioServer {
	constructor() {
		this.id = 0;
	}
	async start() {
		this.waiting = new Map();
		this.hear = () => {};
		this.process = spawn(program, ["mcp", "--config", config, "--data", data], { stdio: ["pipe", "pipe", "inherit"] });
		this.exited = once(this.process, "exit");
		createInterface({ input: this.process.stdout }).on("line", (line) => {
			const m = JSON.parse(line);
			if (m.method) this.hear(m);
			else this.waiting.get(m.id)?.(answer(m));
		});
	}
	dispatch(request, hear) {
		const body = frame(request, ++this.id);
		if (hear) this.hear = hear;
		return new Promise((resolve) => {
			this.waiting.set(body.id, resolve);
			this.process.stdin.write(JSON.stringify(body) + "\n");
		});
	}
}

async function kill(server, signal) {
	server.process.kill(signal);
	await server.exited;
}

// connect makes a client. Several of one server know nothing of each other.
function connect(server, onInputRequest) {
	return withTasks({
		endpointId: "ci", taskCapabilities: { generation: "v2", capabilities: {} }, invalidated: false,
		dispatch: (request) => server.dispatch(request),
		onServerRequest: () => () => {}, onNotification: () => () => {}, onInvalidated: () => () => {},
	}, { onInputRequest });
}

async function check(what, test) {
	await test();
	console.log(`ok   ${transport}: ${what}`);
}

const textOf = (settled) => settled.outcome.result.content[0].text;

const server = new { http: HTTPServer, balanced: Balanced, stdio: StdioServer }[transport]();
await server.start();
try {
	const session = connect(server, async (request) => {
		assert.equal(request.kind, "elicitation");
		return { action: "accept", content: { confirm: true, name: "Ana" } };
	});

	await check("a quick call is no task", async () => {
		const e = await session.callTool("greet", { name: "Ana" });
		assert.equal(e.kind, "immediate");
		assert.equal(textOf(await e.settle()), "Hello, Ana!");
	});
	// They take long, and so are made at once.
	await Promise.all([
		check("a task finishes", async () => {
			const e = await session.callTool("slow_compute", { seconds: long, label: "one" });
			assert.equal(e.kind, "task");
			assert.match(e.handle.taskId, /^bg_[a-z2-7]{26}$/);
			const settled = await e.settle();
			assert.equal(settled.outcome.status, "completed");
			assert.equal(textOf(settled), "computed one");
		}),
		check("a task asks, and fails in the tool's own words or crashes", async () => {
			const [asks, failing, crashing] = await Promise.all([
				session.callTool("confirm_delete", { filename: "a.txt", seconds: long }),
				session.callTool("failing_job", { seconds: long }),
				session.callTool("protocol_error_job", { seconds: long }),
			]);
			for (const e of [asks, failing, crashing]) assert.equal(e.kind, "task");
			assert.equal(textOf(await asks.settle()), "a.txt: accept");
			const fails = await failing.settle();
			assert.equal(fails.outcome.status, "completed");
			assert.equal(fails.outcome.result.isError, true);
			const crashes = await crashing.settle();
			assert.equal(crashes.outcome.status, "failed");
		}),
		check("who subscribes to a task hears of it until it has ended", async () => {
			const e = await session.callTool("slow_compute", { seconds: long, label: "heard" });
			const { taskId } = e.handle;
			const heard = [];
			const params = contributeTaskFilterV2({ notifications: {} }, [taskId, "bg_aaaaaaaaaaaaaaaaaaaaaaaaaa"]);
			const ended = await server.dispatch({ method: "subscriptions/listen", params }, (m) => heard.push(m));
			assert.equal(ended.kind, "result");
			assert.deepEqual(readAcceptedTaskIdsV2(heard[0].params), [taskId]);
			const told = heard.filter((m) => m.method === "notifications/tasks");
			for (const m of told) assert(isTaskStatusNotificationV2(m), JSON.stringify(m));
			assert.equal(told.at(0).params.status, "working");
			assert.equal(told.at(-1).params.status, "completed");
			assert.deepEqual(told.at(-1).params.result.content, (await e.settle()).outcome.result.content);
		}),
		check("a task is canceled", async () => {
			const e = await session.callTool("slow_compute", { seconds: 600 });
			await e.cancel();
			let status = "working";
			for (; status === "working"; await sleep(100)) ({ status } = await session.task(e.handle.taskId).snapshot());
			assert.equal(status, "cancelled");
		}),
		check("a second client resumes a task", async () => {
			const e = await session.callTool("slow_compute", { seconds: long, label: "two" });
			let reference;
			await e.handoff((r) => { reference = JSON.parse(JSON.stringify(r)); });
			const resumed = await connect(server).resumeTask(reference);
			assert.equal(textOf(await resumed.settle()), "computed two");
		}),
	]);
	await check("a second client resumes a task after the server was killed", async () => {
		const e = await session.callTool("slow_compute", { seconds: long, label: "three" });
		let reference;
		await e.handoff((r) => { reference = JSON.parse(JSON.stringify(r)); });
		if (server.crash) await server.crash();
		else {
			await kill(server, "SIGKILL");
			await server.start();
		}
		const resumed = await connect(server).resumeTask(reference);
		const settled = await resumed.settle();
		assert.equal(settled.outcome.status, "completed");
		assert.equal(textOf(settled), "computed three");
	});
	await check("somebody else's task and none are answered alike", async () => {
		const get = async (taskId) => (await server.dispatch({ method: "tasks/get", params: { taskId } })).error;
		const error = await get("bg_aaaaaaaaaaaaaaaaaaaaaaaaaa");
		assert.equal(error.code, -32602);
	});
} finally {
	const began = Date.now();
	await kill(server, "SIGTERM");
	assert(Date.now() - began < 300_000, "the server does not end");
}
await sleep(0);
