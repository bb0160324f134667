// Drives the page of `toolhost serve` as its users do. Called by page.sh.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

const { chromium } = createRequire(`${process.env.MODULES}/`)("playwright-core");

const [work] = process.argv.slice(2);
const seconds = (n) => n * 1000;
const many = 100_000; // steps of a run that is stopped long before
const hour = 3600; // seconds a run has that goes on until it is stopped, however slow the machine is

// A server with the example plugins, on a port of its own, which it has again when
// it is started again: no connection is given one of these by the system.
class Server {
	static async start(token, config) {
		for (;;) {
			try {
				return await Server.startAt(20_000 + Math.floor(10_000 * Math.random()), token, config);
			} catch (e) {
				if (!/address already in use/.test(e.message)) throw e;
			}
		}
	}
	static async startAt(port, token, config = "grants: {hostile: {clock: true, ask: true}, files: {clock: true}, misspelled: {clock: true}}\n") {
		const server = new Server();
		server.port = port;
		server.url = `http://127.0.0.1:${server.port}`;
		server.token = token;
		server.data = `${work}/data-${server.port}`;
		server.config = `${work}/config-${server.port}.yaml`;
		writeFileSync(server.config, `plugins: [${work}/plugins]\nlog: {level: error}\nlimits: {fuel: 10000000000000}\nserve: {drain: 1s}\n${config}`);
		await server.up();
		return server;
	}
	async up() {
		this.process = spawn(`${work}/toolhost`, ["serve", "--listen", `127.0.0.1:${this.port}`, "--config", this.config, "--data", this.data],
			{ stdio: ["ignore", "inherit", "pipe"], env: { ...process.env, TOOLHOST_TOKEN: this.token ?? "" } });
		this.exited = once(this.process, "exit");
		const said = [];
		for await (const line of createInterface({ input: this.process.stderr })) {
			said.push(line);
			if (line.includes("ready:")) break;
		}
		assert.match(said.at(-1) ?? "", /ready:/, `the server does not start: ${said.join("\n")}`);
		assert(said.includes(`toolhost: page for operators: ${this.url}/`), `the page is not announced: ${said.join("\n")}`);
		this.process.stderr.resume();
	}
	async down() {
		this.process.kill("SIGTERM");
		await this.exited;
	}
	async api(path, { session = "default", body } = {}) {
		const headers = { "Toolhost-Session": session };
		if (body) headers["Content-Type"] = "application/json";
		if (this.token) headers.Authorization = `Bearer ${this.token}`;
		const response = await fetch(this.url + path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
		assert(response.ok, `${path}: ${response.status}`);
		return response.json();
	}
	async spawn(session, body) {
		return (await this.api("/v1/runs", { session, body })).task_id;
	}
	async stop(session, id) {
		await this.api(`/v1/runs/${id}/stop`, { session, body: {} });
	}
	// output is all that an ended run has written.
	async output(session, id) {
		const response = await fetch(`${this.url}/v1/runs/${id}/artifacts/output.log`, { headers: { "Toolhost-Session": session } });
		assert(response.ok, `output.log: ${response.status}`);
		return response.text();
	}
}

// looks watches a page for what must never happen: a dialog, a request to
// elsewhere, a violation of the policy, an error of the script. Being cut off
// from the server is expected where a test does that.
function looks(page, server) {
	const wrong = [];
	page.on("dialog", (d) => { wrong.push(`dialog: ${d.message()}`); d.dismiss(); });
	page.on("pageerror", (e) => wrong.push(`error: ${e.message}`));
	page.on("request", (r) => { if (!r.url().startsWith(`${server.url}/`)) wrong.push(`request: ${r.url()}`); });
	page.on("console", (m) => {
		if (m.type() === "error" && !/net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY_RESPONSE)|status of 422/.test(m.text())) wrong.push(`console: ${m.text()}`);
	});
	return wrong;
}

const live = (page) => page.locator("#live", { hasText: /^Live$/ }).waitFor();
const row = (page, id) => page.locator(`#run-${id}`);

