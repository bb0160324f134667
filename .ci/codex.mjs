// Has Codex start the servers of its plugins and call a tool, by its app server: codex.mjs CODEX
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const codex = spawn(process.argv[2], ['app-server'], { stdio: ['pipe', 'pipe', 'ignore'] })
const waiting = new Map()
createInterface({ input: codex.stdout }).on('line', line => {
	const message = JSON.parse(line)
	if (message.method === undefined) waiting.get(message.id)?.(message)
})
let last = 0
async function call(method, params) {
	const id = ++last
	const answer = new Promise(resolve => waiting.set(id, resolve))
	codex.stdin.write(JSON.stringify({ id, method, params }) + '\n')
	const { result, error } = await answer
	assert.equal(error, undefined, `${method}: ${JSON.stringify(error)}`)
	return result
}

await call('initialize', { clientInfo: { name: 'toolhost-ci', title: 'Toolhost', version: '1' } })
codex.stdin.write(JSON.stringify({ method: 'initialized' }) + '\n')

const { data } = await call('mcpServerStatus/list', {})
const server = data.find(s => s.name === 'counting')
assert.equal(server?.serverInfo?.name, 'toolhost')
assert.ok(server.tools.wordcount, 'the tool of the plugin')
assert.match(server.tools.wordcount.description, /Counts/)

const { thread } = await call('thread/start', { ephemeral: true })
const result = await call('mcpServer/tool/call', { threadId: thread.id, server: 'counting', tool: 'wordcount', arguments: { text: 'to be or not to be' } })
assert.match(JSON.stringify(result), /"words\\?":6/)
codex.kill()
console.log(`codex: ${Object.keys(server.tools).length} tools, and one called`)
