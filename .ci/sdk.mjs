// Drives a Toolhost server with the official TypeScript SDKs: release 1
// (@modelcontextprotocol/sdk), which speaks 2025-11-25, and release 2
// (@modelcontextprotocol/client), which speaks both eras. Called by sdks.sh.
//
// sdk.mjs http URL | stdio PROGRAM CONFIG DATA   then   1 | 2   then   legacy | modern
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const [transport, ...where] = process.argv.slice(2, -2);
const [release, era] = process.argv.slice(-2);
const modules = process.env.MODULES;
const load = (path) => import(`${modules}/@modelcontextprotocol/${path}`);
let checks = 0;
const check = (holds, ...what) => {
	assert.ok(holds, what.map((w) => (typeof w === "string" ? w : JSON.stringify(w))).join(": "));
	checks++;
};

const { Client, HTTP, Stdio, elicitation } = await (async () => {
	if (release === "2") {
		const all = await load("client/dist/index.mjs");
		const { StdioClientTransport } = await load("client/dist/stdio.mjs");
		return { Client: all.Client, HTTP: all.StreamableHTTPClientTransport, Stdio: StdioClientTransport, elicitation: "elicitation/create" };
	}
	const [client, http, stdio, types] = await Promise.all(
		["client/index.js", "client/streamableHttp.js", "client/stdio.js", "types.js"].map((f) => load(`sdk/dist/esm/${f}`)));
	return { Client: client.Client, HTTP: http.StreamableHTTPClientTransport, Stdio: stdio.StdioClientTransport, elicitation: types.ElicitRequestSchema };
})();

// connect gives a client and its transport, over HTTP with those options.
async function connect(http = {}) {
	const options = { capabilities: { elicitation: {} } };
	if (release === "2") options.versionNegotiation = { mode: era === "legacy" ? "legacy" : "auto" };
	const client = new Client({ name: "ci", version: "1" }, options);
	client.setRequestHandler(elicitation, async () => ({ action: "accept", content: { username: "ada", email: "ada@example.com" } }));
	const [program, config, data] = where;
	const pipe = transport === "http" ? new HTTP(new URL(where[0]), http) : new Stdio({ command: program, args: ["mcp", "--config", config, "--data", data], env: process.env });
	await client.connect(pipe);
	return { client, pipe };
}

const call = (client, name, args = {}, options = {}) =>
	release === "2" ? client.callTool({ name, arguments: args }, options) : client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => result.content.filter((b) => b.type === "text").map((b) => b.text).join("\n");

const answer = (result) => JSON.parse(text(result));