// A browser that is replaced if it hangs or crashes before a test, which Chromium
// does once in a while: playwright waits for a new context without a limit.
class Browser {
	async newContext(options) {
		for (let left = 3; ; left--) {
			const timer = new AbortController();
			try {
				this.chromium ??= await launch();
				return await Promise.race([this.chromium.newContext(options), hung(timer.signal)]);
			} catch (e) {
				if (left === 1) throw e;
				console.log(`page: another browser, since this one fails: ${e.message.split("\n")[0]}`);
				this.close();
			} finally {
				timer.abort();
			}
		}
	}
	// close waits for nothing: a browser that hangs is killed when this process ends.
	close() {
		this.chromium?.close().catch(() => {});
		this.chromium = undefined;
	}
}

const launch = () => chromium.launch({
	executablePath: process.env.CHROMIUM,
	timeout: seconds(300),
	args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

async function hung(signal) {
	await setTimeout(seconds(120), undefined, { signal });
	throw new Error("no context after two minutes");
}

async function withPage(browser, server, options, test) {
	const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
	context.setDefaultTimeout(seconds(300)); // only a broken page gets there
	const page = await context.newPage();
	const wrong = looks(page, server);
	await test(page, context);
	assert.deepEqual(wrong, []);
	await context.close();
}

const tests = {
	async "the overview shows what is wrong, and the plugins what is granted"(page, server) {
		await page.goto(server.url);
		await live(page);
		const problems = page.locator("#problems");
		for (const text of ["broken.wasm", "files.wasm", "not granted what it needs: files /work (write)", "grants.misspelled"]) {
			await problems.getByText(text).first().waitFor();
		}
		await page.getByRole("link", { name: "Plugins" }).click();
		await page.locator("#plugin-files .missing").waitFor();
		for (const name of ["primes", "spin", "flood", "hostile"]) await page.locator(`#plugin-${name}`).waitFor();
		assert.match(await page.locator("#plugin-hostile").innerText(), /Granted\s+clock, ask/);
		assert.match(await page.locator("#plugin-hostile .id code").innerText(), /^[0-9a-f]{64}$/);
		await page.locator("#plugin-files").getByText("may delete or overwrite").first().waitFor({ state: "detached" });
	},

	async "a run appears, moves, and is followed to its end"(page, server) {
		await page.goto(server.url);
		await live(page);
		await page.evaluate(() => { window.loadedOnce = true; });
		const id = await server.spawn("ana", { tool: "hostile", args: { steps: many }, timeout_seconds: hour, title: "</a><script>alert(4)</script>" });
		await row(page, id).waitFor();
		assert.equal(await row(page, id).getByRole("link", { name: "</a><script>alert(4)</script>" }).count(), 1);
		const bar = row(page, id).getByRole("progressbar");
		await bar.waitFor();
		const before = await bar.getAttribute("value");
		await page.waitForFunction(([id, before]) => document.querySelector(`#run-${id} progress`)?.value > Number(before), [id, before]);
		await row(page, id).getByRole("link").first().click();
		await page.waitForURL(`${server.url}/ui/runs/${id}`);
		await live(page);
		const output = page.locator("#output-rows");
		const stepsIn = (text) => text.match(/^step \d+$/gm)?.length ?? 0;
		const seen = stepsIn(await output.innerText());
		await page.waitForFunction((n) => document.querySelector("#output-rows").innerText.match(/^step \d+$/gm)?.length > n, seen);
		const text = await output.innerText();
		assert(text.includes(`<script>document.title="owned";alert(1)</script><img src=`), text);
		assert(text.includes("red ⟨U+202E⟩gpj.exe⟨U+202C⟩"), text);
		await server.stop("ana", id);
		await page.getByRole("status").getByText("succeeded").waitFor();
		const written = stepsIn(await server.output("ana", id));
		assert(written > seen);
		await page.waitForFunction((n) => document.querySelector("#output-rows").innerText.match(/^step \d+$/gm).length === n, written);
		await page.locator("#end").getByText('document.title=').waitFor();
		assert.equal(await page.locator("form.stop").count(), 0);
		for (const bad of ["main iframe", "main img", "main script", "main style", "base"]) assert.equal(await page.locator(bad).count(), 0, bad);
		assert.doesNotMatch(await page.title(), /owned/);

		const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "output.log" }).click()]);
		assert.equal(download.suggestedFilename(), `${id}-output.log`);
		await page.goBack().catch(() => {});
	},

	async "the output of a flood stays small and readable"(page, server) {
		const id = await server.spawn("ana", { tool: "flood", args: { width: 100 } });
		await page.goto(`${server.url}/ui/runs/${id}`);
		await page.getByText("This is the end of it.").waitFor();
		await page.getByRole("status").getByText("failed: output limit").waitFor();
		assert((await page.locator("#output-rows").innerText()).length <= 70 << 10);
		const end = await page.locator(".log").evaluate((e) => Math.abs(e.scrollTop));
		assert(end <= 1, "the last line is in view");
	},

	async "the stop button stops"(page, server) {
		const id = await server.spawn("bo", { tool: "spin", timeout_seconds: hour });
		await page.goto(`${server.url}/ui/runs?session=bo`);
		await row(page, id).getByRole("link").first().click();
		await page.getByLabel("Reason").fill('not <b>needed</b>');
		await page.getByRole("button", { name: "Stop" }).click();
		await page.getByRole("status").getByText(/stopping|canceled/).first().waitFor();
		await page.getByRole("status").getByText("canceled").waitFor();
		await page.getByText("Stop requested by operator: not <b>needed</b>").waitFor();
		assert.equal((await server.api(`/v1/runs/${id}`, { session: "bo" })).status, "canceled");
	},

	async "schedules are shown, disabled and removed"(page, server) {
		await page.goto(`${server.url}/ui/schedules`);
		await live(page);
		const { schedule_id: id } = await server.api("/v1/schedules", { session: "ana", body: { tool: "primes", args: { limit: 10 }, cron_expression: "0 3 * * *", timezone: "Europe/Zurich" } });
		const schedule = page.locator(`#schedule-${id}`);
		await schedule.getByText("0 3 * * *").waitFor();
		await schedule.getByRole("button", { name: "Disable" }).click();
		await schedule.getByText("disabled").waitFor();
		assert.equal((await server.api(`/v1/schedules/${id}`, { session: "ana" })).enabled, false);
		await schedule.getByRole("button", { name: "Remove" }).click();
		await schedule.waitFor({ state: "detached" });
	},

	async "a tool is called from its form, run, and run again"(page, server) {
		await server.api("/v1/calls", { body: { tool: "primes", args: { limit: 10 } } }); // compiles it: the page waits for a call for 5 s
		await page.goto(server.url);
		await page.getByRole("link", { name: "Tools" }).click();
		await page.getByRole("link", { name: "primes", exact: true }).first().click();
		await page.getByText("Arguments as JSON").click();
		await page.getByLabel("All arguments").fill('{"limit":-1}');
		await page.getByRole("button", { name: "Call" }).click();
		await page.locator("#result", { hasText: "expected at least" }).waitFor();
		await page.getByLabel("All arguments").fill("");
		await page.getByLabel("limit").fill("1000");
		await page.getByRole("button", { name: "Call" }).click();
		await page.locator("#result", { hasText: '"count": 168' }).waitFor();
		assert.equal(await page.getByLabel("limit").inputValue(), "1000", "it can be changed, and called again");
		await page.getByRole("button", { name: "Run in the background" }).click();
		await page.waitForURL(/\/ui\/runs\/bg_/);
		await page.getByRole("status").getByText("succeeded").waitFor();
		const first = page.url();
		await page.getByRole("button", { name: "Run again" }).click();
		await page.waitForURL((url) => /\/ui\/runs\/bg_/.test(url.href) && url.href !== first);
		await page.locator("#end", { hasText: '"count": 168' }).waitFor();
	},

	async "the question of a run is answered"(page, server) {
		await page.goto(`${server.url}/ui/tools/hostile`);
		await page.getByLabel("ask").check();
		await page.getByRole("button", { name: "Call" }).click();
		await page.waitForURL(/\/ui\/runs\/bg_/);
		const question = page.locator("#questions form");
		await question.getByText("<script>").waitFor();
		await question.getByLabel("name").fill("x");
		await question.getByRole("button", { name: "Answer" }).click();
		await question.getByRole("alert").waitFor();
		assert.equal(await question.getByLabel("name").inputValue(), "x");
		await question.getByLabel("name").fill("Ana");
		await question.getByRole("button", { name: "Answer" }).click();
		await page.getByRole("status").getByText("succeeded").waitFor();
		await page.locator("#end", { hasText: "Ana" }).waitFor();
	},

	async "what is typed stays while the page is kept up to date"(page, server) {
		await page.goto(`${server.url}/ui/tools/primes`);
		await live(page);
		await page.getByLabel("limit").fill("77");
		await page.getByText("Schedule", { exact: true }).click();
		await page.getByLabel("Cron").fill("1 2 3 4 5");
		for (let i = 0; i < 2; i++) await page.waitForResponse((r) => r.url() === page.url());
		assert.equal(await page.getByLabel("limit").inputValue(), "77");
		assert.equal(await page.getByLabel("Cron").inputValue(), "1 2 3 4 5");
		assert(await page.getByLabel("Cron").isVisible(), "what was opened stays open");
	},

	async "runs are selected and stopped together"(page, server) {
		const ids = [];
		for (let i = 0; i < 3; i++) ids.push(await server.spawn("many", { tool: "spin", timeout_seconds: hour }));
		await page.goto(`${server.url}/ui/runs?session=many&active=true`);
		await live(page);
		for (const id of ids.slice(0, 2)) await row(page, id).getByRole("checkbox").check();
		await page.waitForResponse((r) => r.url() === page.url()); // what is selected stays selected
		await page.getByRole("button", { name: "Stop the selected runs" }).click();
		for (const id of ids.slice(0, 2)) await row(page, id).waitFor({ state: "detached" });
		assert.equal(new URL(page.url()).searchParams.get("session"), "many");
		assert.equal((await server.api(`/v1/runs/${ids[2]}`, { session: "many" })).done, false);
		await server.stop("many", ids[2]);
	},

	async "runs that have ended are removed, alone and together"(page, server) {
		const ids = [];
		for (let i = 0; i < 3; i++) ids.push(await server.spawn("removed", { tool: "primes", args: { limit: 10 } }));
		const active = await server.spawn("removed", { tool: "spin", timeout_seconds: hour });
		await page.goto(`${server.url}/ui/runs?session=removed`);
		await live(page);
		for (const id of ids) await row(page, id).getByText("succeeded").waitFor();
		for (const id of [...ids.slice(0, 2), active]) await row(page, id).getByRole("checkbox").check();
		await page.getByRole("button", { name: "Remove the selected runs" }).click();
		for (const id of ids.slice(0, 2)) await row(page, id).waitFor({ state: "detached" });
		assert.equal((await server.api(`/v1/runs/${active}`, { session: "removed" })).done, false);
		await server.stop("removed", active);

		await page.goto(`${server.url}/ui/runs/${ids[2]}`);
		await page.getByRole("button", { name: "Remove" }).click();
		await page.waitForURL(`${server.url}/ui/runs`);
		await page.goto(`${server.url}/ui/runs?session=removed`);
		await row(page, active).waitFor();
		assert.equal(await row(page, ids[2]).count(), 0);
	},

	async "runs are searched"(page, server) {
		const id = await server.spawn("search", { tool: "primes", args: { limit: 10 }, title: "Needle in the haystack" });
		await page.goto(`${server.url}/ui/runs`);
		await page.getByLabel("Text").fill("NEEDLE");
		await page.getByLabel("State").selectOption("succeeded");
		await page.getByRole("button", { name: "Show" }).click();
		await row(page, id).getByText("succeeded").waitFor();
		assert.equal(await page.locator("tr[id^=run-]").count(), 1);
		await page.getByLabel("State").selectOption("failed");
		await page.getByRole("button", { name: "Show" }).click();
		await page.getByText("No runs match.").waitFor();
		await page.getByRole("link", { name: "Clear" }).click();
		await row(page, id).waitFor();
	},

	async "an object is given by fields, and left out if nothing is typed"(page, server) {
		await server.api("/v1/calls", { body: { tool: "hostile" } }); // compiles it
		await page.goto(`${server.url}/ui/tools/hostile`);
		const greet = page.getByRole("group", { name: "greet" });
		await greet.getByText("A <b>name</b>").waitFor();
		await page.getByRole("button", { name: "Call" }).click();
		await page.locator("#result", { hasText: "onerror" }).waitFor();
		await greet.getByLabel("name").fill("Ana");
		await greet.getByLabel("times").fill("2");
		await page.getByRole("button", { name: "Call" }).click();
		await page.locator("#result", { hasText: "Hello Ana. Hello Ana. " }).waitFor();
		assert.equal(await greet.getByLabel("name").inputValue(), "Ana");
		await greet.getByLabel("name").fill("");
		await page.getByRole("button", { name: "Run in the background" }).click();
		await page.waitForURL(/\/ui\/runs\/bg_/);
		await page.locator("#details", { hasText: '{"greet":{"name":"","times":2}}' }).waitFor();
		await page.getByRole("button", { name: "Remove" }).click();
	},

	async "output is watched and searched, in all runs and in one"(page, server) {
		const id = await server.spawn("logs", { tool: "hostile", args: { steps: 12 }, timeout_seconds: hour, title: "Searched" });
		await page.goto(`${server.url}/ui/logs?session=logs`);
		await live(page);
		const log = page.locator(`#log-${id}`);
		await log.getByText("step 12").waitFor();
		await page.getByLabel("Text").fill("STEP 1");
		await page.getByRole("button", { name: "Search" }).click();
		await page.getByText("4 lines found").waitFor(); // 1, 10, 11 and 12
		assert.deepEqual(await log.locator("mark").allInnerTexts(), ["step 1", "step 1", "step 1", "step 1"]);
		await page.getByLabel("Text").fill("<script>");
		await page.getByRole("button", { name: "Search" }).click();
		await log.locator("mark", { hasText: "<script>" }).first().waitFor();
		assert.equal(new URL(page.url()).searchParams.get("session"), "logs");

		await page.goto(`${server.url}/ui/runs/${id}`);
		await page.locator("#output").getByLabel("Search").fill("gpj");
		await page.locator("#output").getByRole("button", { name: "Search" }).click();
		await log.locator("mark", { hasText: "gpj" }).first().waitFor();
		assert((await log.innerText()).includes("⟨U+202E⟩gpj.exe"));
		await page.getByLabel("Text").fill("no such text");
		await page.getByRole("button", { name: "Search" }).click();
		await page.getByText("No line has this text.").waitFor();
	},

	async "the audit log is filtered, and leads to runs"(page, server) {
		const id = await server.spawn("audited", { tool: "primes", args: { limit: 10 } });
		await page.goto(server.url);
		await page.getByRole("link", { name: "Audit", exact: true }).click();
		await live(page);
		await page.getByLabel("Kind").selectOption("grant");
		await page.getByLabel("Plugin").fill("hostile");
		await page.getByRole("button", { name: "Show" }).click();
		await page.locator("#audit tr", { hasText: "clock, ask" }).first().waitFor();
		await page.getByRole("link", { name: "Clear" }).click();
		await page.getByLabel("Session").fill("audited");
		await page.getByLabel("Kind").selectOption("ended");
		await page.getByRole("button", { name: "Show" }).click();
		const event = page.locator("#audit tr[id^=event-]");
		await event.getByText("succeeded").waitFor();
		assert.equal(await event.count(), 1);
		await event.getByRole("link", { name: id }).click();
		await page.waitForURL(`${server.url}/ui/runs/${id}`);
		await page.getByRole("link", { name: "its events" }).click();
		await event.nth(1).waitFor();
		assert.equal(await event.count(), 2);
	},

	async "charts show the last hour, of all and of a tool"(page, server) {
		for (let i = 0; i < 3; i++) await server.api("/v1/calls", { body: { tool: "primes", args: { limit: 1000 + i } } });
		await page.goto(server.url);
		await page.getByRole("img", { name: /^Latency \(95 %\) by minute, in the last hour: .*, at most .* at / }).waitFor();
		await page.goto(`${server.url}/ui/tools/primes`);
		await page.getByRole("link", { name: "its calls" }).click();
		await page.getByRole("heading", { name: "The last hour of primes" }).waitFor();
		const charts = page.locator("#history svg");
		assert.equal(await charts.count(), 4);
		for (const chart of await charts.all()) assert.notEqual(await chart.locator("path.bars").getAttribute("d"), "");
		await page.getByText("As a table").click();
		await page.locator("#history-table tbody tr").first().waitFor();
		await page.locator("#call-tools tr", { hasText: "primes" }).getByRole("img", { name: /^Calls by minute/ }).waitFor();
	},

	async "what is missing is copied as configuration"(page, server, context) {
		await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.url });
		await page.goto(`${server.url}/ui/plugins`);
		await page.locator("#plugin-hostile .rules").getByText("grants.hostile.clock").waitFor();
		await page.locator("#plugin-hostile .rules").getByText(server.config).first().waitFor();
		await page.getByRole("button", { name: "Copy the lines that grant files what is missing" }).click();
		await page.waitForFunction(async () => (await navigator.clipboard.readText()) === "grants:\n  files:\n    files:\n      - {dir: /CHOOSE, path: /work, mode: write}\n");
	},

	async "pages of other origins call nothing"(_, server, context) {
		const other = await context.newPage();
		const calls = async () => (await server.api("/v1/calls")).calls.length;
		const before = await calls();
		for (const body of ["limit=10", "do=spawn&arg.limit=10"]) {
			await other.goto("about:blank");
			const fields = [...new URLSearchParams(body)].map(([name, value]) => `<input name="${name}" value="${value}">`).join("");
			await other.setContent(`<form method="post" action="${server.url}/ui/tools/primes">${fields}<button>Go</button></form>`);
			const answered = other.waitForResponse(`${server.url}/ui/tools/primes`);
			await other.getByRole("button").click();
			assert.equal((await answered).status(), 403);
		}
		assert.equal(await calls(), before);
		assert.equal((await server.api("/v1/runs", { session: "page" })).runs.filter((r) => !r.done).length, 0);
	},

	async "a schedule is created, fired, disabled and enabled"(page, server) {
		await page.goto(`${server.url}/ui/tools/primes`);
		await page.getByLabel("limit").fill("10");
		await page.getByText("Session and title").click();
		await page.getByLabel("Title of a run").fill("Nightly");
		await page.getByText("Schedule", { exact: true }).click();
		await page.getByLabel("Cron").fill("nonsense");
		await page.getByRole("button", { name: "Create schedule" }).click();
		await page.getByRole("alert").waitFor();
		await page.getByLabel("Cron").fill("30 2 * * *");
		await page.getByLabel("Time zone").fill("Europe/Zurich");
		await page.getByRole("button", { name: "Create schedule" }).click();
		await page.waitForURL(/\/ui\/schedules#schedule-sc_/);
		const schedule = page.locator(`#${new URL(page.url()).hash.slice(1)}`);
		await schedule.getByText("30 2 * * *").waitFor();
		await schedule.getByRole("button", { name: "Disable Nightly" }).click();
		await schedule.getByRole("button", { name: "Enable Nightly" }).click();
		await schedule.getByRole("button", { name: "Disable Nightly" }).waitFor();
		await schedule.getByRole("button", { name: "Fire Nightly now" }).click();
		await page.waitForURL(/\/ui\/runs\/bg_/);
		await page.getByRole("status").getByText("succeeded").waitFor();
		await page.locator("#details", { hasText: "scheduled by operator" }).waitFor();
	},

	async "the configuration and the plugins are reloaded, and settings shown without the token"(page, server) {
		await page.goto(`${server.url}/ui/plugins`);
		await page.getByRole("button", { name: "Reload", exact: true }).click();
		await page.getByRole("status").getByText("Reloaded:").waitFor();
		await page.getByRole("link", { name: "Settings" }).click();
		await page.locator("#settings", { hasText: "limits.fuel" }).waitFor();
	},

	async "an id is copied by a click"(page, server, context) {
		await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.url });
		const id = await server.spawn("ana", { tool: "primes", args: { limit: 10 } });
		await page.goto(`${server.url}/ui/runs/${id}`);
		await page.getByRole("button", { name: `Copy ${id}` }).click();
		await page.waitForFunction(async (id) => (await navigator.clipboard.readText()) === id, id);
	},

	async "a restart of the server is got over"(page, server) {
		const id = await server.spawn("ana", { tool: "primes", args: { limit: 1000 } });
		await page.goto(server.url);
		await row(page, id).getByText("succeeded").waitFor();
		await server.down();
		await page.locator("#live.cut", { hasText: "Not connected, trying again" }).waitFor();
		await server.up();
		await live(page);
		assert.equal(await page.locator("#live.cut").count(), 0);
		const next = await server.spawn("ana", { tool: "primes", args: { limit: 1001 } });
		await row(page, next).waitFor();
		await row(page, id).waitFor();
	},

	async "what has the focus keeps it"(page, server) {
		const id = await server.spawn("ana", { tool: "hostile", args: { steps: many }, timeout_seconds: hour, title: "Focus" });
		await page.goto(server.url);
		await live(page);
		await row(page, id).getByRole("link").first().focus();
		const value = () => row(page, id).getByRole("progressbar").getAttribute("value");
		const before = await value();
		await page.waitForFunction(([id, before]) => document.querySelector(`#run-${id} progress`)?.value > Number(before), [id, before]);
		assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("href")), `/ui/runs/${id}`);
		await server.stop("ana", id);
	},

	async "nothing is wider than a narrow window"(page, server) {
		const id = await server.spawn(`${"very-long-session-name-".repeat(5)}x`, { tool: "hostile", args: { steps: 1 }, title: "W".repeat(120) });
		for (const width of [320, 360, 768, 1600]) {
			await page.setViewportSize({ width, height: 800 });
			for (const path of ["/", "/ui/runs", `/ui/runs/${id}`, "/ui/schedules", "/ui/tools", "/ui/tools/primes", "/ui/plugins", "/ui/approvals", "/ui/stores", "/ui/logs", "/ui/calls?tool=primes", "/ui/audit", "/ui/settings"]) {
				await page.goto(server.url + path);
				await live(page);
				const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
				assert.equal(over, 0, `${path} at ${width}`);
			}
		}
	},

	async "names are not broken where there is room"(page, server) {
		await server.spawn("default", { tool: "hostile", args: { steps: 1 } });
		await page.setViewportSize({ width: 1200, height: 800 });
		for (const path of ["/", "/ui/runs", "/ui/tools", "/ui/calls", "/ui/audit", "/ui/settings"]) {
			await page.goto(server.url + path);
			await live(page);
			const broken = await page.evaluate(() => [...document.querySelectorAll("tbody :is(bdi, code:not(.args))")]
				.filter((e) => /^[\w.:-]{1,24}$/.test(e.textContent) && e.getClientRects().length > 1).map((e) => e.textContent));
			assert.deepEqual(broken, [], path);
		}
	},
};