const scenarios = {
	async list({ client }) {
		const names = (await client.listTools()).tools.map((t) => t.name);
		for (const name of ["echo", "fail", "spawn_background", "check_background", "stop_background"]) check(names.includes(name), "tools/list", names);
	},
	async call({ client }) {
		const result = await call(client, "echo", { message: "grüß" });
		assert.deepEqual(result.structuredContent, { echoed: "grüß", length: 6 });
		checks++;
	},
	async error({ client }) {
		const failed = await call(client, "fail", { message: "no such city: Atlantis" });
		check(failed.isError && text(failed).includes("no such city: Atlantis"), "an error of a tool", failed);
		const misspelt = await call(client, "spawn_background", { tool: "prime", args: {} });
		check(misspelt.isError && text(misspelt).includes("primes"), "a misspelt tool in spawn_background", misspelt);
	},
	async progress({ client }) {
		const heard = [];
		const result = await call(client, "test_tool_with_progress", {}, { onprogress: (p) => heard.push(p) });
		check(text(result) === "three steps done" && heard.length > 0, "progress", result, heard);
	},
	async cancel({ client }) {
		const gaveUp = new AbortController();
		setTimeout(() => gaveUp.abort("enough"), 1000);
		await assert.rejects(call(client, "spin", {}, { signal: gaveUp.signal }));
		checks++;
		await scenarios.call({ client }); // the session works after it
	},
	async large({ client }) {
		for (const size of [700_000, 2_000_000]) {
			const result = await call(client, "echo", { message: "x".repeat(size) });
			check(result.structuredContent?.length === size, "a large result", String(size));
		}
	},
	async ask({ client }) {
		const result = await call(client, "test_elicitation", { message: "Who are you?" });
		check(text(result).includes("ada@example.com"), "a question", result);
	},
	async background({ client }) {
		const spawned = answer(await call(client, "spawn_background", { tool: "primes", args: { limit: 100000 } }));
		const ended = answer(await call(client, "check_background", { task_id: spawned.task_id, wait_seconds: 40 }));
		check(ended.status === "succeeded", "a background run", ended);
		const endless = answer(await call(client, "spawn_background", { tool: "spin", args: {} }));
		const stopped = answer(await call(client, "stop_background", { task_id: endless.task_id, force: true }));
		check(stopped.status === "canceled", "a stop", stopped);
	},
	// The client's own timeout is 60 s: an answer has to come before.
	async wait({ client }) {
		const spawned = answer(await call(client, "spawn_background", { tool: "clock_sleep", args: { seconds: 100 } }));
		const running = answer(await call(client, "check_background", { task_id: spawned.task_id }));
		check(running.status === "waiting", "a check that waits as long as it does by default, of a run that sleeps", running);
		await call(client, "stop_background", { task_id: spawned.task_id, force: true });
	},
};
if (release === "1") {
	scenarios.tasks = async ({ client }) => {
		const messages = [];
		const stream = client.experimental.tasks.callToolStream({ name: "primes", arguments: { limit: 100000 } }, undefined, { task: { ttl: 60000 } });
		for await (const m of stream) messages.push(m);
		check(messages.some((m) => m.type === "taskCreated"), "a task of 2025-11-25", messages);
		check(messages.at(-1).type === "result" && messages.at(-1).result.structuredContent.count === 9592, "the result of a task", messages.at(-1));
	};
}

// A connection that breaks in the middle of a call is resumed by the SDK itself; of several
// hosts, only by that which sent it.
if (transport === "http" && era === "legacy" && !process.env.SEVERAL_HOSTS) {
	scenarios.resume = async () => {
		let cut = 0;
		const resumed = [];
		const broken = async (url, init) => {
			const last = new Headers(init?.headers).get("last-event-id");
			if (last) resumed.push(last);
			const response = await fetch(url, init);
			if (cut || !String(init?.body).includes("test_tool_with_progress")) return response;
			const cutting = new TransformStream({
				transform(chunk, controller) {
					controller.enqueue(chunk);
					if (!new TextDecoder().decode(chunk).includes("notifications/progress")) return;
					cut++;
					controller.error(new TypeError("terminated"));
				},
			});
			return new Response(response.body.pipeThrough(cutting), { status: response.status, headers: response.headers });
		};
		const session = await connect({ fetch: broken });
		const result = await call(session.client, "test_tool_with_progress", {}, { onprogress: () => {} });
		check(text(result) === "three steps done" && cut === 1 && resumed.length > 0, "a stream that was cut", result, cut, resumed);
		await session.client.close();
	};
}

// close ends sessions while a call that sleeps for 100 s is in flight.
async function close() {
	for (const politely of [true, false]) {
		const { client, pipe } = await connect();
		const outcome = call(client, "clock_sleep", { seconds: 100 }).then((r) => r, (e) => e);
		await sleep(1000);
		const started = performance.now();
		if (politely) await pipe.terminateSession?.();
		await client.close();
		await outcome;
		const took = (performance.now() - started) / 1000;
		check(took < 30, "seconds that the end of a session took", String(took));
	}
}

// The long wait goes beside the others.
await Promise.all([
	(async () => {
		for (const [name, scenario] of Object.entries(scenarios)) {
			if (name === "wait") continue;
			const session = await connect();
			try {
				await scenario(session);
			} catch (e) {
				e.message = `${name}: ${e.message}`;
				throw e;
			}
			await session.client.close();
		}
		await close();
	})(),
	(async () => {
		const session = await connect();
		await scenarios.wait(session);
		await session.client.close();
	})(),
]);
console.log(`TypeScript ${release}, ${transport}, ${era}: ${checks} checks passed`);
process.exit(0);