// What a browser without JavaScript is for: all of it can be read, and done.
async function withoutScript(page, server) {
	const id = await server.spawn("bo", { tool: "spin", timeout_seconds: hour });
	await page.goto(server.url);
	assert.match(await page.locator("#live").innerText(), /^As of /);
	await page.getByRole("link", { name: "Refresh" }).click();
	await row(page, id).getByRole("link").first().click();
	await page.locator(".state", { hasText: "running" }).waitFor();
	await page.getByLabel("at once").check();
	await page.getByRole("button", { name: "Stop" }).click();
	await page.locator(".state", { hasText: "canceled" }).waitFor();
	await page.getByRole("link", { name: "Runs" }).click();
	await page.getByLabel("Session").fill("bo");
	await page.getByRole("button", { name: "Show" }).click();
	await row(page, id).getByText("canceled").waitFor();
	await page.getByRole("link", { name: "Schedules" }).click();
	await page.getByRole("heading", { name: "Schedules" }).waitFor();
	await page.getByRole("link", { name: "Plugins" }).click();
	await page.locator("#plugin-primes").waitFor();
	await page.getByRole("link", { name: "Tools" }).click();
	await page.getByRole("link", { name: "primes", exact: true }).first().click();
	await page.getByLabel("limit").fill("1000");
	await page.getByRole("button", { name: "Call" }).click();
	await page.locator("#result", { hasText: '"count": 168' }).waitFor();

	await page.getByRole("link", { name: "Audit", exact: true }).click();
	await page.getByLabel("Kind").selectOption("call");
	await page.getByLabel("Tool").fill("primes");
	await page.getByRole("button", { name: "Show" }).click();
	await page.locator("#audit tr", { hasText: "success" }).first().waitFor();
	await page.getByRole("link", { name: "Logs", exact: true }).click();
	await page.getByLabel("Text").fill("step 1");
	await page.getByRole("button", { name: "Search" }).click();
	await page.locator("mark").first().waitFor();
	await page.goto(`${server.url}/ui/calls?tool=primes`);
	await page.getByRole("img", { name: /^Fuel by minute/ }).waitFor();
	await page.goto(`${server.url}/ui/plugins`);
	await page.locator("#plugin-files pre", { hasText: "dir: /CHOOSE" }).waitFor();

	const other = await server.spawn("bo", { tool: "spin", timeout_seconds: hour });
	await page.goto(`${server.url}/ui/runs?active=true&session=bo`);
	await row(page, other).getByRole("checkbox").check();
	await page.getByRole("button", { name: "Stop the selected runs" }).click();
	await page.goto(`${server.url}/ui/runs/${other}`);
	await page.locator(".state", { hasText: /stopping|canceled/ }).waitFor();
}

// Where a token is configured the browser asks for it.
async function login(browser) {
	const token = "a-token-for-this-test-only";
	const server = await Server.start(token);
	try {
		const asked = await fetch(server.url);
		assert.equal(asked.status, 401);
		assert.match(asked.headers.get("WWW-Authenticate"), /^Basic /);
		await withPage(browser, server, { httpCredentials: { username: "operator", password: token } }, async (page) => {
			const id = await server.spawn("ana", { tool: "primes", args: { limit: 1000 } });
			await page.goto(server.url);
			await live(page);
			await row(page, id).waitFor();
			assert(!(await page.content()).includes(token));
		});
		console.log("ok   logging in");
	} finally {
		await server.down();
	}
}

// What waits for approval, what plugins keep, and secrets of users, in both kinds of browser.
async function reach(browser, javaScriptEnabled) {
	const approval = "a-token-for-approvals-only";
	const keys = `${work}/keys`;
	if (!existsSync(keys)) execFileSync(`${work}/toolhost`, ["secret", "key", keys]);
	const server = await Server.start(undefined, `approve: ask
approvals: {token: ${approval}, tools: {primes: ask}}
secrets_key: ${keys}
secrets: {example: {scope: user, hosts: [api.example.com], bearer: true}}
grants: {memory: {clock: true, kv: {mode: write}}}
`);
	try {
		await withPage(browser, server, { javaScriptEnabled }, async (page) => {
			const ids = [];
			for (const limit of [1000, 2000]) ids.push(await server.spawn("ana", { tool: "primes", args: { limit } }));
			await page.goto(server.url);
			await page.getByRole("link", { name: "2 calls wait for approval" }).click();
			const [first, second] = ids.map((id) => page.locator(`#wait-${id}`));
			assert.match(await first.innerText(), /"limit":\s*1000/);
			await first.getByLabel("Token for approvals").fill(approval);
			await first.getByRole("button", { name: "Approve once" }).click();
			await first.waitFor({ state: "detached" });
			await second.getByLabel("Token for approvals").fill(approval);
			await second.getByLabel("Reason").fill("too many");
			await second.getByRole("button", { name: "Refuse" }).click();
			await page.getByText("No call waits for approval").waitFor();
			assert.equal((await server.api(`/v1/runs/${ids[0]}?wait=5m`, { session: "ana" })).result.count, 168);
			assert.equal((await server.api(`/v1/runs/${ids[1]}?wait=5m`, { session: "ana" })).status, "canceled");

			await server.api("/v1/calls", { session: "ana", body: { tool: "memory_remember", args: { text: "Ana prefers <b>tea</b>", topic: "user" } } });
			await page.getByRole("link", { name: "Stores" }).click();
			await page.getByRole("link", { name: "memory", exact: true }).click();
			await page.getByRole("link", { name: /^fact\.user:/ }).click();
			await page.getByText("Ana prefers <b>tea</b>").waitFor();
			await page.getByRole("link", { name: "Stores" }).click();
			await page.getByRole("button", { name: "Remove the store of memory" }).click();
			await page.getByText("No plugin keeps anything").waitFor();

			await page.getByRole("link", { name: "Secrets" }).click();
			await page.getByText("missing").waitFor();
			await page.getByLabel("New value").fill("a-value-nobody-is-shown");
			await page.getByRole("button", { name: "Set example" }).click();
			await page.locator(".state", { hasText: "set" }).waitFor();
			assert(!(await page.content()).includes("a-value-nobody-is-shown"));
			await page.getByRole("button", { name: "Remove example" }).click();
			await page.getByText("missing").waitFor();
			await page.goto(`${server.url}/ui/settings`);
			await page.getByText("approvals.token").waitFor();
			assert(!(await page.content()).includes(approval));
		});
		console.log(`ok   approvals, stores and secrets${javaScriptEnabled ? "" : ", without JavaScript"}`);
	} finally {
		await server.down();
	}
}

const server = await Server.start();
const browser = new Browser();
try {
	for (const [name, test] of Object.entries(tests)) {
		await withPage(browser, server, {}, (page, context) => test(page, server, context));
		console.log(`ok   ${name}`);
	}
	await withPage(browser, server, { javaScriptEnabled: false }, (page) => withoutScript(page, server));
	console.log("ok   all of it works without JavaScript");
	await login(browser);
	await reach(browser, true);
	await reach(browser, false);
} finally {
	browser.close();
	await server.down();
}
process.exit(); // also where a browser hangs
